//! The tool `memcheck` on programs whose errors are noted in their sources, and on programs without any.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use atom_tests::atom::{self, Job};
use atom_tests::outcome::{Outcome, Setting, plain_environment, run};
use atom_tests::source::End;

fn source(name: &str) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.join("tests/memcheck/programs").join(name)
}

/// Compiles a program; returns its path in a folder of its own.
fn build(name: &str, flags: &[&str]) -> PathBuf {
    let folder = name.replace('.', "-") + &flags.concat();
    let folder = atom_tests::cache::empty_folder(&format!("memcheck-{folder}"));
    let out = folder.join("program");
    let mut command = Command::new("g++");
    if name.ends_with(".c") {
        command = Command::new("gcc");
    }
    command
        .args(["-g", "-w", "-fno-builtin", "-fno-optimize-sibling-calls"])
        .args(flags);
    command.arg(source(name)).arg("-o").arg(&out);
    assert!(command.status().unwrap().success());
    out
}

/// Runs a program with `memcheck`, as a whole process.
fn memcheck(program: &Path, rest: &[&str], options: &[&str]) -> Outcome {
    let out = program.with_extension("rewritten");
    let options = options.iter().map(|option| (*option).to_owned());
    let job = Job::Tool("memcheck".into(), options.collect());
    let job = Job::Whole(Box::new(job), Vec::new());
    atom::instrument(program, &out, &job, false).unwrap();
    let mut command = Command::new(&out);
    plain_environment(&mut command);
    run(command.args(rest), &Setting::default()).unwrap()
}

/// The lines that a source expects to be told, and how the message begins.
fn expected(name: &str) -> BTreeSet<(usize, String)> {
    let text = std::fs::read_to_string(source(name)).unwrap();
    let lines = text.lines().enumerate();
    lines
        .filter_map(|(i, line)| Some((i + 1, line.split_once("// error: ")?.1.to_owned())))
        .collect()
}

/// The lines without the number of the process.
fn told(outcome: &Outcome) -> Vec<String> {
    let text = String::from_utf8_lossy(&outcome.stderr);
    let lines = text.lines();
    let bare = lines.filter_map(|line| Some(line.split_once("== ")?.1.to_owned()));
    bare.collect()
}

/// Asserts that what is told is what the source expects.
fn compare(name: &str, told: &[String]) {
    let expected = expected(name);
    let mut found = BTreeSet::new();
    for (i, message) in told.iter().enumerate() {
        let is_message = !message.starts_with(' ') && !message.contains(" in loss record ");
        if !is_message
            || !told
                .get(i + 1)
                .is_some_and(|line| line.starts_with("   at "))
        {
            continue;
        }
        // Functions of the library have no line.
        let frames = told[i + 1..].iter();
        let frames = frames.take_while(|line| line.starts_with("   "));
        let in_source = format!("({name}:");
        let place = frames
            .filter_map(|line| {
                line.split_once(&in_source)?
                    .1
                    .trim_end_matches(')')
                    .parse()
                    .ok()
            })
            .next();
        let place: usize = place.unwrap_or_else(|| panic!("{message}: {}", told[i + 1]));
        let of_line = expected
            .iter()
            .find(|e| e.0 == place && message.starts_with(&e.1));
        let of_line = of_line.unwrap_or_else(|| panic!("{name}: {message} in line {place}"));
        found.insert(of_line.clone());
    }
    assert_eq!(found, expected, "{name}: {}", told.join("\n"));
}

#[test]
fn errors_are_found_where_they_are() {
    for level in ["-O0", "-O2"] {
        for name in ["errors.c", "families.cc"] {
            let program = build(name, &[level]);
            let outcome = memcheck(&program, &[], &["--leak-check", "full"]);
            let told = told(&outcome);
            compare(name, &told);
            let is_c = name == "errors.c";
            let leak = told.iter().any(|line| {
                line.starts_with("77 bytes in 1 blocks are definitely lost in loss record")
            });
            assert!(leak || !is_c, "{}", told.join("\n"));
            let places = [
                " is 0 bytes after a block of size 10 alloc'd",
                " is 4 bytes before a block of size 40 alloc'd",
                " is 8 bytes inside a block of size 40 free'd",
            ];
            for place in places.iter().filter(|_| is_c) {
                assert!(told.iter().any(|line| line.contains(place)), "{place}");
            }
        }
    }
}

#[test]
fn client_requests_have_their_effect() {
    for level in ["-O0", "-O2"] {
        let program = build("requests.c", &[level]);
        let is_told = "--running-on-valgrind=yes";
        let options = ["--leak-check=full", "--show-leak-kinds=all", is_told];
        let outcome = memcheck(&program, &[], &options[..2]);
        assert_eq!(outcome.stdout, b"");
        compare("requests.c", &told(&outcome));
        let outcome = memcheck(&program, &[], &options);
        assert_eq!(outcome.stdout, b"under Valgrind\n");
        let told = told(&outcome);
        compare("requests.c", &told);
        let lines = [
            " is 0 bytes after a block of size 40 alloc'd",
            " is 8 bytes inside a block of size 61 free'd",
            " is 0 bytes after a block of size 24 client-defined",
            "77 bytes in 1 blocks are definitely lost in loss record 1 of 2",
            "88 bytes in 1 blocks are still reachable in loss record 2 of 2",
        ];
        for line in lines {
            let is_told = told.iter().any(|told| told.contains(line));
            assert!(is_told, "{line}: {}", told.join("\n"));
        }
    }
}

#[test]
fn leaks_are_found_while_the_program_runs() {
    for level in ["-O0", "-O2"] {
        let program = build("asked.c", &[level]);
        let outcome = memcheck(&program, &[], &["--leak-check=full"]);
        let found = String::from_utf8_lossy(&outcome.stdout);
        let expected = [
            "lost 0/0 possibly 300/1 reachable 1000/1",
            "lost 120/3 possibly 300/1 reachable 1000/1",
            "lost 190/4 possibly 300/1 reachable 1000/1",
            "lost 190/4 possibly 300/1 reachable 1000/1",
            "lost 190/4 possibly 300/1 reachable 0/0",
        ];
        assert_eq!(found.lines().collect::<Vec<_>>(), expected, "{level}");
        let told = told(&outcome);
        let times = |text: &str| told.iter().filter(|line| line.starts_with(text)).count();
        // In the second search and at the end, not where only what is new is wanted.
        assert_eq!(times("120 bytes in 3 blocks are definitely lost"), 2);
        // In the third search and at the end.
        assert_eq!(times("70 bytes in 1 blocks are definitely lost"), 2);
        assert_eq!(times("300 bytes in 1 blocks are possibly lost"), 3);
        assert_eq!(times("LEAK SUMMARY:"), 6);
        // What was asked for is no error.
        assert_eq!(times("ERROR SUMMARY: 3 errors from 3 contexts"), 1);
    }
}

#[test]
fn ranges_of_functions_are_checked() {
    for level in ["-O0", "-O2"] {
        let program = build("ranges.c", &[level]);
        let outcome = memcheck(&program, &[], &[]);
        compare("ranges.c", &told(&outcome));
    }
}

#[test]
fn errors_are_found_in_threads_children_handlers_and_coroutines() {
    for level in ["-O0", "-O2"] {
        let program = build("contexts.c", &[level, "-pthread"]);
        let library = program.with_file_name("loaded.so");
        let mut compiler = Command::new("gcc");
        compiler.args(["-g", "-shared", "-fPIC", level]);
        compiler.arg(source("loaded.c")).arg("-o").arg(&library);
        assert!(compiler.status().unwrap().success());
        let library = library.to_str().unwrap();
        let mut original = Command::new(&program);
        plain_environment(&mut original);
        let original = run(original.arg(library), &Setting::default()).unwrap();
        let outcome = memcheck(&program, &[library], &["--leak-check", "full"]);
        assert_eq!(outcome.stdout, original.stdout);
        assert_eq!(outcome.end, original.end);
        let told = told(&outcome);
        compare("contexts.c", &told);
        let lost = told.iter().any(|line| line.contains("are definitely lost"));
        assert!(!lost, "{}", told.join("\n"));
    }
}

#[test]
fn null_pointers_are_told_and_fault() {
    for level in ["-O0", "-O2"] {
        let program = build("null.c", &[level]);
        let mut original = Command::new(&program);
        plain_environment(&mut original);
        let original = run(&mut original, &Setting::default()).unwrap();
        let outcome = memcheck(&program, &[], &[]);
        assert_eq!(outcome.stdout, original.stdout);
        assert_eq!(outcome.end, original.end);
        compare("null.c", &told(&outcome));
    }
}

#[test]
fn ends_by_signals_are_told() {
    let head = |signal: &str| format!("Process terminating with default action of signal {signal}");
    let segv = &head("11 (SIGSEGV)");
    let unmapped = " Access not within mapped region at address 0x123456789000";
    let (read, write) = ("Invalid read of size 8", "Invalid write of size 4");
    let denied = " Bad permissions for mapped region at address 0x";
    // The error, the signal, what the fault was, and the function in which error and signal have their place.
    let cases: [(&str, &str, &str, &str, &str); 8] = [
        ("read", read, segv, unmapped, "load"),
        ("write", write, segv, unmapped, "store"),
        ("constant", write, segv, denied, "store"),
        ("nowhere", "", segv, " General Protection Fault", "load"),
        ("function", "", segv, unmapped, "length"),
        ("jump", "", segv, unmapped, "go"),
        (
            "divide",
            "",
            &head("8 (SIGFPE)"),
            " Integer divide by zero at address 0x",
            "",
        ),
        ("abort", "", &head("6 (SIGABRT)"), "", ""),
    ];
    for level in ["-O0", "-O2"] {
        let program = build("fatal.c", &[level]);
        for (case, error, signal, event, function) in cases {
            let mut original = Command::new(&program);
            plain_environment(&mut original);
            let original = run(original.arg(case), &Setting::default()).unwrap();
            let outcome = memcheck(&program, &[case], &[]);
            assert_eq!(outcome.end, original.end, "{case}");
            let told = told(&outcome);
            let all = told.join("\n");
            let place = |line: &str| {
                let at = told.iter().position(|told| told.starts_with(line));
                at.unwrap_or_else(|| panic!("{level} {case}: {line}: {all}"))
            };
            let has_place = |at: usize| {
                let mut frames = told[at..].iter().take_while(|line| line.starts_with("   "));
                let own = format!(": {function} (fatal.c:");
                function.is_empty() || frames.any(|line| line.contains(&own))
            };
            let after = place(signal) + 1;
            assert!(told[after].starts_with(event), "{level} {case}: {all}");
            assert!(has_place(after + 1), "{level} {case}: {all}");
            if !error.is_empty() {
                assert!(
                    place(error) < after && has_place(place(error) + 1),
                    "{level} {case}: {all}"
                );
            }
            let sum = format!("ERROR SUMMARY: {} errors", usize::from(!error.is_empty()));
            assert!(place(&sum) > after);
        }
    }
}

/// What a process leads to when it ends: frames that have ended are no roots, and memory that cannot be read is survived.
#[test]
fn leaks_are_told_by_what_the_end_leads_to() {
    for level in ["-O0", "-O2"] {
        for kind in [&[level][..], &[level, "-static"]] {
            let program = build("leaks.c", kind);
            for (way, held) in [
                ("return", "definitely lost"),
                ("exit", "still reachable"),
                ("_exit", "still reachable"),
            ] {
                let options = ["--leak-check", "full", "--show-leak-kinds", "all"];
                let outcome = memcheck(&program, &[way], &options);
                let told = told(&outcome);
                assert_eq!(outcome.end, End::Exit(0), "{}", told.join("\n"));
                for (size, leak) in [
                    (111, held),
                    (222, "still reachable"),
                    (333, "possibly lost"),
                    (444, "definitely lost"),
                    (555, "still reachable"),
                ] {
                    let record = format!("{size} bytes in 1 blocks are {leak} in loss record");
                    let is_told = told.iter().any(|line| line.starts_with(&record));
                    assert!(is_told, "{kind:?} {way}: {record}: {}", told.join("\n"));
                }
            }
        }
    }
}

/// The program with all errors, and the lines of a file that a run with these options wrote.
fn lines_of(name: &str, options: &[&str], log: &str) -> (PathBuf, String) {
    let program = build("errors.c", &["-O1", name]);
    let log = program.with_file_name(log);
    let file = log.to_str().unwrap();
    let options: Vec<_> = options.iter().map(|o| o.replace("LOG", file)).collect();
    let options: Vec<_> = options.iter().map(String::as_str).collect();
    memcheck(&program, &[], &options);
    (program, std::fs::read_to_string(&log).unwrap())
}

#[test]
fn generated_suppressions_suppress() {
    let options = [
        "--gen-suppressions=all",
        "--leak-check=full",
        "--log-file=LOG",
    ];
    let (program, log) = lines_of("-DSUPPRESSED", &options, "log");
    let mut suppressions = String::new();
    let mut is_inside = false;
    for line in log.lines() {
        is_inside |= line == "{";
        if is_inside {
            suppressions.push_str(line);
            suppressions.push('\n');
        }
        is_inside &= line != "}";
    }
    let file = program.with_file_name("file.supp");
    std::fs::write(&file, suppressions).unwrap();
    let file = file.to_str().unwrap();
    let options = [
        "--leak-check",
        "full",
        "--suppressions",
        file,
        "--error-exitcode",
        "9",
    ];
    let outcome = memcheck(&program, &[], &options);
    let told = told(&outcome);
    let sum = told.last().unwrap();
    let is_none = sum.starts_with("ERROR SUMMARY: 0 errors from 0 contexts (suppressed: 1");
    assert!(is_none, "{}", told.join("\n"));
    assert_eq!(outcome.end, End::Exit(0));
}

#[test]
fn xml_has_all_errors() {
    let options = ["--xml=yes", "--xml-file=LOG", "--leak-check=full"];
    let (program, text) = lines_of("-DXML", &options, "log.xml");
    let kinds = "import sys, xml.etree.ElementTree as t; r = t.parse(sys.argv[1]).getroot()\n\
                 assert r.find('protocolversion').text == '4' and r.find('tool').text == 'memcheck'\n\
                 assert [s.text for s in r.iter('state')] == ['RUNNING', 'FINISHED']\n\
                 assert all(e.find('stack/frame/ip') is not None for e in r.iter('error'))\n\
                 print(*sorted({e.find('kind').text for e in r.iter('error')}))";
    let mut python = Command::new("python3");
    let file = program.with_file_name("log.xml");
    let Ok(output) = python.args(["-c", kinds]).arg(&file).output() else {
        return;
    };
    let kinds = String::from_utf8(output.stdout).unwrap();
    let wanted = "FishyValue InvalidFree InvalidRead InvalidWrite Leak_DefinitelyLost Overlap\n";
    assert_eq!(kinds, wanted, "{text}");
}

#[test]
fn errors_decide_the_exit_code() {
    let program = build("errors.c", &["-O1"]);
    let options = ["--error-exitcode", "9", "--leak-check", "no"];
    assert_eq!(memcheck(&program, &[], &options).end, End::Exit(9));
}

#[test]
fn loads_that_are_partly_outside_are_told_as_wanted() {
    let program = build("partly.c", &["-O1"]);
    for (choice, errors) in [("vectors", 3), ("yes", 1), ("no", 4)] {
        let options = ["--partial-loads-ok", choice, "--leak-check", "no"];
        let told = told(&memcheck(&program, &[], &options));
        let summary = format!("ERROR SUMMARY: {errors} errors from {errors} contexts");
        let is_summary = |line: &String| line.starts_with(&summary);
        assert!(told.iter().any(is_summary), "{choice}: {}", told.join("\n"));
    }
}

#[test]
fn programs_without_errors_are_not_accused() {
    let programs: [&[&str]; 4] = [
        &[
            "/bin/bash",
            "-c",
            "for i in 1 2 3; do echo $((i * i)); done",
        ],
        &[
            "/usr/bin/perl",
            "-e",
            "my %h; $h{$_ % 9} .= $_ for 1..99; print sort %h;",
        ],
        &["/usr/bin/sort", "/etc/passwd"],
        &["/usr/bin/xz", "-c", "/etc/passwd"],
    ];
    for line in programs.iter().filter(|line| Path::new(line[0]).exists()) {
        let mut original = Command::new(line[0]);
        plain_environment(&mut original);
        let original = run(original.args(&line[1..]), &Setting::default()).unwrap();
        let folder = atom_tests::cache::empty_folder("memcheck-clean");
        let program = folder.join("program");
        std::fs::copy(line[0], &program).unwrap();
        let outcome = memcheck(&program, &line[1..], &["--leak-check", "no"]);
        assert_eq!(outcome.stdout, original.stdout, "{}", line[0]);
        let told = told(&outcome);
        let is_clean = |line: &String| line.starts_with("ERROR SUMMARY: 0 errors from 0 contexts");
        assert!(told.iter().any(is_clean), "{}", told.join("\n"));
    }
}

#[test]
fn programs_with_a_sanitizer_of_memory_are_refused() {
    for (flag, name) in [
        ("address", "AddressSanitizer"),
        ("thread", "ThreadSanitizer"),
    ] {
        let program = build("ranges.c", &[&format!("-fsanitize={flag}")]);
        let job = Job::Tool("memcheck".into(), Vec::new());
        let job = Job::Whole(Box::new(job), Vec::new());
        let out = program.with_extension("rewritten");
        let told = atom::instrument(&program, &out, &job, false).unwrap_err();
        assert!(told.to_string().contains(name), "{told}");
    }
}

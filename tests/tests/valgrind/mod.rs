//! Valgrind's command line: programs that call Valgrind, and readers of its files, run with atom in its place.

use std::collections::BTreeSet;
use std::io::Read;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use atom_tests::outcome::{Outcome, Setting, run};
use atom_tests::programs::needed;
use atom_tests::source::End;
use atom_tests::{atom, cache};

const TOOLS: [&str; 6] = [
    "memcheck",
    "callgrind",
    "cachegrind",
    "massif",
    "lackey",
    "none",
];

fn source(name: &str) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.join("tests/valgrind/programs").join(name)
}

/// The programs `good` and `bad`, and the command as `valgrind` and `atom-valgrind`, in one folder.
fn programs() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = cache::empty_folder("valgrind-programs");
        for name in ["good", "bad"] {
            let mut compiler = Command::new(needed("gcc"));
            compiler
                .args(["-g", "-w", "-fno-builtin"])
                .arg(source(&format!("{name}.c")));
            assert!(
                compiler
                    .arg("-o")
                    .arg(folder.join(name))
                    .status()
                    .unwrap()
                    .success()
            );
        }
        for name in ["valgrind", "atom-valgrind"] {
            let atom = atom::command().unwrap();
            std::os::unix::fs::symlink(atom, folder.join(name)).unwrap();
        }
        folder
    })
}

/// A command with the caches of these tests, and with the folder of the programs first in PATH. Files are in `folder`.
fn command(program: &Path, folder: &Path) -> Command {
    let mut command = Command::new(program);
    let path = std::env::var("PATH").unwrap_or_default();
    command
        .current_dir(folder)
        .env("PATH", format!("{}:{path}", programs().display()))
        .env("HOME", folder)
        .env(
            "XDG_CACHE_HOME",
            cache::target_folder().unwrap().join("valgrind-cache"),
        )
        .env_remove("VALGRIND_OPTS");
    command
}

/// Runs the command with Valgrind's options on a program of these tests.
fn valgrind(folder: &Path, words: &[&str], program: &[&str]) -> Outcome {
    let mut command = command(&atom::command().unwrap(), folder);
    command.arg0("valgrind").args(words);
    if let [name, arguments @ ..] = program {
        command.arg(programs().join(name)).args(arguments);
    }
    run(&mut command, &Setting::default()).unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs another program, which must succeed, and returns its output.
fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}",
        text(&output.stderr)
    );
    text(&output.stdout)
}

/// Each option that Valgrind's help names is known: none of them is told to be unknown, with the first value that the help has.
#[test]
fn all_options_of_valgrind_are_known() {
    let folder = cache::empty_folder("valgrind-options");
    let mut count = 0;
    for tool in TOOLS {
        let mut valgrind_itself = Command::new(needed("valgrind"));
        let tool = format!("--tool={tool}");
        let help = output(valgrind_itself.args([&tool, "--help-debug"]));
        let mut words = vec!["--version".to_owned(), tool];
        for line in help
            .lines()
            .filter_map(|line| line.trim_start().strip_prefix("--"))
        {
            let word = line.split_whitespace().next().unwrap();
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            let value = value.split(['|', ',']).next().unwrap();
            let value = if value.starts_with('<') { "1" } else { value };
            // The help also names options in sentences.
            if word.contains('=') && !word.ends_with(')') {
                words.push(format!(
                    "--{}={value}",
                    name.replace('<', "1").replace('>', "")
                ));
            }
        }
        count += words.len();
        for word in &words {
            let outcome = valgrind(&folder, &[&words[1], word, "--version"], &[]);
            let told = text(&outcome.stderr);
            assert!(!told.contains("Unknown option"), "{word}: {told}");
        }
    }
    assert!(count > 500, "{count}");
}

/// Mistakes have Valgrind's exit codes and messages.
#[test]
fn mistakes_are_valgrinds() {
    let folder = cache::empty_folder("valgrind-mistakes");
    let lines: [&[&str]; 9] = [
        &["--foo", "true"],
        &["--error-exitcode=abc", "true"],
        &["--leak-check=foo", "true"],
        &["--num-callers=600", "true"],
        &["--log-file=/no/such/folder", "true"],
        &[],
        &["./nope"],
        &["no-such-command"],
        &["/etc/passwd"],
    ];
    for words in lines {
        let own = valgrind(&folder, words, &[]);
        let mut others = command(&needed("valgrind"), &folder);
        let others = run(others.args(words), &Setting::default()).unwrap();
        assert_eq!(own.end, others.end, "{words:?}: {}", text(&own.stderr));
        assert_eq!(text(&own.stderr), text(&others.stderr), "{words:?}");
    }
}

#[test]
fn options_have_their_effect() {
    let folder = cache::empty_folder("valgrind-effects");
    let told = |options: &[&str], program: &[&str]| {
        let outcome = valgrind(&folder, &[&["-q"], options].concat(), program);
        (text(&outcome.stderr), outcome.end)
    };
    let count = |text: &str, part: &str| text.matches(part).count();
    let all: &[&str] = &["--leak-check=full", "--error-exitcode=9"];
    let (text, end) = told(all, &["bad"]);
    assert_eq!(end, End::Exit(9), "{text}");
    let errors = [
        "Invalid write of size 4",
        "Invalid read of size 4",
        "Invalid free()",
    ];
    assert!(
        errors.iter().all(|error| count(&text, error) == 1),
        "{text}"
    );
    assert_eq!(count(&text, "definitely lost in loss record"), 3, "{text}");
    let (text, end) = told(&[all, &["--exit-on-first-error=yes"]].concat(), &["bad"]);
    assert_eq!((count(&text, "Invalid"), end), (1, End::Exit(9)), "{text}");
    let (text, _) = told(&[all, &["--leak-resolution=low"]].concat(), &["bad"]);
    assert!(
        text.contains("155 bytes in 2 blocks are definitely lost"),
        "{text}"
    );
    assert_eq!(told(&[], &["bad"]).1, End::Exit(3));
    assert_eq!(
        told(&["--malloc-fill=ab"], &["bad", "x"]).1,
        End::Exit(0xab)
    );
    assert_eq!(
        told(&["--malloc-fill=ab", "--free-fill=0xcd"], &["bad", "x"]).1,
        End::Exit(0xcd)
    );
    assert_eq!(told(&[], &["bad", "abort"]).1, End::Signal(6));
    let file = folder.join(".valgrindrc");
    std::fs::write(file, "--error-exitcode=7 --massif:depth=3\n").unwrap();
    assert_eq!(told(&[], &["bad"]).1, End::Exit(7));
    assert_eq!(told(&["--error-exitcode=8"], &["bad"]).1, End::Exit(8));
}

/// The kinds of errors in XML, by the reader of Python. The files have the protocol's elements in its order, and each frame has its
/// object.
fn kinds(file: &Path) -> String {
    let program = "import sys, xml.etree.ElementTree as t; r = t.parse(sys.argv[1]).getroot()\n\
        order = ['protocolversion', 'protocoltool', 'preamble', 'pid', 'ppid', 'tool', 'args', 'status']\n\
        assert [e.tag for e in r][:8] == order, [e.tag for e in r]\n\
        assert [s.text for s in r.iter('state')] == ['RUNNING', 'FINISHED']\n\
        assert r.find('args/vargv/exe').text == 'valgrind' and r.find('args/argv/exe').text == sys.argv[2]\n\
        inner = [e.findall('stack/frame') for e in r.iter('error')]\n\
        assert all(any(f.findtext('obj') == sys.argv[2] for f in frames) for frames in inner)\n\
        print(*sorted(e.find('kind').text for e in r.iter('error')))";
    let name = programs().join("bad");
    output(
        Command::new(needed("python3"))
            .args(["-c", program])
            .arg(file)
            .arg(name),
    )
}

const KINDS: &str = "InvalidFree InvalidRead InvalidWrite Leak_DefinitelyLost Leak_DefinitelyLost Leak_DefinitelyLost\n";

#[test]
fn xml_goes_to_files_descriptors_and_sockets() {
    let folder = cache::empty_folder("valgrind-xml");
    let run = |words: &[&str], program: &[&str]| {
        let outcome = valgrind(
            &folder,
            &[&["--leak-check=full", "--xml=yes"], words].concat(),
            program,
        );
        assert_eq!(text(&outcome.stderr), "");
        outcome
    };
    run(&["--xml-file=file"], &["bad"]);
    assert_eq!(kinds(&folder.join("file")), KINDS);
    // By a socket everything comes, also if a signal ends the program.
    for (words, end) in [
        (&["bad"][..], End::Exit(3)),
        (&["bad", "abort"], End::Signal(6)),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let reader = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            listener
                .accept()
                .unwrap()
                .0
                .read_to_end(&mut bytes)
                .unwrap();
            bytes
        });
        let outcome = run(&[&format!("--xml-socket={address}")], words);
        assert_eq!(outcome.end, end);
        let file = folder.join("socket");
        std::fs::write(&file, reader.join().unwrap()).unwrap();
        let found = kinds(&file);
        let wanted: BTreeSet<_> = KINDS.split_whitespace().collect();
        assert_eq!(found.split_whitespace().collect::<BTreeSet<_>>(), wanted);
    }
}

/// Forked children have files of their own if the name has the number of the process, and tell nothing if that is wanted.
#[test]
fn each_process_has_its_log() {
    let folder = cache::empty_folder("valgrind-logs");
    let logs = |words: &[&str], program: &[&str]| {
        let outcome = valgrind(&folder, &[&["--log-file=log.%p"], words].concat(), program);
        assert_eq!(text(&outcome.stderr), "");
        let all = std::fs::read_dir(&folder)
            .unwrap()
            .map(|found| found.unwrap().path());
        let logs: Vec<_> = all
            .filter(|path| path.to_str().unwrap().contains("/log."))
            .collect();
        let texts = logs
            .iter()
            .map(|log| std::fs::read_to_string(log).unwrap())
            .collect::<Vec<_>>();
        logs.iter()
            .for_each(|log| std::fs::remove_file(log).unwrap());
        texts
    };
    let told = logs(&["--vgdb-error=0"], &["good"]);
    assert_eq!(told.len(), 2, "{told:?}");
    for text in &told {
        assert!(
            text.contains("--vgdb-error=0 has no effect: there is no server for gdb"),
            "{text}"
        );
        assert!(
            text.contains("Undefined values are not looked for"),
            "{text}"
        );
        assert!(text.contains("ERROR SUMMARY: 0 errors"), "{text}");
    }
    assert_eq!(logs(&["--child-silent-after-fork=yes"], &["good"]).len(), 1);
    // The executed program and its child, but not the shell.
    let good = programs().join("good");
    let line = format!("{}; :", good.display());
    let shell: &[&str] = &["--trace-children=yes", "sh", "-c", &line];
    let command = format!("== Command: {}\n", good.display());
    let count = |texts: &[String]| texts.iter().filter(|text| text.contains(&command)).count();
    let told = logs(shell, &[]);
    assert_eq!(count(&told), 2, "{told:?}");
    let told = logs(&[&["--trace-children-skip=*/good"], shell].concat(), &[]);
    assert_eq!(count(&told), 0, "{told:?}");
}

#[test]
fn readers_of_profiles_read_them() {
    let folder = cache::empty_folder("valgrind-profiles");
    let run = |words: &[&str]| {
        let outcome = valgrind(&folder, words, &["good"]);
        assert_eq!(outcome.end, End::Exit(0), "{}", text(&outcome.stderr));
        text(&outcome.stderr)
    };
    // The first of the numbers in front of a word in parentheses, as the readers write sums.
    let sum = |text: &str| {
        let line = text
            .lines()
            .find(|line| line.ends_with("PROGRAM TOTALS"))
            .unwrap();
        let number = line.split_whitespace().next().unwrap().replace(',', "");
        number.parse::<u64>().unwrap()
    };
    let told = run(&["--tool=callgrind", "--callgrind-out-file=callgrind.out"]);
    let file = folder.join("callgrind.out");
    let read = output(Command::new(needed("callgrind_annotate")).arg(&file));
    assert!(
        sum(&read) > 10_000 && told.contains(&format!("Collected : {}\n", sum(&read))),
        "{told}"
    );
    run(&[
        "--tool=cachegrind",
        "--cache-sim=no",
        "--cachegrind-out-file=cachegrind.out",
    ]);
    let file = folder.join("cachegrind.out");
    let read = output(Command::new(needed("cg_annotate")).arg(&file));
    assert!(
        sum(&read) > 10_000 && read.contains("Events recorded:  Ir"),
        "{read}"
    );
    let told = run(&[
        "--tool=cachegrind",
        "--D1=32768,8,64",
        "--cachegrind-out-file=cachegrind.out",
    ]);
    let read = output(Command::new(needed("cg_annotate")).arg(&file));
    assert!(
        sum(&read) > 100 && told.contains("D   refs:"),
        "{told}{read}"
    );
    run(&["--tool=massif", "--massif-out-file=massif.out"]);
    let read = output(Command::new(needed("ms_print")).arg(folder.join("massif.out")));
    assert!(read.contains("main (good.c:7)"), "{read}");
    let told = run(&["--tool=lackey"]);
    assert!(told.contains("guest instrs:"), "{told}");
    assert!(run(&["-q", "--tool=none"]).is_empty());
}

/// `ctest -T memcheck` finds the command in PATH, and the kinds of errors in its logs.
#[test]
fn ctest_runs_with_it() {
    let folder = cache::empty_folder("valgrind-ctest");
    let list = format!(
        "cmake_minimum_required(VERSION 3.13)\nproject(Small C)\ninclude(CTest)\n\
         add_compile_options(-g -w)\nadd_executable(good {good})\nadd_executable(bad {bad})\n\
         add_test(NAME good COMMAND good)\nadd_test(NAME bad COMMAND bad)\n",
        good = source("good.c").display(),
        bad = source("bad.c").display(),
    );
    std::fs::write(folder.join("CMakeLists.txt"), list).unwrap();
    output(command(&needed("cmake"), &folder).args(["-S", ".", "-B", "build"]));
    output(command(&needed("cmake"), &folder).args(["--build", "build"]));
    let known = std::fs::read_to_string(folder.join("build/CMakeCache.txt")).unwrap();
    let found = format!(
        "MEMORYCHECK_COMMAND:FILEPATH={}/valgrind",
        programs().display()
    );
    assert!(known.contains(&found), "{known}");
    let mut ctest = command(&needed("ctest"), &folder.join("build"));
    let told = ctest.args(["-T", "memcheck"]).output().unwrap();
    let told = text(&told.stdout);
    for line in [
        "#1: good .............................   Passed",
        "IPW - 1",
        "FIM - 1",
        "Memory Leak - 3",
        "Uninitialized Memory Read - 1",
    ] {
        assert!(told.contains(line), "{line}: {told}");
    }
}

#[test]
fn meson_runs_with_it() {
    let folder = cache::empty_folder("valgrind-meson");
    for name in ["good.c", "bad.c"] {
        std::fs::copy(source(name), folder.join(name)).unwrap();
    }
    let list = "project('small', 'c', default_options: ['debug=true', 'optimization=0'])\n\
                test('good', executable('good', 'good.c'))\n\
                test('bad', executable('bad', 'bad.c'), args: ['x'])\n";
    std::fs::write(folder.join("meson.build"), list).unwrap();
    needed("ninja");
    output(command(&needed("meson"), &folder).args(["setup", "build"]));
    let mut meson = command(&needed("meson"), &folder);
    meson.args(["test", "-C", "build", "--print-errorlogs", "--wrapper"]);
    let told = meson
        .arg("atom-valgrind --error-exitcode=9 --leak-check=full")
        .output()
        .unwrap();
    let told = text(&told.stdout);
    for part in [
        "bad  FAIL",
        "exit status 9",
        "good OK",
        "Invalid write of size 4",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
}

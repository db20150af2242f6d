//! The tool `kernel`: callbacks of the user and what they cost, recursion, children of
//! programs with threads, and the way from a program to what `atom arp` shows of it.

use std::path::Path;
use std::process::Command;

use arp::{DataType, Profile, Unrecorded};
use atom_tests::atom;
use atom_tests::kernels::{compile, folder, go, instrument, list, profile, source};

/// The data file of a program's run, which is not there yet.
fn data(program: &Path) -> String {
    let file = program.with_extension("arp");
    let _ = std::fs::remove_file(&file);
    file.to_str().unwrap().to_owned()
}

fn name_of(profile: &Profile, index: usize) -> String {
    let stack = profile.stack(index);
    let section = profile.section(stack.last().unwrap().sid);
    section.unwrap().name.clone()
}

fn values(profile: &Profile, name: &str) -> Vec<f64> {
    let is_it = |i: &usize| name_of(profile, *i) == name;
    let value = |i: usize| profile.value(i, 0).unwrap().as_f64();
    (0..profile.len()).filter(is_it).map(value).collect()
}

fn note<'a>(profile: &'a Profile, key: &str) -> Option<&'a str> {
    let found = profile.info().iter().find(|(k, _)| k == key)?;
    Some(&found.1)
}

/// The tool with the callbacks of a source.
fn tool(folder: &Path, callbacks: &str) -> String {
    let archive = atom::command().unwrap().with_file_name("libkernel.a");
    let tool = folder.join("own.so");
    let made = Command::new("gcc")
        .args(["-shared", "-fPIC", "-O2", "-o"])
        .args([&tool, &source(callbacks)])
        .arg("-Wl,--whole-archive")
        .arg(archive)
        .arg("-Wl,--no-whole-archive")
        .status();
    assert!(made.expect("gcc runs").success());
    tool.to_str().unwrap().to_owned()
}

#[test]
fn the_cost_of_own_callbacks_is_subtracted() {
    let folder = folder("own");
    let tool = tool(&folder, "own.c");
    let built = |name: &str| {
        let program = folder.join(name);
        let from = source(&format!("{name}.c"));
        compile("gcc", &["-g", "-O1"], &[from], &program);
        program
    };
    let (program, empty) = (built("filter"), built("empty"));
    let record = |program: &Path,
                  calibrate: &str,
                  callbacks: [&str; 3],
                  more: &[&str]|
     -> (Profile, String) {
        let file = data(program);
        let options = [
            format!("--arp-enter-callback={}", callbacks[0]),
            format!("--arp-leave-callback={}", callbacks[1]),
            format!("--arp-data-type={}", callbacks[2]),
            format!("--arp-calibrate={calibrate}"),
            "--arp-mode=record_all".to_owned(),
            format!("--arp-data-filename={file}"),
        ];
        let mut all: Vec<&str> = options.iter().map(String::as_str).collect();
        all.extend(more);
        let out = instrument(program, &tool, &all);
        let text = String::from_utf8(go(&out).stdout).unwrap();
        (Profile::load(&file).unwrap(), text)
    };
    let least = |p: &Profile, name: &str| values(p, name).into_iter().fold(f64::MAX, f64::min);
    // A clock: what reading it twice costs is gone.
    let ticks = ["ticksBegin", "ticksEnd", "ulong"];
    let (with, text) = record(&empty, "auto", ticks, &[]);
    let (without, _) = record(&empty, "off", ticks, &[]);
    assert_eq!(text.into_bytes(), go(&empty).stdout);
    assert_eq!((with.len(), without.len()), (20001, 20001));
    // The least of so many is what it takes, whatever else the machine does.
    let (less, more) = (least(&with, "nothing"), least(&without, "nothing"));
    assert!(less < more, "{less}, {more}");
    assert!(
        note(&with, "callback subtracted")
            .unwrap()
            .contains("for an execution")
    );
    assert!(
        note(&with, "callback left in an empty section")
            .unwrap()
            .contains("95 of 100")
    );
    assert!(
        note(&without, "callback subtracted")
            .unwrap()
            .starts_with("nothing")
    );
    assert_eq!(note(&without, "callback left in an empty section"), None);
    // A clock with a state: trying it must not move it, and nothing is subtracted but if wanted.
    let simulated = ["simulatedBegin", "simulatedEnd", "double"];
    // An image of 25 lines: each line reads it twice, and the end once more.
    let image = 25.0 * 14.0 + 7.0;
    for (calibrate, [line, lines]) in [
        ("auto", [7.0, image]),
        ("off", [7.0, image]),
        ("on", [0.0, 0.0]),
    ] {
        let (recorded, _) = record(&program, calibrate, simulated, &[]);
        assert_eq!(recorded.sets()[0].data_type, DataType::Double);
        for (name, expected) in [("ato_kernel_line", line), ("ato_profile_lines", lines)] {
            let found = values(&recorded, name);
            assert!(
                found.iter().all(|v| *v == expected),
                "{calibrate} {name}: {found:?}"
            );
        }
    }
    // What is said while it is tried is not heard; a value below 0 is no cost.
    let (loud, text) = record(&program, "on", ["loudBegin", "loudEnd", "int"], &[]);
    assert_eq!(text.matches("begin\n").count(), 156);
    assert!(values(&loud, "ato_kernel_line").iter().all(|v| *v == -5.0));
    // Beside other measures: these are free of the callbacks' cost.
    let (both, _) = record(&program, "auto", ticks, &["--measure", "cycles"]);
    assert_eq!(both.sets().len(), 2);
    assert!(note(&both, "cycles subtracted").is_some());
    assert!(note(&both, "callback subtracted").is_some());
}

#[test]
fn callbacks_in_rust() {
    let folder = folder("own-rust");
    let command = atom::command().unwrap();
    // Beside the command, where what both need is built already.
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml");
    let made = Command::new(env!("CARGO"))
        .args(["build", "--release", "--quiet", "-p", "atom-kernel"])
        .args(["--example", "kernel-callbacks", "--manifest-path"])
        .arg(manifest)
        .env("CARGO_TARGET_DIR", atom::target_folder().unwrap())
        .status();
    assert!(made.expect("cargo runs").success());
    let tool = command.with_file_name("examples/libkernel_callbacks.so");
    let program = folder.join("filter");
    compile("gcc", &["-g", "-O1"], &[source("filter.c")], &program);
    let file = data(&program);
    let options = [
        "--arp-enter-callback=faults_begin",
        "--arp-leave-callback=faults_end",
        "--arp-data-type=ulong",
        "--arp-mode=record_all",
        "--arp-data-filename",
        &file,
    ];
    let out = instrument(&program, tool.to_str().unwrap(), &options);
    assert_eq!(go(&out).stdout, go(&program).stdout);
    let recorded = Profile::load(&file).unwrap();
    assert_eq!(recorded.len(), 156);
    // All images lie on the stack, in a few pages, which the first round touches.
    let lines = values(&recorded, "ato_kernel_line");
    assert_eq!(lines.len(), 75);
    assert!(lines.iter().sum::<f64>() < 50.0, "{lines:?}");
}

#[test]
fn children_of_threads_and_recursion() {
    let folder = folder("threads");
    let program = folder.join("threads");
    compile(
        "gcc",
        &["-g", "-O1", "-pthread"],
        &[source("threads.c")],
        &program,
    );
    let list = list(&program, &[]);
    let (name, after) = list
        .split_once("  recursive: ")
        .expect("a section is recursive");
    assert!(
        name.rfind("profile level") > name.rfind("kernel "),
        "{list}"
    );
    assert!(!after.contains("recursive"), "{list}");
    for mode in ["record_all", "record_average"] {
        for old in std::fs::read_dir(&folder).unwrap().flatten() {
            if old.file_name().to_string_lossy().contains(".arp") {
                std::fs::remove_file(old.path()).unwrap();
            }
        }
        let file = data(&program);
        let options = [
            "--measure",
            "instructions",
            "--arp-mode",
            mode,
            "--arp-data-filename",
            &file,
        ];
        let found = profile(&program, &options);
        assert_eq!((found.counts["level"], found.counts["child"]), (9, 0));
        let parent = Profile::load(&file).unwrap();
        let executions = |p: &Profile, name: &str| -> u64 {
            let is_it = |i: &usize| name_of(p, *i) == name;
            (0..p.len()).filter(is_it).map(|i| p.count(i)).sum()
        };
        assert_eq!(executions(&parent, "item"), found.counts["item"], "{mode}");
        // Two of nine are the outermost; the file says of the others that they are not there.
        assert_eq!(executions(&parent, "level"), 2);
        let level = parent
            .sections()
            .iter()
            .find(|s| s.name == "level")
            .unwrap();
        let left_out = Unrecorded::of(parent.info(), level.sid);
        assert_eq!((left_out.folded, left_out.nested), (7, 0), "{mode}");
        let shown = Command::new(atom::command().unwrap())
            .arg("arp")
            .arg(&file)
            .output();
        let shown = String::from_utf8(shown.unwrap().stdout).unwrap();
        assert!(
            shown.contains("level") && shown.contains("entered 7 times while it was open"),
            "{shown}"
        );
        // Each child has its own file, with what it did itself, in the sections that were open.
        let mut children = Vec::new();
        for entry in std::fs::read_dir(&folder).unwrap().flatten() {
            if !entry.file_name().to_string_lossy().contains(".arp.") {
                continue;
            }
            let child = Profile::load(entry.path()).unwrap();
            assert_eq!(executions(&child, "item"), 0, "{mode}");
            let deepest = (0..child.len())
                .map(|i| child.stack(i))
                .max_by_key(Vec::len)
                .unwrap();
            let names: Vec<_> = deepest
                .iter()
                .map(|s| child.section(s.sid).unwrap().name.clone())
                .collect();
            assert!(names.contains(&"around".to_owned()), "{names:?}");
            children.push(executions(&child, "child"));
        }
        children.sort_unstable();
        assert_eq!(children, [100, 101, 102], "{mode}");
    }
}

/// `atom arp` with these words.
fn arp(folder: &Path, words: &[&str]) -> String {
    let mut command = Command::new(atom::command().unwrap());
    let output = command
        .current_dir(folder)
        .arg("arp")
        .args(words)
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn from_the_program_to_the_picture() {
    let folder = folder("chain");
    let program = folder.join("filter");
    compile("gcc", &["-g", "-O0"], &[source("filter.c")], &program);
    let file = data(&program);
    for name in ["first.arp", "second.arp"] {
        let options = [
            "--measure",
            "instructions,cycles",
            "--arp-mode",
            "record_all",
            "--arp-data-filename",
            &file,
        ];
        profile(&program, &options);
        std::fs::rename(&file, folder.join(name)).unwrap();
    }
    let recorded = Profile::load(folder.join("first.arp")).unwrap();
    let total = |name: &str| values(&recorded, name).iter().sum::<f64>() as u64;
    let line_of = |name: &str| {
        let section = recorded.sections().iter().find(|s| s.name == name);
        section.unwrap().line
    };
    let executions = [
        ("ato_kernel_line", 75),
        ("ato_kernel_column", 75),
        ("ato_profile_lines", 3),
        ("ato_profile_columns", 3),
    ];
    // The table has names, counts, sums and lines.
    let text = arp(&folder, &["first.arp", "--set", "instructions"]);
    for (name, count) in executions {
        let row = text
            .lines()
            .find(|l| l.split_whitespace().any(|w| w == name))
            .unwrap();
        let words: Vec<&str> = row.split_whitespace().collect();
        let sum: u64 = words[0].replace(',', "").parse().unwrap();
        assert_eq!(
            (sum, words[3]),
            (total(name), count.to_string().as_str()),
            "{row}"
        );
        let place = format!("/filter.c:{}-", line_of(name));
        assert!(words.last().unwrap().contains(&place), "{row}");
    }
    let tree = arp(&folder, &["first.arp", "--set", "instructions", "--tree"]);
    assert!(tree.contains("main -> filter_lines"), "{tree}");
    // JSON has the same.
    let json: serde_json::Value =
        serde_json::from_str(&arp(&folder, &["first.arp", "--json"])).unwrap();
    for (name, count) in executions {
        let sections = json["sections"].as_array().unwrap();
        let section = sections.iter().find(|s| s["name"] == name).unwrap();
        assert_eq!(section["count"], count);
        assert_eq!(section["folded"], 0);
        assert_eq!(section["values"][0]["total"], total(name));
        assert_eq!(section["line"], line_of(name));
        let file = section["file"].as_str().unwrap();
        assert!(file.ends_with("filter.c"), "{file}");
    }
    // Folded stacks add up to the profiled sections, which have all of it.
    let folded = arp(&folder, &["first.arp", "--folded", "--set", "instructions"]);
    let lines = folded.lines().map(|l| l.rsplit_once(' ').unwrap());
    let all: u64 = lines.clone().map(|(_, n)| n.parse::<u64>().unwrap()).sum();
    assert_eq!(
        all,
        total("ato_profile_lines") + total("ato_profile_columns")
    );
    let of_line = lines.filter(|(stack, _)| stack.ends_with("ato_profile_lines;ato_kernel_line"));
    let of_line: u64 = of_line.map(|(_, n)| n.parse::<u64>().unwrap()).sum();
    assert_eq!(of_line, total("ato_kernel_line"));
    // The page has them too.
    arp(&folder, &["first.arp", "--html", "page.html"]);
    let page = std::fs::read_to_string(folder.join("page.html")).unwrap();
    for (name, _) in executions {
        assert!(page.contains(name) && page.contains("filter.c"), "{name}");
    }
    // The same program does the same again.
    let same = arp(
        &folder,
        &[
            "diff",
            "first.arp",
            "second.arp",
            "--set",
            "instructions",
            "--all",
        ],
    );
    assert!(same.contains("ato_kernel_line"), "{same}");
    assert!(!same.contains("new") && !same.contains("gone"), "{same}");
    // Two files are twice one.
    arp(
        &folder,
        &[
            "merge",
            "first.arp",
            "second.arp",
            "-o",
            "both.arp",
            "--renumber",
        ],
    );
    let both = Profile::load(folder.join("both.arp")).unwrap();
    assert_eq!(both.len(), 2 * recorded.len());
    let sum = values(&both, "ato_kernel_line").iter().sum::<f64>() as u64;
    assert_eq!(sum, 2 * total("ato_kernel_line"));
    // As text, and back, names and lines included.
    arp(&folder, &["convert", "first.arp", "first.txt.gz"]);
    arp(&folder, &["convert", "first.txt.gz", "again.bin"]);
    let again = Profile::load(folder.join("again.bin")).unwrap();
    assert_eq!(again.sections(), recorded.sections());
    for name in executions.map(|e| e.0) {
        let (mut before, mut after) = (values(&recorded, name), values(&again, name));
        before.sort_by(f64::total_cmp);
        after.sort_by(f64::total_cmp);
        assert_eq!(before, after);
    }
}

#[test]
fn recording_goes_on_after_exec_in_vain() {
    let folder = folder("exec");
    let program = folder.join("exec");
    compile("gcc", &["-g", "-O1"], &[source("exec.c")], &program);
    for (mode, format) in [
        ("record_all", "binary"),
        ("record_all", "ascii"),
        ("record_average", "binary"),
        ("record_histogram", "ascii"),
    ] {
        let file = data(&program);
        let options = [
            "--arp-mode",
            mode,
            "--arp-format",
            format,
            "--measure",
            "instructions",
            "--arp-data-filename",
            &file,
        ];
        let found = profile(&program, &options);
        let counts = ["item", "turn", "all"].map(|name| found.counts[name]);
        assert_eq!(counts, [607, 4, 1], "{mode} {format}");
        assert_eq!(found.facts["open at the end"], 0);
        let check = |expected: [u64; 3]| {
            let recorded = Profile::load(&file).unwrap();
            assert!(recorded.damage().is_none(), "{mode} {format}");
            let mut counts = [0; 3];
            let mut tuples = Vec::new();
            for i in 0..recorded.len() {
                let name = name_of(&recorded, i);
                let at = ["item", "turn", "all"].iter().position(|n| *n == name);
                counts[at.unwrap()] += recorded.count(i);
                tuples.push(arp::tuple(&recorded.stack(i)));
            }
            assert_eq!(counts, expected, "{mode} {format}");
            let all = tuples.len();
            tuples.sort();
            tuples.dedup();
            assert_eq!(
                tuples.len(),
                all,
                "{mode} {format}: executions have one tuple each"
            );
        };
        check([607, 4, 1]);
        // The file is complete when the process becomes another, with what was open.
        let mut command = Command::new(program.with_extension("out"));
        let output = command.arg("exec").output().unwrap();
        assert_eq!(output.stdout, b"another\n");
        check([600, 4, 1]);
    }
}

#[test]
fn trying_callbacks_is_not_noticed() {
    let folder = folder("addresses");
    let tool = tool(&folder, "own.c");
    let program = folder.join("addresses");
    let sources = [source("addresses.c")];
    compile("gcc", &["-g", "-O1", "-pthread"], &sources, &program);
    let file = data(&program);
    let options = [
        "--arp-enter-callback=ticksBegin",
        "--arp-leave-callback=ticksEnd",
        "--arp-data-type=ulong",
        "--measure=cycles,cputime",
        "--arp-data-filename",
        &file,
    ];
    let out = instrument(&program, &tool, &options);
    // Without randomisation every address is the same, and there is no child to wait for. The
    // names have the same length, as the stack begins behind them.
    let same = folder.join("addresses.org");
    std::fs::copy(&program, &same).unwrap();
    let [before, after] = [same, out].map(|program| {
        let mut command = Command::new("setarch");
        command.arg("-R").arg(&program).env_clear();
        let output = command.output().expect("setarch runs");
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    });
    assert_eq!(before, after);
    assert!(after.ends_with("-1 1\n"), "{after}");
    let recorded = Profile::load(&file).unwrap();
    assert!(
        note(&recorded, "callback subtracted")
            .unwrap()
            .contains("for an execution")
    );
}

#[test]
fn each_thread_has_the_context_that_its_callback_made() {
    let folder = folder("contexts");
    let tool = tool(&folder, "own.c");
    let program = folder.join("split");
    let sources = [source("split.c")];
    let flags = ["-g", "-O1", "-DSPLIT", "-pthread"];
    compile("gcc", &flags, &sources, &program);
    let file = data(&program);
    let options = [
        "--arp-enter-callback=countBegin",
        "--arp-leave-callback=countEnd",
        "--arp-spawn-callback=threadBegin",
        "--arp-join-callback=threadEnd",
        "--arp-data-type=long",
        "--arp-mode=record_all",
        "--arp-data-filename",
        &file,
    ];
    let out = instrument(&program, &tool, &options);
    let outcome = go(&out);
    assert_eq!(outcome.stdout, go(&program).stdout);
    let recorded = Profile::load(&file).unwrap();
    let mut counted = std::collections::BTreeMap::<u32, Vec<u64>>::new();
    for i in 0..recorded.len() {
        let tid = recorded.thread(i).unwrap().0;
        let value = recorded.value(i, 0).unwrap().as_f64() as u64;
        counted.entry(tid).or_default().push(value);
    }
    // Each thread that has ended is seen to have, if perhaps not the last two, which may end just then.
    let joined = String::from_utf8(outcome.stderr)
        .unwrap()
        .matches("joined\n")
        .count();
    let spawned = counted.len() - 1;
    assert!(
        spawned > 2 && (spawned - 2..=spawned).contains(&joined),
        "{joined} of {spawned}"
    );
    for (tid, mut values) in counted {
        values.sort_unstable();
        // The first thread has the context that all have, which is none here.
        let first = if tid == 1 {
            0
        } else {
            u64::from(tid) * 1000 + 1
        };
        let step = u64::from(tid != 1);
        let expected: Vec<u64> = (0..values.len() as u64).map(|i| first + i * step).collect();
        assert_eq!(values, expected, "thread {tid}");
    }
}

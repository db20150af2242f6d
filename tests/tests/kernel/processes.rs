//! Sections that are left by jumps, exceptions, forks, `exec` and the end of the process.

use std::process::Command;

use arp::{Profile, Unrecorded};
use atom_tests::atom;
use atom_tests::outcome::{Setting, plain_environment, run};

use super::{compile, data, folder, instrument, list, name_of, profile, source, values};

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
        // Two of nine executions are the outermost. The file says that the others are not recorded.
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
        // Each child has its own file with its own executions, in the sections that were open.
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
        // The file is complete when the process calls `exec`, with the sections that were open.
        let mut command = Command::new(program.with_extension("out"));
        let output = command.arg("exec").output().unwrap();
        assert_eq!(output.stdout, b"another\n");
        check([600, 4, 1]);
    }
}

#[test]
fn jumps_out_exits_and_forks() {
    let folder = folder("leaving");
    for (compiler, level) in [("gcc", "-O0"), ("gcc", "-O2"), ("clang", "-O2")] {
        let program = folder.join(format!("{compiler}{level}"));
        compile(
            compiler,
            ["-g", level, "-Wno-clobbered"][..if compiler == "gcc" { 3 } else { 2 }].as_ref(),
            &[source("leaving.c")],
            &program,
        );
        let file = data(&program);
        let options = ["--arp-mode", "record_all", "--arp-data-filename", &file];
        let found = profile(&program, &options);
        let counts = ["turn", "middle", "deep", "same", "last"].map(|n| found.counts[n]);
        assert_eq!(counts, [12, 12, 12, 5, 1], "{}", program.display());
        assert_eq!(found.facts["ends without a begin"], 0);
        // Of `deep` and of `middle` four each, and `same` four times.
        assert!(found.facts["closed because their procedures were gone"] >= 12);
        let recorded = Profile::load(&file).unwrap();
        let of = |name: &str| values(&recorded, name, 0).len();
        assert_eq!(
            [of("turn"), of("middle"), of("deep"), of("same"), of("last")],
            [12, 8, 8, 1, 1]
        );

        // A child has its own file.
        for old in std::fs::read_dir(&folder).unwrap().flatten() {
            if old.file_name().to_string_lossy().contains(".arp") {
                std::fs::remove_file(old.path()).unwrap();
            }
        }
        let out = instrument(&program, "kernel", &options);
        let mut command = Command::new(&out);
        plain_environment(&mut command);
        command.arg("fork");
        run(&mut command, &Setting::default()).unwrap();
        let mut after = Vec::new();
        for entry in std::fs::read_dir(&folder).unwrap().flatten() {
            if entry.file_name().to_string_lossy().contains(".arp") {
                let recorded = Profile::load(entry.path()).unwrap();
                after.push((
                    values(&recorded, "after", 0).len(),
                    values(&recorded, "turn", 0).len(),
                ));
            }
        }
        after.sort_unstable();
        assert_eq!(after, [(2, 0), (4, 12)], "{}", program.display());
    }
}

#[test]
fn exceptions_leave_sections() {
    let folder = folder("throws");
    for (compiler, level) in [("g++", "-O0"), ("g++", "-O2"), ("clang++", "-O1")] {
        let program = folder.join(format!("{compiler}{level}"));
        compile(compiler, &["-g", level], &[source("throws.cc")], &program);
        let file = data(&program);
        let options = [
            "--profile",
            "thrower*",
            "--arp-mode",
            "record_all",
            "--arp-data-filename",
            &file,
        ];
        let found = profile(&program, &options);
        // Rounds 0 and 1, the second of which throws; round 0; and again.
        let named = |name: &str| {
            let all = found
                .counts
                .iter()
                .filter(|(n, _)| n.starts_with(name) && !n.contains("->"));
            all.map(|(_, count)| count).sum::<u64>()
        };
        let counts = [
            named("scoped"),
            named("thrower"),
            named("ato_profile_catching"),
        ];
        assert_eq!(counts, [5, 5, 3], "{}", program.display());
        assert_eq!(
            found.facts["ends without a begin"],
            0,
            "{}",
            program.display()
        );
        let recorded = Profile::load(&file).unwrap();
        // The end of a scope is noticed if an exception leaves it, the end of a procedure is not.
        assert_eq!(
            values(&recorded, "scoped", 0).len(),
            5,
            "{}",
            program.display()
        );
        // Rounds that an exception ends are recorded only if the compiler lets the exception
        // pass through `catcher`, which does not catch it.
        let caught = values(&recorded, "ato_profile_catching", 0).len();
        assert!(caught == 1 || caught == 3, "{caught}");
    }
}

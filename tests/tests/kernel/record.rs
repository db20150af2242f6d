//! Recorded values are right, and they come back.

use std::path::PathBuf;
use std::process::Command;

use arp::{Mode, Profile, tuple};
use atom_tests::outcome::plain_environment;
use atom_tests::{atom, stepper};

use super::{compile, data, folder, go, instrument, name_of, profile, source, summary};

/// Values of a section's executions as whole numbers.
fn values(profile: &Profile, name: &str, set: usize) -> Vec<u64> {
    let values = super::values(profile, name, set).into_iter();
    values.map(|value| value as u64).collect()
}

#[test]
fn instructions_are_those_that_the_processor_executes() {
    let folder = folder("exact");
    for (compiler, level) in [("gcc", "-O0"), ("clang", "-O0"), ("gcc", "-O1")] {
        let program = folder.join(format!("{compiler}{level}"));
        compile(
            compiler,
            &["-g", level, "-fno-inline"],
            &[source("labels.c")],
            &program,
        );
        let file = data(&program);
        let options = [
            "--no-marks",
            "--kernel",
            "next",
            "--profile",
            "switches",
            "--profile",
            "nested",
            "--measure",
            "instructions,cycles",
            "--arp-mode",
            "record_all",
            "--arp-data-filename",
            &file,
        ];
        profile(&program, &options);
        let recorded = Profile::load(&file).unwrap();
        assert_eq!(recorded.mode(), Mode::RecordAll);
        assert_eq!(recorded.sets()[0].name, "instructions");
        let mut command = Command::new(&program);
        plain_environment(&mut command);
        command.stdout(std::process::Stdio::null());
        let options = stepper::Options {
            skip_libraries: true,
            ..stepper::Options::default()
        };
        let truth = stepper::run(&program, &mut command, options).unwrap();
        let counts = &truth.main().counts;
        let executed = |name: &str| -> u64 {
            let shown = Command::new(atom::command().unwrap())
                .arg("show")
                .arg(&program)
                .args(["--proc", name])
                .output()
                .unwrap();
            let text = String::from_utf8(shown.stdout).unwrap();
            let range = text.lines().next().unwrap().split(' ').collect::<Vec<_>>();
            let number = |t: &str| {
                u64::from_str_radix(t.trim_matches([',', ':']).trim_start_matches("0x"), 16)
                    .unwrap()
            };
            let (from, to) = (number(range[1]), number(range[3]));
            counts.range(from..to).map(|c| c.1).sum()
        };
        let sum = |name: &str| values(&recorded, name, 0).iter().sum::<u64>();
        let next = sum("next");
        assert_eq!(next, executed("next"), "{}", program.display());
        // A profiled section includes the sections that it calls.
        for name in ["switches", "nested"] {
            let inside: u64 = (0..recorded.len())
                .filter(|i| name_of(&recorded, *i) == "next")
                .filter(|i| {
                    let outer = recorded.stack(*i);
                    outer
                        .iter()
                        .any(|s| recorded.section(s.sid).unwrap().name == name)
                })
                .map(|i| recorded.value(i, 0).unwrap().as_f64() as u64)
                .sum();
            assert!(inside > 0);
            assert_eq!(
                sum(name),
                executed(name) + inside,
                "{} {name}",
                program.display()
            );
        }
        // The cost of measuring is subtracted: most executions of a dozen instructions take few cycles.
        let mut cycles = values(&recorded, "next", 1);
        cycles.sort_unstable();
        assert!(cycles[cycles.len() / 2] < 3000, "{:?}", &cycles[..10]);
    }
}

#[test]
fn tuples_name_each_execution() {
    let folder = folder("tuples");
    let mut all = Vec::new();
    for (compiler, level) in [("gcc", "-O0"), ("clang", "-O0"), ("gcc", "-O2")] {
        let program = folder.join(format!("{compiler}{level}"));
        compile(
            compiler,
            &["-g", level, "-fno-inline"],
            &[source("filter.c")],
            &program,
        );
        let file = data(&program);
        let summary = profile(
            &program,
            &[
                "--arp-mode",
                "record_all",
                "--arp-data-filename",
                &file,
                "--arp-format",
                "ascii",
            ],
        );
        let recorded = Profile::load(&file).unwrap();
        assert_eq!(recorded.len(), 156);
        let mut tuples: Vec<String> = (0..recorded.len())
            .map(|i| tuple(&recorded.stack(i)))
            .collect();
        let id = |name: &str| summary.ids[name];
        let expected = format!(
            "{}@0 {}@2 {}@0 {}@0 {}@24",
            id("main"),
            id("loop in main"),
            id("main -> filter_columns"),
            id("ato_profile_columns"),
            id("ato_kernel_column"),
        );
        assert!(tuples.contains(&expected), "{expected}: {tuples:?}");
        tuples.sort();
        tuples.dedup();
        assert_eq!(tuples.len(), 156);
        all.push(tuples);
        let average = data(&program);
        profile(
            &program,
            &["--arp-data-filename", &average, "--measure", "cputime"],
        );
        let average = Profile::load(&average).unwrap();
        assert_eq!((average.mode(), average.len()), (Mode::RecordAverage, 4));
        let counts: Vec<u64> = (0..4).map(|i| average.count(i)).collect();
        assert_eq!(counts.iter().sum::<u64>(), 156);
        let info = average
            .info()
            .iter()
            .any(|(key, _)| key.contains("subtracted"));
        assert!(info, "{:?}", average.info());
    }
    // The same ids and the same tuples from each compiler.
    assert!(all.iter().all(|tuples| *tuples == all[0]));
}

#[test]
fn a_loop_split_over_two_threads_plays_back_complete() {
    let folder = folder("split");
    let build = |name: &str, options: &[&str]| -> PathBuf {
        let program = folder.join(name);
        let mut all = vec!["-g", "-O1"];
        all.extend(options);
        compile("gcc", &all, &[source("split.c")], &program);
        program
    };
    let (one, two) = (build("one", &[]), build("two", &["-DSPLIT", "-pthread"]));
    let file = data(&one);
    let common = [
        "--context",
        "none",
        "--measure",
        "instructions",
        "--arp-data-filename",
        &file,
    ];
    let recorded = profile(&one, &[&common[..], &["--arp-mode", "record_all"]].concat());
    assert_eq!(
        (recorded.counts["item"], recorded.counts["round"]),
        (240, 6)
    );
    let sequential = Profile::load(&file).unwrap();
    let total: u64 = values(&sequential, "item", 0).iter().sum();
    for (program, threads) in [(&one, 1), (&two, 13)] {
        let played = profile(
            program,
            &[&common[..], &["--arp-mode", "playback"]].concat(),
        );
        assert_eq!(
            played.played["item"],
            (240, total as f64),
            "{}",
            program.display()
        );
        assert_eq!(played.played["round"].0, 6);
        assert!(played.facts["threads"] <= threads, "{:?}", played.facts);
    }
    // The records of two threads have the same tuples as the records of one.
    let split = data(&two);
    let common = [
        "--context",
        "none",
        "--measure",
        "instructions",
        "--arp-mode",
        "record_all",
    ];
    profile(
        &two,
        &[&common[..], &["--arp-data-filename", &split]].concat(),
    );
    let split = Profile::load(&split).unwrap();
    let sorted = |p: &Profile| {
        let is_item = |i: &usize| name_of(p, *i) == "item";
        let mut all: Vec<(String, u64)> = (0..p.len())
            .filter(is_item)
            .map(|i| (tuple(&p.stack(i)), p.value(i, 0).unwrap().as_f64() as u64))
            .collect();
        all.sort();
        all
    };
    assert_eq!(sorted(&split), sorted(&sequential));
    // Each thread has the whole context, too.
    let full = data(&two);
    let summary = profile(&two, &["--arp-data-filename", &full]);
    assert_eq!(summary.counts["item"], 240);
    let full = Profile::load(&full).unwrap();
    for i in 0..full.len() {
        let names: Vec<String> = full
            .stack(i)
            .iter()
            .map(|s| full.section(s.sid).unwrap().name.clone())
            .collect();
        assert_eq!(names[0], "main", "{names:?}");
        assert!(names.contains(&"round".to_owned()), "{names:?}");
    }
}

#[test]
fn kernels_in_kernels_are_told() {
    let folder = folder("nested");
    let program = folder.join("nested");
    compile("gcc", &["-g", "-O0"], &[source("filter.c")], &program);
    let file = data(&program);
    let counts = program.with_extension("summary");
    let options = [
        "--kernel",
        "filter_*",
        "--arp-data-filename",
        &file,
        "--summary",
        counts.to_str().unwrap(),
    ];
    let out = instrument(&program, "kernel", &options);
    let outcome = go(&out);
    let text = String::from_utf8(outcome.stderr).unwrap();
    assert!(
        text.contains("150 executions of kernels inside of other kernels"),
        "{text}"
    );
    assert_eq!(outcome.stdout, go(&program).stdout);
    let counts = summary(&counts).counts;
    assert_eq!((counts["filter_lines"], counts["ato_kernel_line"]), (3, 75));
}

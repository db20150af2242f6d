//! The end of a process and of a procedure: in whatever way it ends, everything executed until then is
//! counted once, and calls after a procedure are made at its own returns only.

use std::path::PathBuf;
use std::process::Command;

use atom_tests::atom::{self, Job};
use atom_tests::outcome::{Setting, plain_environment, run};
use atom_tests::source::Source;

/// A source, with its comments in one style.
fn source(name: &str, key: &str) -> (Source, Vec<Vec<String>>) {
    let source = Source::named(name).unwrap();
    let text = std::fs::read_to_string(&source.path).unwrap();
    let lines = text
        .lines()
        .filter_map(|l| l.strip_prefix("// ")?.strip_prefix(key)?.strip_prefix(": "));
    let lines: Vec<Vec<String>> = lines
        .map(|l| l.split(' ').map(str::to_owned).collect())
        .collect();
    assert!(!lines.is_empty(), "{name} says nothing of {key}");
    (source, lines)
}

/// Each build, instrumented with the tool `points`, and the file that the tool writes.
fn builds(source: &Source) -> Vec<(String, PathBuf, PathBuf)> {
    let folder = atom_tests::cache::folder(&format!("ends/{}", source.name()));
    let mut all = Vec::new();
    for variant in &source.variants {
        let program = folder.join(&variant.0);
        source.build(variant, &program).unwrap();
        let (out, result) = (
            program.with_extension("out"),
            program.with_extension("points"),
        );
        let options = ["--tell", "--output", result.to_str().unwrap()].map(str::to_owned);
        let job = Job::Tool("points".to_owned(), options.to_vec());
        atom::instrument(&program, &out, &job, true).unwrap();
        all.push((variant.0.clone(), out, result));
    }
    assert!(!all.is_empty());
    all
}

/// The figures of a procedure: number of entries and number of exits.
fn row(text: &str, name: &str) -> [u64; 2] {
    let line = text.lines().find(|l| l.split(' ').next() == Some(name));
    let line = line.unwrap_or_else(|| panic!("no {name}: {text}"));
    let numbers: Vec<u64> = line
        .split(' ')
        .skip(1)
        .map(|n| n.parse().unwrap())
        .collect();
    [numbers[0], numbers[1]]
}

#[test]
fn every_way_to_end_is_one_end() {
    let (source, ways) = source("last.c", "ends");
    for (variant, out, result) in builds(&source) {
        for way in &ways {
            let _ = std::fs::remove_file(&result);
            let mut command = Command::new(&out);
            plain_environment(&mut command);
            command.arg(&way[0]);
            let outcome = run(&mut command, &Setting::default()).unwrap();
            let told = String::from_utf8_lossy(&outcome.stderr).into_owned();
            assert_eq!(told, "points: start\npoints: end\n", "{variant} {}", way[0]);
            let text = std::fs::read_to_string(&result).unwrap();
            for pair in way[1..].chunks(2) {
                let [before, _] = row(&text, &pair[0]);
                assert_eq!(before.to_string(), pair[1], "{variant} {way:?} {}", pair[0]);
            }
        }
        // A child makes the calls at its own end.
        let mut command = Command::new(&out);
        plain_environment(&mut command);
        let outcome = run(command.arg("child"), &Setting::default()).unwrap();
        let told = String::from_utf8_lossy(&outcome.stderr).into_owned();
        assert_eq!(
            told, "points: start\npoints: end\npoints: end\n",
            "{variant}"
        );
    }
}

/// Runs each build once and compares the rows that the source states.
fn left(name: &str) {
    let (source, stated) = source(name, "after");
    for (variant, out, result) in builds(&source) {
        let mut command = Command::new(&out);
        plain_environment(&mut command);
        run(&mut command, &Setting::default()).unwrap();
        let text = std::fs::read_to_string(&result).unwrap();
        for line in &stated {
            let expected: Vec<u64> = line[1..].iter().map(|n| n.parse().unwrap()).collect();
            assert_eq!(
                row(&text, &line[0]).to_vec(),
                expected,
                "{variant} {}: {text}",
                line[0]
            );
        }
    }
}

#[test]
fn an_exception_passes_no_exit() {
    left("thrown.cc");
}

#[test]
fn several_entries_of_one_procedure() {
    left("entries.S");
}

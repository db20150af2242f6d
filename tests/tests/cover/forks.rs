//! Coverage of a program that forks: each process has a report, and their sum has what ran in any of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use atom_tests::atom::{self, Job};
use atom_tests::outcome::{Setting, plain_environment, run};
use profile::Profile;

/// Executions of functions in a tracefile.
pub fn functions(info: &str) -> BTreeMap<&str, u64> {
    let entries = info.lines().filter_map(|line| line.strip_prefix("FNDA:"));
    entries
        .filter_map(|entry| entry.split_once(','))
        .map(|(count, name)| (name, count.parse().unwrap()))
        .collect()
}

const NAMES: [&str; 4] = ["before", "child", "parent", "never"];

fn counts(info: &str) -> [u64; 4] {
    let found = functions(info);
    NAMES.map(|name| found[name])
}

/// The files of the parent and of the child whose names begin with this one.
fn pair(first: &Path) -> [PathBuf; 2] {
    let name = first.file_name().unwrap().to_str().unwrap();
    let files = std::fs::read_dir(first.parent().unwrap()).unwrap();
    let child = files.map(|file| file.unwrap().path()).find(|path| {
        let rest = path.file_name().unwrap().to_str().unwrap();
        rest.strip_prefix(name)
            .is_some_and(|number| number.starts_with('.'))
    });
    [first.to_path_buf(), child.expect("the child's file")]
}

/// Runs the program; returns the entries of functions in the parent, in the child and in the sum of their profiles.
fn measure(name: &str, options: &[&str]) -> [[u64; 4]; 3] {
    let folder = super::folder(name);
    let program = super::compile(&folder, "forks.c", &["-O0"]);
    let [info, data, out] = ["c.info", "c.profile", "c.out"].map(|name| folder.join(name));
    let mut all: Vec<String> = options.iter().map(|o| o.to_string()).collect();
    for (option, file) in [("--lcov", &info), ("--profile", &data), ("--output", &out)] {
        all.extend([option.to_owned(), file.display().to_string()]);
    }
    let rewritten = folder.join("rewritten");
    atom::instrument(&program, &rewritten, &Job::Tool("cover".into(), all), true).unwrap();
    let mut command = Command::new(&rewritten);
    plain_environment(&mut command);
    run(&mut command, &Setting::default()).unwrap();
    let profiles = pair(&data);
    let [parent, child] = profiles.each_ref().map(|path| Profile::read(path).unwrap());
    let has_counts = options.contains(&"--counts");
    assert_eq!(
        [parent.process.inherits, child.process.inherits],
        [false, !has_counts]
    );
    let sum = folder.join("sum.info");
    let mut report = Command::new(atom::command().unwrap());
    report
        .arg("report")
        .args(&profiles)
        .args(["--export", "lcov", "-o"])
        .arg(&sum);
    super::ok(&mut report, &folder);
    let read = |path: &Path| counts(&std::fs::read_to_string(path).unwrap());
    let [parent, child] = pair(&info).map(|path| read(&path));
    [parent, child, read(&sum)]
}

#[test]
fn counts_of_a_child_begin_at_its_fork() {
    let found = measure("forks-counts", &["--counts"]);
    assert_eq!(found, [[1, 0, 1, 0], [0, 2, 0, 0], [1, 2, 1, 0]]);
}

#[test]
fn marks_of_a_child_are_those_of_its_history() {
    let found = measure("forks-marks", &[]);
    let ones = found.map(|all| all.map(|n| n.min(1)));
    assert_eq!(ones, [[1, 0, 1, 0], [1, 1, 0, 0], [1, 1, 1, 0]]);
}

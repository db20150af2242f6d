//! The tool `kernel`: finding sections, recording and playing back their values, and
//! callbacks of the user. This file builds and profiles the programs in `programs`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use arp::Profile;
use atom_tests::atom;
use atom_tests::outcome::{Outcome, Setting, plain_environment, run};

mod callbacks;
mod chain;
mod processes;
mod record;
mod sections;

/// A source of the folder `programs`.
fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/kernel/programs")
        .join(name)
}

/// A folder for a test's files.
fn folder(test: &str) -> PathBuf {
    atom_tests::cache::folder(&format!("kernel/{test}"))
}

/// Compiles a source with the folder of the marker header.
fn compile(compiler: &str, options: &[&str], sources: &[PathBuf], out: &Path) {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../include");
    let mut command = Command::new(compiler);
    command
        .args(["-Wall", "-Wextra", "-Wno-unused-label", "-I"])
        .arg(include);
    command.args(options).args(sources).arg("-o").arg(out);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.success() && text.is_empty(),
        "{compiler}: {text}"
    );
}

/// Runs a program in its folder.
fn go(program: &Path) -> Outcome {
    let mut command = Command::new(program);
    plain_environment(&mut command);
    command.current_dir(program.parent().unwrap());
    run(&mut command, &Setting::default()).unwrap()
}

/// The output of `--list`.
fn list(program: &Path, options: &[&str]) -> String {
    let out = program.with_extension("list");
    let mut command = Command::new(atom::command().unwrap());
    command
        .arg(program)
        .args(["--tool", "kernel", "-o"])
        .arg(&out);
    command.args(["--", "--list"]).args(options);
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// Executions of each section by name, and the facts after them.
struct Summary {
    /// Executions by section.
    counts: HashMap<String, u64>,
    /// Ids by section.
    ids: HashMap<String, u16>,
    /// Values that were played back: number and sum.
    played: HashMap<String, (u64, f64)>,
    /// The other figures of the summary, by name.
    facts: HashMap<String, u64>,
}

/// Instruments a program with a tool, by name or file.
fn instrument(program: &Path, tool: &str, options: &[&str]) -> PathBuf {
    let out = program.with_extension("out");
    let mut command = Command::new(atom::command().unwrap());
    command.arg(program);
    if tool.contains('/') {
        command.arg(tool)
    } else {
        command.args(["--tool", tool])
    };
    command
        .args(["--strict", "--check", "-o"])
        .arg(&out)
        .arg("--")
        .args(options);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {text}", program.display());
    out
}

/// Reads the file that `--summary` wrote.
fn summary(file: &Path) -> Summary {
    let text = std::fs::read_to_string(file).unwrap();
    let mut found = Summary {
        counts: HashMap::new(),
        ids: HashMap::new(),
        played: HashMap::new(),
        facts: HashMap::new(),
    };
    for line in text.lines().skip(1) {
        if let Some((fact, n)) = line.strip_prefix("# ").and_then(|l| l.rsplit_once(": ")) {
            found.facts.insert(fact.to_owned(), n.parse().unwrap());
            continue;
        }
        let columns: Vec<&str> = line.split('\t').collect();
        let name = columns[3].to_owned();
        *found.counts.entry(name.clone()).or_default() += columns[0].parse::<u64>().unwrap();
        let played = (columns[5].parse().unwrap(), columns[6].parse().unwrap());
        found.played.insert(name.clone(), played);
        found.ids.insert(name, columns[2].parse().unwrap());
    }
    found
}

/// Instruments a program, runs it, and checks that it behaves like the original.
fn profile(program: &Path, options: &[&str]) -> Summary {
    let file = program.with_extension("summary");
    let _ = std::fs::remove_file(&file);
    let mut all = options.to_vec();
    all.extend(["--summary", file.to_str().unwrap()]);
    let out = instrument(program, "kernel", &all);
    let (before, after) = (go(program), go(&out));
    assert_eq!(before.end, after.end, "{}", out.display());
    assert_eq!(before.stdout, after.stdout, "{}", out.display());
    let text = String::from_utf8_lossy(&after.stderr);
    assert_eq!(before.stderr, after.stderr, "{}: {text}", out.display());
    summary(&file)
}

/// Path of the data file of a program's run; an old file is removed.
fn data(program: &Path) -> String {
    let file = program.with_extension("arp");
    let _ = std::fs::remove_file(&file);
    file.to_str().unwrap().to_owned()
}

/// Name of the section whose execution has this index.
fn name_of(profile: &Profile, index: usize) -> String {
    let stack = profile.stack(index);
    let section = profile.section(stack.last().unwrap().sid);
    section.unwrap().name.clone()
}

/// Values of a section's executions in order, of the set with this number.
fn values(profile: &Profile, name: &str, set: usize) -> Vec<f64> {
    (0..profile.len())
        .filter(|i| name_of(profile, *i) == name)
        .map(|i| profile.value(i, set).unwrap().as_f64())
        .collect()
}

/// The tool with the callbacks of a C source.
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

//! Building and profiling the programs of `tests/kernels`, for the tool `kernel`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::atom;
use crate::outcome::{Outcome, Setting, plain_environment, run};

/// A source of `tests/kernels`.
pub fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("kernels")
        .join(name)
}

/// A folder for a test's files.
pub fn folder(test: &str) -> PathBuf {
    let folder = atom::target_folder()
        .unwrap()
        .join("test-programs/kernel")
        .join(test);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Compiles; the marker header is found.
pub fn compile(compiler: &str, options: &[&str], sources: &[PathBuf], out: &Path) {
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
pub fn go(program: &Path) -> Outcome {
    let mut command = Command::new(program);
    plain_environment(&mut command);
    command.current_dir(program.parent().unwrap());
    run(&mut command, &Setting::default()).unwrap()
}

/// What `--list` prints.
pub fn list(program: &Path, options: &[&str]) -> String {
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

/// Executions of each section by name, and the facts behind them.
pub struct Summary {
    /// Executions.
    pub counts: HashMap<String, u64>,
    /// Ids.
    pub ids: HashMap<String, u16>,
    /// Values that were played back: number and sum.
    pub played: HashMap<String, (u64, f64)>,
    /// What else there is to know.
    pub facts: HashMap<String, u64>,
}

/// Instruments a program with a tool, by name or file.
pub fn instrument(program: &Path, tool: &str, options: &[&str]) -> PathBuf {
    let out = program.with_extension("out");
    let mut command = Command::new(atom::command().unwrap());
    command.arg(program);
    match tool.contains('/') {
        true => command.arg(tool),
        false => command.args(["--tool", tool]),
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

/// Reads what `--summary` wrote.
pub fn summary(file: &Path) -> Summary {
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

/// Instruments and runs, and checks that the program does what it did.
pub fn profile(program: &Path, options: &[&str]) -> Summary {
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

//! Return addresses that the program looks at: with `--original-returns` they are the original's, and the code of
//! programs that look them up by themselves (OCaml's) is counted without being asked for.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use atom_tests::atom::{self, Job};
use atom_tests::outcome::plain_environment;

fn compile(name: &str, compiler: &str, flags: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/returns")
        .join(name);
    let place = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("returns")
        .join(name);
    std::fs::create_dir_all(&place).unwrap();
    // The compiler of OCaml writes beside the source.
    let copy = place.join(name);
    std::fs::copy(source, &copy).unwrap();
    let program = place.join("program");
    let mut command = Command::new(compiler);
    command.args(flags).arg(&copy).arg("-o").arg(&program);
    let output = command.output().expect("the compiler runs");
    assert!(output.status.success(), "{output:?}");
    program
}

fn run(program: &Path) -> Output {
    let mut command = Command::new(program);
    plain_environment(&mut command);
    command.output().expect("the program runs")
}

/// Rewrites a program, checks that it says the same as before, and yields the counts of each procedure.
fn counts(program: &Path, more: &[&str]) -> String {
    let expected = run(program);
    let place = program.parent().unwrap();
    let file = place.join("counts");
    let format = ["--format", "tsv", "--output"];
    let mut options: Vec<String> = format.map(String::from).to_vec();
    options.push(file.to_string_lossy().into_owned());
    let jobs = [Job::Moved, Job::Tool("icount".into(), options)];
    for (job, name) in jobs.into_iter().zip(["moved", "counted"]) {
        let output = place.join(name);
        let job = Job::With(Box::new(job), more.iter().map(|w| w.to_string()).collect());
        atom::instrument(program, &output, &job, true).unwrap();
        assert_eq!(run(&output), expected, "{}", output.display());
    }
    std::fs::read_to_string(file).unwrap()
}

/// What the program prints of its return addresses is the original's.
#[test]
fn addresses() {
    for flags in [
        ["-O0", "-rdynamic"],
        ["-O2", "-rdynamic"],
        ["-O2", "-no-pie"],
    ] {
        let program = compile("addresses.c", "gcc", &flags);
        let counts = counts(&program, &["--original-returns"]);
        let caller = counts.lines().any(|line| line.contains("\tcaller"));
        assert!(caller, "{counts}");
    }
}

#[test]
fn exceptions() {
    for flags in [["-O0"], ["-O2"]] {
        let program = compile("thrown.cc", "g++", &flags);
        counts(&program, &["--original-returns"]);
    }
}

/// The garbage collector finds its frames, and OCaml's own code is counted.
#[test]
fn collections() {
    let program = compile("collect.ml", "ocamlopt", &["-g"]);
    let counts = counts(&program, &[]);
    let build = counts
        .lines()
        .find(|line| line.contains("camlCollect__build"));
    assert!(build.is_some(), "{counts}");
}

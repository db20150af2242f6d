//! Tools of one file, tried on small programs that are compiled for the test.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::outcome::{Outcome, Setting, plain_environment, run};
use crate::{atom, cache};

/// Compiles a program of these sources; returns its path, in a folder of this name.
pub fn compile(name: &str, sources: &[PathBuf], flags: &[&str]) -> PathBuf {
    let out = cache::empty_folder(name).join("program");
    let mut command = Command::new("gcc");
    command.args(["-O1", "-g"]).args(flags).args(sources);
    assert!(command.arg("-o").arg(&out).status().unwrap().success());
    out
}

/// Instruments a program with options of `atom` and of the tool. Returns what `atom` said, and the path of the output beside the program.
pub fn instrument(
    program: &Path,
    tool: &Path,
    more: &[&str],
    options: &[&str],
) -> (String, PathBuf) {
    let out = program.with_extension("rewritten");
    let mut command = Command::new(atom::command().unwrap());
    command.arg(program).arg(tool).args(more);
    command.arg("-o").arg(&out).arg("--").args(options);
    let made = command.output().unwrap();
    let said = String::from_utf8_lossy(&made.stderr).into_owned();
    assert!(made.status.success(), "{said}");
    (said, out)
}

/// Runs a program in a plain environment.
pub fn run_rewritten(program: &Path, arguments: &[&str]) -> Outcome {
    let mut command = Command::new(program);
    command.args(arguments);
    plain_environment(&mut command);
    run(&mut command, &Setting::default()).unwrap()
}

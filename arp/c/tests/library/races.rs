//! Helgrind finds no race between threads that record and play back: data that the C layer shares between
//! threads without a lock is atomic.

use std::path::Path;
use std::process::{Command, Output};

use crate::common::{Program, compile, library};

fn helgrind(program: &Program, words: &[&str]) -> Output {
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/helgrind.supp");
    let mut command = Command::new("valgrind");
    command
        .args(["--tool=helgrind", "--error-exitcode=99"])
        .arg(format!("--suppressions={}", rules.display()))
        .arg(program.path("program"))
        .args(words)
        .current_dir(program.folder.path())
        .env("LD_LIBRARY_PATH", library());
    command.output().expect("valgrind runs")
}

#[test]
fn threads_do_not_race() {
    let program = compile("g++", &["threads.cc"], &["-O1", "-g", "-pthread"]);
    program.succeed(&["s"]);
    // Three runs, each of which reads the previous run's file: recorded by two threads, played back, recorded again.
    for words in [["p"], ["pb"], ["p"]] {
        let output = helgrind(&program, &words);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{words:?}: {text}");
    }
    assert_eq!(program.records("data.arp").len(), 200);
}

#[test]
fn a_race_is_seen() {
    let program = compile("gcc", &["race.c"], &["-O1", "-g", "-pthread"]);
    let output = helgrind(&program, &[]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(99), "{text}");
    assert!(
        text.contains("Possible data race") && text.contains("work"),
        "{text}"
    );
}

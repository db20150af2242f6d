//! Programs on small stacks, under tools that need much of a stack at times.

use std::process::Command;

use super::Place;
use atom_tests::atom;

const TOOLS: [&str; 8] = [
    "icount", "memtrace", "heap", "calltree", "counters", "predict", "reuse", "bbv",
];

const WAYS: [&str; 7] = [
    "thread",
    "exit",
    "alternate",
    "crash",
    "coroutine",
    "child",
    "system",
];

#[test]
fn small_stacks_are_left_alone() {
    let place = Place::new("stacks");
    place.program("gcc", "stacks.c", &["-pthread"]);
    for tool in TOOLS {
        let mut command = Command::new(atom::command().unwrap());
        command.arg(place.original()).arg("-o").arg(place.bundle());
        command.args(["-q", "--libs", "--tool", tool]);
        let output = command.output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{tool}: {error}");
        for way in WAYS {
            println!("{tool} {way}");
            place.same(&[way]);
        }
    }
}

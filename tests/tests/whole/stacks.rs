//! Programs on small stacks, under tools that need much of a stack at times.

use super::Place;

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
        place.instrument_by(tool, &["--libs"]);
        for way in WAYS {
            println!("{tool} {way}");
            place.same(&[way]);
        }
    }
}

#[test]
fn traced_tasks_stop_on_their_own_stacks() {
    let place = Place::new("traced");
    place.program("gcc", "traced.c", &[]);
    for tool in ["icount", "cache", "memtrace", "calltree", "reuse"] {
        println!("{tool}");
        place.instrument_by(tool, &["--libs"]);
        place.same(&[]);
    }
}

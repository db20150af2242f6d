//! Signals that end the process, and what the process sees of its own dispositions.

use super::Place;

/// Ways of `ends.c` that leave a report.
const REPORTED: [&str; 27] = [
    "abort",
    "null",
    "jump",
    "term",
    "int",
    "hup",
    "usr1",
    "rt",
    "exit",
    "quick",
    "assert",
    "alarm",
    "pipe",
    "divide",
    "trap",
    "int3",
    "bus",
    "thread-abort",
    "thread-term",
    "blocked",
    "again",
    "handled-abort",
    "sys",
    "prof",
    "poll",
    "queue",
    "return",
];

/// Ways in which the kernel ends the process without a word: a signal that cannot be handled, a fault
/// whose signal is blocked or ignored, a stack without room, a handler that the kernel replaces by the
/// default action (`SA_RESETHAND`).
const SILENT: [&str; 5] = ["kill", "reset", "blocked-null", "ignored-null", "overflow"];

fn ends(compiler: &str, flags: &[&str]) {
    let place = Place::new(&format!("ends-{compiler}"));
    place.program(compiler, "ends.c", flags);
    place.instrument(&[]);
    let mut missing = Vec::new();
    for way in REPORTED.iter().chain(&SILENT) {
        let outcome = place.same(&[way]);
        let counts = place.counts(outcome.pid);
        let total: u64 = counts.iter().flat_map(|c| c.values()).sum();
        if SILENT.contains(way) {
            continue;
        }
        if total < 1000 {
            missing.push((way, total));
        }
    }
    assert!(missing.is_empty(), "{compiler}: no report: {missing:?}");
}

#[test]
fn a_process_ends_as_the_original_and_reports() {
    ends("gcc", &[]);
}

#[test]
fn under_the_other_libc() {
    ends("musl-gcc", &[]);
}

#[test]
fn dispositions_are_seen_as_the_program_set_them() {
    for compiler in ["gcc", "musl-gcc"] {
        let place = Place::new(&format!("dispositions-{compiler}"));
        place.program(compiler, "dispositions.c", &["-D_GNU_SOURCE"]);
        place.instrument(&[]);
        place.same(&[]);
    }
}

#[test]
fn ignored_signals_are_inherited() {
    let place = Place::new("inherits");
    place.program("gcc", "dispositions.c", &[]);
    place.instrument(&[]);
    for signals in ["HUP", "INT TERM", "PIPE", "USR1 CHLD"] {
        let said = |file: &std::path::Path| {
            let script = format!("trap '' {signals}; exec {} start", file.display());
            let shell = atom_tests::programs::needed("sh");
            let mut command = place.command(&shell, &["-c", &script]);
            command.output().unwrap()
        };
        let original = said(&place.original());
        assert!(String::from_utf8_lossy(&original.stdout).contains("ignored"));
        assert_eq!(original, said(&place.bundle()), "{signals}");
    }
}

/// Tools whose inserted code differs most: counters, checks with cold paths, buffers that a routine empties,
/// long routines, shadow stacks.
const TOOLS: [&str; 5] = ["icount", "memtrace", "cache", "calltree", "branch"];

/// Instruments a program in several ways; it prints the same each time, and `expected`.
fn shown(source: &str, (compiler, flags): (&str, &[&str]), tools: &[&str], expected: &str) {
    let is_static = flags.contains(&"-static");
    let kind = if is_static { "static" } else { "dynamic" };
    let name = source.split('.').next().unwrap();
    for tool in tools {
        for inline in [&[][..], &["--no-inline"]] {
            let place = Place::new(&format!("{name}-{compiler}-{kind}-{tool}"));
            place.program(compiler, source, flags);
            let libraries: &[&str] = if is_static { &[] } else { &["--libs"] };
            place.instrument_by(tool, &[libraries, inline].concat());
            let outcome = place.same(&[]);
            let printed = String::from_utf8_lossy(&outcome.stdout);
            assert_eq!(
                printed.trim_end(),
                expected,
                "{compiler} {kind} {tool} {inline:?}"
            );
        }
    }
}

const ALL_RIGHT: &str = "walk 0 wrong, faults 0 wrong, frames 0 wrong";
const ALL_CANCELLED: &str = "waiting 24 cancelled 24, computing 24 cancelled 24";

#[test]
fn handlers_see_the_original() {
    shown(
        "shown.c",
        ("gcc", &["-fno-optimize-sibling-calls"]),
        &TOOLS,
        ALL_RIGHT,
    );
}

#[test]
fn handlers_see_the_original_of_a_static_program() {
    let flags = ["-static", "-fno-optimize-sibling-calls"];
    shown("shown.c", ("gcc", &flags), &TOOLS[..2], ALL_RIGHT);
}

#[test]
fn threads_are_cancelled() {
    shown("cancelled.c", ("gcc", &["-pthread"]), &TOOLS, ALL_CANCELLED);
    shown("cancelled.c", ("musl-gcc", &[]), &TOOLS[..2], ALL_CANCELLED);
    shown(
        "cancelled.c",
        ("musl-gcc", &["-static"]),
        &TOOLS[..2],
        ALL_CANCELLED,
    );
}

#[test]
fn handlers_repair_what_they_interrupted() {
    let expected = "50 50 20 30, 0 elsewhere, 12514807623321753850";
    for flags in [&[][..], &["-static"]] {
        shown("repaired.c", ("gcc", flags), &TOOLS[..2], expected);
    }
}

#[test]
fn handlers_throw() {
    let program = ("g++", &["-O2", "-fnon-call-exceptions"][..]);
    shown("noncall.cc", program, &TOOLS[..2], "10400 22575");
}

#[test]
fn threads_unmap_their_stacks() {
    for flags in [&[][..], &["-static"]] {
        let program = ("musl-gcc", flags);
        shown("detached.c", program, &TOOLS, "begun 40, running 1");
    }
}

#[test]
fn a_handler_for_one_signal_is_one_for_deferred_signals_too() {
    let place = Place::new("once");
    place.program("gcc", "once.c", &[]);
    for options in [&["--libs"][..], &["--libs", "--no-inline"]] {
        place.instrument_by("memtrace", options);
        place.same(&[]);
    }
}

#[test]
fn system_calls_are_emulated() {
    let expected = "emulated 6 answered 6 addresses 6 written here";
    for flags in [&[][..], &["-static"]] {
        shown("emulated.c", ("gcc", flags), &TOOLS, expected);
    }
}

#[test]
fn single_steps_are_those_of_the_original() {
    let expected = "sum 265, steps 92, elsewhere 0, ended 2";
    for flags in [&["-mno-red-zone"][..], &["-mno-red-zone", "-static"]] {
        shown("stepped.c", ("gcc", flags), &["icount"], expected);
    }
}

#[test]
fn alignment_is_checked() {
    let expected = "sum 26372164800, checked 1";
    let tools = ["icount", "memtrace", "calltree", "calllog", "cache"];
    for flags in [&[][..], &["-static"]] {
        shown("checked.c", ("gcc", flags), &tools, expected);
    }
}

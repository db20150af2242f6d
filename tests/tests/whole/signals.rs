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

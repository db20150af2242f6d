//! Ground truth: a single-stepper follows the process from the first instruction of the program
//! interpreter to the end, and `icount` counts the same in every object, address by address.
//!
//! Two differences are explained, and allowed:
//! - The interpreter maps other files, reads other paths and system calls, and sorts maps by their
//!   addresses: only its total is compared, to 1 %.
//! - Procedures that `atom` does not understand are left as they are: nothing in them is counted.

use super::Place;
use atom_tests::outcome::{Setting, run};
use atom_tests::source::End;
use atom_tests::{depth, programs, whole};

/// Number of steps after which a program is taken for one that does not end.
const MOST_STEPS: u64 = 50_000_000;

/// Largest share of instructions in procedures that are not understood, in percent. In libc these
/// are `vfprintf` and a few others.
const MOST_UNSEEN: u64 = 2;

fn judge(place: &Place, arguments: &[&str]) {
    place.instrument(&[]);
    let mut stepped = place.command(&place.original(), arguments);
    stepped
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null());
    let (end, expected) = whole::step(&place.original(), &mut stepped, MOST_STEPS).unwrap();
    let setting = Setting {
        fixed_addresses: true,
        ..Setting::default()
    };
    let outcome = run(&mut place.command(&place.bundle(), arguments), &setting).unwrap();
    assert_eq!(end, End::Exit(0));
    assert_eq!(outcome.end, end, "{outcome:?}");
    let found = place.counts(outcome.pid).expect("a report");
    let is_interpreter = |key: &str| key.starts_with("ld-");
    let total = |counts: &whole::Counts| {
        let own = counts.iter().filter(|(key, _)| is_interpreter(key));
        own.map(|(_, n)| n).sum::<u64>()
    };
    let (a, b) = (total(&expected), total(&found));
    assert!(a > 10_000, "the interpreter hardly ran: {a}");
    assert!(
        a.abs_diff(b) * 100 <= a,
        "{}: the interpreter executed {a} instructions, counted are {b}",
        place.name
    );
    let mut wrong = whole::difference(&expected, &found);
    wrong.retain(|(key, ..)| !is_interpreter(key));
    let (unseen, wrong): (Vec<_>, Vec<_>) = wrong.into_iter().partition(|(_, _, n)| *n == 0);
    assert!(
        wrong.is_empty(),
        "{}: {} addresses differ: {:?}",
        place.name,
        wrong.len(),
        &wrong[..wrong.len().min(20)]
    );
    let all: u64 = expected.values().sum();
    let left: u64 = unseen.iter().map(|(_, n, _)| n).sum();
    assert!(
        left * 100 <= MOST_UNSEEN * all,
        "{}: of {all} instructions {left} are not counted: {:?}",
        place.name,
        &unseen[..unseen.len().min(20)]
    );
}

fn shipped(program: &str, arguments: &[&str]) {
    let place = Place::new(program);
    std::fs::copy(programs::needed(program), place.original()).unwrap();
    judge(&place, arguments);
}

#[test]
fn a_program_that_does_nothing() {
    shipped("true", &[]);
}

#[test]
fn a_source_with_work_in_libraries() {
    let place = Place::new("single");
    place.program("gcc", "single.c", &["-lm"]);
    judge(&place, &[]);
}

#[test]
fn a_program_with_more_libraries() {
    if depth::is_full() {
        shipped("ls", &["/usr/include/linux"]);
        shipped("sqlite3", &[":memory:", "select 6*7;"]);
        shipped("bzip2", &["--help"]);
    }
}

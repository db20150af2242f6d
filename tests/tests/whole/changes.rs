//! Programs that change their own code: the change takes effect, and what is not counted any more is said.

use atom_tests::counts::{Missed, Symbols};

use super::Place;

/// Calls of `all` in one line of the program's output.
const CALLS: u64 = 3;

/// Calls that are counted, by procedure. The page of `first` is made writable at the second line, and at the third the program
/// writes back what it has read of it before, so only one line is lost. `second` runs in place from the fourth line on. The page of
/// `sixth` is changed in another process only.
const COUNTED: [(&str, u64); 4] = [
    ("first", 12 * CALLS),
    ("second", 3 * CALLS),
    ("sixth", 13 * CALLS),
    ("all", 13 * CALLS),
];

#[test]
fn what_a_program_writes_into_its_code_takes_effect() {
    for (name, flags) in [
        ("selfwrite", &[][..]),
        ("selfwrite-fixed", &["-no-pie"]),
        ("selfwrite-static", &["-static"]),
    ] {
        for strict in [&[][..], &["--strict"], &["--move-all"]] {
            let place = Place::new(name);
            place.program("gcc", "selfwrite.c", flags);
            place.instrument(strict);
            let missed = Missed::of(&place.original()).unwrap();
            let outcome = place.same(&[]);
            let counts = place.counts(outcome.pid).expect("a report");
            let symbols = Symbols::read(&place.original());
            let count = |symbol: &str| {
                let address = symbols.address(symbol).expect("a symbol");
                let key = format!("{address:#x}");
                counts.get(&key).copied().unwrap_or(0)
            };
            let mut counted = 0;
            for (symbol, calls) in COUNTED {
                let address = symbols.address(symbol).expect("a symbol");
                // A procedure whose bytes the program reads stays in place, has no count, and is named.
                let calls = match missed.around(address) {
                    Some(gap) if gap.reason.contains("reads its instructions as data") => 0,
                    _ => calls,
                };
                assert_eq!(count(symbol), calls, "{name} {strict:?} {symbol}");
                counted += calls;
            }
            assert!(counted > 0, "{name} {strict:?}");
        }
    }
}

//! Tasks that share their memory and their thread pointer are told apart.

use atom_tests::counts::Symbols;

use super::Place;

/// Calls of `step`: four tasks, each with this number of rounds.
const STEPS: u64 = 4 * 200_000;

#[test]
fn tasks_with_one_thread_pointer_lose_no_counts() {
    for (name, flags) in [("twins", &[][..]), ("twins-static", &["-static"])] {
        let place = Place::new(name);
        place.program("gcc", "twins.c", flags);
        for options in [&[][..], &["--precise-signals"]] {
            place.instrument(options);
            let outcome = place.same(&[]);
            let counts = place.counts(outcome.pid).expect("a report");
            let address = Symbols::read(&place.original()).address("step");
            let key = format!("{:#x}", address.expect("a symbol"));
            assert_eq!(counts.get(&key), Some(&STEPS), "{name} {options:?}");
        }
    }
}

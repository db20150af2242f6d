//! Routines read memory that may not be mapped: in threads, in forked children, and under filters of system calls.

use std::path::Path;

use atom_tests::one_file::{compile, instrument, run_rewritten};

#[test]
fn what_can_be_read_is_read_and_nothing_faults() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reading");
    let ways: [(&str, &[&str], &[&str]); 3] = [
        ("reading-alone", &[], &["--check"]),
        ("reading-whole", &[], &["--libs", "--check"]),
        ("reading-static", &["-static"], &["--check"]),
    ];
    for (name, flags, more) in ways {
        let program = compile(name, &[here.join("program.c")], flags);
        let (_, out) = instrument(&program, &here.join("tool.rs"), more, &[]);
        // The runtime sees filters where the C library is instrumented.
        let is_alone = name == "reading-alone";
        for forbidden in [&[][..], &["error"], &["kill"]]
            .into_iter()
            .take(3 - usize::from(is_alone))
        {
            let outcome = run_rewritten(&out, forbidden);
            let [told, read] =
                [outcome.stdout, outcome.stderr].map(|o| String::from_utf8(o).unwrap());
            assert_eq!(told.lines().count(), 36, "{name} {forbidden:?}: {told}");
            assert_eq!(read, told, "{name} {forbidden:?}");
        }
    }
}

//! Arguments of procedures by their numbers, and the addresses to which procedures return.

use std::path::Path;

use atom_tests::one_file::{compile, instrument, run_rewritten};

#[test]
fn arguments_and_return_addresses_are_the_programs() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/arguments");
    let ways: [(&str, &[&str], &[&str]); 7] = [
        ("alone", &[], &["--check"]),
        ("fixed", &["-no-pie"], &["--check"]),
        ("home", &[], &["--check", "--original-returns"]),
        ("called", &[], &["--check", "--no-inline"]),
        ("whole", &[], &["--libs", "--check"]),
        (
            "whole-home",
            &[],
            &["--libs", "--check", "--original-returns"],
        ),
        ("static", &["-static"], &["--check"]),
    ];
    for (name, flags, more) in ways {
        let folder = format!("arguments-{name}");
        let program = compile(&folder, &[here.join("program.c")], flags);
        let (_, out) = instrument(&program, &here.join("tool.rs"), more, &[]);
        let outcome = run_rewritten(&out, &[]);
        let [told, found] = [outcome.stdout, outcome.stderr].map(|o| String::from_utf8(o).unwrap());
        let (returns, arguments): (Vec<&str>, Vec<&str>) =
            found.lines().partition(|line| line.contains("returns"));
        assert_eq!(arguments, told.lines().collect::<Vec<_>>(), "{name}");
        let count = |line: &str| returns.iter().filter(|l| **l == line).count();
        assert_eq!(count("nine returns"), 11, "{name}: {found}");
        assert_eq!(count("none returns"), 11, "{name}: {found}");
        // Where the C library is not instrumented, its call is not seen; else its new text is another object's.
        let is_seen = name == "whole-home" || name == "static";
        let of_library = count(if is_seen {
            "compare returns"
        } else {
            "compare returns elsewhere"
        });
        assert!(of_library > 3, "{name}: {found}");
        assert_eq!(returns.len(), 22 + of_library, "{name}: {found}");
    }
}

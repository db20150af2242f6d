//! Tools that change the program: `examples/fault`, whose routine runs in place of `malloc`, and `set.rs`, which sets registers.

use std::path::{Path, PathBuf};

use atom_tests::one_file::{compile, instrument, run_rewritten};
use atom_tests::outcome::Outcome;

/// A file of this folder.
fn file(name: &str) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.join("tests/replace").join(name)
}

/// Compiles a program of these sources; returns its path in a folder of its own.
fn build(name: &str, sources: &[&str], flags: &[&str]) -> PathBuf {
    let sources: Vec<PathBuf> = sources.iter().map(|name| file(name)).collect();
    compile(&format!("replace-{name}"), &sources, flags)
}

/// Has the n-th `malloc` fail; returns what `atom` said and what the program did.
fn with_fault(program: &Path, more: &[&str], nth: u32) -> (String, Outcome) {
    let tool = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/fault/fault.rs");
    let (said, out) = instrument(program, &tool, more, &["--nth", &nth.to_string()]);
    (said, run_rewritten(&out, &[]))
}

#[test]
fn one_call_of_malloc_fails() {
    let ways: [(&str, &[&str], &[&str]); 2] = [
        ("whole", &[], &["--libs", "--check"]),
        ("static", &["-static"], &["--check"]),
    ];
    for (name, flags, more) in ways {
        let program = build(name, &["program.c"], flags);
        let mut failed = 0;
        // What the loader and the library allocate comes first, and is no part of the five.
        for nth in 1..40 {
            let (said, outcome) = with_fault(&program, more, nth);
            assert!(
                said.contains("changes the program: it replaces malloc"),
                "{said}"
            );
            let told = String::from_utf8_lossy(&outcome.stderr).into_owned();
            match &outcome.stdout[..] {
                b"yyyyy\n" if failed == 0 || told.is_empty() => {}
                // The library does not start without its memory.
                text if text.len() != 6 => {}
                text => {
                    let n = text.iter().filter(|b| **b == b'n').count();
                    assert_eq!((n, text[failed]), (1, b'n'), "{name} {nth}");
                    assert_eq!(told, format!("fault: malloc({}) fails\n", 1000 + failed));
                    failed += 1;
                }
            }
            if failed == 5 {
                break;
            }
        }
        assert_eq!(failed, 5, "{name}");
    }
}

/// Each second call of a procedure finds its register greater by 0x100; nothing else has changed.
#[test]
fn registers_are_set_and_nothing_else() {
    let ways: [(&str, &[&str], &[&str]); 3] = [
        ("set-alone", &[], &["--check", "--strict"]),
        ("set-whole", &[], &["--libs", "--check"]),
        ("set-static", &["-static"], &["--check"]),
    ];
    for (name, flags, more) in ways {
        let program = build(name, &["set.c", "set.S"], flags);
        let (said, out) = instrument(&program, &file("set.rs"), more, &[]);
        let outcome = run_rewritten(&out, &[]);
        let change = "the tool changes the program: it replaces values of registers at 20 places";
        assert!(said.contains(change), "{said}");
        let text = String::from_utf8(outcome.stdout).unwrap();
        assert_eq!(text.lines().count(), 20, "{text}");
        for line in text.lines() {
            let (name, values) = line.split_once(' ').unwrap();
            let expected = match name {
                "before_rax" => "5a5a11 5a5a11 5a5a11 5a5a11",
                "call_rax" => "8 108 8 108",
                "entry_rdi" => "3 306 9 30c",
                "syscall_rax" => "0 100 0 100",
                _ => "5a5a11 5a5b11 5a5a11 5a5b11",
            };
            assert_eq!(values, expected, "{name}");
        }
    }
}

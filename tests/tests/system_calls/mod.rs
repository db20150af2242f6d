//! System calls with their numbers, arguments and results: what `examples/strace` writes.

use std::path::Path;

use atom_tests::one_file::{compile, instrument, run_rewritten};

/// True if a line is of this form, in which `*` stands for any text.
fn fits(line: &str, form: &str) -> bool {
    match form.split_once('*') {
        None => line == form,
        Some((front, back)) => line.starts_with(front) && line[front.len()..].ends_with(back),
    }
}

#[test]
fn the_example_tells_calls_arguments_and_results() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let tool = root.join("../examples/strace/strace.rs");
    let sources = [root.join("tests/system_calls/program.c")];
    let ways: [(&str, &[&str], &[&str]); 2] = [
        ("whole", &["-pthread"], &["--libs", "--check"]),
        ("static", &["-pthread", "-static"], &["--check"]),
    ];
    for (name, flags, more) in ways {
        let program = compile(&format!("system-calls-{name}"), &sources, flags);
        let file = program.with_extension("out");
        let file = file.to_str().unwrap();
        let (_, out) = instrument(&program, &tool, more, &["--output", file]);
        let outcome = run_rewritten(&out, &[]);
        let told = String::from_utf8(outcome.stdout).unwrap();
        let written = std::fs::read_to_string(file).unwrap();
        assert_eq!(told.lines().count(), 4, "{told}");
        // In the order in which they are made, with others in between.
        let mut lines = written.lines();
        for form in told.lines() {
            let found = lines.any(|line| fits(line, form));
            assert!(found, "{name}: {form} is not in its place in {written}");
        }
        // The new thread comes back from a call of its parent's.
        let begins = written.lines().filter(|line| line.ends_with(" begins"));
        assert_eq!(begins.count(), 1, "{name}: {written}");
    }
}

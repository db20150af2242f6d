//! The tools of docs/writing-a-tool.md do what the page says. `readme.rs` compares their text with the page's.

use std::path::Path;
use std::process::{Command, Output};

use crate::common::{Folder, tool};

/// Instruments the program `app` with a tool of the page, or with *icount*, and runs it with variables of the environment, at
/// the same addresses each time: the C library's start executes a few instructions more or less by where the stack lies.
fn run(folder: &Folder, name: &str, options: &[&str], variables: &[(&str, &str)]) -> Output {
    let beside = || Path::new(env!("CARGO_BIN_EXE_atom")).with_file_name("libicount.so");
    let tool = match name {
        "icount" => beside().display().to_string(),
        _ => tool(name),
    };
    let mut args = vec!["app", &tool, "-o", "out", "--"];
    args.extend(options);
    folder.atom_ok(&args);
    let mut command = Command::new("setarch");
    command.arg("-R").arg(folder.join("out"));
    command.current_dir(folder.path());
    let output = command.envs(variables.iter().copied()).output().unwrap();
    assert_eq!(crate::common::stderr(&output), "", "{name}");
    output
}

/// The number in front of a name in a file of lines.
fn count(folder: &Folder, file: &str, name: &str) -> u64 {
    let text = String::from_utf8(folder.read(file)).unwrap();
    let line = |line: &str| line.strip_suffix(&format!("\t{name}"))?.parse().ok();
    let found = text.lines().find_map(line);
    found.unwrap_or_else(|| panic!("no {name} in {text}"))
}

#[test]
fn processes_share_memory() {
    let folder = Folder::with_app();
    let variables = [("COUNTS", "counts"), ("RUNS", "4")];
    let four = run(&folder, "processes", &["--output", "four"], &variables);
    let one = run(&folder, "processes", &["--output", "one"], &variables[..1]);
    assert!(!one.stdout.is_empty());
    assert_eq!(four.stdout, one.stdout.repeat(4));
    for name in ["main", "twice"] {
        let [four, one] = ["four", "one"].map(|file| count(&folder, file, name));
        assert!(one > 0 && four == 4 * one, "{name}: {four} and {one}");
    }
    // Without the variable nothing is counted, and the program runs once.
    let none = run(&folder, "processes", &["--output", "none"], &variables[1..]);
    assert_eq!(none.stdout, one.stdout);
    assert_eq!(folder.read("none"), b"");
}

/// `direct` calls `malloc`, `tail` jumps to it.
const ALLOCATES: &str = r#"
#include <stdlib.h>
__attribute__((noinline)) void *direct(long n) { char *p = malloc(n); p[0] = 1; return p; }
__attribute__((noinline)) void *tail(long n) { return malloc(n * 2); }
int main(void) {
    for (long i = 1; i <= 10; i++) { free(direct(i)); free(tail(i)); }
    void *volatile large = tail(-1UL >> 2);
    return large != 0;
}
"#;

#[test]
fn results_behind_jumps_are_seen() {
    let folder = Folder::new();
    folder.compile("app", ALLOCATES, &["-O2"]);
    assert!(
        run(&folder, "blocks", &["--json", "json"], &[])
            .status
            .success()
    );
    let json: serde_json::Value = serde_json::from_slice(&folder.read("json")).unwrap();
    let rows = json["places"].as_array().unwrap();
    let row = |name: &str| {
        let row = rows.iter().find(|row| row["procedure"] == name);
        let row = row.unwrap_or_else(|| panic!("no {name} in {json}"));
        [&row["blocks"], &row["bytes"]].map(|n| n.as_u64().unwrap())
    };
    assert_eq!(row("direct"), [10, 55]);
    assert_eq!(row("tail"), [10, 110]);
    assert_eq!(json["all_bytes"].as_u64(), Some(165), "{json}");
}

#[test]
fn no_sample_is_missed() {
    let folder = Folder::new();
    let source = "int main(void) { volatile long sum = 0; for (int i = 0; i < 100000; i++) sum += i; return 0; }";
    folder.compile("app", source, &["-O1", "-static"]);
    run(&folder, "samples", &["--output", "samples"], &[]);
    let text = String::from_utf8(folder.read("samples")).unwrap();
    let number =
        |line: &str, end: char| -> u64 { line.split(end).next().unwrap().parse().unwrap() };
    let (last, lines) = text
        .trim_end()
        .rsplit_once('\n')
        .map(|(a, b)| (b, a))
        .unwrap();
    let samples: u64 = lines.lines().map(|line| number(line, '\t')).sum();
    let counted = samples * 1000 + number(last, ' ');
    let json = ["--per", "program", "--json", "json"];
    run(&folder, "icount", &json, &[]);
    let json: serde_json::Value = serde_json::from_slice(&folder.read("json")).unwrap();
    assert_eq!(json["instructions"].as_u64(), Some(counted), "{json}");
    assert!(count(&folder, "samples", "main") * 1000 > 400_000, "{text}");
}

#[test]
fn the_clock_stops() {
    let folder = Folder::new();
    let source = "#include <stdio.h>\n#include <x86intrin.h>\n\
        int main(void) { unsigned long long t = __rdtsc(); printf(\"%llu %d\", t, __rdtsc() == t); return 0; }";
    folder.compile("app", source, &["-O2"]);
    assert_eq!(run(&folder, "clock", &[], &[]).stdout, b"0 1");
}

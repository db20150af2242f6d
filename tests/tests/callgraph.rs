//! `prof` and `inline` on a program whose calls are known by hand.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use atom_tests::atom::{self, Job};
use atom_tests::outcome::{Setting, plain_environment, run};

const PROGRAM: &str = r#"
#define HIDDEN __attribute__((noinline, noclone))
static volatile int sink;
HIDDEN static void leaf(int n) { sink = n; }
HIDDEN static void other(int n) { sink = -n; }
HIDDEN static void middle(int n) { leaf(n); sink++; leaf(n); sink++; }
HIDDEN static int deep(int n) { if (n == 0) return 1; int r = deep(n - 1); sink = r; return r + n; }
HIDDEN static void tail(int n) { sink = 7; leaf(n); }
static void (*volatile choice)(int);
int main(void) {
    for (int i = 0; i < 1000; i++) middle(i);
    for (int i = 0; i < 500; i++) { choice = i % 5 < 3 ? leaf : other; choice(i); }
    for (int i = 0; i < 30; i++) sink = deep(i % 3);
    for (int i = 0; i < 40; i++) tail(i);
    return 0;
}
"#;

/// Number of entries of each procedure.
const ENTRIES: [(&str, u64); 6] = [
    ("main", 1),
    ("middle", 1000),
    ("leaf", 2000 + 300 + 40),
    ("other", 200),
    ("deep", 30 + 10 + 20),
    ("tail", 40),
];

/// Caller, callee and number of calls.
const ARCS: [(&str, &str, u64); 7] = [
    ("main", "middle", 1000),
    ("middle", "leaf", 2000),
    ("main", "leaf", 300),
    ("main", "other", 200),
    ("main", "deep", 30),
    ("deep", "deep", 30),
    ("main", "tail", 40),
];

fn compile(folder: &Path, flags: &[&str]) -> PathBuf {
    std::fs::create_dir_all(folder).unwrap();
    let (source, program) = (folder.join("calls.c"), folder.join("calls"));
    std::fs::write(&source, PROGRAM).unwrap();
    let mut command = Command::new("gcc");
    command.arg("-O2").args(flags).arg("-o").arg(&program);
    assert!(command.arg(&source).status().expect("gcc runs").success());
    program
}

/// The JSON that the tool writes.
fn figures(folder: &Path, program: &Path, tool: &str, options: &[&str]) -> serde_json::Value {
    let (out, file) = (folder.join(tool), folder.join(format!("{tool}.json")));
    let mut all = vec!["--json".to_owned(), file.display().to_string()];
    all.extend(options.iter().map(|o| (*o).to_owned()));
    atom::instrument(program, &out, &Job::Tool(tool.to_owned(), all), true).unwrap();
    let mut command = Command::new(&out);
    plain_environment(&mut command);
    command.current_dir(folder);
    let outcome = run(&mut command, &Setting::default()).unwrap();
    assert_eq!(outcome.end, atom_tests::source::End::Exit(0));
    serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap()
}

fn each(flags: &[&[&str]], check: impl Fn(&Path, &Path)) {
    for (i, flags) in flags.iter().enumerate() {
        let thread = std::thread::current();
        let name = format!("calls-{}-{i}", thread.name().unwrap_or("test"));
        let folder = atom_tests::cache::folder(&name);
        let program = compile(&folder, flags);
        check(&folder, &program);
    }
}

const BUILDS: [&[&str]; 3] = [
    &[],
    &["-no-pie", "-fno-optimize-sibling-calls"],
    &["-static"],
];

#[test]
fn prof_finds_entries_callers_and_callees() {
    each(&BUILDS, |folder, program| {
        let json = figures(folder, program, "prof", &["--top", "100000"]);
        let entries: BTreeMap<&str, u64> = json["procedures"]
            .as_array()
            .unwrap()
            .iter()
            .map(|p| {
                (
                    p["procedure"].as_str().unwrap(),
                    p["entries"].as_u64().unwrap(),
                )
            })
            .collect();
        for (name, count) in ENTRIES {
            assert_eq!(entries.get(name), Some(&count), "{name} of {program:?}");
        }
        let mut arcs: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        for arc in json["arcs"].as_array().unwrap() {
            let names = (
                arc["caller"].as_str().unwrap(),
                arc["callee"].as_str().unwrap(),
            );
            *arcs.entry(names).or_default() += arc["calls"].as_u64().unwrap();
        }
        for (caller, callee, count) in ARCS {
            let found = arcs.get(&(caller, callee));
            assert_eq!(found, Some(&count), "{caller} to {callee} of {program:?}");
        }
        // The compiler may have made it a jump or a call.
        assert_eq!(arcs.get(&("tail", "leaf")), Some(&40), "{program:?}");
    });
}

#[test]
fn inline_ranks_call_sites_by_their_counts() {
    each(&BUILDS, |folder, program| {
        let json = figures(folder, program, "inline", &["--top", "100000"]);
        let candidates = json["candidates"].as_array().unwrap();
        let calls = |caller: &str, callee: &str| -> Vec<u64> {
            let mut calls: Vec<u64> = candidates
                .iter()
                .filter(|c| c["caller"] == caller && c["callee"] == callee)
                .map(|c| c["calls"].as_u64().unwrap())
                .collect();
            calls.sort_unstable();
            calls
        };
        assert_eq!(calls("middle", "leaf"), [1000, 1000], "{program:?}");
        assert_eq!(calls("main", "leaf"), [300], "{program:?}");
        assert_eq!(calls("main", "other"), [200], "{program:?}");
        let scores: Vec<f64> = candidates
            .iter()
            .map(|c| c["score"].as_f64().unwrap())
            .collect();
        assert!(scores.is_sorted_by(|a, b| a >= b), "the best come first");
    });
}

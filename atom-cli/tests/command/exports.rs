//! `atom report --export`: each format is read by the program that it is for, where that is installed, and says the same as
//! the profile.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::common::runs::{Runs, export, is_there, number};
use crate::common::stderr;
use profile::{By, Profile};

#[test]
fn exports_are_read_by_the_programs_that_they_are_for() {
    let runs = Runs::new();
    let all = number(&runs.run("icount", "a.profile", &[]), "instructions");
    let grouped = |n: u64| {
        let digits = n.to_string().into_bytes();
        let groups = digits
            .rchunks(3)
            .rev()
            .map(|g| String::from_utf8_lossy(g).into_owned());
        groups.collect::<Vec<_>>().join(",")
    };
    for (format, [reader, all_rows]) in [
        ("callgrind", ["callgrind_annotate", "--threshold=100"]),
        ("cachegrind", ["cg_annotate", "--threshold=0"]),
    ] {
        let file = export(&runs, "a.profile", format);
        if !is_there(reader) {
            continue;
        }
        let read = Command::new(reader)
            .arg(all_rows)
            .arg(&file)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&read.stdout).into_owned();
        assert!(read.status.success(), "{reader}: {}", stderr(&read));
        assert!(
            text.contains(&grouped(all)),
            "{reader} shows {all}:\n{text}"
        );
        assert!(text.contains("app.c:twice"), "{text}");
    }
    let lcov = export(&runs, "a.profile", "lcov");
    let text = std::fs::read_to_string(&lcov).unwrap();
    assert!(
        text.contains("/app.c\n") && text.contains("DA:3,"),
        "{text}"
    );
    if is_there("genhtml") {
        let read = Command::new("genhtml")
            .arg("-o")
            .arg(runs.folder.join("pages"))
            .arg(&lcov)
            .output()
            .unwrap();
        assert!(read.status.success(), "genhtml: {}", stderr(&read));
        let lines = text.lines().filter(|l| l.starts_with("DA:")).count();
        let said = String::from_utf8_lossy(&read.stdout).into_owned();
        assert!(
            said.contains(&format!("({lines} of {lines} lines)")),
            "{said}"
        );
    }
    let folded = std::fs::read_to_string(export(&runs, "a.profile", "folded")).unwrap();
    let values = folded
        .lines()
        .map(|l| l.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap());
    assert_eq!(values.sum::<u64>(), all);
    assert!(folded.contains("app;twice "), "{folded}");
    let text = std::fs::read_to_string(export(&runs, "a.profile", "speedscope")).unwrap();
    let scope: serde_json::Value = serde_json::from_str(&text).unwrap();
    let weights = scope["profiles"][0]["weights"].as_array().unwrap();
    assert_eq!(weights.iter().filter_map(|w| w.as_u64()).sum::<u64>(), all);

    // Calls.
    runs.run("prof", "p.profile", &[]);
    let file = export(&runs, "p.profile", "callgrind");
    if is_there("callgrind_annotate") {
        let read = Command::new("callgrind_annotate")
            .args(["--tree=both", "--inclusive=yes", "--threshold=100"])
            .arg(&file)
            .output()
            .unwrap();
        assert!(
            read.status.success() && String::from_utf8_lossy(&read.stdout).contains("twice"),
            "{}",
            stderr(&read)
        );
    }
}

/// An argument may have several lines, which are not lines of the file.
#[test]
fn arguments_of_several_lines_are_one_line() {
    let runs = Runs::new();
    runs.run("icount", "a.profile", &["1", "a\nevents: b c\n1 2 3"]);
    for (format, reader) in [
        ("callgrind", "callgrind_annotate"),
        ("cachegrind", "cg_annotate"),
    ] {
        let file = export(&runs, "a.profile", format);
        let text = std::fs::read_to_string(&file).unwrap();
        let line = text.lines().find(|line| line.starts_with("cmd: ")).unwrap();
        assert!(line.ends_with(" 1 a events: b c 1 2 3"), "{line}");
        if is_there(reader) {
            let read = read_by(&runs, reader, &[file.to_str().unwrap()]);
            assert!(!read.contains("malformed"), "{read}");
        }
    }
}

/// With a profile of prof beside the costs, calls have inclusive costs.
#[test]
fn calls_in_callgrinds_format_have_their_costs() {
    let runs = Runs::new();
    let costs = runs.run("icount", "i.profile", &[]);
    runs.run("prof", "p.profile", &[]);
    let words = [
        "i.profile",
        "p.profile",
        "--export",
        "callgrind",
        "-o",
        "out",
    ];
    runs.report(&words);
    let text = String::from_utf8(runs.folder.read("out")).unwrap();
    let own = by_name(&costs, By::Procedure, "count", "procedure")["twice"];
    // A name is written once; after that its number is.
    let number = text.split(" twice\n").next().unwrap();
    let number = number.rsplit('=').next().unwrap();
    let call = format!("cfn={number}");
    let call = text.split(&call).nth(1).expect("a call of twice");
    let cost: Vec<&str> = call.lines().nth(2).unwrap().split(' ').collect();
    // Only main calls it, and it calls nothing.
    assert_eq!((cost[0], cost[1]), ("0", &*own.to_string()), "{call}");
    let definition = format!("\nfn={number}");
    assert_eq!(text.matches(&definition).count(), 1, "{text}");
    if is_there("callgrind_annotate") {
        let read = read_by(
            &runs,
            "callgrind_annotate",
            &["--inclusive=yes", "--threshold=100", "out"],
        );
        assert!(read.contains("app.c:main"), "{read}");
    }
}

/// The output of a program that reads a file of the folder.
fn read_by(runs: &Runs, program: &str, arguments: &[&str]) -> String {
    let read = Command::new(program)
        .current_dir(runs.folder.path())
        .env("HOME", runs.folder.path())
        .args(arguments)
        .output()
        .unwrap();
    assert!(read.status.success(), "{program}: {}", stderr(&read));
    String::from_utf8_lossy(&read.stdout).into_owned() + &stderr(&read)
}

/// The sums of a measure by the names of procedures.
fn by_name(profile: &Profile, by: By, measure: &str, names: &str) -> BTreeMap<String, u64> {
    let table = profile.tables.iter().find(|t| t.by == by).unwrap();
    let column = |name: &str| &table.column(name).unwrap().values;
    let mut sums = BTreeMap::new();
    for row in 0..table.rows {
        let name = profile.text(column(names)[row]).unwrap().to_owned();
        *sums.entry(name).or_default() += column(measure)[row].integer().unwrap();
    }
    sums.retain(|_, n| *n != 0);
    sums
}

#[test]
fn pprof_shows_the_counts_of_the_profile() {
    let runs = Runs::new();
    let counts = runs.run("icount", "a.profile", &[]);
    let calls = runs.run("prof", "p.profile", &[]);
    if !is_there("go") {
        return;
    }
    let top = |file: &Path| -> BTreeMap<String, u64> {
        let all = [
            "-nodecount=1000000",
            "-nodefraction=0",
            "-edgefraction=0",
            "-symbolize=none",
        ];
        let file = file.to_str().unwrap();
        let text = read_by(
            &runs,
            "go",
            &[&["tool", "pprof", "-top"], &all[..], &[file]].concat(),
        );
        let rows = text
            .lines()
            .skip_while(|l| !l.trim().starts_with("flat"))
            .skip(1);
        let row = |line: &str| {
            let mut words = line.split_whitespace();
            let digits: String = words
                .next()
                .unwrap()
                .chars()
                .filter(char::is_ascii_digit)
                .collect();
            let name: Vec<&str> = words.skip(4).collect();
            (name.join(" "), digits.parse().unwrap())
        };
        rows.map(row).filter(|(_, n)| *n != 0).collect()
    };
    let file = export(&runs, "a.profile", "pprof");
    assert_eq!(
        top(&file),
        by_name(&counts, By::Procedure, "count", "procedure")
    );
    let raw = read_by(
        &runs,
        "go",
        &["tool", "pprof", "-raw", file.to_str().unwrap()],
    );
    let id = counts.objects[0].build_id.as_deref().unwrap();
    assert!(raw.contains("app.c:3") && raw.contains(id), "{raw}");

    let file = export(&runs, "p.profile", "pprof");
    assert_eq!(
        top(&file),
        by_name(&calls, By::Procedure, "entries", "procedure")
    );
    let peek = ["tool", "pprof", "-peek", "^twice$", file.to_str().unwrap()];
    let peek = read_by(&runs, "go", &peek);
    let caller = peek.lines().find(|l| l.ends_with("|   main"));
    assert!(caller.is_some_and(|l| l.trim().starts_with('5')), "{peek}");
}

#[test]
fn the_time_line_has_slices_that_nest_and_add_up() {
    let runs = Runs::new();
    let counts = runs.run("icount", "a.profile", &[]);
    runs.run("prof", "p.profile", &[]);
    let all = number(&counts, "instructions");
    for files in [&["a.profile"][..], &["a.profile", "p.profile"]] {
        let out = runs.folder.join("out.json");
        runs.report(&[files, &["--export", "chrome", "-o", "out.json"]].concat());
        let json: serde_json::Value = serde_json::from_slice(&std::fs::read(out).unwrap()).unwrap();
        let events = json["traceEvents"].as_array().unwrap();
        let mut own: BTreeMap<String, u64> = BTreeMap::new();
        let mut open: Vec<u64> = Vec::new();
        let mut end = 0;
        for event in events {
            assert!(event["pid"].is_u64() && event["tid"].is_u64(), "{event}");
            let name = event["name"].as_str().unwrap();
            if event["ph"] == "M" {
                let is_order = name == "thread_sort_index";
                assert!(is_order || event["args"]["name"].is_string(), "{event}");
                continue;
            }
            assert_eq!(event["ph"], "X");
            let (start, length) = (
                event["ts"].as_u64().unwrap(),
                event["dur"].as_u64().unwrap(),
            );
            while open.pop_if(|end| *end <= start).is_some() {}
            assert!(
                open.last().is_none_or(|end| start + length <= *end),
                "{event}"
            );
            open.push(start + length);
            end = end.max(start + length);
            if !files.contains(&name) && event["args"]["own"] != 0 {
                *own.entry(name.to_owned()).or_default() += event["args"]["own"].as_u64().unwrap();
            }
        }
        assert_eq!(end, all);
        assert_eq!(own, by_name(&counts, By::Procedure, "count", "procedure"));
        let deepest = events
            .iter()
            .any(|e| e["name"] == "twice" && e["args"]["object"] == "app");
        assert!(deepest);
    }
    // The stacks of the call graph: main is below what calls it, and twice below main.
    let folded = runs.folder.join("out.folded");
    runs.report(&[
        "a.profile",
        "p.profile",
        "--export",
        "folded",
        "-o",
        "out.folded",
    ]);
    let folded = std::fs::read_to_string(folded).unwrap();
    assert!(
        folded.lines().any(|l| l.contains(";main;twice ")),
        "{folded}"
    );
    let values = folded
        .lines()
        .map(|l| l.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap());
    assert_eq!(values.sum::<u64>(), all);
}

/// A program with a loop, a switch, calls in both ways, and local procedures of one name.
const BRANCHES: &str = r#"
#include <stdio.h>
#include <stdlib.h>
static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
__attribute__((noinline)) static int kind(int n) {
    switch (n % 7) {
    case 0: return n * 3;
    case 1: return n - 5;
    case 2: return n ^ 9;
    case 3: return n << 2;
    case 4: return -n;
    default: return n;
    }
}
int main(int argc, char **argv) {
    int numbers[500], sum = 0;
    for (int i = 0; i < 500; i++) numbers[i] = i * 7919 % 500;
    qsort(numbers, 500, sizeof *numbers, compare);
    for (int i = 0; i < 500; i++) if (numbers[i] % 3) sum += kind(numbers[i]);
    printf("%d\n", sum);
    return 0;
}
"#;

#[test]
fn llvm_bolt_reads_the_edges() {
    let runs = Runs::new();
    runs.folder.compile("app", BRANCHES, &["-O2", "-Wl,-q"]);
    let output = Command::new(env!("CARGO_BIN_EXE_atom"))
        .current_dir(runs.folder.path())
        .env("XDG_CACHE_HOME", runs.folder.join("cache"))
        .args([
            "run",
            "-q",
            "branch",
            "--edges",
            "--profile",
            "b.profile",
            "--",
            "./app",
        ])
        .output()
        .unwrap();
    assert!(output.stderr.is_empty(), "{}", stderr(&output));
    let profile = runs.read("b.profile");
    let edges = profile.table("edges").unwrap();
    let column = |name: &str| &edges.column(name).unwrap().values;
    // Both sides of a branch add up to what the tool counted.
    let sum = |kinds: [&str; 2]| -> u64 {
        let of = |row: &usize| kinds.contains(&profile.text(column("kind")[*row]).unwrap());
        let rows = (0..edges.rows).filter(of);
        rows.map(|row| column("count")[row].integer().unwrap())
            .sum()
    };
    assert_eq!(sum(["taken", "not taken"]), number(&profile, "executed"));
    let file = export(&runs, "b.profile", "fdata");
    let text = std::fs::read_to_string(&file).unwrap();
    let entries = |name: &str| -> u64 {
        let lines = text.lines().map(|l| l.split(' ').collect::<Vec<_>>());
        let calls = lines.filter(|w| w[4] == name && w[5] == "0");
        calls.map(|w| w[7].parse::<u64>().unwrap()).sum()
    };
    // The numbers from 0 to 499 that are not divisible by 3.
    assert_eq!(entries("kind/1"), 333, "{text}");
    let bolt = ["llvm-bolt", "llvm-bolt-15", "llvm-bolt-16", "llvm-bolt-19"];
    let Some(bolt) = bolt.into_iter().find(|b| is_there(b)) else {
        return;
    };
    let data = file.to_str().unwrap();
    let arguments = [
        "app",
        "-data",
        data,
        "-o",
        "app.bolt",
        "-reorder-blocks=ext-tsp",
    ];
    let said = read_by(&runs, bolt, &arguments);
    assert!(said.contains("have non-empty execution profile"), "{said}");
    assert!(
        !said.contains("stale") && !said.contains("invalid"),
        "{said}"
    );
    let run = |program: &str| {
        Command::new(runs.folder.join(program))
            .output()
            .unwrap()
            .stdout
    };
    assert_eq!(run("app.bolt"), run("app"));
}

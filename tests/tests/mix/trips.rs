//! Histograms of trip counts (`--trips`): those that follow from a program's source, and those of single steps.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use atom_tests::atom::{self, Job};
use atom_tests::counts::{Symbols, key};
use atom_tests::outcome::{Setting, plain_environment, run};
use atom_tests::stepper::{self, Options, Step, Text};
use iced_x86::{FlowControl, Instruction};
use serde_json::Value;

/// Entries by loop and smallest number of iterations of a class.
type Histograms<K> = BTreeMap<K, BTreeMap<u64, u64>>;

fn build(name: &str, flags: &[&str]) -> PathBuf {
    let folder = atom_tests::cache::empty_folder(&format!("mix-trips-{name}"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mix/programs/trips.c");
    let program = folder.join("trips");
    let mut compiler = Command::new("gcc");
    compiler
        .args(["-g", "-pthread", "-static"])
        .args(flags)
        .arg(source)
        .arg("-o")
        .arg(&program);
    assert!(compiler.status().unwrap().success());
    program
}

/// Runs the program with `mix --trips`. Returns the reports of the process and of its children.
fn measure(program: &Path, arguments: &[&str]) -> Vec<Value> {
    let out = program.with_extension("rewritten");
    let json = program.with_extension("json");
    let options = ["--trips", "--json", json.to_str().unwrap()];
    let options = options.map(str::to_owned).into();
    atom::instrument(program, &out, &Job::Tool("mix".into(), options), true).unwrap();
    let mut command = Command::new(&out);
    command.args(arguments);
    plain_environment(&mut command);
    let outcome = run(&mut command, &Setting::default()).unwrap();
    assert_eq!(outcome.stderr, b"");
    let name = json.file_name().unwrap().to_str().unwrap().to_owned();
    let files = std::fs::read_dir(json.parent().unwrap()).unwrap();
    let mut files: Vec<PathBuf> = files
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.file_name()
                .unwrap()
                .to_str()
                .unwrap()
                .starts_with(&name)
        })
        .collect();
    files.sort();
    let read = |path| serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    files.into_iter().map(read).collect()
}

/// The histograms by what `of` finds of a row.
fn histograms<K: Ord>(report: &Value, of: impl Fn(&Value) -> K) -> Histograms<K> {
    let mut found = Histograms::new();
    for row in report["trip_counts"].as_array().unwrap() {
        let from = row["from"].as_str().unwrap().parse().unwrap();
        let entries = row["entries"].as_u64().unwrap();
        *found.entry(of(row)).or_default().entry(from).or_default() += entries;
    }
    found
}

fn by_name(report: &Value) -> Histograms<String> {
    histograms(report, |row| row["procedure"].as_str().unwrap().to_owned())
}

fn address(row: &Value) -> u64 {
    key(row["pc"].as_str().unwrap()).unwrap()
}

/// The histogram of these trip counts.
fn classes(trips: &[(u64, u64)]) -> BTreeMap<u64, u64> {
    let mut classes = BTreeMap::new();
    for (iterations, times) in trips {
        *classes.entry(1 << iterations.ilog2()).or_default() += times;
    }
    classes
}

/// Trips of `p_tree`: a call of depth d has d + 1 iterations.
fn tree(depth: u64) -> Vec<(u64, u64)> {
    let mut calls = 1;
    let mut trips = Vec::new();
    for depth in (0..=depth).rev() {
        trips.push((depth + 1, calls));
        calls *= depth + 1;
    }
    trips
}

#[test]
fn histograms_are_those_of_the_source() {
    for flags in [["-O0"], ["-O1"]] {
        let program = build(&flags[0][1..], &flags);
        let reports = measure(&program, &[]);
        let [parent, child] = &reports[..] else {
            panic!("{} reports", reports.len());
        };
        let found = by_name(parent);
        let expect = |name: &str, trips: &[(u64, u64)]| {
            assert_eq!(
                found.get(name),
                Some(&classes(trips)),
                "{name} with {flags:?}"
            );
        };
        let plain = [1, 2, 10, 100, 127, 128, 500, 1100].map(|n| (n, 1));
        expect("p_plain", &plain);
        expect("p_tree", &[tree(6), tree(3), tree(3)].concat());
        expect("p_middle", &[(10, 1), (4, 1)]);
        expect("p_jump", &[(5, 1)]);
        expect("p_signal", &[(40, 1), (3, 1)]);
        expect("p_alloca", &[(9, 1)]);
        expect("p_nest", &[(5, 1), (1, 1), (2, 1), (3, 1), (4, 1), (5, 1)]);
        expect("p_fork", &[(30, 1)]);
        // The trip that began in the parent is the parent's.
        let found = by_name(child);
        assert_eq!(found.get("p_plain"), Some(&classes(&[(9, 1)])));
        assert_eq!(found.get("p_fork"), None);
        assert_eq!(found.get("p_tree"), None);
        agree(parent);
    }
}

/// The two ways of counting entries agree, and so do iterations.
fn agree(report: &Value) {
    let found = histograms(report, address);
    for row in report["loops"].as_array().unwrap() {
        let (Some(entries), Some(histogram)) = (row["entries"].as_u64(), found.get(&address(row)))
        else {
            continue;
        };
        assert_eq!(histogram.values().sum::<u64>(), entries, "{row}");
        let iterations = row["iterations"].as_u64().unwrap();
        let least: u64 = histogram.iter().map(|(from, entries)| from * entries).sum();
        assert!((least..least * 2).contains(&iterations), "{row}");
    }
}

/// The loops of the program's own procedures: an address to which control jumps back, and the jump from the highest address.
fn loops(text: &Text, program: &Path) -> BTreeMap<u64, u64> {
    let symbols = Symbols::read(program);
    let mut loops = BTreeMap::new();
    for name in [
        "p_plain", "p_tree", "p_middle", "p_jump", "p_signal", "p_alloca", "p_nest",
    ] {
        let start = symbols.address(name).unwrap();
        let mut at = start;
        while symbols.name(at) == Some(name) {
            let inst: Instruction = text.decode(at);
            let flow = inst.flow_control();
            let jumps = [
                FlowControl::ConditionalBranch,
                FlowControl::UnconditionalBranch,
            ];
            let to = inst.near_branch_target();
            if jumps.contains(&flow) && (start..=at).contains(&to) {
                let last = loops.entry(to).or_insert(at);
                *last = at.max(*last);
            }
            at = inst.next_ip();
        }
    }
    loops
}

/// A call under way in the model.
struct Frame {
    /// Address of the return address.
    slot: u64,
    /// Running trips by header.
    trips: BTreeMap<u64, u64>,
    /// The instruction that ran last in it.
    last: u64,
}

/// The trips that single steps show. A trip ends when its header is entered again, or with its call.
fn steps(program: &Path, text: &Text, loops: &BTreeMap<u64, u64>) -> Histograms<u64> {
    let mut found = Histograms::new();
    let frame = |slot| Frame {
        slot,
        trips: BTreeMap::new(),
        last: 0,
    };
    let mut frames = vec![frame(u64::MAX)];
    let mut next = 0;
    let mut end = |frame: &mut Frame, header: u64| {
        if let Some(trip) = frame.trips.remove(&header) {
            let class = 1 << trip.ilog2();
            *found.entry(header).or_default().entry(class).or_default() += 1;
        }
    };
    let mut tell = |step: &Step<'_>| {
        let handler = next != 0 && next != step.pc && !step.repeated;
        next = step.next;
        if handler {
            frames.push(frame(0));
        }
        let pc = step.pc;
        let top = frames.last_mut().unwrap();
        if let Some(latch) = loops.get(&pc) {
            if (pc..=*latch).contains(&top.last) {
                *top.trips.entry(pc).or_default() += 1;
            } else {
                end(top, pc);
                top.trips.insert(pc, 1);
            }
        }
        top.last = pc;
        let slot = |writes| {
            let known = step.references.iter().find(|r| r.writes == writes);
            known.map(|r| r.address)
        };
        // A call's slot lies below those of open calls, and a return leaves its own. A system call has none.
        let is_call = match text.decode(pc).flow_control() {
            FlowControl::Call | FlowControl::IndirectCall => true,
            FlowControl::Return => false,
            _ => return,
        };
        let Some(bound) = slot(is_call) else { return };
        while let Some(mut over) = frames.pop_if(|f| f.slot <= bound && (f.slot != 0 || !is_call)) {
            for header in over.trips.keys().copied().collect::<Vec<_>>() {
                end(&mut over, header);
            }
            if over.slot == bound || over.slot == 0 {
                break;
            }
        }
        if is_call {
            frames.push(frame(bound));
        }
    };
    let mut command = Command::new(program);
    command.arg("steps");
    plain_environment(&mut command);
    stepper::watch(program, &mut command, Options::default(), &mut tell).unwrap();
    found
}

#[test]
fn histograms_are_those_of_single_steps() {
    let program = build("steps", &["-O1", "-fno-reorder-blocks"]);
    let reports = measure(&program, &["steps"]);
    let text = Text::read(&program).unwrap();
    let loops = loops(&text, &program);
    let expected = steps(&program, &text, &loops);
    let mut found = histograms(&reports[0], address);
    found.retain(|header, _| loops.contains_key(header));
    let headers: BTreeSet<&u64> = expected.keys().collect();
    assert!(headers.len() >= 8, "{expected:?}");
    assert_eq!(found, expected);
    agree(&reports[0]);
}

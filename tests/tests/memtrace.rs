//! The tool `memtrace` records the references that a single-stepper sees, in their order; replayed through a model
//! of a cache they give the figures of the tool `cache`. With `--instructions` it records all instructions, and with
//! windows exactly the parts of these.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::process::{Command, Stdio};

use atom_tests::atom::{self, Job};
use atom_tests::check::{Case, check_few};
use atom_tests::counts::Missed;
use atom_tests::models::{Figures, Model, read};
use atom_tests::outcome::plain_environment;
use atom_tests::source::Source;
use atom_tests::stepper::{self, Options, Step};
use mem_trace::{EXECUTED, READ, Reader, Reference, WRITE};

mod formats;
mod outputs;

/// Name of a trace with instructions.
const FILE: &str = "instructions.trace";

/// Instruction, address, size and access of a reference.
type Seen = (u64, u64, u64, u8);

/// The references of a trace by thread.
fn trace(path: &Path) -> BTreeMap<u64, Vec<Reference>> {
    let file = BufReader::new(File::open(path).unwrap());
    let mut reader = Reader::new(file).unwrap();
    let mut threads: BTreeMap<u64, Vec<Reference>> = BTreeMap::new();
    while let Some(references) = reader.next_chunk().unwrap() {
        for reference in references {
            threads.entry(reference.thread).or_default().push(reference);
        }
    }
    threads
}

/// Runs a build with a tool; returns the procedures that it could not instrument.
fn run(case: &Case<'_>, source: &Source, tool: &str, folder: &str, options: &[String]) -> Missed {
    let out = case.rewritten(folder);
    std::fs::create_dir_all(out.parent().unwrap()).unwrap();
    let job = Job::Tool(tool.into(), options.to_vec());
    let made = atom::instrument(&case.original(), &out, &job, true).unwrap();
    case.run(&out, &source.runs[0], true).unwrap();
    Missed::from_report(&made.report)
}

fn access(reference: &stepper::Reference) -> u8 {
    (u8::from(reference.reads) * READ) | (u8::from(reference.writes) * WRITE)
}

/// The references by thread, in the order of the threads; with `all` the executed instructions, too.
fn truth(case: &Case<'_>, source: &Source, missed: &Missed, all: bool) -> Vec<Vec<Seen>> {
    let mut command = Command::new(case.original());
    plain_environment(&mut command);
    command
        .args(&source.runs[0].args)
        .current_dir(case.folder())
        .stderr(Stdio::null());
    let options = Options {
        skip_libraries: true,
        capture: true,
        ..Options::default()
    };
    let mut numbers = HashMap::new();
    let mut threads: Vec<Vec<Seen>> = Vec::new();
    let mut tell = |step: &Step<'_>| {
        if missed.around(step.pc).is_some() {
            return;
        }
        let number = *numbers.entry(step.thread).or_insert_with(|| {
            threads.push(Vec::new());
            threads.len() - 1
        });
        if all && !step.repeated {
            threads[number].push((step.pc, step.pc, step.len as u64, EXECUTED));
        }
        let seen = step.references.iter();
        threads[number].extend(seen.map(|r| (step.pc, r.address, u64::from(r.size), access(r))));
    };
    let profile = stepper::watch(&case.original(), &mut command, options, &mut tell).unwrap();
    profile.ended_as(source.runs[0].end).unwrap();
    threads
}

fn judge(case: &Case<'_>, source: &Source) {
    let label = case.label("memtrace");
    let _lock = atom_tests::lock::exclusive(&case.folder().join("memtrace.lock")).unwrap();
    let [file, json] = ["memory.trace", "memory.json"].map(|name| case.folder().join(name));
    let option = |name: &str, path: &Path| [name.to_owned(), path.display().to_string()];
    for path in [&file, &json] {
        // A file that is not there is made.
        let _ = std::fs::remove_file(path);
    }
    let missed = run(
        case,
        source,
        "memtrace",
        "memtr",
        &option("--output", &file),
    );
    let threads = trace(&file);
    let expected = truth(case, source, &missed, false);
    if expected.len() == 1 {
        let found: Vec<Seen> = threads[&1]
            .iter()
            .map(|r| (r.pc, r.address, r.size, r.access))
            .collect();
        let first = found.iter().zip(&expected[0]).position(|(a, b)| a != b);
        if let Some(at) = first {
            let from = at.saturating_sub(3);
            let [found, expected] =
                [&found, &expected[0]].map(|all| &all[from..all.len().min(at + 5)]);
            panic!("{label}: reference {at}: {found:x?}, expected {expected:x?}");
        }
        assert_eq!(found.len(), expected[0].len(), "{label}");
    } else {
        let sorted = |all: Vec<(u64, u64)>| {
            let mut all = all;
            all.sort_unstable();
            all
        };
        let found = threads.values().flatten().map(|r| (r.pc, r.size)).collect();
        let expected = expected.iter().flatten().map(|r| (r.0, r.2)).collect();
        assert!(sorted(found) == sorted(expected), "{label}: threads");
        return;
    }

    let words = ["--preset".to_owned(), "atom".to_owned()].into_iter();
    let words: Vec<String> = words.chain(option("--json", &json)).collect();
    run(case, source, "cache", "memca", &words);
    let expected = read(&json, "instructions").unwrap();
    let mut figures: BTreeMap<u64, Figures> = BTreeMap::new();
    let mut model = Model::new(256, 1, 32);
    for r in &threads[&1] {
        model.access(r.address, r.size, figures.entry(r.pc).or_default());
    }
    assert!(figures == expected, "{label}: the cache's figures differ");
    let bytes = std::fs::metadata(&file).unwrap().len();
    println!("{label}: {} references, {bytes} bytes", threads[&1].len());
}

/// The trace of a program with one thread, made with some options.
fn one_thread(case: &Case<'_>, source: &Source, options: &[&str]) -> (Vec<Reference>, Missed) {
    let file = case.folder().join(FILE);
    let _ = std::fs::remove_file(&file);
    let mut all = vec!["--output".to_owned(), file.display().to_string()];
    all.extend(options.iter().map(|option| (*option).to_owned()));
    let missed = run(case, source, "memtrace", "memin", &all);
    (trace(&file).remove(&1).unwrap_or_default(), missed)
}

/// With `--instructions` the trace has each instruction in front of its references.
fn judge_instructions(case: &Case<'_>, source: &Source) {
    let label = case.label("memtrace --instructions");
    let _lock = atom_tests::lock::exclusive(&case.folder().join("memtrace.lock")).unwrap();
    let (found, missed) = one_thread(case, source, &["--instructions"]);
    let seen = found.iter().map(|r| (r.pc, r.address, r.size, r.access));
    let seen: Vec<Seen> = seen.collect();
    let expected = &truth(case, source, &missed, true)[0];
    let first = seen.iter().zip(expected).position(|(a, b)| a != b);
    assert_eq!(
        first,
        None,
        "{label}: {:x?}",
        first.map(|i| (seen[i], expected[i]))
    );
    assert_eq!(seen.len(), expected.len(), "{label}");

    let executed = |all: &[Reference]| -> Vec<u64> {
        let executed = all.iter().filter(|r| r.access == EXECUTED);
        executed.map(|r| r.pc).collect()
    };
    formats::judge(&label, &case.original(), &case.folder().join(FILE), &found);
    judge_filter(&label, case, source, &found);
    let all = executed(&found);
    let options = ["--skip", "1000", "--window", "500", "--every", "2000"];
    let windows = [&["--instructions"], &options[..]].concat();
    let (found, _) = one_thread(case, source, &windows);
    let found = executed(&found);
    assert!(
        are_windows(&all, &found, [1000, 500, 2000]),
        "{label}: windows"
    );
    assert_eq!(found.is_empty(), all.len() < 900, "{label}: windows");
}

/// With `--addresses` the trace has the references that touch a range, here of 24 bytes around one of them.
fn judge_filter(label: &str, case: &Case<'_>, source: &Source, all: &[Reference]) {
    let references = all.iter().filter(|r| r.access != EXECUTED);
    let references: Vec<&Reference> = references.collect();
    let start = references[references.len() / 2].address - 10;
    let end = start + 24;
    let range = format!("{start:#x}-{end:#x}");
    let (found, _) = one_thread(case, source, &["--instructions", "--addresses", &range]);
    let touches = |r: &&Reference| r.address < end && start < r.address + r.size;
    let fits = |r: &&Reference| r.access == EXECUTED || touches(r);
    let expected: Vec<Reference> = all.iter().filter(fits).copied().collect();
    assert!(found == expected, "{label}: filter");
    assert!(references.iter().any(|r| !touches(r)), "{label}: filter");
}

/// Whether `found` is what windows leave of `all`, each moved by less than a block.
fn are_windows(all: &[u64], found: &[u64], [skip, window, every]: [usize; 3]) -> bool {
    const BLOCK: usize = 100;
    let mut ends = BTreeSet::from([0]);
    for start in (skip..all.len()).step_by(every) {
        let mut next = BTreeSet::new();
        let starts = (start..start + BLOCK).filter(|start| *start <= all.len());
        for (first, at) in starts.flat_map(|first| ends.iter().map(move |at| (first, *at))) {
            for last in start + window..start + window + BLOCK {
                let part = &all[first..last.clamp(first, all.len())];
                if found[at..].starts_with(part) {
                    next.insert(at + part.len());
                }
            }
        }
        ends = next;
    }
    ends.contains(&found.len())
}

fn check_instructions(name: &str) {
    check_few(name, judge_instructions);
}

mod instructions {
    use super::check_instructions;

    tests_of_programs! {
        check_instructions;
        callpop_s: "callpop.S",
        jumps_c: "jumps.c",
        order_s: "order.S",
        strings_c: "strings.c",
    }
}

fn check(name: &str) {
    check_few(name, judge);
}

tests_of_programs! {
    check;
    asmpush_c: "asmpush.c",
    callpop_s: "callpop.S",
    deep_c: "deep.c",
    flags_s: "flags.S",
    interrupts_c: "interrupts.c",
    jumps_c: "jumps.c",
    order_s: "order.S",
    redzone_s: "redzone.S",
    strings_c: "strings.c",
    threads_c: "threads.c",
    vectors_c: "vectors.c",
}

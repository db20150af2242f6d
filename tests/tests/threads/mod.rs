//! Threads: each program of `threads/` is instrumented with a tool that counts
//! the same events in all ways in which threads can share counters. All ways agree cell by cell,
//! and with the numbers that the program's header states. In addition to the lines of other test
//! programs the header may have `count-forked: NAME N` for the children, and `lock: yes`
//! to count after a lock as well.

mod events;

use std::path::{Path, PathBuf};
use std::process::Command;

use atom_tests::atom::{self, Job};
use atom_tests::outcome::{Setting, plain_environment, run};
use atom_tests::source::Source;

/// Entry counts by procedure and other lines of one report.
struct Figures {
    counts: Vec<(String, u64)>,
    complaints: Vec<String>,
}

fn read(file: &Path) -> Figures {
    let text = std::fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let (complaints, rest): (Vec<_>, Vec<_>) = text.lines().partition(|l| l.starts_with('!'));
    let end = rest.last().copied().unwrap_or_default();
    assert!(end.starts_with("= threads "), "{} is cut", file.display());
    let count = |line: &&str| {
        let (name, n) = line.rsplit_once(' ')?;
        Some((name.to_owned(), n.parse().ok()?))
    };
    Figures {
        counts: rest.iter().filter_map(count).collect(),
        complaints: complaints.into_iter().map(str::to_owned).collect(),
    }
}

/// Whether the header has this line.
fn says(source: &Source, what: &str) -> bool {
    let text = std::fs::read_to_string(&source.path).unwrap();
    text.lines()
        .filter_map(|l| l.strip_prefix("// "))
        .any(|l| l == what)
}

/// Expected counts of forked children, from the header.
fn stated_of_children(source: &Source) -> Vec<(String, u64)> {
    let text = std::fs::read_to_string(&source.path).unwrap();
    text.lines()
        .filter_map(|l| l.strip_prefix("// count-forked: "))
        .filter_map(|l| l.split_once(' '))
        .map(|(name, n)| (name.to_owned(), n.parse().unwrap()))
        .collect()
}

fn compare(what: &str, figures: &Figures, stated: &[(String, u64)], stripped: bool) -> Vec<String> {
    let mut wrong = figures.complaints.clone();
    for (name, n) in stated.iter().filter(|_| !stripped) {
        let found = figures.counts.iter().find(|(found, _)| found == name);
        let got = found.map_or(0, |f| f.1);
        if got != *n {
            wrong.push(format!("{name} ran {got} times, not {n}"));
        }
    }
    wrong
        .iter_mut()
        .for_each(|w| w.insert_str(0, &format!("{what}: ")));
    wrong
}

fn check(name: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/threads/programs")
        .join(name);
    let source = Source::read(&path).unwrap();
    let folder = atom_tests::cache::folder(&format!("threads/{name}"));
    let (mut wrong, mut built) = (Vec::new(), 0);
    for variant in &source.variants {
        let place = folder.join(&variant.0);
        std::fs::create_dir_all(&place).unwrap();
        let (program, out) = (place.join("program"), place.join("instrumented"));
        source.build(variant, &program).unwrap();
        built += 1;
        let pattern = place.join("figures-%p");
        let mut options = vec!["--output".to_owned(), pattern.display().to_string()];
        if says(&source, "lock: yes") {
            options.push("--lock".to_owned());
        }
        let job = Job::Tool("threadcheck".to_owned(), options);
        atom::instrument(&program, &out, &job, true).unwrap();
        for round in 0..3 {
            for old in outputs(&place) {
                std::fs::remove_file(old).unwrap();
            }
            let mut command = Command::new(&out);
            plain_environment(&mut command);
            let outcome = run(&mut command, &Setting::default()).unwrap();
            let label = format!("{name} {} round {round}", variant.0);
            let stated = &source.runs[0];
            let stdout = String::from_utf8_lossy(&outcome.stdout)
                .trim()
                .replace('\n', " ");
            if outcome.end != stated.end || Some(&stdout) != stated.stdout.as_ref() {
                let stderr = String::from_utf8_lossy(&outcome.stderr);
                wrong.push(format!("{label}: {:?} {stdout} {stderr}", outcome.end));
                continue;
            }
            let own = place.join(format!("figures-{}", outcome.pid));
            let stripped = variant.0.contains("strip");
            let stated: Vec<(String, u64)> = source
                .counts
                .iter()
                .map(|(name, n, _)| (name.clone(), *n))
                .collect();
            wrong.extend(compare(&label, &read(&own), &stated, stripped));
            let children = stated_of_children(&source);
            let others: Vec<_> = outputs(&place).into_iter().filter(|f| *f != own).collect();
            if others.is_empty() && !children.is_empty() {
                wrong.push(format!("{label}: no child wrote its figures"));
            }
            for file in others {
                let label = format!("{label}, child");
                let mut figures = read(&file);
                // Counters begin at 0 in a child, what the tool counts in its own state and behind its lock does not.
                let counts_alone = |line: &String| {
                    !["state", "behind a lock"]
                        .iter()
                        .any(|what| line.contains(what))
                };
                figures.complaints.retain(counts_alone);
                wrong.extend(compare(&label, &figures, &children, stripped));
            }
        }
    }
    assert!(built > 0, "{name}: none of its variants can be built here");
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// Reports of all processes of a run.
fn outputs(place: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(place).unwrap();
    entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("figures-")
        })
        .collect()
}

macro_rules! programs {
    ($($test:ident: $file:literal,)*) => {
        $(#[test]
        fn $test() {
            check($file);
        })*

        #[test]
        fn every_program_is_listed() {
            let listed = [$($file),*];
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/threads/programs");
            for entry in std::fs::read_dir(folder).unwrap() {
                let name = entry.unwrap().file_name();
                assert!(listed.contains(&&*name.to_string_lossy()), "{name:?}");
            }
        }
    };
}

programs! {
    callbacks_c: "callbacks.c",
    cancelled_c: "cancelled.c",
    cxx_cc: "cxx.cc",
    interrupted_c: "interrupted.c",
    musl_c: "musl.c",
    processes_c: "processes.c",
    pthreads_c: "pthreads.c",
    rawclone_c: "rawclone.c",
    rust_rs: "rust.rs",
    usesgs_c: "usesgs.c",
}

//! Calls of programs as the distribution ships them: the tools `calllog` and `prof` agree.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use atom_tests::programs;
use object::{Object, ObjectSection};

use super::{analyze, figures, folder, log};

/// Entries that `prof` counted by procedure, without linkage stubs.
fn entries_of_prof(program: &Path, file: &Path) -> BTreeMap<String, u64> {
    let bytes = std::fs::read(program).unwrap();
    let elf = object::File::parse(&*bytes).unwrap();
    let stubs: Vec<_> = elf
        .sections()
        .filter(|s| s.name().is_ok_and(|n| n.starts_with(".plt")))
        .map(|s| s.address()..s.address() + s.size())
        .collect();
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let mut all = BTreeMap::new();
    for proc in json["procedures"].as_array().unwrap() {
        let pc = proc["pc"].as_str().unwrap().trim_start_matches("0x");
        let pc = u64::from_str_radix(pc, 16).unwrap();
        let entries = proc["entries"].as_u64().unwrap();
        if entries != 0 && !stubs.iter().any(|s| s.contains(&pc)) {
            *all.entry(proc["procedure"].as_str().unwrap().to_owned())
                .or_default() += entries;
        }
    }
    all
}

/// The calls of a program of the distribution equal the entries that `prof` counts.
fn as_prof(name: &str, args: &[&str], files: &[(&str, &str)]) -> PathBuf {
    let program = programs::needed(name);
    let folder = folder(name);
    for (file, text) in files {
        std::fs::write(folder.join(file), text).unwrap();
    }
    let prof = log(
        &folder,
        &program,
        "prof",
        &["--json", "prof.json", "--entries"],
        args,
    );
    let place = log(&folder, &program, "calllog", &[], args);
    let want = entries_of_prof(&program, &prof.join("prof.json"));
    let figures = figures(&analyze(&["--json"], &place.join("calllog.out")), 0);
    let have: BTreeMap<_, _> = figures
        .into_iter()
        .filter(|(_, f)| f.0 != 0)
        .map(|(name, f)| (name, f.0))
        .collect();
    assert!(have.len() > 5, "{name}");
    let names = have.keys().chain(want.keys());
    let differ: Vec<_> = names
        .filter(|n| have.get(*n) != want.get(*n))
        .map(|n| (n, have.get(n), want.get(n)))
        .collect();
    assert!(differ.is_empty(), "{name}: {differ:?}");
    place
}

const TEXT: &str = "The quick brown fox jumps over the lazy dog, again and again.\n";

#[test]
fn counts_are_those_of_prof() {
    as_prof(
        "bzip2",
        &["-zkc", "../text"],
        &[("text", &TEXT.repeat(300))],
    );
    as_prof(
        "sqlite3",
        &[":memory:", "select sum(1) from (values (1), (2));"],
        &[],
    );
    as_prof(
        "python3",
        &["-S", "-c", "print(sum(i * i for i in range(100)))"],
        &[],
    );
}

#[test]
fn counts_of_threads_and_children_are_those_of_prof() {
    let threaded = ["-T2", "--block-size=100KiB", "-1kc", "../text"];
    as_prof("xz", &threaded, &[("text", &TEXT.repeat(10_000))]);
    let script = "for i in 1 2 3; do (echo $i; true); done; echo $(echo x)";
    let place = as_prof("dash", &["-c", script], &[]);
    let all = std::fs::read_dir(place).unwrap().map(|e| e.unwrap().path());
    // A log with a number of one digit is an older one.
    let is_child = |p: &std::path::PathBuf| {
        p.to_str().unwrap().contains("calllog.out.") && p.extension().unwrap().len() > 1
    };
    let children: Vec<_> = all.filter(is_child).collect();
    assert_eq!(children.len(), 4);
    for child in children {
        assert!(figures(&analyze(&["--json"], &child), 0).len() > 5);
    }
}

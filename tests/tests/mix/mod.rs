//! The tool `mix`: floating-point operations, accesses and trip counts of a program that tells how many there are, and
//! mnemonics against another disassembler.

mod trips;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use atom_tests::atom::{self, Job};
use atom_tests::counts::{key, read_icount};
use atom_tests::outcome::{Setting, plain_environment, run};
use serde_json::Value;

/// Compiles the program; returns it and its folder.
fn build(name: &str) -> (PathBuf, PathBuf) {
    let folder = atom_tests::cache::empty_folder(&format!("mix-{name}"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mix/programs/flop.c");
    let program = folder.join("flop");
    let built = Command::new("gcc")
        .args(["-O2", "-g", "-fno-tree-vectorize"])
        .arg(source)
        .arg("-o")
        .arg(&program)
        .status()
        .unwrap();
    assert!(built.success());
    (program, folder)
}

/// Runs the program alone with a tool.
fn measure(program: &Path, job: &Job) {
    let out = program.with_extension("rewritten");
    atom::instrument(program, &out, job, true).unwrap();
    let mut command = Command::new(&out);
    plain_environment(&mut command);
    let outcome = run(&mut command, &Setting::default()).unwrap();
    assert_eq!(outcome.stderr, b"");
}

fn mix(program: &Path) -> Value {
    let json = program.with_extension("json");
    let options = vec!["--json".into(), json.display().to_string()];
    measure(program, &Job::Tool("mix".into(), options));
    serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap()
}

fn rows<'a>(json: &'a Value, table: &str) -> &'a Vec<Value> {
    let list = json[table.replace(' ', "_")].as_array();
    list.unwrap_or_else(|| panic!("{table} is not in {json}"))
}

#[test]
fn operations_and_trips_are_those_of_the_source() {
    let (program, _) = build("flop");
    let json = mix(&program);
    let has = |feature: bool, rows: Vec<(&'static str, &'static str, u64)>| {
        if feature { rows } else { Vec::new() }
    };
    let mut expected = vec![
        ("single", "scalar", 2000),
        ("single", "128 bits", 1000),
        ("double", "256 bits", 1000),
        ("single", "256 bits", 2000),
        ("extended (x87)", "scalar", 1000),
    ];
    // 125 vectors of 8 numbers, of which a mask chooses 4.
    let avx512 = std::arch::is_x86_feature_detected!("avx512f");
    expected.extend(has(avx512, vec![("double", "512 bits, masked", 500)]));
    let mut found: Vec<(&str, &str, u64)> = rows(&json, "floating-point operations")
        .iter()
        .map(|row| {
            let text = |key: &str| row[key].as_str().unwrap();
            (
                text("precision"),
                text("vector"),
                row["FLOP"].as_u64().unwrap(),
            )
        })
        .collect();
    expected.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, expected);
    let total: u64 = expected.iter().map(|row| row.2).sum();
    assert_eq!(json["FLOP"].as_u64(), Some(total));

    let loops = rows(&json, "loops");
    let trips = |name: &str| {
        let row = loops
            .iter()
            .find(|row| row["procedure"].as_str() == Some(name));
        let row = row.unwrap_or_else(|| panic!("{name} has no loop"));
        (
            row["iterations"].as_u64().unwrap(),
            row["entries"].as_u64().unwrap(),
        )
    };
    assert_eq!(trips("saxpy_scalar"), (1000, 1));
    assert_eq!(trips("sse"), (250, 1));
    assert_eq!(trips("fma_"), (125, 1));
    assert_eq!(trips("x87"), (1000, 1));

    // Each iteration of the loop loads and stores: 4 bytes, 4 bytes, 4 bytes; the constant and the return address come
    // once.
    let procs = rows(&json, "procedures");
    let saxpy = procs
        .iter()
        .find(|row| row["procedure"].as_str() == Some("saxpy_scalar"))
        .unwrap();
    assert_eq!(saxpy["bytes_stored"].as_u64(), Some(4000));
    assert_eq!(saxpy["bytes_loaded"].as_u64(), Some(8008));
    // 256 bytes copied one by one, and 50 of 100 compared until the first difference.
    let bytes = rows(&json, "memory accesses by size");
    let single = bytes
        .iter()
        .find(|row| row["bytes"].as_str() == Some("1"))
        .unwrap();
    assert!(single["stores"].as_u64().unwrap() >= 256);
    let loads = single["loads"].as_u64().unwrap();
    assert!((256 + 100..256 + 100 + 20).contains(&loads), "{loads}");
}

/// The mnemonics of objdump by address.
fn mnemonics(program: &Path) -> BTreeMap<u64, String> {
    let output = Command::new("objdump")
        .args(["-d", "-M", "intel", "--no-show-raw-insn"])
        .arg(program)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = |line: &str| {
        let (address, inst) = line.split_once(":\t")?;
        let address = key(&format!("0x{}", address.trim()))?;
        // Prefixes stand in front. Which of them a run meets depends on the processor: libgcc asks for its model.
        let prefixes = [
            "rep", "repz", "repnz", "bnd", "notrack", "lock", "cs", "ds", "es", "ss", "fs", "gs",
            "data16", "addr32",
        ];
        let mut words = inst.split_whitespace().filter(|w| !prefixes.contains(w));
        Some((address, words.next()?.to_owned()))
    };
    text.lines().filter_map(line).collect()
}

#[test]
fn mnemonics_are_those_of_objdump() {
    let (program, folder) = build("mnemonics");
    let counts = folder.join("counts");
    measure(&program, &Job::Icount(counts.clone()));
    let counts = read_icount(&counts).unwrap();
    let names = mnemonics(&program);
    let mut expected: BTreeMap<&str, u64> = BTreeMap::new();
    for (pc, count) in &counts {
        let name = names.get(pc).map(String::as_str);
        let name = name.unwrap_or_else(|| panic!("objdump has no instruction at {pc:#x}"));
        // The two disassemblers call few instructions by other names.
        let name = if name == "movabs" { "mov" } else { name };
        *expected.entry(name).or_default() += count;
    }
    let json = mix(&program);
    let all: u64 = counts.values().sum();
    assert_eq!(json["instructions"].as_u64(), Some(all));
    let mut found: BTreeMap<&str, u64> = BTreeMap::new();
    for row in rows(&json, "mnemonics") {
        let name = row["mnemonic"].as_str().unwrap();
        let is_string = ["cmpsb", "movsb", "stosq"].contains(&name);
        let name = if is_string { &name[..4] } else { name };
        *found.entry(name).or_default() += row["count"].as_u64().unwrap();
    }
    assert_eq!(found.values().sum::<u64>(), all);
    assert_eq!(found, expected);
    for table in ["classes", "instruction sets", "operand widths"] {
        let sum: u64 = rows(&json, table)
            .iter()
            .map(|row| row["count"].as_u64().unwrap())
            .sum();
        assert_eq!(sum, all, "{table}");
    }
}

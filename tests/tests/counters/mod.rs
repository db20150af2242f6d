//! The tool `counters`: beginnings and ends pair, sums equal the figures of other tools and of a
//! single-step trace, and messages name events that cannot be counted.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use atom_tests::atom::{self, Job};
use atom_tests::outcome::{Outcome, Setting, plain_environment, run};
use atom_tests::source::End;
use serde_json::Value;

mod figures;
mod pairs;

fn folder(name: &str) -> PathBuf {
    atom_tests::cache::empty_folder(&format!("counters-{name}"))
}

fn compile(folder: &Path, source: &str) -> PathBuf {
    let (file, program) = (folder.join("program.cc"), folder.join("program"));
    std::fs::write(&file, source).unwrap();
    let mut command = Command::new("g++");
    command
        .args(["-O2", "-pthread", "-o"])
        .arg(&program)
        .arg(&file);
    assert!(command.status().expect("a compiler runs").success());
    program
}

/// A run of an instrumented program.
struct Ran {
    place: PathBuf,
    outcome: Outcome,
    report: Value,
}

/// Instruments with a tool under `folder/`, and runs it there.
fn ran(folder: &Path, program: &Path, tool: &str, options: &[&str], args: &[&str]) -> Ran {
    // The names have the same length, because they move the stack.
    let place = folder.join(format!("{tool:_<8}"));
    let _ = std::fs::remove_dir_all(&place);
    std::fs::create_dir_all(&place).unwrap();
    let out = place.join("program");
    let options: Vec<String> = options.iter().map(|o| (*o).to_owned()).collect();
    let job = Job::Tool(tool.to_owned(), options);
    let report = atom::instrument(program, &out, &job, true).unwrap().report;
    let mut command = Command::new(&out);
    plain_environment(&mut command);
    command.args(args).current_dir(&place);
    let setting = Setting {
        fixed_addresses: true,
        ..Setting::default()
    };
    let outcome = run(&mut command, &setting).unwrap();
    let text = String::from_utf8_lossy(&outcome.stderr);
    assert_eq!(outcome.end, End::Exit(0), "{text}");
    Ran {
        place,
        outcome,
        report,
    }
}

fn json(place: &Path, file: &str) -> Value {
    serde_json::from_slice(&std::fs::read(place.join(file)).unwrap()).unwrap()
}

fn sums(json: &Value, table: &str, column: &str) -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    for row in json[table].as_array().unwrap() {
        let name = row["procedure"].as_str().unwrap().to_owned();
        *all.entry(name).or_default() += row[column].as_u64().unwrap();
    }
    all
}

fn in_all(json: &Value, event: &str) -> u64 {
    let rows = json["events"].as_array().unwrap();
    let row = rows.iter().find(|r| r["event"] == event).unwrap();
    row["in_all"].as_u64().unwrap()
}

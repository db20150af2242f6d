//! The tool `calllog` and `atom analyze`: entries and exits pair, calls are counted right, and all time
//! belongs to exactly one procedure.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use atom_tests::atom::{self, Job};
use atom_tests::outcome::{Setting, plain_environment, run};
use atom_tests::source::End;

mod exercise;
mod exports;
mod leaving;
mod real;

fn folder(name: &str) -> PathBuf {
    atom_tests::cache::empty_folder(&format!("calllog-{name}"))
}

fn compile(folder: &Path, source: &str, flags: &[&str]) -> PathBuf {
    let (extension, compiler) = if source.contains("std::") {
        ("cc", "g++")
    } else {
        ("c", "gcc")
    };
    let (file, program) = (
        folder.join("program").with_extension(extension),
        folder.join("program"),
    );
    std::fs::write(&file, source).unwrap();
    let mut command = Command::new(compiler);
    command
        .args(flags)
        .arg("-o")
        .arg(&program)
        .arg(&file)
        .arg("-pthread");
    assert!(command.status().expect("a compiler runs").success());
    program
}

/// Instruments with a tool under `folder/NAME/`, and runs it there.
fn log(folder: &Path, program: &Path, tool: &str, options: &[&str], args: &[&str]) -> PathBuf {
    // The names have the same length, because they move the stack.
    let place = folder.join(if tool == "prof" { "profile" } else { tool });
    std::fs::create_dir_all(&place).unwrap();
    let out = place.join("program");
    let options = options.iter().map(|o| (*o).to_owned()).collect();
    atom::instrument(program, &out, &Job::Tool(tool.to_owned(), options), true).unwrap();
    let mut command = Command::new(&out);
    plain_environment(&mut command);
    command
        .args(args)
        .current_dir(&place)
        .env("PYTHONHASHSEED", "0");
    let setting = Setting {
        fixed_addresses: true,
        ..Setting::default()
    };
    let outcome = run(&mut command, &setting).unwrap();
    assert_eq!(
        outcome.end,
        End::Exit(0),
        "{}",
        String::from_utf8_lossy(&outcome.stderr)
    );
    place
}

fn analyze(args: &[&str], file: &Path) -> String {
    let mut command = Command::new(atom::command().unwrap());
    command.arg("analyze").arg(file).args(args);
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// Procedures of the n-th report with the numbers of calls and of calls left without an exit.
fn figures(text: &str, report: usize) -> BTreeMap<String, (u64, u64)> {
    let json: serde_json::Value = serde_json::from_str(text).unwrap();
    let mut all = BTreeMap::new();
    for proc in json["reports"][report]["procedures"].as_array().unwrap() {
        if let Some(calls) = proc["calls"].as_u64() {
            let entry: &mut (u64, u64) = all
                .entry(proc["procedure"].as_str().unwrap().to_owned())
                .or_default();
            entry.0 += calls;
            entry.1 += proc["left"].as_u64().unwrap();
        }
    }
    assert_eq!(
        json["reports"][report]["notes"].as_array().unwrap().len(),
        0
    );
    all
}

/// An error message names the line or record, and there is no report.
#[test]
fn mistakes_in_the_input_are_told() {
    let folder = folder("mistakes");
    let mut record = [0u8; 24];
    record[8] = 9;
    let mut end = record;
    (end[0], end[1]) = (1, 1);
    std::fs::write(folder.join("timing.dat"), [record, end].concat()).unwrap();
    for (text, want) in [
        ("timing.dat\nHeading\n0 Main yes\n", "a.indat, line 3"),
        (
            "timing.dat\nHeading\n0 Main 1\n1 A 1\n",
            "timing.dat, record 2",
        ),
        ("none.dat\nHeading\n0 Main 1\n", "none.dat"),
    ] {
        let file = folder.join("a.indat");
        std::fs::write(&file, text).unwrap();
        let mut command = Command::new(atom::command().unwrap());
        let output = command.arg("analyze").arg(&file).output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(
            !output.status.success() && message.contains(want),
            "{message}"
        );
        assert!(output.stdout.is_empty());
    }
}

/// All clocks are measured, and the results are plausible.
#[test]
fn clocks_are_measured() {
    let mut command = Command::new(atom::command().unwrap());
    let output = command
        .args(["clocks", "--json", "--time", "60"])
        .output()
        .unwrap();
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let clocks = json["clocks"].as_array().unwrap();
    for option in ["tsc", "monotonic", "cpu", "prof"] {
        let clock = clocks.iter().find(|c| c["option"] == option).unwrap();
        assert!(clock["cost_ns"].as_f64().unwrap() > 0.0, "{clock}");
    }
    let monotonic = clocks.iter().find(|c| c["option"] == "monotonic").unwrap();
    assert_eq!(monotonic["backwards"], 0);
    assert!(monotonic["least_step_ns"].as_f64().unwrap() >= 1.0);
    assert!(json["tsc_ticks_per_ns"].as_f64().unwrap() > 0.1);
}

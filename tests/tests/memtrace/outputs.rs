//! Where a trace goes, and what becomes of one that is large.

use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use atom_tests::atom::{self, Job};
use atom_tests::outcome::{Outcome, Setting, plain_environment, run};
use atom_tests::source::End;
use mem_trace::EXECUTED;

use super::{formats, trace};

/// Number of repetitions of the program's string instruction.
const REPETITIONS: usize = 3_000_000;

/// Compiles the program in a folder of its own; returns the program with the tool in it.
fn program(name: &str, options: &[&str]) -> PathBuf {
    let folder = atom_tests::cache::empty_folder(&format!("memtrace-{name}"));
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = here.join("tests/memtrace/programs/large.c");
    let (original, out) = (folder.join("large"), folder.join("rewritten"));
    let mut command = Command::new("gcc");
    command.args(["-O1", "-o"]).arg(&original).arg(source);
    assert!(command.status().unwrap().success());
    let options = options.iter().map(|option| (*option).to_owned());
    let job = Job::Tool("memtrace".into(), options.collect());
    atom::instrument(&original, &out, &job, false).unwrap();
    out
}

fn run_in_folder(program: &Path) -> Outcome {
    let mut command = Command::new(program);
    plain_environment(&mut command);
    command.current_dir(program.parent().unwrap());
    let setting = Setting {
        timeout: Duration::from_secs(60),
        ..Setting::default()
    };
    run(&mut command, &setting).unwrap()
}

#[test]
fn many_repetitions_are_converted() {
    let out = program("large", &["--instructions"]);
    run_in_folder(&out);
    let file = out.with_file_name("memtrace.trace");
    let all = trace(&file).remove(&1).unwrap();
    let executed = all.iter().filter(|r| r.access == EXECUTED).count();
    let records = formats::convert(&file, "champsim");
    assert_eq!(records.len() / 64, executed + REPETITIONS - 1);
    let entries = formats::convert(&file, "drmemtrace");
    let kinds = entries.chunks_exact(12).map(|e| [e[0], e[1]]);
    // Type 29 is a repetition that is not fetched, 1 a reference that is written.
    let of = |kind: u8| kinds.clone().filter(|k| *k == [kind, 0]).count();
    assert_eq!(of(29), REPETITIONS - 1);
    let written = all
        .iter()
        .filter(|r| r.access & mem_trace::WRITE != 0 && r.access != EXECUTED);
    assert_eq!(of(1), written.count());
}

#[test]
fn a_profile_has_the_numbers_without_a_trace() {
    let counts = |name: &str, file: &str| {
        let out = program(name, &["--output", file, "--profile", "profile"]);
        run_in_folder(&out);
        let mut command = Command::new(atom::command().unwrap());
        let report = command
            .args(["report", "--json"])
            .arg(out.with_file_name("profile"));
        let made = report.output().unwrap();
        let report: serde_json::Value = serde_json::from_slice(&made.stdout).unwrap();
        ["references", "entries", "threads"].map(|fact| report["facts"][fact].as_u64().unwrap())
    };
    let found = counts("nowhere", "/dev/null");
    assert_eq!(found, counts("somewhere", "some.trace"));
    assert!(found[0] > 3_000_000);
}

/// The reader in Python prints the same, and notices a trace that was cut.
#[test]
fn the_reader_in_python_agrees() {
    let out = program(
        "python",
        &["--instructions", "--skip", "1000", "--window", "30000"],
    );
    run_in_folder(&out);
    let file = out.with_file_name("memtrace.trace");
    let reader = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/memtrace/memtrace.py");
    let read = |file: &Path| Command::new("python3").arg(&reader).arg(file).output();
    let Ok(found) = read(&file) else { return };
    assert!(formats::convert(&file, "text") == found.stdout);
    assert!(found.stdout.len() > 100_000);
    let bytes = std::fs::read(&file).unwrap();
    let cut = out.with_file_name("cut.trace");
    std::fs::write(&cut, &bytes[..bytes.len() - 1]).unwrap();
    assert!(!read(&cut).unwrap().status.success());
}

/// The trace has several parts, and the pipe's reader goes after the first.
#[test]
fn a_pipe_without_a_reader_does_not_stop_the_program() {
    let out = program("pipe", &["--output", "pipe"]);
    let pipe = out.with_file_name("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let mut options = std::fs::OpenOptions::new();
    // O_NONBLOCK: it does not wait for a writer.
    let mut reader = options.read(true).custom_flags(0o4000).open(&pipe).unwrap();
    let first = std::thread::spawn(move || {
        let mut bytes = [0; 1 << 16];
        let mut count = 0;
        while count < 1000 {
            count += reader.read(&mut bytes).unwrap_or(0);
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let outcome = run_in_folder(&out);
    first.join().unwrap();
    assert!(!outcome.timed_out);
    assert_eq!(outcome.end, End::Exit(0));
    let text = String::from_utf8_lossy(&outcome.stderr);
    assert!(text.contains("the trace ends here"), "{text}");
}

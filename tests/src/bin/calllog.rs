//! Cost of an event of the tool `calllog`: a program that only makes calls runs uninstrumented and
//! instrumented in turns.
//!
//! Usage: calllog [CALLS [RUNS]]

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use atom_tests::atom;
use atom_tests::error::{Error, Result, exit_code};
use atom_tests::outcome::{Setting, children, run};
use atom_tests::source::End;

const PROGRAM: &str = "static volatile int sink;\n\
    __attribute__((noinline, noclone)) void leaf(int i) { sink = i; }\n\
    int main(void) { for (int i = 0; i < CALLS; i++) leaf(i); return 0; }\n";

fn main() -> ExitCode {
    exit_code("calllog", measure().map(|()| true))
}

fn measure() -> Result<()> {
    let numbers: Vec<u64> = std::env::args()
        .skip(1)
        .filter_map(|a| a.parse().ok())
        .collect();
    let calls = numbers.first().copied().unwrap_or(10_000_000);
    let runs = numbers.get(1).copied().unwrap_or(5);
    let folder = atom_tests::cache::target_folder()?.join("test-programs/calllog-bench");
    let fail = |e: std::io::Error| Error::new("measuring", e);
    std::fs::create_dir_all(&folder).map_err(fail)?;
    let (source, program) = (folder.join("calls.c"), folder.join("calls"));
    std::fs::write(&source, PROGRAM).map_err(fail)?;
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", &format!("-DCALLS={calls}"), "-o"])
        .arg(&program)
        .arg(&source);
    if !gcc.status().map_err(fail)?.success() {
        return Err(Error::new("measuring", "gcc failed"));
    }
    println!(
        "{calls} calls, an entry and an exit each; processor time in ns per event, least of {runs} runs"
    );
    println!(
        "{:12} {:>8} {:>8}  {:>14}",
        "clock", "user", "system", "bytes per event"
    );
    for (clock, form, scale) in [
        ("tsc", "compact", 1),
        ("tsc", "exercise", 4),
        ("monotonic", "compact", 20),
        ("cpu", "compact", 20),
        ("prof", "compact", 20),
    ] {
        row(
            &folder,
            &program,
            (clock, form),
            calls,
            runs.div_ceil(scale),
        )?;
    }
    Ok(())
}

fn row(
    folder: &Path,
    program: &Path,
    (clock, form): (&str, &str),
    calls: u64,
    runs: u64,
) -> Result<()> {
    let out: PathBuf = folder.join("calls.log");
    let words = ["--clock", clock, "--format", form, "--output", "log"];
    let made = Command::new(atom::command()?)
        .arg(program)
        .args(["--only", "leaf", "--tool", "calllog", "-o"])
        .arg(&out)
        .arg("--")
        .args(words)
        .output()
        .map_err(|e| Error::new("instrumenting", e))?;
    if !made.status.success() {
        return Err(Error::new(
            "instrumenting",
            String::from_utf8_lossy(&made.stderr),
        ));
    }
    let mut least = [[f64::MAX; 2]; 2];
    for _ in 0..runs {
        for (file, least) in [program, &out].into_iter().zip(&mut least) {
            let times = times_of(file, folder)?;
            least[0] = least[0].min(times[0]);
            least[1] = least[1].min(times[1]);
        }
    }
    let events = (calls * 2) as f64;
    let cost = |i: usize| (least[1][i] - least[0][i]) * 1e9 / events;
    let size = std::fs::metadata(folder.join("log")).map_or(0, |m| m.len());
    let name = if form == "compact" {
        clock.to_owned()
    } else {
        format!("{clock} {form}")
    };
    println!(
        "{name:12} {:8.1} {:8.1}  {:14.2}",
        cost(0),
        cost(1),
        size as f64 / events
    );
    Ok(())
}

/// User and system time of a run, in seconds.
fn times_of(file: &Path, folder: &Path) -> Result<[f64; 2]> {
    let before = children();
    let mut command = Command::new(file);
    command.current_dir(folder);
    let outcome = run(&mut command, &Setting::default())?;
    if outcome.end != End::Exit(0) {
        return Err(Error::new("measuring", format!("{:?}", outcome.end)).file(file));
    }
    let after = children();
    Ok([after[0] - before[0], after[1] - before[1]])
}

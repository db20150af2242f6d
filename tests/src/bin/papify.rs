//! The table of the Papify paper: cost of measuring each actor, for a program of small actors and for a program of
//! heavy actors, with 0 to 8 events.
//!
//! PT is the time that a start and a stop take, measured on an actor that does nothing. TET is the
//! time of a frame. PTT is PT times the number of actors of a frame. The overhead is PTT in per cent of
//! TET, as in the paper. Beside it is the time that the frame really takes in addition to its time without
//! instrumentation, which includes the cost of counting between starts and stops.
//!
//! Usage: papify [RUNS [EVENT,...]]

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use atom_tests::atom::{self, Job};
use atom_tests::error::{Error, Result, exit_code};
use atom_tests::outcome::{Setting, run};
use atom_tests::source::End;

/// Programs with the actors of a frame and the number of frames, or calls, of a run.
const PROGRAMS: [(&str, u32, &str); 3] = [
    ("empty", 1, "1000000"),
    ("sobel", 12, "300"),
    ("stereo", 94, "2"),
];

const EVENTS: &str = "exact:instructions,exact:loads,exact:stores,exact:branches,exact:taken,\
                      exact:calls,exact:bytes,exact:flops";

fn main() -> ExitCode {
    exit_code("papify", measure().map(|()| true))
}

fn measure() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let runs: usize = args.next().and_then(|a| a.parse().ok()).unwrap_or(9);
    let events = args.next().unwrap_or_else(|| EVENTS.to_owned());
    let events: Vec<&str> = events.split(',').collect();
    let folder = atom_tests::cache::target_folder()?.join("test-programs/papify");
    std::fs::create_dir_all(&folder).map_err(|e| Error::new("making a folder", e).file(&folder))?;
    let mut times = Vec::new();
    for (name, _, rounds) in PROGRAMS {
        times.push(program(&folder, name, rounds, runs, &events)?);
    }
    let [empty, sobel, stereo] = times.as_slice() else {
        return Ok(());
    };
    println!("Times in microseconds of processor time, medians of {runs} runs; events are");
    println!("{}", events.join(", "));
    println!();
    println!("|  | start/stop | Sobel, 12 actors |  |  |  | stereo, 94 actors |  |  |  |");
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    println!("| events | PT | TET | PTT | PTT % | longer % | TET | PTT | PTT % | longer % |");
    for (i, time) in empty.iter().enumerate() {
        let label = match i {
            0 => "none, not instrumented".to_owned(),
            1 => "0, time".to_owned(),
            i => (i - 1).to_string(),
        };
        let pt = time - empty[0];
        let part = |times: &[f64], actors: u32| {
            let (time, plain) = (times[i], times[0]);
            let ptt = pt * f64::from(actors);
            let (share, longer) = (ptt * 100.0 / time, (time / plain - 1.0) * 100.0);
            match i {
                0 => format!("{time:.2} |  |  | "),
                _ => format!("{time:.2} | {ptt:.2} | {share:.2} | {longer:.1}"),
            }
        };
        let pt = match i {
            0 => String::new(),
            _ => format!("{pt:.3}"),
        };
        let (sobel, stereo) = (part(sobel, PROGRAMS[1].1), part(stereo, PROGRAMS[2].1));
        println!("| {label} | {pt} | {sobel} | {stereo} |");
    }
    Ok(())
}

/// The time of a frame without instrumentation, then with 0, 1, ... events.
fn program(
    folder: &Path,
    name: &str,
    rounds: &str,
    runs: usize,
    events: &[&str],
) -> Result<Vec<f64>> {
    let fail = |reason: String| Error::new("measuring", reason).file(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("papify/{name}.c"));
    let original = folder.join(name);
    let mut gcc = Command::new("gcc");
    gcc.arg("-O2").arg("-o").arg(&original).arg(&source);
    if !gcc.status().map_err(|e| fail(e.to_string()))?.success() {
        return Err(fail("gcc failed".into()));
    }
    let mut files: Vec<PathBuf> = vec![original.clone()];
    for count in 0..=events.len() {
        let out = folder.join(format!("{name}.{count}"));
        let set = events[..count].join(",");
        let options = [
            "--proc",
            "actor_*",
            "--events",
            &set,
            "--output",
            "counters.out",
        ];
        let options = options.map(str::to_owned).to_vec();
        atom::instrument(
            &original,
            &out,
            &Job::Tool("counters".into(), options),
            false,
        )?;
        files.push(out);
    }
    let mut times = vec![Vec::new(); files.len()];
    let mut shown = None;
    for _ in 0..runs {
        for (file, times) in files.iter().zip(&mut times) {
            let mut command = Command::new(file);
            command.arg(rounds).current_dir(folder);
            let outcome = run(&mut command, &Setting::default())?;
            let text = String::from_utf8_lossy(&outcome.stdout).into_owned();
            let mut lines = text.lines();
            let time = lines.next().and_then(|l| l.parse::<f64>().ok());
            let sum = lines.next().map(str::to_owned);
            let (End::Exit(0), Some(time), true) = (outcome.end, time, sum.is_some()) else {
                return Err(fail(format!("{:?}, {text}", outcome.end)));
            };
            times.push(time);
            if *shown.get_or_insert_with(|| sum.clone()) != sum {
                return Err(fail("its output is not the same".into()));
            }
        }
    }
    let median = |mut times: Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    Ok(times.into_iter().map(median).collect())
}

//! Prints the cost of instrumenting large programs: time, speed and memory.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use atom_tests::atom;
use atom_tests::error::{Error, Result, exit_code};
use clap::Parser;
use object::{Object, ObjectSection, SectionKind};

/// Programs of Debian 12, from small to large; what is not installed is left out.
const PROGRAMS: [&str; 9] = [
    "/usr/bin/bash",
    "/usr/bin/perl",
    "/usr/bin/git",
    "/usr/bin/python3.11",
    "/usr/bin/gdb",
    "/usr/bin/z3",
    "/usr/lib/gcc/x86_64-linux-gnu/12/cc1",
    "/usr/bin/mutool",
    "/usr/bin/node",
];

/// Instruments programs and prints what that took.
///
/// Text is the size of all executable sections. Its MB a second are told twice: by
/// the clock, and by the processor time if two cores shared that evenly. Memory is
/// the peak of the resident set, which includes the pages of the program's file
/// that are mapped; it is told for each byte of that file too.
#[derive(Parser)]
struct Args {
    /// Only these programs.
    programs: Vec<PathBuf>,
    /// A tool by its name, or `empty` (repeatable).
    #[arg(long, default_values_t = ["empty", "icount"].map(String::from))]
    tool: Vec<String>,
    /// Number of runs, of which the best time and the largest memory are printed.
    #[arg(long, default_value_t = 1)]
    runs: usize,
}

/// Cost of a run.
#[derive(Clone, Copy, Default)]
struct Cost {
    wall: f64,
    cpu: f64,
    peak: u64,
}

impl Cost {
    /// The better times of two runs, and the larger memory.
    fn with(self, other: Self) -> Self {
        Self {
            wall: self.wall.min(other.wall),
            cpu: self.cpu.min(other.cpu),
            peak: self.peak.max(other.peak),
        }
    }
}

/// Instruments once.
fn instrument(program: &Path, tool: &str, out: &Path) -> Result<Cost> {
    const DOING: &str = "instrumenting";
    let mut command = Command::new(atom::command()?);
    command.arg(program).arg("-o").arg(out);
    if tool != "empty" {
        command.args(["--tool", tool]);
    }
    let start = Instant::now();
    let child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| Error::new(DOING, e).file(program))?;
    let mut status = 0;
    // SAFETY: the structure has only numbers, for which zeros are valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to local variables, and only this call waits for the child.
    let waited = unsafe { libc::wait4(child.id() as i32, &mut status, 0, &mut usage) };
    let wall = start.elapsed().as_secs_f64();
    let status = std::process::ExitStatus::from_raw(status);
    if waited < 0 || !status.success() {
        return Err(Error::new(DOING, status).file(program));
    }
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    Ok(Cost {
        wall,
        cpu: seconds(usage.ru_utime) + seconds(usage.ru_stime),
        peak: usage.ru_maxrss as u64 * 1024,
    })
}

/// Sizes of a file and of its executable sections.
fn sizes(program: &Path) -> Result<(u64, u64)> {
    let bytes = std::fs::read(program).map_err(|e| Error::new("reading", e).file(program))?;
    let file = object::File::parse(&bytes[..]);
    let file = file.map_err(|e| Error::new("reading", e).file(program))?;
    let text = file.sections().filter(|s| s.kind() == SectionKind::Text);
    Ok((bytes.len() as u64, text.map(|s| s.size()).sum()))
}

fn row(args: &Args, program: &Path, tool: &str) -> Result<String> {
    let name: OsString = format!("atom-instrumenting-{}", std::process::id()).into();
    let out = std::env::temp_dir().join(name);
    let (file, text) = sizes(program)?;
    let mut cost = instrument(program, tool, &out)?;
    for _ in 1..args.runs {
        cost = cost.with(instrument(program, tool, &out)?);
    }
    let output = std::fs::metadata(&out).map_or(0, |m| m.len());
    let _ = std::fs::remove_file(&out);
    let mb = |n: u64| n as f64 / 1e6;
    Ok(format!(
        "| {} | {:.1} | {:.1} | {tool} | {:.2} | {:.2} | {:.1} | {:.1} | {:.0} | {:.1} | {:.1} |",
        program.file_name().unwrap_or_default().to_string_lossy(),
        mb(file),
        mb(text),
        cost.wall,
        cost.cpu,
        mb(text) / cost.wall,
        mb(text) / (cost.cpu / 2.0),
        mb(cost.peak),
        cost.peak as f64 / file as f64,
        mb(output),
    ))
}

fn main_result(args: &Args) -> Result<()> {
    let known = || PROGRAMS.iter().map(PathBuf::from).filter(|p| p.exists());
    let programs: Vec<PathBuf> = if args.programs.is_empty() {
        known().collect()
    } else {
        args.programs.clone()
    };
    println!(
        "| program | MB | text MB | tool | wall s | CPU s | text MB/s | by CPU, 2 cores | peak MB | bytes per byte | output MB |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    for program in &programs {
        for tool in &args.tool {
            println!("{}", row(args, program, tool)?);
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    exit_code("instrumenting", main_result(&Args::parse()).map(|()| true))
}

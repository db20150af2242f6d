//! Finding, building and running the `atom` command under test.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::cache;
use crate::elf;
use crate::error::{Error, Result};
use crate::outcome::{Setting, run};
use crate::source::End;

/// Exit code of `atom` if the inserted code does not fit within reach: a documented limit.
pub const TOO_LARGE: i32 = 3;

/// The rewrite that is made of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Job {
    /// No tool: the empty rewrite.
    Empty,
    /// No tool, but every procedure moves.
    Moved,
    /// No tool, but half of the procedures move, chosen by a seed.
    Half(u64),
    /// The tool `icount`, per instruction, with its output file.
    Icount(PathBuf),
    /// The tool `icount`, per instruction, with its output file; only in the procedures at these ranges
    /// of addresses.
    Partly(PathBuf, Vec<(u64, u64)>),
    /// The tool `branch`, with its output file.
    Branch(PathBuf),
    /// Any shipped tool with its options.
    Tool(String, Vec<String>),
    /// A job done for the program with all that it loads, and with these libraries that it may load later.
    Whole(Box<Job>, Vec<PathBuf>),
    /// A job with more options of the command.
    With(Box<Job>, Vec<String>),
}

/// Cost of one instrumentation.
#[derive(Clone, Debug)]
pub struct Made {
    /// Wall time in seconds.
    pub seconds: f64,
    /// The report of `--report`, if it could be read.
    pub report: serde_json::Value,
}

/// The `atom` command: `$ATOM` if that is set, else the release build of this
/// workspace, which is brought up to date once for each test process.
pub fn command() -> Result<PathBuf> {
    static BUILT: OnceLock<Result<PathBuf>> = OnceLock::new();
    BUILT.get_or_init(build).clone()
}

fn build() -> Result<PathBuf> {
    if let Some(given) = std::env::var_os("ATOM") {
        return Ok(given.into());
    }
    let target = cache::target_folder()?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args([
            "build",
            "--release",
            "--workspace",
            "--exclude",
            "atom-tests",
            "--quiet",
        ])
        .current_dir(root)
        .env("CARGO_TARGET_DIR", &target)
        .output()
        .map_err(|e| Error::new("building atom and its tools", e))?;
    if !output.status.success() {
        return Err(Error::new(
            "building atom and its tools",
            String::from_utf8_lossy(&output.stderr),
        ));
    }
    Ok(target.join("release/atom"))
}

/// The command line that makes `out` of `program`, without `program`, `out` and the report.
fn words(job: &Job, strict: bool) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut add = |more: &[&str]| words.extend(more.iter().map(|w| w.to_string()));
    if let Job::Whole(job, with) = job {
        add(&["--libs"]);
        for file in with {
            add(&["--with", &file.to_string_lossy()]);
        }
        words.extend(self::words(job, strict));
        return words;
    }
    if let Job::With(job, more) = job {
        words.extend(more.iter().cloned());
        words.extend(self::words(job, strict));
        return words;
    }
    if strict {
        add(&["--strict", "--check"]);
    }
    let icount = ["--tool", "icount", "--", "--format", "tsv", "--per"];
    match job {
        Job::Empty => {}
        Job::Moved => add(&["--move-all"]),
        Job::Half(seed) => add(&["--move-half", &seed.to_string()]),
        Job::Icount(file) => {
            add(&icount);
            add(&["instruction", "--output", &file.to_string_lossy()]);
        }
        Job::Partly(file, ranges) => {
            for (start, end) in ranges {
                add(&["--only", &format!("{start:#x}-{end:#x}")]);
            }
            add(&icount);
            add(&["instruction", "--output", &file.to_string_lossy()]);
        }
        Job::Branch(file) => {
            add(&["--tool", "branch", "--", "--format", "atom", "--output"]);
            add(&[&file.to_string_lossy()]);
        }
        Job::Tool(name, options) => {
            add(&["--tool", name, "--"]);
            words.extend(options.iter().cloned());
        }
        Job::Whole(..) | Job::With(..) => {}
    }
    words
}

/// Name of the tool that a job uses.
fn tool(job: &Job) -> Option<&str> {
    match job {
        Job::Empty | Job::Moved | Job::Half(_) => None,
        Job::Icount(_) | Job::Partly(..) => Some("icount"),
        Job::Branch(_) => Some("branch"),
        Job::Tool(name, _) => Some(name),
        Job::Whole(job, _) => Some(tool(job).unwrap_or("empty")),
        Job::With(job, _) => tool(job),
    }
}

/// Rewrites `program` as `out`. The error holds what `atom` printed.
pub fn instrument(program: &Path, out: &Path, job: &Job, strict: bool) -> Result<Made> {
    let report = out.with_extension("report.json");
    let mut command = Command::new(self::command()?);
    command.arg(program).arg("-o").arg(out);
    command.arg("--report").arg(&report);
    command.args(words(job, strict));
    let start = Instant::now();
    let outcome = run(
        &mut command,
        &Setting {
            timeout: Duration::from_secs(300),
            ..Setting::default()
        },
    )?;
    let seconds = start.elapsed().as_secs_f64();
    if outcome.end != End::Exit(0) {
        let text = String::from_utf8_lossy(&outcome.stderr).into_owned();
        let reason = format!("{:?}: {}", outcome.end, text.trim());
        let error = Error::new("instrumenting", reason).file(program);
        return Err(match outcome.end {
            End::Exit(code) => error.code(code),
            _ => error,
        });
    }
    let report = read_report(&report);
    compare_files(program, out, &report)?;
    Ok(Made { seconds, report })
}

/// Compares each file that was written with its original.
fn compare_files(program: &Path, out: &Path, report: &serde_json::Value) -> Result<()> {
    let Some(objects) = report["objects"].as_array() else {
        return elf::compare(program, out);
    };
    objects.iter().try_for_each(|object| {
        let path = |which: &str| Path::new(object[which]["path"].as_str().unwrap_or_default());
        elf::compare(path("original"), path("output"))
    })
}

fn read_report(file: &Path) -> serde_json::Value {
    let text = std::fs::read(file).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

/// As [`instrument`], unless `out` was made of the same program by the same `atom` and tool
/// with the same options already. The caller holds a lock for `out`.
pub fn instrument_once(program: &Path, out: &Path, job: &Job, strict: bool) -> Result<Made> {
    let command = self::command()?;
    let mut parts = vec![cache::contents(program)?, cache::contents_once(&command)?];
    if let Some(tool) = tool(job) {
        parts.push(cache::contents_once(
            &command.with_file_name(format!("lib{tool}.so")),
        )?);
    }
    let note = format!("{parts:x?} {} {:?}", program.display(), words(job, strict));
    let (file, report) = (
        out.with_extension("made"),
        out.with_extension("report.json"),
    );
    if out.exists() && std::fs::read_to_string(&file).is_ok_and(|old| old == note) {
        return Ok(Made {
            seconds: 0.0,
            report: read_report(&report),
        });
    }
    // No note while the program is being made.
    let _ = std::fs::remove_file(&file);
    let made = instrument(program, out, job, strict)?;
    std::fs::write(&file, note).map_err(|e| Error::new("noting a rewrite", e).file(&file))?;
    Ok(made)
}

//! Finding, building and running the `atom` command under test.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::outcome::{Setting, run};
use crate::source::End;

/// Exit code of `atom` where what is inserted does not fit: a documented limit.
pub const TOO_LARGE: i32 = 3;

/// What to make of a program.
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
    /// The same, only in the procedures at these ranges of addresses.
    Partly(PathBuf, Vec<(u64, u64)>),
    /// The tool `branch`, with its output file.
    Branch(PathBuf),
    /// Any shipped tool with its options.
    Tool(String, Vec<String>),
}

/// What an instrumentation cost.
#[derive(Clone, Debug)]
pub struct Made {
    /// Wall time.
    pub seconds: f64,
    /// The report of `--report`, if it could be read.
    pub report: serde_json::Value,
}

/// The folder that cargo builds into, found from the running executable.
pub fn target_folder() -> Result<PathBuf> {
    let exe = std::env::current_exe().map_err(|e| Error::new("finding the build folder", e))?;
    let profile = exe
        .ancestors()
        .find(|p| p.ends_with("release") || p.ends_with("debug"));
    let parent = profile.and_then(Path::parent);
    parent
        .map(Path::to_path_buf)
        .ok_or_else(|| Error::new("finding the build folder", "not run by cargo").file(&exe))
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
    let target = target_folder()?;
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

/// Rewrites `program` as `out`. The error holds what `atom` printed.
pub fn instrument(program: &Path, out: &Path, job: &Job, strict: bool) -> Result<Made> {
    let report = out.with_extension("report.json");
    let mut command = Command::new(self::command()?);
    command
        .arg(program)
        .arg("-o")
        .arg(out)
        .arg("--report")
        .arg(&report);
    if strict {
        command.args(["--strict", "--check"]);
    }
    match job {
        Job::Empty => {}
        Job::Moved => {
            command.arg("--move-all");
        }
        Job::Half(seed) => {
            command.args(["--move-half", &seed.to_string()]);
        }
        Job::Icount(file) => {
            command
                .args(["--tool", "icount", "--", "--format", "tsv"])
                .args(["--per", "instruction", "--output"])
                .arg(file);
        }
        Job::Partly(file, ranges) => {
            for (start, end) in ranges {
                command.arg("--only").arg(format!("{start:#x}-{end:#x}"));
            }
            command
                .args(["--tool", "icount", "--", "--format", "tsv"])
                .args(["--per", "instruction", "--output"])
                .arg(file);
        }
        Job::Branch(file) => {
            command
                .args(["--tool", "branch", "--", "--format", "atom", "--output"])
                .arg(file);
        }
        Job::Tool(name, options) => {
            command.args(["--tool", name, "--"]).args(options);
        }
    }
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
    let text = std::fs::read(&report).unwrap_or_default();
    Ok(Made {
        seconds,
        report: serde_json::from_slice(&text).unwrap_or_default(),
    })
}

//! Programs as they are beside the same programs under `atom run`.
//!
//! A bundle has the libraries that a program names. `atom run` also instruments what the program opens
//! while it runs, and with `--children` what it executes. So programs whose work is done by extension
//! modules or by children are compared in this way. The tool is drawn for each program.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::drawn;
use super::runs::Bench;
use super::table::Entry;
use crate::atom;
use crate::error::{Error, Result};
use crate::source::End;

/// Ends of programs by a signal that report a fault, for the line of an original.
const NOT_ENDED: &str = "running the original";

/// What became of one program.
pub enum Row {
    /// It behaved as the original.
    Same,
    /// The first difference.
    Different(String),
    /// The original cannot be judged, and why.
    NotJudged(String),
}

/// How a table of programs turned out.
#[derive(Default)]
pub struct Tally {
    /// Programs that behaved as the original.
    pub same: usize,
    /// Names of those that did not.
    pub different: Vec<String>,
    /// Originals that cannot be judged.
    pub not_judged: usize,
}

/// Folders for the runs, the command `atom` and the seed that draws tools.
pub struct Launcher {
    bench: Bench,
    root: PathBuf,
    atom: PathBuf,
    seed: u64,
    /// A tool with its options for all programs, in place of drawn ones.
    tool: Option<String>,
    /// Time for a program under `atom run`.
    limit: Duration,
}

impl Launcher {
    /// Seconds for a program under `atom run`, with instrumenting all that it loads, unless a command is told others.
    pub const LIMIT: u64 = 900;

    /// Prepares folders below `root`. Each program has `limit` seconds under `atom run`.
    pub fn new(root: &Path, seed: u64, tool: Option<String>, limit: u64) -> Result<Launcher> {
        Ok(Launcher {
            bench: Bench::without_inputs(root)?,
            root: root.to_path_buf(),
            atom: atom::command()?,
            seed,
            tool,
            limit: Duration::from_secs(limit),
        })
    }

    /// The tool for a program, with its options.
    fn tool(&self, name: &str) -> &str {
        let drawn = || drawn::tool(self.seed, name);
        self.tool.as_deref().unwrap_or_else(drawn)
    }

    /// An entry whose program has this name, for [`Launcher::judge`]. The commands have the program's path, or the
    /// path of what starts it under `atom run`, in the variable `PROGRAM`.
    pub fn entry(&self, name: &str, script: String, limit: Duration) -> Entry {
        let cache = self.root.join("cache").display().to_string();
        let env = [
            ("XDG_CACHE_HOME", cache.as_str()),
            ("ATOM_CACHE_SIZE", "20G"),
        ];
        Entry {
            name: name.to_owned(),
            package: String::new(),
            program: name.to_owned(),
            quick: false,
            quick_jobs: Vec::new(),
            env: env.map(|(name, value)| (name.into(), value.into())).into(),
            script,
            limit,
            is_in_place: true,
        }
    }

    /// Writes a script that starts `program` under `atom run`.
    fn starter(&self, program: &Path, tool: &str, output: &Path) -> Result<PathBuf> {
        let file = self.root.join("start");
        let text = format!(
            "#!/bin/sh\nexec '{}' run -q --children {tool} '{}' -- '{}' \"$@\"\n",
            self.atom.display(),
            output.display(),
            program.display()
        );
        let fail = |e: std::io::Error| Error::new("writing the starter", e).file(&file);
        std::fs::write(&file, text).map_err(fail)?;
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&file, executable).map_err(fail)?;
        Ok(file)
    }

    /// Runs the original and the instrumented program, and compares.
    fn compare(&self, entry: &Entry, program: &Path) -> Result<Row> {
        self.bench.clear_out()?;
        let original = match self.bench.original(entry, program) {
            Ok(original) => original,
            Err(e) if e.doing == NOT_ENDED => return Ok(Row::NotJudged(e.reason)),
            Err(e) => return Err(e),
        };
        if original.unstable.contains(&"exit code") {
            return Ok(Row::NotJudged("its end differs by itself".into()));
        }
        let output = self.bench.out().join("report");
        let starter = self.starter(program, self.tool(&entry.name), &output)?;
        let difference = self
            .bench
            .rewritten(entry, &starter, &original, self.limit)?;
        let written = std::fs::metadata(&output).map_or(0, |m| m.len());
        Ok(match difference.text {
            Some(text) => Row::Different(text),
            // A process that is killed by its own signal has none to compare either.
            None if written == 0 && matches!(original.end(), End::Exit(_)) => {
                Row::Different("the tool left no report".into())
            }
            None => Row::Same,
        })
    }

    /// Judges a program and prints a line about it.
    pub fn judge(&self, entry: &Entry, program: &Path, tally: &mut Tally) -> Result<()> {
        let start = Instant::now();
        let row = self.compare(entry, program)?;
        let seconds = start.elapsed().as_secs_f64();
        let (verdict, text) = match row {
            Row::Same => ("ok", String::new()),
            Row::Different(text) => ("FAILED", text),
            Row::NotJudged(text) => ("-", text),
        };
        match verdict {
            "ok" => tally.same += 1,
            "-" => tally.not_judged += 1,
            _ => tally.different.push(entry.name.clone()),
        }
        let tool = self.tool(&entry.name);
        println!("{verdict:<7} {seconds:>7.1} s  {:<40} {tool}", entry.name);
        if !text.is_empty() {
            println!("    {text}");
        }
        // Each line should appear at once. A closed pipe is noticed at the next line.
        let _ = std::io::stdout().flush();
        Ok(())
    }

    /// Removes what `atom run` has kept. Programs that share nothing would fill the disk.
    pub fn forget(&self) -> Result<()> {
        let cache = self.root.join("cache");
        match std::fs::remove_dir_all(&cache) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::new("emptying the cache", e).file(cache))
            }
            _ => Ok(()),
        }
    }
}

impl Tally {
    /// Prints the sums; whether all programs that could be judged are right, and there was one.
    pub fn print(&self) -> bool {
        let failed = self.different.len();
        println!(
            "{} as the original, {failed} failed, {} not judged",
            self.same, self.not_judged
        );
        if failed > 0 {
            println!("failed: {}", self.different.join(", "));
        }
        failed == 0 && self.same > 0
    }
}

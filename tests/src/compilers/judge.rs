//! Building a case, and comparing its program with rewrites by tools that are drawn.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::table::Case;
use crate::atom::{self, Job};
use crate::corpus::drawn;
use crate::error::{Error, Result};
use crate::outcome::{Outcome, Setting, run};

/// Time that a compiler has.
const BUILD_LIMIT: Duration = Duration::from_secs(180);

/// Time that a program or its rewrite has.
const RUN_LIMIT: Duration = Duration::from_secs(180);

/// What became of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All rewrites behave as the original. The text names tools and what cannot be compared.
    Right(String),
    /// The compiler does not accept the source or the options.
    NotBuilt(String),
    /// `atom` refuses the program in words, as documented.
    Refused(String),
    /// A rewrite behaves otherwise, or the checker objects to it.
    Wrong(String),
}

/// Judges cases in a folder.
pub struct Judge {
    folder: PathBuf,
    wheels: PathBuf,
    seed: u64,
    all_tools: bool,
    /// Procedures that stay in place or are not understood in full, by reason.
    pub missed: BTreeMap<String, u64>,
}

/// Behaviour of the original.
struct Original {
    outcome: Outcome,
    is_stable: bool,
}

impl Judge {
    /// A judge with a folder of its own. Packages of PyPI are in `wheels`. `seed` draws the tools, unless all are wanted.
    pub fn new(folder: &Path, wheels: &Path, seed: u64, all_tools: bool) -> Judge {
        Judge {
            folder: folder.to_owned(),
            wheels: wheels.to_owned(),
            seed,
            all_tools,
            missed: BTreeMap::new(),
        }
    }

    /// Builds a case and compares.
    ///
    /// # Errors
    /// The folder cannot be made, or a program cannot be started.
    pub fn judge(&mut self, case: &Case) -> Result<Verdict> {
        let fail = |e: std::io::Error| Error::new("making an empty folder", e).file(&self.folder);
        match std::fs::remove_dir_all(&self.folder) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(fail(e)),
            _ => std::fs::create_dir_all(&self.folder).map_err(fail)?,
        }
        // Folders have names of one length, because the length of the path moves the stack; and the file's own name
        // is the same, because programs print it.
        for name in ["original", "rewrites"] {
            std::fs::create_dir(self.folder.join(name)).map_err(fail)?;
        }
        let program = self.folder.join("original/program");
        if let Some(reason) = self.build(case, &program)? {
            return Ok(Verdict::NotBuilt(reason));
        }
        let mut originals = Vec::new();
        for arguments in &case.runs {
            let outcome = self.start(&program, arguments)?;
            let again = self.start(&program, arguments)?;
            if outcome.timed_out {
                return Ok(Verdict::NotBuilt("the original does not end".into()));
            }
            let is_stable = again.differs_from(&outcome).is_none();
            originals.push(Original { outcome, is_stable });
        }
        let mut notes = Vec::new();
        if originals.iter().any(|o| !o.is_stable) {
            notes.push("differs by itself".to_owned());
        }
        let tools: Vec<&str> = drawn::tools(self.seed, &case.name).collect();
        let ways: &[bool] = if case.prints_addresses {
            &[false]
        } else {
            &[false, true]
        };
        for &whole in ways {
            let mut is_accepted = false;
            for words in &tools {
                if is_accepted && !self.all_tools {
                    break;
                }
                match self.rewrite(case, &program, words, whole, &originals)? {
                    None => continue,
                    Some(Verdict::Right(note)) => notes.push(note),
                    Some(other) => return Ok(other),
                }
                is_accepted = true;
            }
        }
        Ok(Verdict::Right(notes.join(", ")))
    }

    /// Builds the program; answers why that failed.
    fn build(&self, case: &Case, program: &Path) -> Result<Option<String>> {
        let (options, more) = case.options.split_once(';').unwrap_or((&case.options, ""));
        let commands = &case.compiler.commands;
        let script =
            format!("set -e\nbuild() {{ OPTIONS=\"$*\"; {commands}}}\nbuild {options}\n{more}");
        let mut command = Command::new("sh");
        let stem = case.source.file_stem().unwrap_or_default();
        command.args(["-c", &script]).current_dir(&self.folder);
        command
            .env("SOURCE", &case.source)
            .env("NAME", stem)
            .env("OUT", program)
            .env("FLAGS", &case.flags)
            .env("PYTHONPATH", &self.wheels);
        let setting = Setting {
            timeout: BUILD_LIMIT,
            ..Setting::default()
        };
        let outcome = run(&mut command, &setting)?;
        let is_built = outcome.end == crate::source::End::Exit(0) && program.is_file();
        let said = [outcome.stderr, outcome.stdout].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        let complains = |line: &&str| {
            let line = line.to_lowercase();
            ["error", "undefined", "not found"]
                .iter()
                .any(|w| line.contains(w))
        };
        let reason = said.lines().find(complains).or(said.lines().last());
        let reason = reason.unwrap_or("without a word").trim().to_owned();
        Ok((!is_built).then_some(reason))
    }

    /// Runs a program at fixed addresses.
    fn start(&self, program: &Path, arguments: &[String]) -> Result<Outcome> {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(&self.folder);
        // What a program that counts for the compiler writes is no matter here.
        command.env("LLVM_PROFILE_FILE", "/dev/null");
        let setting = Setting {
            fixed_addresses: true,
            timeout: RUN_LIMIT,
            ..Setting::default()
        };
        run(&mut command, &setting)
    }

    /// Makes one rewrite and compares its runs. None if the tool refuses the program.
    fn rewrite(
        &mut self,
        case: &Case,
        program: &Path,
        words: &str,
        whole: bool,
        originals: &[Original],
    ) -> Result<Option<Verdict>> {
        let tool = words.split(' ').next().unwrap_or_default();
        let label = format!("{tool}{}", if whole { " whole" } else { "" });
        let out = self.folder.join("rewrites/program");
        let mut job = drawn::job(words, &self.folder.join("figures-%p"));
        if whole {
            job = Job::Whole(Box::new(job), Vec::new());
        }
        let made = match atom::instrument(program, &out, &job, true) {
            Ok(made) => made,
            Err(e) if e.reason.contains("running the tool (") => return Ok(None),
            Err(e) => {
                let is_defect = ["checking the output", "panicked", "a defect of atom"];
                let is_defect = is_defect.iter().any(|w| e.reason.contains(w));
                let text = format!("{label}: {}", e.reason);
                return Ok(Some(if is_defect || e.code.is_none() {
                    Verdict::Wrong(text)
                } else {
                    Verdict::Refused(text)
                }));
            }
        };
        if !whole {
            tally(&made.report, &mut self.missed);
        }
        for (arguments, original) in case.runs.iter().zip(originals) {
            let outcome = self.start(&out, arguments)?;
            let difference = if original.is_stable {
                outcome.differs_from(&original.outcome)
            } else {
                (outcome.end != original.outcome.end)
                    .then(|| format!("ended with {:?}", outcome.end))
            };
            if let Some(difference) = difference {
                let text = format!("{label} {arguments:?}: {difference}");
                return Ok(Some(Verdict::Wrong(text)));
            }
        }
        let figures = std::fs::read_dir(&self.folder)
            .into_iter()
            .flatten()
            .flatten();
        let is_figure =
            |e: &std::fs::DirEntry| e.file_name().to_string_lossy().starts_with("figures-");
        let (mut count, figures) = (0, figures.filter(is_figure));
        for file in figures {
            count += 1;
            // A leftover would only be counted again.
            let _ = std::fs::remove_file(file.path());
        }
        let note = if count == 0 { " without figures" } else { "" };
        Ok(Some(Verdict::Right(format!("{label}{note}"))))
    }
}

/// Adds the procedures that a report of `atom` does not call full, by reason.
pub fn tally(report: &serde_json::Value, missed: &mut BTreeMap<String, u64>) {
    let list = report["procedures"]["list"]
        .as_array()
        .into_iter()
        .flatten();
    for procedure in list.filter(|p| p["status"] != "full") {
        let status = procedure["status"].as_str().unwrap_or("?");
        let reason = procedure["reason"].as_str().unwrap_or("?");
        // Addresses and names differ from case to case.
        let words = reason.split(' ').filter(|w| !w.contains("0x"));
        let words: Vec<&str> = words.collect();
        *missed
            .entry(format!("{status}: {}", words.join(" ")))
            .or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_counted_without_addresses() {
        let report = serde_json::json!({"procedures": {"list": [
            {"status": "full"},
            {"status": "opaque", "reason": "a jump at 0x10 is not understood"},
            {"status": "opaque", "reason": "a jump at 0x20 is not understood"},
        ]}});
        let mut missed = BTreeMap::new();
        tally(&report, &mut missed);
        let expected = ("opaque: a jump at is not understood".to_owned(), 2);
        assert_eq!(missed.into_iter().collect::<Vec<_>>(), [expected]);
    }
}

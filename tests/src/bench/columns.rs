//! The programs that are measured beside the original: rewrites, and other tools that produce the same figures.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

use super::{Bench, Cell, Program};
use crate::atom::{self, Job};
use crate::error::{Error, Result};
use crate::programs::in_path;

/// A column of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Column {
    /// The rewrite without a tool.
    Empty,
    /// The rewrite without a tool, with every procedure moved.
    Moved,
    /// The same with the original return addresses.
    Returns,
    /// A shipped tool, perhaps with options.
    Tool(String, Vec<String>),
    /// The same outside of windows: procedures have two versions, and the light one runs.
    Off(Box<Column>),
    /// Valgrind with a tool of its own, perhaps with options.
    Valgrind(String, Vec<String>),
    /// The heap profiler heaptrack.
    Heaptrack,
    /// Counters that gcc compiles in (`-fprofile-arcs`).
    ProfileArcs,
}

impl FromStr for Column {
    type Err = Error;

    /// `empty`, `icount`, `cache --icache`, `off:cache`, `valgrind:lackey --trace-mem=yes`, `heaptrack`, `gcc:profile-arcs`.
    fn from_str(text: &str) -> Result<Self> {
        let mut words = text.split_whitespace().map(str::to_string);
        let name = words
            .next()
            .ok_or_else(|| Error::new("reading a column", "it has no name"))?;
        Ok(match name.split_once(':') {
            None if name == "empty" => Self::Empty,
            None if name == "moved" => Self::Moved,
            None if name == "returns" => Self::Returns,
            None if name == "heaptrack" => Self::Heaptrack,
            None => Self::Tool(name, words.collect()),
            Some(("off", tool)) => Self::Off(Box::new(Self::Tool(tool.into(), words.collect()))),
            Some(("valgrind", tool)) => Self::Valgrind(tool.into(), words.collect()),
            Some(("gcc", "profile-arcs")) => Self::ProfileArcs,
            _ => {
                let reason = format!(
                    "\"{text}\" is neither a tool, off:TOOL, valgrind:TOOL nor gcc:profile-arcs"
                );
                return Err(Error::new("reading a column", reason));
            }
        })
    }
}

/// The command that runs for a column.
pub(super) struct Prepared {
    file: PathBuf,
    /// The program's own name, its first argument.
    called: PathBuf,
    /// What runs the program, with its options.
    runner: Vec<String>,
}

impl Prepared {
    pub(super) fn command(&self) -> Command {
        let Some((runner, options)) = self.runner.split_first() else {
            let mut command = Command::new(&self.file);
            // Some programs do what the name says by which they are called.
            command.arg0(&self.called);
            return command;
        };
        let mut command = Command::new(runner);
        command.args(options).arg(&self.file);
        command
    }
}

/// Valgrind with a tool and its options. Reports and what the tool says go nowhere.
fn valgrind(tool: &str, options: &[String]) -> Vec<String> {
    let mut words: Vec<String> = ["valgrind", "--quiet", "--log-file=/dev/null"]
        .map(String::from)
        .into();
    words.push(format!("--tool={tool}"));
    match tool {
        "cachegrind" | "callgrind" | "massif" => {
            words.push(format!("--{tool}-out-file=/dev/null"));
        }
        "exp-bbv" => words.extend(["bb", "pc"].map(|f| format!("--{f}-out-file=/dev/null"))),
        _ => {}
    }
    words.extend(options.iter().cloned());
    words
}

impl Column {
    /// Its heading.
    pub fn name(&self) -> String {
        match self {
            Self::Empty => "empty".into(),
            Self::Moved => "moved".into(),
            Self::Returns => "returns".into(),
            Self::Tool(name, options) if options.is_empty() => name.clone(),
            Self::Tool(name, options) => format!("{name} {}", options.join(" ")),
            Self::Off(column) => format!("{} off", column.name()),
            Self::Valgrind(tool, options) if options.is_empty() => format!("Valgrind {tool}"),
            Self::Valgrind(tool, options) => format!("Valgrind {tool} {}", options.join(" ")),
            Self::Heaptrack => "heaptrack".into(),
            Self::ProfileArcs => "gcc -fprofile-arcs".into(),
        }
    }

    /// Whether it is made by `atom`.
    pub fn is_ours(&self) -> bool {
        matches!(
            self,
            Self::Empty | Self::Moved | Self::Returns | Self::Tool(..) | Self::Off(_)
        )
    }

    /// Whether it is so slow that it takes part in few turns only.
    pub(super) fn is_slow(&self) -> bool {
        matches!(self, Self::Valgrind(..))
    }

    /// Whether the program's output may be another one, although it does the same.
    pub(super) fn changes_output(&self) -> bool {
        // Valgrind computes with 64 bits where the x87 has 80, so sqlite3's results differ. heaptrack adds lines.
        matches!(self, Self::Valgrind(..) | Self::Heaptrack)
    }

    /// Makes the program that will run; `None` if a program that it needs is not installed.
    pub(super) fn prepare(
        &self,
        bench: &Bench,
        program: &Program,
        file: &Path,
    ) -> Result<(Cell, Option<Prepared>)> {
        let name = program.name.replace([' ', '(', ')'], "-");
        let called = file.to_path_buf();
        let run_by = |runner: Vec<String>, file: PathBuf| Prepared {
            file,
            called: called.clone(),
            runner,
        };
        let plain = |file: PathBuf| Some(run_by(Vec::new(), file));
        let figures = bench.folder.join("figures").display().to_string();
        let (column, is_off) = match self {
            Self::Off(column) => (&**column, true),
            _ => (self, false),
        };
        let mut job = match column {
            // `off:` is followed by a tool.
            Self::Empty | Self::Off(_) => Job::Empty,
            Self::Moved => Job::Moved,
            Self::Returns => Job::With(Box::new(Job::Moved), vec!["--original-returns".into()]),
            Self::Tool(tool, options) => {
                let mut options = options.clone();
                if !options.iter().any(|o| o == "--output") {
                    options.extend(["--output".into(), figures]);
                }
                Job::Tool(tool.clone(), options)
            }
            Self::Valgrind(..) | Self::Heaptrack => {
                let runner = match self {
                    Self::Valgrind(tool, options) => valgrind(tool, options),
                    _ => ["heaptrack", "--output", &figures].map(String::from).into(),
                };
                let prepared = in_path(&runner[0]).map(|_| run_by(runner, file.into()));
                return Ok((Cell::default(), prepared));
            }
            Self::ProfileArcs if program.installed().is_some() => {
                return Ok((Cell::default(), None));
            }
            Self::ProfileArcs => {
                let out = bench.folder.join(format!("{name}.profile-arcs"));
                // The path of the counts is compiled in. Atomic counts would cost more.
                let flags = format!("-fprofile-arcs -fprofile-dir={figures}.gcc");
                program.build(&bench.here, &bench.sources, &flags, &out)?;
                return Ok((Cell::default(), plain(out)));
            }
        };
        if is_off {
            job = Job::With(Box::new(job), vec!["--switchable".into()]);
        }
        let label = self.name().replace([' ', '/'], "_");
        let out = bench.folder.join(format!("{name}.{label}"));
        if program.installed().is_some() {
            job = Job::Whole(Box::new(job), program.loads());
        }
        let made = atom::instrument(file, &out, &job, false)?;
        let bytes = |key: &str| made.report["text_bytes"][key].as_f64();
        let growth = bytes("in").zip(bytes("out")).map(|(old, new)| new / old);
        let cell = Cell {
            ratios: Vec::new(),
            seconds: Some(made.seconds),
            growth,
        };
        Ok((cell, plain(out)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_by_name() {
        let column = |text: &str| text.parse::<Column>();
        assert_eq!(column("empty").unwrap(), Column::Empty);
        assert_eq!(
            column("cache --icache").unwrap(),
            Column::Tool("cache".into(), vec!["--icache".into()])
        );
        assert_eq!(
            column("valgrind:none").unwrap().name(),
            "Valgrind none".to_string()
        );
        assert!(column("gcc:pg").is_err());
        assert!(column(" ").is_err());
    }
}

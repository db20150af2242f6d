//! Cost of a rewrite: its user time divided by the original's, measured in turns.
//!
//! Machines are shared and noisy, so times of different days are never compared. Original and
//! rewrites run in turns, and each ratio is formed within its turn.

mod columns;
mod inputs;
mod programs;
mod table;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::outcome::{Outcome, Setting, plain_environment, run};
use crate::source::End;

pub use columns::Column;
pub use programs::{GO_PROGRAMS, Program, STATIC, Sources, WHOLE};
pub use table::{Part, record, tables};

/// Folders of programs, rewrites and inputs.
pub struct Bench {
    here: PathBuf,
    folder: PathBuf,
    inputs: PathBuf,
    sources: Sources,
}

/// A column's figures for one program.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    /// Ratio of user time in each turn; empty if it could not be measured.
    pub ratios: Vec<f64>,
    /// Wall time of instrumenting.
    pub seconds: Option<f64>,
    /// Size of the new text divided by the size of the old text.
    pub growth: Option<f64>,
}

/// All figures of one program.
#[derive(Clone, Debug)]
pub struct Row {
    /// Name of the program.
    pub name: &'static str,
    /// Size of its file.
    pub bytes: u64,
    /// User time of the original in each turn.
    pub seconds: Vec<f64>,
    /// Figures of each column.
    pub cells: Vec<Cell>,
}

impl Bench {
    /// Finds the sources and makes the inputs.
    pub fn new() -> Result<Self> {
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("bench");
        let folder = crate::cache::target_folder()?.join("bench-programs");
        let inputs = folder.join("inputs");
        std::fs::create_dir_all(&inputs)
            .map_err(|e| Error::new("making a folder", e).file(&inputs))?;
        inputs::make(&inputs)?;
        Ok(Self {
            sources: Sources::find(&here)?,
            here,
            folder,
            inputs,
        })
    }

    /// Measures one program in `runs` turns; slow columns take part in the first three only.
    pub fn measure(&self, program: &Program, columns: &[Column], runs: usize) -> Result<Row> {
        let file = match program.installed() {
            Some(file) => file.to_path_buf(),
            None => self.folder.join(program.name.replace(' ', "-")),
        };
        program.build(&self.here, &self.sources, "", &file)?;
        let mut row = Row {
            name: program.name,
            bytes: std::fs::metadata(&file).map(|m| m.len()).unwrap_or(0),
            seconds: Vec::new(),
            cells: Vec::new(),
        };
        let mut ready = Vec::new();
        for column in columns {
            let (cell, prepared) = column.prepare(self, program, &file)?;
            row.cells.push(cell);
            ready.push(prepared);
        }
        for turn in 0..runs.max(1) {
            let original = self.start(program, &mut Command::new(&file))?;
            if original.end != End::Exit(0) {
                let text = String::from_utf8_lossy(&original.stderr).into_owned();
                return Err(Error::new("measuring", text).file(program.name));
            }
            row.seconds.push(original.user.as_secs_f64());
            for ((column, prepared), cell) in columns.iter().zip(&ready).zip(&mut row.cells) {
                let Some(prepared) = prepared else { continue };
                if column.is_slow() && turn >= 3 {
                    continue;
                }
                let outcome = self.start(program, &mut prepared.command())?;
                let difference = if column.changes_output() && outcome.end == original.end {
                    None
                } else {
                    outcome.differs_from(&original)
                };
                if let Some(d) = difference {
                    let reason = format!("with {}: {d}", column.name());
                    return Err(Error::new("measuring", reason).file(program.name));
                }
                cell.ratios
                    .push(outcome.user.as_secs_f64() / original.user.as_secs_f64());
                self.remove_figures();
            }
        }
        Ok(row)
    }

    /// Removes what the tools have written, which may be large.
    fn remove_figures(&self) {
        let files = std::fs::read_dir(&self.folder).into_iter().flatten();
        let files = files.flatten().map(|entry| entry.path());
        let is_figure = |path: &PathBuf| {
            let name = path.file_name().and_then(|n| n.to_str()).unwrap_or("");
            name.starts_with("figures") || name.starts_with("bbv.")
        };
        for path in files.filter(is_figure) {
            let _ = std::fs::remove_file(path);
        }
    }

    fn start(&self, program: &Program, command: &mut Command) -> Result<Outcome> {
        let place = |a: &&str| {
            a.replace("$HERE", &self.here.display().to_string())
                .replace("$IN", &self.inputs.display().to_string())
        };
        plain_environment(command);
        command
            .env("GOMAXPROCS", "1")
            .args(program.args.iter().map(place))
            .current_dir(&self.folder);
        let setting = Setting {
            timeout: Duration::from_secs(600),
            ..Setting::default()
        };
        run(command, &setting)
    }
}

//! A file for each procedure with a line for each execution.
//!
//! Lines are collected in memory, and appended to the files when there are many of them. So neither
//! memory nor the number of open files grows with the run. Each process has its own folder and its own lines,
//! which are a [`PerProcess`] value.

use std::collections::HashSet;
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::MutexGuard;

use atom_tool::forks::PerProcess;
use atom_tool::{StringList, output};

use crate::book::Row;
use crate::cost::UNKNOWN;
use crate::settings::{self, Run};

/// Number of bytes of collected lines above which they are written.
const MOST: usize = 1 << 20;

/// Names of the procedures' files, without their extension and all different.
#[derive(Default)]
pub struct Stems {
    names: StringList,
    taken: HashSet<String>,
}

impl Stems {
    /// Adds the file of the next procedure.
    pub fn push(&mut self, name: &str, pc: u64) {
        let mut stem = plain(name);
        if !self.taken.insert(stem.to_lowercase()) {
            stem = format!("{stem}@{pc:x}");
            self.taken.insert(stem.to_lowercase());
        }
        self.names.push(&stem);
    }

    pub fn names(&self) -> &StringList {
        &self.names
    }
}

/// A procedure's name without the characters that have a meaning in a path.
fn plain(name: &str) -> String {
    const LONGEST: usize = 100;
    let keep = |c: char| match c {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '_' | '-' | '.' => c,
        _ => '_',
    };
    let name: String = name.chars().take(LONGEST).map(keep).collect();
    if name.starts_with('.') || name == "summary" {
        format!("_{name}")
    } else {
        name
    }
}

/// The lines of this process.
static COLLECTED: PerProcess<Collected> = PerProcess::new();

/// Prepares the collection at the program's start.
pub fn begin() {
    COLLECTED.begin();
}

/// The lines of a process.
struct Collected {
    run: &'static Run,
    /// For each procedure its lines, and whether its file exists.
    files: Vec<(Vec<u8>, bool)>,
    /// Number of bytes of all lines.
    size: usize,
    failed: bool,
}

/// Locks this process's lines. Signals must be blocked while they are locked.
fn lock() -> Option<MutexGuard<'static, Collected>> {
    let run = settings::run()?;
    COLLECTED.lock(|| Collected {
        run,
        files: Vec::new(),
        size: 0,
        failed: false,
    })
}

/// Adds a thread's rows.
pub fn take(rows: &[Row], tid: u32) {
    let Some(mut all) = lock() else { return };
    for row in rows {
        all.add(row, tid);
    }
    if all.size > MOST {
        all.write();
    }
}

/// Writes the remaining lines at the end of the process.
pub fn finish() {
    if settings::run().is_some_and(|run| !run.settings.csv.is_empty())
        && let Some(mut all) = lock()
    {
        all.write();
    }
}

/// The folder of this process.
pub fn folder(run: &Run) -> PathBuf {
    output::path(&run.settings.csv)
}

impl Collected {
    fn add(&mut self, row: &Row, tid: u32) {
        let run = self.run;
        let number = row.proc as usize;
        let Some(site) = run.procs.get(number) else {
            return;
        };
        if self.files.len() <= number {
            self.files.resize(number + 1, (Vec::new(), false));
        }
        let (bytes, _) = &mut self.files[number];
        let before = bytes.len();
        let mut number = itoa::Buffer::new();
        let mut push = |bytes: &mut Vec<u8>, n: u64| {
            bytes.extend(number.format(n).as_bytes());
            bytes.push(b',');
        };
        push(bytes, tid.into());
        match row.processor {
            UNKNOWN => bytes.push(b','),
            known => push(bytes, known.into()),
        }
        quote(bytes, site.proc);
        bytes.push(b',');
        push(bytes, run.since_start(row.start));
        push(bytes, run.since_start(row.stop));
        push(bytes, (row.values[0] as f64 * run.nanos_per_tick()) as u64);
        for i in 0..run.settings.slots.len() {
            if run.missing.iter().any(|(missing, _)| *missing == i) {
                bytes.push(b',')
            } else {
                push(bytes, row.values[1 + i])
            }
        }
        // The end of the line replaces the last comma.
        bytes.pop();
        bytes.push(b'\n');
        self.size += bytes.len() - before;
    }

    fn write(&mut self) {
        self.size = 0;
        for number in 0..self.files.len() {
            if self.files[number].0.is_empty() {
                continue;
            }
            if !self.failed
                && let Err(error) = self.append(number)
            {
                self.failed = true;
                output::cannot_write("counters", format!("{error}; the rows end here"));
            }
            self.files[number].0.clear();
            self.files[number].1 = true;
        }
    }

    fn append(&mut self, number: usize) -> io::Result<()> {
        let folder = folder(self.run);
        let stem = self.run.files.iter().nth(number).unwrap_or_default();
        let path = folder.join(format!("{stem}.csv"));
        let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
        let (bytes, exists) = &self.files[number];
        let mut file = if *exists {
            output::append_file(&path)?
        } else {
            fs::create_dir_all(&folder).map_err(named)?;
            let mut file = output::create_file(&path).map_err(named)?;
            file.write_all(header(self.run).as_bytes()).map_err(named)?;
            file
        };
        file.write_all(bytes).map_err(named)
    }
}

fn header(run: &Run) -> String {
    let mut line = "thread,processor,procedure,start_ns,stop_ns,time_ns".to_owned();
    for slot in &run.settings.slots {
        line.push(',');
        line.push_str(&slot.choice.name);
    }
    line.push('\n');
    line
}

/// Appends a field of a comma-separated line, with quotes if it needs them.
pub fn quote(bytes: &mut Vec<u8>, text: &str) {
    if text.contains([',', '"', '\n', '\r']) {
        bytes.push(b'"');
        bytes.extend(text.replace('"', "\"\"").as_bytes());
        bytes.push(b'"');
    } else {
        bytes.extend(text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_are_harmless() {
        assert_eq!(plain("main"), "main");
        assert_eq!(
            plain("../std::vec<int>::at(long)"),
            "_.._std__vec_int___at_long_"
        );
        assert_eq!(plain("summary"), "_summary");
        assert_eq!(plain(&"x".repeat(500)).len(), 100);
    }

    #[test]
    fn fields_are_quoted() {
        let mut bytes = Vec::new();
        quote(&mut bytes, "f(int, \"x\")");
        assert_eq!(bytes, b"\"f(int, \"\"x\"\")\"");
    }
}

//! What the runtime says of its reports, in a file that only `atom run` looks at.
//!
//! Each process that waits for a program has a file of its own, which [`records`] names. The runtime finds the file by the
//! program's parent, or by the path with which an executed program was started. So the program has the environment and the
//! descriptors of the original. Entries are a letter and text with a null after it:
//!
//! | letter | text |
//! | --- | --- |
//! | `R` | process, parent, path of a report |
//! | `P` | process, parent, path of a profile |
//! | `C` | process, parent, path of a report that could not be written to its end |
//! | `T` | process, parent, path of a report for people that the profile, if there is one, has in full |
//! | `D` | process, parent, nothing: the process has written the report that somebody asked for, and continues |
//! | `O` | process, parent, path of a library that was loaded later and is not instrumented |
//! | `F` | a line for the user that says what could not be written |
//! | `E` | process, parent, path that it executes now, tab, path of the program that runs for it (a script's interpreter), tab, arguments for people |
//! | `N` | process, parent, why the program that it executes now is not instrumented, tab, the program |
//! | `B` | process, parent, path of the program that it becomes now, which is not followed; not true if the process reports afterwards |
//! | `W` | process number of the watcher |
//! | `U` | process: its last `N` is taken back, as the program could not be executed |
//!
//! Process and parent are numbers with a space after each.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use atom_abi::report;
use atom_core::{Error, Result};

use crate::kept::records;
use output::message::say;

const DOING: &str = "preparing the run";

/// Number of failures that are told; of more only the number is.
const NAMED: usize = 4;

/// The record of one run; its file is removed with this value.
pub struct Record {
    file: PathBuf,
}

/// One entry of a record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Entry {
    /// A process wrote a report.
    Report(Process, PathBuf),
    /// A process wrote a profile.
    Profile(Process, PathBuf),
    /// A process could not write a report to its end.
    Cut(Process, PathBuf),
    /// A report for people says nothing that the process's profile, if there is one, does not have.
    Summed(Process, PathBuf),
    /// A process has written the report that somebody asked for, and continues.
    Done(Process),
    /// A process loaded a library that is not instrumented.
    Loaded(Process, PathBuf),
    /// A process loaded a library that was instrumented then.
    Added(Process, PathBuf),
    /// Something could not be written.
    Failed(String),
    /// A process executes an instrumented program.
    Executes(Process, Program),
    /// A process executes a program that is not instrumented, for this reason.
    Unseen(Process, String, String),
    /// A process executes a program in a run without `--children`, unless it reports afterwards.
    Becomes(Process, String),
    /// The last `Unseen` of this process is not true.
    TakenBack(u32),
    /// The process with this number watches the program.
    Watcher(i32),
}

/// A program in a process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Program {
    /// Path that was executed; of a script for example.
    pub path: PathBuf,
    /// Path of the program that runs for it; of the script's interpreter for example.
    pub file: PathBuf,
    /// The arguments, for people.
    pub arguments: String,
}

/// Numbers of a process and of its parent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Process {
    /// The process.
    pub number: u32,
    /// The parent at that time.
    pub parent: u32,
}

impl Record {
    /// Makes an empty record in the folder of the store.
    pub fn make(store: &Path) -> Result<Self> {
        let fail = |e: std::io::Error, file: &Path| Error::new(DOING, e).file(file);
        let folder = records::folder(store);
        match DirBuilder::new().mode(0o700).create(&folder) {
            Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(fail(e, &folder));
            }
            _ => {}
        }
        let file = records::of(store, std::process::id());
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        match options.open(&file) {
            Ok(_) => Ok(Self { file }),
            Err(e) => Err(fail(e, &file)),
        }
    }

    /// Path of the file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Tells the run's processes options of the report that the instrumented program does not have.
    pub fn add_report_options(&self, words: &[String]) -> Result<()> {
        if words.is_empty() {
            return Ok(());
        }
        let file = records::beside(&self.file, report::SUFFIX);
        let text: String = words.iter().map(|word| format!("{word}\0")).collect();
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let written = options
            .open(&file)
            .and_then(|mut to| to.write_all(text.as_bytes()));
        written.map_err(|e| Error::new(DOING, e).file(file))
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        // If it stays, a later run removes it.
        fs::remove_file(&self.file).unwrap_or_default();
        fs::remove_file(records::beside(&self.file, report::SUFFIX)).unwrap_or_default();
    }
}

/// What the record of a run has said so far.
pub fn read(record: &Path) -> Vec<Entry> {
    // An unreadable record says nothing.
    parse(&fs::read(record).unwrap_or_default())
}

/// The files of reports, each once.
pub fn reports(entries: &[Entry]) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in entries {
        match entry {
            Entry::Report(_, file) if !files.contains(file) => files.push(file.clone()),
            _ => {}
        }
    }
    files
}

/// Number of processes that have written the report that somebody asked for.
pub fn done(entries: &[Entry]) -> usize {
    let is_done = |entry: &&Entry| matches!(entry, Entry::Done(_));
    entries.iter().filter(is_done).count()
}

/// Process numbers of the watchers.
pub fn watchers(entries: &[Entry]) -> Vec<i32> {
    let number = |entry: &Entry| match entry {
        Entry::Watcher(number) => Some(*number),
        _ => None,
    };
    entries.iter().filter_map(number).collect()
}

/// Adds an entry to the record for which a process waits. Nothing happens if there is none.
pub fn leave(store: &Path, waiter: u32, kind: char, text: &[u8]) {
    let opened = OpenOptions::new()
        .append(true)
        .open(records::of(store, waiter));
    if let Ok(mut record) = opened {
        let mut buffer = [0; 4];
        let letter = kind.encode_utf8(&mut buffer).as_bytes();
        let entry = [letter, text, b"\0"].concat();
        // Without the entry the list at the end is not complete.
        record.write_all(&entry).unwrap_or_default();
    }
}

fn parse(bytes: &[u8]) -> Vec<Entry> {
    let entries = bytes.split(|b| *b == 0).filter_map(<[u8]>::split_first);
    entries
        .filter_map(|(kind, text)| entry(*kind, text))
        .collect()
}

fn entry(kind: u8, text: &[u8]) -> Option<Entry> {
    let to_path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
    let to_text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match kind {
        b'F' => return Some(Entry::Failed(to_text(text))),
        b'U' => return to_text(text).parse().ok().map(Entry::TakenBack),
        b'W' => {
            let number = to_text(text).parse().ok();
            return number.filter(|n| *n > 0).map(Entry::Watcher);
        }
        _ => {}
    }
    let mut parts = text.splitn(3, |b| *b == b' ');
    let mut number = || std::str::from_utf8(parts.next()?).ok()?.parse().ok();
    let (number, parent) = (number()?, number()?);
    let process = Process { number, parent };
    let rest = parts.next()?;
    let mut parts = rest.splitn(3, |b| *b == b'\t');
    let mut part = || parts.next().unwrap_or_default();
    match kind {
        b'R' => Some(Entry::Report(process, to_path(rest))),
        b'P' => Some(Entry::Profile(process, to_path(rest))),
        b'C' => Some(Entry::Cut(process, to_path(rest))),
        b'T' => Some(Entry::Summed(process, to_path(rest))),
        b'D' => Some(Entry::Done(process)),
        b'B' => Some(Entry::Becomes(process, to_text(rest))),
        b'O' => Some(Entry::Loaded(process, to_path(rest))),
        b'L' => Some(Entry::Added(process, to_path(rest))),
        b'E' => {
            let program = Program {
                path: to_path(part()),
                file: to_path(part()),
                arguments: to_text(part()),
            };
            Some(Entry::Executes(process, program))
        }
        b'N' => Some(Entry::Unseen(process, to_text(part()), to_text(part()))),
        _ => None,
    }
}

/// Tells on standard error what could not be written; true if there is something.
pub fn tell_failures(entries: &[Entry]) -> bool {
    let mut failures: Vec<&str> = Vec::new();
    for entry in entries {
        match entry {
            Entry::Failed(line) if !failures.contains(&line.as_str()) => failures.push(line),
            _ => {}
        }
    }
    for line in failures.iter().take(NAMED) {
        say(line);
    }
    if let Some(more) = failures.len().checked_sub(NAMED + 1) {
        say(&format!("and {} more", more + 1));
    }
    !failures.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read() {
        let text =
            b"R7 1 /a b\0P7 1 /p\0T7 1 /a b\0C7 1 /a b\0E8 7 /bin/a\tsh\tls -l\0N8 7 it is old\t/bin/su\0U8\0D7 1 \0B7 1 /bin/sh\0Fno space\0X\0R7\0W17\0W-1\0Wx\0";
        let (first, second) = (
            Process {
                number: 7,
                parent: 1,
            },
            Process {
                number: 8,
                parent: 7,
            },
        );
        let expected = [
            Entry::Report(first, "/a b".into()),
            Entry::Profile(first, "/p".into()),
            Entry::Summed(first, "/a b".into()),
            Entry::Cut(first, "/a b".into()),
            Entry::Executes(
                second,
                Program {
                    path: "/bin/a".into(),
                    file: "sh".into(),
                    arguments: "ls -l".into(),
                },
            ),
            Entry::Unseen(second, "it is old".into(), "/bin/su".into()),
            Entry::TakenBack(8),
            Entry::Done(first),
            Entry::Becomes(first, "/bin/sh".into()),
            Entry::Failed("no space".into()),
            Entry::Watcher(17),
        ];
        assert_eq!(parse(text), expected);
    }

    #[test]
    fn what_is_left_is_read() {
        let store = std::env::temp_dir().join(format!("atom-record-{}", std::process::id()));
        fs::create_dir_all(&store).unwrap();
        let record = Record::make(&store).unwrap();
        leave(&store, std::process::id(), 'F', b"full");
        records::clean_up(&store);
        assert_eq!(read(record.file()), [Entry::Failed("full".into())]);
        fs::remove_dir_all(&store).unwrap();
    }
}

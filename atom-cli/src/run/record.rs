//! What the runtime says of its reports, in a file that only `atom run` looks at.
//!
//! The file lies in the entry's folder and is named by the process that waits: its number and its start
//! time. The runtime finds it by the program's parent, so the program's environment and descriptors are
//! those of the original. Entries are a letter and text with a null behind it: `R` and the path of a
//! report, `O` and the path of a library that was loaded later, `W` and the process number of a watcher, `F` and a line for the user that says what could not be written.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use atom_core::{Error, Result};

const DOING: &str = "preparing the run";

/// Number of reports and of failures that are told; of more only the number is.
const NAMED: usize = 4;

/// The record of one run; its file is removed with this value.
pub struct Record {
    file: PathBuf,
}

/// What the record says.
#[derive(Default, PartialEq, Eq, Debug)]
pub struct Said {
    /// The reports, each once, in the order in which they were created.
    reports: Vec<PathBuf>,
    /// Libraries that were loaded while the program ran and are not instrumented, each once.
    pub loaded: Vec<PathBuf>,
    /// Process numbers of watchers, each once.
    pub watchers: Vec<i32>,
    /// What could not be written, as lines for the user, each once.
    failures: Vec<String>,
}

/// The part of the file's path that is the same in all runs of the entry in this folder.
pub fn stem(entry: &Path) -> PathBuf {
    entry.join("said-")
}

impl Record {
    /// Makes an empty record in the folder of an entry.
    pub fn make(entry: &Path) -> Result<Self> {
        let mut file = stem(entry).into_os_string();
        file.push(format!("{}-{}", std::process::id(), start_time()));
        let file = PathBuf::from(file);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        match options.open(&file) {
            Ok(_) => Ok(Self { file }),
            Err(e) => Err(Error::new(DOING, e.to_string()).file(&file)),
        }
    }

    /// Path of the file.
    pub fn file(&self) -> &Path {
        &self.file
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        // If it stays, it goes with the entry.
        fs::remove_file(&self.file).unwrap_or_default();
    }
}

impl Said {
    /// What the record of a run has said so far. An unreadable record says nothing.
    pub fn read(record: &Path) -> Self {
        Self::parse(&fs::read(record).unwrap_or_default())
    }

    fn parse(bytes: &[u8]) -> Self {
        let mut said = Self::default();
        for entry in bytes.split(|b| *b == 0) {
            match entry.split_first() {
                Some((b'R', path)) => {
                    let path = PathBuf::from(OsStr::from_bytes(path));
                    if !said.reports.contains(&path) {
                        said.reports.push(path);
                    }
                }
                Some((b'O', path)) => {
                    let path = PathBuf::from(OsStr::from_bytes(path));
                    if !said.loaded.contains(&path) {
                        said.loaded.push(path);
                    }
                }
                Some((b'W', number)) => {
                    let number = std::str::from_utf8(number)
                        .ok()
                        .and_then(|n| n.parse().ok());
                    said.watchers.extend(number.filter(|n: &i32| *n > 0));
                }
                Some((b'F', line)) => {
                    let line = String::from_utf8_lossy(line).into_owned();
                    if !said.failures.contains(&line) {
                        said.failures.push(line);
                    }
                }
                _ => {}
            }
        }
        said
    }

    /// Tells on standard error what could not be written; true if there is something.
    pub fn tell_failures(&self) -> bool {
        for line in self.failures.iter().take(NAMED) {
            eprintln!("{line}");
        }
        if let Some(more) = self.failures.len().checked_sub(NAMED + 1) {
            eprintln!("and {} more", more + 1);
        }
        !self.failures.is_empty()
    }

    /// Names the reports on standard error.
    pub fn tell_reports(&self) {
        if let Some(line) = self.line(std::env::current_dir().ok().as_deref()) {
            eprintln!("{line}");
        }
    }

    /// The line that names the reports, those in this folder or below by their names in it. The last
    /// ones are those of the process that ended last, mostly the program itself.
    fn line(&self, folder: Option<&Path>) -> Option<String> {
        let name = |path: &PathBuf| {
            let inner = folder.and_then(|folder| path.strip_prefix(folder).ok());
            inner.unwrap_or(path).display().to_string()
        };
        let more = self.reports.len().saturating_sub(NAMED);
        let names: Vec<String> = self.reports[more..].iter().rev().map(name).collect();
        let names = names.join(", ");
        match (self.reports.len(), more) {
            (0, _) => None,
            (1, _) => Some(format!("report: {names}")),
            (_, 0) => Some(format!("reports: {names}")),
            (_, more) => Some(format!("reports: {names} and {more} more")),
        }
    }
}

/// When this process started, in clock ticks since the system's start; 0 if it cannot be found out.
fn start_time() -> u64 {
    /// Number of fields between the command's name and the time.
    const BETWEEN: usize = 19;
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let behind = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let field = behind.split_whitespace().nth(BETWEEN);
    field.and_then(|text| text.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(record: &str) -> Option<String> {
        Said::parse(record.as_bytes()).line(Some(Path::new("/home/me")))
    }

    #[test]
    fn reports_are_named() {
        assert_eq!(line(""), None);
        assert_eq!(line("R/home/me/a.out\0").unwrap(), "report: a.out");
        assert_eq!(
            line("R/tmp/a.out\0R/tmp/a.out\0").unwrap(),
            "report: /tmp/a.out"
        );
        assert_eq!(
            line("R/home/me/a.out.7\0R/home/me/a.out\0Fno space\0").unwrap(),
            "reports: a.out, a.out.7"
        );
        let many: String = (0..6).map(|i| format!("R/{i}\0")).collect();
        assert_eq!(line(&many).unwrap(), "reports: /5, /4, /3, /2 and 2 more");
        assert_eq!(Said::parse(b"Fno space\0R/a\0").failures, ["no space"]);
        assert_eq!(Said::parse(b"W17\0W-1\0Wx\0").watchers, [17]);
    }
}

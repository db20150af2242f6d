//! Files for the results of analysis routines.
//!
//! Results are usually written when the program ends, and by then the program may have changed
//! its working directory. Users look for results in the directory where they started it.

mod keep;
mod log;
mod record;
mod standard;

use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

pub use log::Log;
pub(crate) use log::flush_all;
pub(crate) use record::is_object;
pub use standard::{keep_stdout, stdout};

/// What stands behind the name of a report whose process goes on.
const SNAPSHOT: &str = "now";

/// The working directory in which the program was started.
static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();

/// Called before any code of the application.
pub(crate) fn begin() {
    record::begin();
    // If the directory has no name any more, paths stay relative.
    if let Ok(directory) = std::env::current_dir() {
        let _ = DIRECTORY.set(directory);
    }
}

/// The path that a template stands for in this process.
///
/// A report of a process that goes on, which `atom run --every` wants, has `.now` behind its name.
/// `%p` becomes the process id. Without it a forked child gets `.` and its
/// process id appended, so that it does not overwrite its parent's file. A
/// relative path counts from the directory in which the program was started.
pub fn path(template: &str) -> PathBuf {
    let path = expand(
        template,
        analysis_rt::pid(),
        analysis_rt::start_pid(),
        analysis_rt::is_snapshot(),
    );
    // Before the directory is remembered, the working directory is used.
    DIRECTORY
        .get()
        .map_or_else(|| PathBuf::from(&path), |directory| directory.join(&path))
}

/// Creates the file of [`path`]. An older file is kept: `name` becomes `name.1`, `name.1` becomes
/// `name.2`, up to `name.9`. A file that this process has created before is replaced. Devices, pipes, empty
/// files and symbolic links are written to. `atom run` names the file to the user.
///
/// It is for results that are written at ProgramAfter. A [`Log`] is for output while the program
/// runs, as a forked child does not share it.
pub fn create(template: &str) -> io::Result<BufWriter<File>> {
    let path = path(template);
    match create_file(&path) {
        Ok(file) => Ok(BufWriter::new(file)),
        Err(e) => Err(io::Error::new(e.kind(), format!("{}: {e}", path.display()))),
    }
}

/// As [`create`], for a path that is not a template.
pub fn create_file(path: &Path) -> io::Result<File> {
    keep::create(path).inspect(|_| record::written(path))
}

/// Keeps an older file as [`create`] does, where a library writes the new one; `atom run` names it.
pub fn make_room(path: &Path) {
    keep::make_room(path);
    record::written(path);
}

/// Tells on standard error that a tool's output cannot be written. `what` names the file and the reason, as
/// errors of [`create`] do. `atom run` tells it at the end, and ends with code 1 where the program succeeds.
pub fn cannot_write(tool: &str, what: impl Display) {
    record::failed(&format!("{tool}: cannot write {what}"));
}

/// The name of a file, without a number that an older file may have.
fn expand(template: &str, pid: u32, start_pid: u32, is_snapshot: bool) -> String {
    if is_snapshot {
        // It stands for the process that goes on.
        let name = expand(template, start_pid, start_pid, false);
        format!("{name}.{SNAPSHOT}")
    } else if template.contains("%p") {
        template.replace("%p", &pid.to_string())
    } else if pid != start_pid {
        format!("{template}.{pid}")
    } else {
        template.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::expand;

    #[test]
    fn a_child_gets_a_file_of_its_own() {
        assert_eq!(expand("btaken.out", 7, 7, false), "btaken.out");
        assert_eq!(expand("btaken.out", 8, 7, false), "btaken.out.8");
        assert_eq!(expand("b.%p.out", 7, 7, false), "b.7.out");
        assert_eq!(expand("b.%p.out", 8, 7, false), "b.8.out");
        assert_eq!(expand("btaken.out", 8, 7, true), "btaken.out.now");
        assert_eq!(expand("b.%p.out", 8, 7, true), "b.7.out.now");
    }
}

//! Files for the results of analysis routines.
//!
//! Results are usually written when the program ends, and by then the program may have changed
//! its working directory. Users look for results in the directory where they started it.

mod keep;
mod log;
mod record;
mod standard;

use std::ffi::OsStr;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

pub use log::Log;
pub(crate) use log::flush_all;
pub(crate) use record::is_object;
pub(super) use record::read_beside;
pub(crate) use standard::terminal;
pub use standard::{keep_stdout, stdout};

/// What is after the name of a report whose process continues.
const SNAPSHOT: &str = "now";

/// The directory from which relative paths count.
static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();

/// Called before any code of the application.
pub(crate) fn begin() {
    record::begin();
    // If the directory has no name any more, paths stay relative.
    if let Some(directory) = directory() {
        let _ = DIRECTORY.set(directory);
    }
}

/// The working directory in which the program was started. For a program that another one has executed:
/// the one of the `atom run` that waits, if it still does. For a process that ran already when it was instrumented: the one
/// of the command that did it.
fn directory() -> Option<PathBuf> {
    if analysis_rt::is_attached() {
        return analysis_rt::attached_folder().map(|path| OsStr::from_bytes(path).into());
    }
    let is_executed = analysis_rt::executed().is_some() && record::is_wanted();
    let of_run = is_executed.then_some(()).and_then(|()| {
        let link = format!("/proc/{}/cwd", analysis_rt::waiter());
        std::fs::read_link(link).ok()
    });
    of_run.or_else(|| std::env::current_dir().ok())
}

/// The path that a template stands for in this process.
///
/// A report of a process that continues, which `atom run --every` wants, has `.now` after its name.
/// `%p` becomes the process id. Without it a forked child gets `.` and its
/// process id appended, so that it does not overwrite its parent's file. A program that another one has
/// executed (`atom run --children`) gets its process id in the same way, and `.` and its name after that:
/// the process may have written a report as the program before. A
/// relative path counts from the directory in which the program was started; for an executed program, in
/// which `atom run` was started.
pub fn path(template: &str) -> PathBuf {
    let path = if is_shared(Path::new(template)) {
        template.to_owned()
    } else {
        expand(template, Writer::this(), analysis_rt::executed())
    };
    // At ProgramBefore the directory is not yet remembered.
    match DIRECTORY.get().cloned().or_else(directory) {
        Some(directory) => directory.join(&path),
        None => path.into(),
    }
}

/// The process number of the `atom run` that waits for the program, or else of its parent at the start.
pub fn waiter() -> u32 {
    analysis_rt::waiter()
}

/// As [`waiter`], if there is such an `atom run`.
pub fn run_that_waits() -> Option<u32> {
    record::is_wanted().then(waiter)
}

/// Creates the file of [`path`]. An older file is kept: `name` becomes `name.1`, `name.1` becomes
/// `name.2`, up to `name.9`. A file that this process has created before is replaced. Devices, pipes, empty
/// files and symbolic links are written to. `atom run` names the file to the user.
///
/// It is for results that are written at ProgramAfter. A [`Log`] is for output while the program
/// runs, as a forked child does not share it.
pub fn create(template: &str) -> io::Result<BufWriter<File>> {
    let path = path(template);
    create_file(&path)
        .map(BufWriter::new)
        .map_err(|e| named(&path, e))
}

/// An error that names the file.
fn named(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// As [`create`], for a path that is not a template.
pub fn create_file(path: &Path) -> io::Result<File> {
    keep::create(path).inspect(|_| record::written(path))
}

/// Opens the file that this process has made by [`create`], to write after its end, whatever number another process has
/// given it meanwhile.
///
/// It is for tools that write while the program runs. Their files do not stay open: the program may close all descriptors,
/// and the process that reports in place of one that was killed has none of them.
pub fn append(template: &str) -> io::Result<File> {
    append_file(&path(template))
}

/// As [`append`], for a path that is not a template.
pub fn append_file(path: &Path) -> io::Result<File> {
    keep::append(path).map_err(|e| named(path, e))
}

/// Writes to the end of the file of [`path`]. The first call creates it, as [`create`] does.
///
/// `is_created` says whether that was done. It is set when the file is there, and not before: a process that is killed
/// in between leaves it to the one that reports in its place.
pub fn extend(template: &str, is_created: &mut bool, bytes: &[u8]) -> io::Result<()> {
    let mut file = if *is_created {
        append(template)?
    } else {
        let file = create(template)?.into_inner()?;
        *is_created = true;
        file
    };
    file.write_all(bytes).map_err(|e| named(&path(template), e))
}

/// The files of this process have all their text. Somebody who has asked for them waits for that.
pub(crate) fn all_written() {
    if analysis_rt::is_snapshot() && analysis_rt::keeps_snapshots() {
        record::all_written();
    }
}

/// As [`fill`], for a profile: `atom run` tells how to look at it.
pub(crate) fn write_profile(template: &str, bytes: &[u8]) -> io::Result<()> {
    let path = path(template);
    let written = keep::create(&path).and_then(|mut file| file.write_all(bytes));
    written.map_err(|e| named(&path, e))?;
    record::profile_written(&path);
    Ok(())
}

/// Tells `atom run` that the process's profile, if there is one, has all that the report for people in the file of [`path`] says. A
/// snapshot of a process that continues, a file that the user has named for each process, and a shared one stay as they are.
pub(crate) fn summed(template: &str) {
    let is_apart = template.contains("%p") || is_shared(Path::new(template));
    if !is_apart && !analysis_rt::is_snapshot() {
        record::summed(&path(template));
    }
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

/// Creates the file of [`path`] and writes it; errors go to standard error as by [`cannot_write`]. An empty name is
/// for a file that is not wanted.
pub fn write_file(
    tool: &str,
    template: &str,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) {
    if template.is_empty() {
        return;
    }
    if let Err(error) = fill(template, write) {
        cannot_write(tool, error);
    }
}

/// Creates the file of [`path`] and writes it. Errors name the file. `atom run` does not name a file to the user that could not be
/// written to its end.
pub(crate) fn fill(
    template: &str,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let mut file = create(template)?;
    let written = write(&mut file).and_then(|()| file.flush());
    written.map_err(|e| {
        let path = path(template);
        record::cut(&path);
        named(&path, e)
    })
}

/// True for a device or a pipe, given by its absolute path: all processes write to it.
pub(crate) fn is_shared(template: &Path) -> bool {
    template.is_absolute()
        && std::fs::metadata(template).is_ok_and(|found| !found.is_file() && !found.is_dir())
}

/// The process that writes a file.
#[derive(Clone, Copy)]
struct Writer {
    /// Its number.
    pid: u32,
    /// The number of the process in which the program started.
    start_pid: u32,
    /// It reports the state of that process, which continues.
    is_snapshot: bool,
}

impl Writer {
    fn this() -> Self {
        Self {
            pid: analysis_rt::pid(),
            start_pid: analysis_rt::start_pid(),
            is_snapshot: analysis_rt::is_snapshot(),
        }
    }
}

/// The name of a file, without a number that an older file may have. `executed` is the name of a program
/// that another one has executed.
fn expand(template: &str, writer: Writer, executed: Option<&str>) -> String {
    let Writer {
        pid,
        start_pid,
        is_snapshot,
    } = writer;
    // A snapshot stands for the process that continues.
    let pid = if is_snapshot { start_pid } else { pid };
    let is_forked = pid != start_pid;
    let mut path = match template.contains("%p") {
        true => template.replace("%p", &pid.to_string()),
        false if is_forked || executed.is_some() => format!("{template}.{pid}"),
        false => template.to_owned(),
    };
    let name = executed.filter(|_| !is_forked);
    for part in name.into_iter().chain(is_snapshot.then_some(SNAPSHOT)) {
        path.push('.');
        path.push_str(part);
    }
    path
}

#[cfg(test)]
mod tests {
    use super::{Writer, expand, extend, path};

    fn writer(pid: u32, is_snapshot: bool) -> Writer {
        Writer {
            pid,
            start_pid: 7,
            is_snapshot,
        }
    }

    #[test]
    fn a_file_that_could_not_be_created_is_created_later() {
        let folder = std::env::temp_dir().join(format!("atom-extend-{}", std::process::id()));
        let file = folder.join("a.out");
        let name = file.to_str().unwrap();
        let mut is_created = false;
        assert!(extend(name, &mut is_created, b"lost").is_err());
        assert!(!is_created);
        std::fs::create_dir_all(&folder).unwrap();
        extend(name, &mut is_created, b"kept").unwrap();
        assert!(is_created);
        assert_eq!(std::fs::read_to_string(path(name)).unwrap(), "kept");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_child_gets_a_file_of_its_own() {
        let name = |template, pid| expand(template, writer(pid, false), None);
        assert_eq!(name("btaken.out", 7), "btaken.out");
        assert_eq!(name("btaken.out", 8), "btaken.out.8");
        assert_eq!(name("b.%p.out", 7), "b.7.out");
        assert_eq!(name("b.%p.out", 8), "b.8.out");
    }

    #[test]
    fn a_report_of_a_process_that_goes_on_has_its_name() {
        let name = |template| expand(template, writer(8, true), None);
        assert_eq!(name("btaken.out"), "btaken.out.now");
        assert_eq!(name("b.%p.out"), "b.7.out.now");
    }

    #[test]
    fn an_executed_program_has_its_name_in_the_files() {
        let name = |template, pid| expand(template, writer(pid, false), Some("ls"));
        assert_eq!(name("btaken.out", 7), "btaken.out.7.ls");
        assert_eq!(name("b.%p.out", 7), "b.7.out.ls");
        assert_eq!(name("btaken.out", 8), "btaken.out.8");
    }
}

//! Word left for `atom run`, which waits for the program: where reports are, and what could not be
//! written.
//!
//! `atom run` makes an empty file, named by its own process number and start time, in a folder of its
//! user; `atom` has written the folder into the program. Nothing of that can be seen in the program's
//! environment or descriptors. If there is no such file, nobody waits. Each entry is one write of a letter
//! and text with a null after it, so the entries of several processes do not mix. The text of entries on
//! reports and libraries begins with the numbers of the process and of its parent.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use crate::report::ticks::start_time;

/// `O_NOFOLLOW` and `O_NONBLOCK`: neither a symbolic link nor a pipe is waited for.
const SAFELY: i32 = 0o400_000 | 0o4_000;

/// Called when the program starts. If `atom run` waits for the program and started it, it is told the number
/// of the watcher. The watcher is a child of the program's parent, so a program that another one has executed
/// has none: its parent would meet a child that it has not made.
pub(super) fn begin() {
    if analysis_rt::executed().is_some() {
        return;
    }
    if let Some(mut record) = open()
        && let Some(watcher) = analysis_rt::watch(analysis_rt::waiter())
    {
        add(&mut record, b'W', watcher.to_string().as_bytes());
    }
}

/// A report is in this file.
pub(super) fn written(path: &Path) {
    leave(b'R', &of_process(path.as_os_str().as_bytes()));
    analysis_rt::unknown_objects(&mut |path| {
        if is_object(path) {
            leave(b'O', &of_process(path));
        }
    });
    analysis_rt::late_objects(&mut |path| {
        leave(b'L', &of_process(path));
    });
}

/// The report in this file could not be written to its end.
pub(super) fn cut(path: &Path) {
    leave(b'C', &of_process(path.as_os_str().as_bytes()));
}

/// A profile is in this file.
pub(super) fn profile_written(path: &Path) {
    leave(b'P', &of_process(path.as_os_str().as_bytes()));
}

/// The profile that was written just now, if there is one, has all that the report for people in this file says, so reports of several
/// processes can be added up.
pub(super) fn summed(path: &Path) {
    leave(b'T', &of_process(path.as_os_str().as_bytes()));
}

/// A process has made the report that somebody asked for, and continues.
pub(super) fn all_written() {
    leave(b'D', &of_process(b""));
}

/// A path after the numbers of the process and of its parent.
fn of_process(path: &[u8]) -> Vec<u8> {
    let parent = std::os::unix::process::parent_id();
    // A snapshot stands for the process that continues.
    let process = if analysis_rt::is_snapshot() {
        analysis_rt::start_pid()
    } else {
        analysis_rt::pid()
    };
    let numbers = format!("{process} {parent} ");
    [numbers.as_bytes(), path].concat()
}

/// True for the path of a library, not of one of the loader's own files.
pub(crate) fn is_object(path: &[u8]) -> bool {
    path.starts_with(b"/") && !path.starts_with(b"/etc/")
}

/// Tells the user that something cannot be written: `atom run` does so at the end, as programs may have
/// closed their standard error by then; else the line goes there.
pub(super) fn failed(line: &str) {
    if !leave(b'F', line.as_bytes()) {
        eprintln!("{line}");
    }
}

/// True if an `atom run` waits for the program.
pub(super) fn is_wanted() -> bool {
    open().is_some()
}

/// Leaves an entry; false if nobody waits for it.
fn leave(kind: u8, text: &[u8]) -> bool {
    open().is_some_and(|mut record| add(&mut record, kind, text))
}

/// Writes an entry; false if that fails.
fn add(record: &mut File, kind: u8, text: &[u8]) -> bool {
    let entry = [&[kind], text, b"\0"].concat();
    record.write_all(&entry).is_ok()
}

/// The record, if somebody waits for it.
fn open() -> Option<File> {
    open_beside("", OpenOptions::new().append(true))
}

/// The contents of the file whose name is the record's with `suffix` after it; `None` if nobody has made it for this user.
pub(in crate::report) fn read_beside(suffix: &str) -> Option<String> {
    let mut text = String::new();
    let mut file = open_beside(suffix, OpenOptions::new().read(true))?;
    file.read_to_string(&mut text).ok()?;
    Some(text)
}

fn open_beside(suffix: &str, options: &mut OpenOptions) -> Option<File> {
    let stem = analysis_rt::record()?;
    let waiter = analysis_rt::waiter();
    let name = format!("{stem}{waiter}-{}{suffix}", start_time(waiter));
    let file = options.custom_flags(SAFELY).open(name).ok()?;
    let is_ours = |m: std::fs::Metadata| m.is_file() && m.uid() == analysis_rt::user();
    file.metadata().is_ok_and(is_ours).then_some(file)
}

//! Where and how it is told: lines for people, or Valgrind's XML.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write as _};
use std::mem::ManuallyDrop;
use std::os::fd::{BorrowedFd, FromRawFd, IntoRawFd};
use std::process;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64};

use atom_tool::prelude::*;

use crate::fatal::Fatal;
use crate::given::{self, Given};
use crate::suppressions;
use crate::told::{Kind, Told};
use crate::{threads, xml};

plain_data! {
    /// How it is told.
    pub struct Manner {
        /// Descriptors of the program at its start that have no name of a file in their place.
        pub log_fd: i32,
        pub xml_fd: i32,
        /// The exit code after the first error, with which the process ends then; 0 if it does not.
        pub first_error_code: i32,
        pub is_xml: u8,
        /// No lines but errors.
        pub is_quiet: u8,
        /// After each error a suppression for it.
        pub with_suppressions: u8,
        /// Forked children tell nothing.
        pub is_silent_in_child: u8,
    }
}

/// A descriptor is not open.
const EBADF: i32 = 9;

/// A place to write to.
struct Place {
    /// The descriptor; -1 if there is none.
    fd: AtomicI32,
    /// The name of its file, as it was given.
    name: OnceLock<String>,
}

static OUT: Place = Place::new();
static XML: Place = Place::new();
static MANNER: OnceLock<Manner> = OnceLock::new();
static GIVEN: OnceLock<Given> = OnceLock::new();
/// Number of errors that were told.
static TOLD: AtomicU64 = AtomicU64::new(0);
/// Number of the thread whose error was told last.
static THREAD: AtomicU32 = AtomicU32::new(1);
static IS_SILENT: AtomicBool = AtomicBool::new(false);
/// The process ends by its first error.
static HAS_STOPPED: AtomicBool = AtomicBool::new(false);

/// Without names of files it is told to descriptors as they are at the start: programs may close them.
pub fn begin(how: Manner, given: Given) {
    let _ = MANNER.set(how);
    OUT.open(&given.log, how.log_fd);
    if how.is_xml != 0 {
        XML.open(&given.xml, how.xml_fd);
        put(&XML, &xml::head(&given, how.is_quiet != 0));
    }
    note(&given.head());
    let _ = GIVEN.set(given);
}

/// In a forked child: it gets files of its own where their names have its number.
pub fn in_child() {
    let (Some(how), Some(given)) = (MANNER.get(), GIVEN.get()) else {
        return;
    };
    IS_SILENT.store(how.is_silent_in_child != 0, Relaxed);
    if how.is_silent_in_child == 0 {
        if OUT.open_again() {
            note(&given.head());
        }
        if XML.open_again() {
            put(&XML, &xml::head(given, how.is_quiet != 0));
        }
    }
}

impl Place {
    const fn new() -> Self {
        Self {
            fd: AtomicI32::new(-1),
            name: OnceLock::new(),
        }
    }

    fn open(&self, name: &str, fd: i32) {
        let opened = match name {
            "" => copy_of(fd).map_err(|error| format!("to descriptor {fd}: {error}")),
            name => given::path(name)
                .and_then(|path| File::create(path).map_err(|error| format!("{name}: {error}"))),
        };
        let _ = self.name.set(name.to_owned());
        match opened {
            Ok(file) => {
                let before = self.fd.swap(file.into_raw_fd(), Relaxed);
                if before >= 0 {
                    // SAFETY: it was opened here, and nobody has it any more.
                    drop(unsafe { File::from_raw_fd(before) });
                }
            }
            // A program may be started without standard error.
            Err(_) if name.is_empty() && fd == 2 => {}
            Err(error) => eprintln!("memcheck: cannot write {error}"),
        }
    }

    /// For the process that reports in place of one that was killed, or that continues: it has no descriptors. The file is
    /// opened again, or what `atom run` has by the descriptor's number.
    fn reopened(&self) -> Option<File> {
        let name = self.name.get()?;
        let path = match name.as_str() {
            "" => {
                let how = MANNER.get()?;
                let is_xml = std::ptr::eq(self, &XML);
                let fd = if is_xml { how.xml_fd } else { how.log_fd };
                format!("/proc/{}/fd/{fd}", output::run_that_waits()?).into()
            }
            name => given::path(name).ok()?,
        };
        File::options().create(true).append(true).open(path).ok()
    }

    /// Opens the file of this process; false if it is the same as before.
    fn open_again(&self) -> bool {
        let name = self
            .name
            .get()
            .filter(|name| name.contains("%p") || name.contains("%n"));
        if let Some(name) = name {
            self.open(name, -1);
        }
        name.is_some()
    }
}

fn copy_of(fd: i32) -> io::Result<File> {
    if fd < 0 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: copying fails if it is not open.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    fd.try_clone_to_owned().map(File::from)
}

fn put(place: &Place, text: &str) {
    let fd = place.fd.load(Relaxed);
    if fd >= 0 && !IS_SILENT.load(Relaxed) {
        // SAFETY: it was opened here, and stays open.
        let mut file = ManuallyDrop::new(unsafe { File::from_raw_fd(fd) });
        if file
            .write_all(text.as_bytes())
            .is_err_and(|error| error.raw_os_error() == Some(EBADF))
            && let Some(mut file) = place.reopened()
        {
            let _ = file.write_all(text.as_bytes());
        }
    }
}

/// Lines with the number of the process in front, all at once.
fn put_lines(text: &str) {
    let pid = process::id();
    let lines = text.lines().map(|line| format!("=={pid}== {line}\n"));
    put(&OUT, &lines.collect::<String>());
}

/// Tells something that is no error.
pub fn note(text: &str) {
    if MANNER
        .get()
        .is_some_and(|how| how.is_quiet == 0 && how.is_xml == 0)
    {
        put_lines(text);
    }
}

/// Tells an error.
pub fn error(told: &Told) {
    let Some(how) = MANNER.get() else { return };
    let number = TOLD.fetch_add(1, Relaxed);
    let thread = threads::number();
    let suppression = (how.with_suppressions != 0).then(|| suppressions::write(told));
    if how.is_xml != 0 {
        put(
            &XML,
            &xml::error(told, number, thread, suppression.as_deref()),
        );
    } else {
        let is_leak = matches!(told.kind, Kind::Leak(_));
        if !is_leak && THREAD.swap(thread, Relaxed) != thread {
            put_lines(&format!("Thread {thread}:"));
        }
        put_lines(&told.text());
        put(&OUT, &suppression.unwrap_or_default());
    }
    if how.first_error_code != 0 {
        note("Exit program on first error (--exit-on-first-error=yes)");
        end();
        HAS_STOPPED.store(true, Relaxed);
        process::exit(how.first_error_code);
    }
}

/// Tells of the signal by which the process ends. Faults are told in any case.
pub fn fatal(fatal: &Fatal) {
    match MANNER.get() {
        Some(how) if how.is_xml != 0 => put(&XML, &xml::fatal(fatal, threads::number())),
        Some(how) if how.is_quiet == 0 || fatal.code > 0 => put_lines(&fatal.text()),
        _ => {}
    }
}

/// True if the process ends by its first error, and all is told.
pub fn has_stopped() -> bool {
    HAS_STOPPED.load(Relaxed)
}

/// Ends what is told in XML.
pub fn end() {
    if MANNER.get().is_some_and(|how| how.is_xml != 0) {
        put(&XML, &xml::tail());
    }
}

/// A number with groups of three digits.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i != 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        let _ = write!(text, "{digit}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_in_groups() {
        let all = [0, 12, 123, 1234, 123_456, 1_234_567].map(grouped);
        assert_eq!(all.join(" "), "0 12 123 1,234 123,456 1,234,567");
    }
}

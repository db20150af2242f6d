//! A file to which analysis routines write while the program runs.
//!
//! A `Mutex<BufWriter<File>>` is not enough for that. A forked child inherits what its parent has not
//! written yet and would write it once more; a lock that another thread held at the fork
//! is held there for ever; a signal handler that interrupts a routine would wait for the lock of that
//! very routine; and a program that closes all descriptors closes the log's, whose number may then
//! be that of another file. So lock and fill level lie in memory that is empty in a child, signals wait
//! while the lock is held, and the file is open only while something is written to it.

use std::fmt::{self, Arguments, Write as _};
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::ptr::{NonNull, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use analysis_rt::{SpinLock, Uninterrupted};

use crate::forks;

/// Bytes that are kept before they are written.
const ROOM: usize = 1 << 16;

/// What a forked child starts anew with: the first bytes of [`forks::memory`].
#[repr(C)]
struct Fresh {
    /// Held while a thread writes.
    lock: SpinLock,
    /// True once the process has created its file.
    is_created: AtomicBool,
    /// True after an error, which was told.
    is_broken: AtomicBool,
    /// Bytes in the buffer.
    used: AtomicUsize,
}

/// Analysis side: a log for all threads of the program, kept in a `static`.
///
/// ```
/// use atom_tool::output::Log;
/// use atom_tool::prelude::*;
///
/// static LOG: Log = Log::new();
///
/// #[analysis]
/// fn open(file: Str) {
///     LOG.open(&file);
/// }
///
/// #[analysis]
/// fn enter(name: Str, first: RegV) {
///     writeln!(LOG, "{name} {:#x}", first.0);
/// }
///
/// fn instrument(program: &Program, _args: &Args) -> Result {
///     program.add_call(Before, open, ("calls.log",));
///     for proc in program.procs().filter(|p| !p.is_opaque()) {
///         proc.add_call(Before, enter, (proc.name(), Reg::Rdi));
///     }
///     Ok(())
/// }
/// # fn main() {}
/// ```
///
/// What one `write!` or `writeln!` writes stays together. The rest is written when the process ends. A forked
/// child has a file of its own, named as by [`path`](super::path), as soon as it writes something.
/// What cannot be written is told on standard error once, and the log ends there.
pub struct Log {
    name: OnceLock<String>,
    memory: AtomicPtr<u64>,
    /// The next log that was opened.
    next: AtomicPtr<Log>,
}

/// The log that was opened last.
static OPENED: AtomicPtr<Log> = AtomicPtr::new(null_mut());

impl Default for Log {
    fn default() -> Self {
        Self::new()
    }
}

impl Log {
    /// A log that is not open: what is written to it is lost.
    pub const fn new() -> Self {
        Self {
            name: OnceLock::new(),
            memory: AtomicPtr::new(null_mut()),
            next: AtomicPtr::new(null_mut()),
        }
    }

    /// Creates the file of [`path`](super::path). Call it at ProgramBefore; a second time it does nothing.
    pub fn open(&'static self, template: &str) {
        let mut is_new = false;
        let name = self.name.get_or_init(|| {
            is_new = true;
            template.to_owned()
        });
        if !is_new {
            return;
        }
        let Some(memory) = forks::memory(ROOM) else {
            let needs = "it needs memory that a forked child does not get: Linux 4.14";
            return tell(&io::Error::other(format!("{name}: {needs}")));
        };
        self.memory.store(memory.as_ptr(), Ordering::Release);
        if let Some(mut held) = self.hold() {
            held.flush(true);
        }
        let mut last = OPENED.load(Ordering::Acquire);
        loop {
            self.next.store(last, Ordering::Relaxed);
            let this = std::ptr::from_ref(self).cast_mut();
            match OPENED.compare_exchange(last, this, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return,
                Err(other) => last = other,
            }
        }
    }

    /// What `write!` and `writeln!` call.
    pub fn write_fmt(&self, text: Arguments<'_>) {
        let Some(mut held) = self.hold() else { return };
        // Its own errors are told; another one is a formatter's, which has no reason.
        let _ = held.write_fmt(text);
    }

    /// Writes these bytes.
    pub fn write(&self, bytes: &[u8]) {
        if let Some(mut held) = self.hold() {
            held.push(bytes);
        }
    }

    /// Writes to the file what is still kept in memory.
    pub fn flush(&self) {
        if let Some(mut held) = self.hold() {
            held.flush(false);
        }
    }

    fn hold(&self) -> Option<Held<'_>> {
        let memory = NonNull::new(self.memory.load(Ordering::Acquire))?;
        let name = self.name.get()?;
        let signals = Uninterrupted::begin();
        // SAFETY: the memory is page-aligned, larger than the structure, never given back, and
        // zeros, which are valid for each of its parts, at first and in a child.
        let fresh = unsafe { memory.cast::<Fresh>().as_ref() };
        fresh.lock.lock();
        // SAFETY: so many bytes follow those that are wiped.
        let room = unsafe { memory.cast::<u8>().add(forks::WIPED) };
        Some(Held {
            name,
            fresh,
            room,
            _signals: signals,
        })
    }
}

/// Writes what all logs keep; the process ends.
pub(crate) fn flush_all() {
    let mut log = OPENED.load(Ordering::Acquire);
    // SAFETY: only logs that live for ever are noted.
    while let Some(this) = unsafe { log.as_ref() } {
        this.flush();
        log = this.next.load(Ordering::Relaxed);
    }
}

fn tell(error: &io::Error) {
    eprintln!("cannot write {error}; the log ends here");
}

/// A log that is locked.
struct Held<'a> {
    name: &'a str,
    fresh: &'a Fresh,
    /// [`ROOM`] bytes for who holds the lock.
    room: NonNull<u8>,
    /// Dropped after the lock was released, since `drop` comes before its fields' own.
    _signals: Uninterrupted,
}

impl Held<'_> {
    fn push(&mut self, bytes: &[u8]) {
        if self.fresh.used.load(Ordering::Relaxed) + bytes.len() > ROOM {
            self.flush(false);
        }
        if bytes.len() > ROOM {
            return self.write_out(bytes);
        }
        let used = self.fresh.used.load(Ordering::Relaxed);
        // SAFETY: it fits, as was just seen to, and nobody else is here.
        unsafe {
            let to = self.room.add(used).as_ptr();
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
        self.fresh.used.store(used + bytes.len(), Ordering::Relaxed);
    }

    /// Empties the buffer. An empty one creates no file unless `creates` says so.
    fn flush(&mut self, creates: bool) {
        let used = self.fresh.used.swap(0, Ordering::Relaxed);
        if used == 0 && !creates {
            return;
        }
        // SAFETY: the first `used` bytes were written, and nobody else is here.
        let kept = unsafe { std::slice::from_raw_parts(self.room.as_ptr(), used) };
        self.write_out(kept);
    }

    fn write_out(&self, bytes: &[u8]) {
        if self.fresh.is_broken.load(Ordering::Relaxed) {
            return;
        }
        let path = super::path(self.name);
        let is_created = self.fresh.is_created.swap(true, Ordering::Relaxed);
        let written = match is_created {
            true => OpenOptions::new().append(true).open(&path),
            false => File::create(&path),
        }
        .and_then(|mut file| file.write_all(bytes));
        if let Err(e) = written {
            self.fresh.is_broken.store(true, Ordering::Relaxed);
            tell(&io::Error::new(
                e.kind(),
                format!("{}: {e}", path.display()),
            ));
        }
    }
}

impl fmt::Write for Held<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes());
        Ok(())
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.fresh.lock.unlock();
    }
}

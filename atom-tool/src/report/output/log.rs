//! A file to which analysis routines write while the program runs.
//!
//! A `Mutex<BufWriter<File>>` is not enough for that.
//!
//! - A forked child inherits the text that its parent has not written yet, and would write it once more.
//! - A lock that another thread held at the fork is held for ever in the child.
//! - A signal handler that interrupts a routine would wait for the lock of the interrupted routine.
//! - A program that closes all descriptors closes the log's descriptor, too. Another file may then get
//!   the same number.
//!
//! So lock and fill level are in memory that is wiped in a child, signals are blocked
//! while the lock is held, and the file is open only while something is written to it.

use std::fmt::{self, Arguments, Write as _};
use std::io::{self, Write as _};
use std::ptr::{NonNull, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use analysis_rt::{SpinLock, Uninterrupted};

use super::{keep, record};
use crate::data::forks;

/// Size of the buffer in bytes.
const BUFFER: usize = 1 << 16;

/// State that is zeros in a forked child: the first bytes of [`forks::memory`].
#[repr(C)]
struct Fresh {
    /// Held while a thread writes.
    lock: SpinLock,
    /// True once the process has created its file.
    is_created: AtomicBool,
    /// True after an error, which has been reported.
    is_broken: AtomicBool,
    /// Number of bytes in the buffer.
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
/// The text of one `write!` or `writeln!` is never mixed with the text of another thread. Buffered text is written when
/// the process ends. A forked child has its own file, named as by [`path`](super::path), as soon as it writes something.
/// The first error is reported on standard error, and nothing is written to the log afterwards.
pub struct Log {
    name: OnceLock<String>,
    memory: AtomicPtr<u64>,
    /// The log that was opened before this one.
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
    /// A log that is not open. Text written to it is lost.
    pub const fn new() -> Self {
        Self {
            name: OnceLock::new(),
            memory: AtomicPtr::new(null_mut()),
            next: AtomicPtr::new(null_mut()),
        }
    }

    /// Creates the file whose name [`path`](super::path) makes of `template`. Call it at ProgramBefore. Further calls do nothing.
    pub fn open(&'static self, template: &str) {
        let mut is_new = false;
        let name = self.name.get_or_init(|| {
            is_new = true;
            template.to_owned()
        });
        if !is_new {
            return;
        }
        let Some(memory) = forks::memory(BUFFER) else {
            let needs = "it needs memory that a forked child does not get: Linux 4.14";
            return tell(&io::Error::other(format!("{name}: {needs}")));
        };
        self.memory.store(memory.as_ptr(), Ordering::Release);
        self.hold(|held| held.flush(true));
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

    /// Writes formatted text; `write!` and `writeln!` call it.
    pub fn write_fmt(&self, text: Arguments<'_>) {
        self.hold(|held| {
            // Errors of writing are reported elsewhere. An error here comes from a formatter and has no reason to report.
            let _ = held.write_fmt(text);
        });
    }

    /// Writes bytes.
    pub fn write(&self, bytes: &[u8]) {
        self.hold(|held| held.push(bytes));
    }

    /// Writes the buffered bytes to the file.
    pub fn flush(&self) {
        self.hold(|held| held.flush(false));
    }

    /// Does work on the log while signals are blocked and the log is locked. Nothing happens if it is not open.
    fn hold(&self, work: impl FnOnce(&mut Held<'_>)) {
        let memory = NonNull::new(self.memory.load(Ordering::Acquire));
        if let (Some(memory), Some(name)) = (memory, self.name.get()) {
            Uninterrupted::run(|_| work(&mut Self::lock(memory, name)));
        }
    }

    fn lock(memory: NonNull<u64>, name: &str) -> Held<'_> {
        // SAFETY: the memory is page-aligned, larger than the structure and never freed. At first and in a
        // child it is zeros, which are valid for each field.
        let fresh = unsafe { memory.cast::<Fresh>().as_ref() };
        fresh.lock.lock();
        // SAFETY: `open` has allocated `BUFFER` bytes after the wiped ones.
        let buffer = unsafe { memory.cast::<u8>().add(forks::WIPED) };
        Held {
            name,
            fresh,
            buffer,
        }
    }
}

/// Writes the buffered bytes of all logs at the end of the process.
pub(crate) fn flush_all() {
    let mut log = OPENED.load(Ordering::Acquire);
    // SAFETY: only `open` stores an address, and it takes a log that lives for ever.
    while let Some(this) = unsafe { log.as_ref() } {
        this.flush();
        log = this.next.load(Ordering::Relaxed);
    }
}

/// Reports an error on standard error.
fn tell(error: &io::Error) {
    record::failed(&format!("cannot write {error}; the log ends here"));
}

/// A log that is locked, while signals wait.
struct Held<'a> {
    name: &'a str,
    fresh: &'a Fresh,
    /// [`BUFFER`] bytes, which only the holder of the lock uses.
    buffer: NonNull<u8>,
}

impl Held<'_> {
    /// Adds bytes to the buffer, which is written first if they do not fit.
    fn push(&mut self, bytes: &[u8]) {
        if self.fresh.used.load(Ordering::Relaxed) + bytes.len() > BUFFER {
            self.flush(false);
        }
        if bytes.len() > BUFFER {
            return self.write_out(bytes);
        }
        let used = self.fresh.used.load(Ordering::Relaxed);
        // SAFETY: the bytes fit, which was checked above, and no other thread holds the lock.
        unsafe {
            let to = self.buffer.add(used).as_ptr();
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
        self.fresh.used.store(used + bytes.len(), Ordering::Relaxed);
    }

    /// Writes and empties the buffer. If it is empty, creates the file only if `creates` is true.
    fn flush(&mut self, creates: bool) {
        let used = self.fresh.used.swap(0, Ordering::Relaxed);
        if used == 0 && !creates {
            return;
        }
        // SAFETY: the first `used` bytes are initialised, and no other thread holds the lock.
        let kept = unsafe { std::slice::from_raw_parts(self.buffer.as_ptr(), used) };
        self.write_out(kept);
    }

    /// Appends bytes to the file, which it creates if the process has none.
    fn write_out(&self, bytes: &[u8]) {
        if self.fresh.is_broken.load(Ordering::Relaxed) {
            return;
        }
        let path = super::path(self.name);
        let is_created = self.fresh.is_created.swap(true, Ordering::Relaxed);
        let written = if is_created {
            keep::append(&path)
        } else {
            super::create_file(&path)
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

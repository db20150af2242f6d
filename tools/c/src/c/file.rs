//! C's `FILE`.
//!
//! Threads and signal handlers may use one file at the same time, so a file is locked while it is used, and signals wait. A lock that a vanished
//! thread of a forked child's parent held counts as free.
//!
//! What a forked child inherits: output that its parent has not written yet is the parent's. A file that was created
//! (`w`) is the parent's, too; a child that writes to it gets a file of its own, named as other tools' are (`.PID` after the name),
//! with a copy of what stood in the parent's at the fork.
//!
//! ABI: macros of glibc's `<stdio.h>` read the first words of a `FILE`: the flags for its end and for errors, and pointers into its
//! buffer. Here the pointers stay null, so that the macros call the functions.

use std::ffi::{CStr, c_char, c_int, c_long, c_void};
use std::io::Write;
use std::path::PathBuf;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use atom_tool::{SpinLock, Uninterrupted, forks, output};

use super::errno;

unsafe extern "C" {
    fn open(path: *const c_char, flags: c_int, ...) -> c_int;
    fn close(fd: c_int) -> c_int;
    fn read(fd: c_int, to: *mut c_void, n: usize) -> isize;
    fn write(fd: c_int, from: *const c_void, n: usize) -> isize;
    fn lseek(fd: c_int, offset: c_long, from: c_int) -> c_long;
    fn isatty(fd: c_int) -> c_int;
    fn realloc(block: *mut c_void, size: usize) -> *mut c_void;
}

/// Flags of glibc's macros: the end was met, an error has happened.
const AT_END: u32 = 0x10;
const HAS_FAILED: u32 = 0x20;

/// Bytes that are written at once.
const BUFFER: usize = 1 << 16;

/// The result of functions for characters at the end.
pub const EOF: c_int = -1;

/// When output is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Buffering {
    Full,
    Lines,
    None,
}

/// C's `FILE`.
#[repr(C)]
pub struct File {
    flags: u32,
    /// Null pointers, for the macros.
    pointers: [usize; 11],
    lock: SpinLock,
    fd: c_int,
    can_read: bool,
    can_write: bool,
    /// `a`: output goes after the file's end.
    appends: bool,
    buffering: Buffering,
    /// Output that is not written yet.
    out: Vec<u8>,
    /// Input, and the number of bytes of it that were taken.
    input: Vec<u8>,
    taken: usize,
    /// For files that were created: the name as it was given, and the path of the file.
    created: Option<(String, PathBuf)>,
    /// Number of bytes that were written to a created file.
    written: u64,
    /// Of a file in memory: its text, and where the user has the text's address and size.
    memory: Option<Memory>,
    /// The number of [`EPOCH`] at which it was opened.
    epoch: u64,
    /// The next in the list of all files.
    next: AtomicPtr<File>,
}

/// A file in memory.
struct Memory {
    text: Vec<u8>,
    place: *mut *mut c_char,
    size: *mut usize,
}

/// The descriptor of a file in memory, which no process has.
const NO_FILE: c_int = c_int::MAX;

/// Standard streams, in memory that lives as long as the program.
pub static mut STDIN: *mut File = null_mut();
pub static mut STDOUT: *mut File = null_mut();
pub static mut STDERR: *mut File = null_mut();

/// All files that were ever opened; closed ones are used again.
static FILES: AtomicPtr<File> = AtomicPtr::new(null_mut());

/// Number of forks between the first process and this one.
static EPOCH: AtomicU64 = AtomicU64::new(0);

/// A word that is 1 in the process that set it, and 0 in a forked child.
static MARK: AtomicPtr<u64> = AtomicPtr::new(null_mut());

/// The epoch of this process.
fn epoch() -> u64 {
    let mark = MARK.load(Ordering::Acquire);
    if mark.is_null() {
        return 0;
    }
    // SAFETY: such memory is never freed.
    unsafe {
        if mark.read_volatile() == 0 {
            mark.write_volatile(1);
            EPOCH.fetch_add(1, Ordering::AcqRel);
        }
    }
    EPOCH.load(Ordering::Acquire)
}

/// Opens the standard streams. Called before any other function.
pub fn begin() {
    if let Some(memory) = forks::memory(0) {
        let mark = memory.as_ptr();
        // SAFETY: it has room for a word.
        unsafe { mark.write_volatile(1) };
        MARK.store(mark, Ordering::Release);
    }
    // SAFETY: the tool's code has not begun, so nobody else reads them.
    unsafe {
        STDIN = File::add(File::of(0, "r"));
        STDOUT = File::add(File::of(1, "w"));
        STDERR = File::add(File::of(2, "w"));
        (*STDERR).buffering = Buffering::None;
        if isatty(1) == 1 {
            (*STDOUT).buffering = Buffering::Lines;
        }
    }
}

impl File {
    /// A stream on a descriptor, by the mode of `fopen`.
    pub fn of(fd: c_int, mode: &str) -> Self {
        let is_both = mode.contains('+');
        Self {
            flags: 0,
            pointers: [0; 11],
            lock: SpinLock::new(),
            fd,
            can_read: mode.starts_with('r') || is_both,
            can_write: !mode.starts_with('r') || is_both,
            appends: mode.starts_with('a'),
            buffering: Buffering::Full,
            out: Vec::new(),
            input: Vec::new(),
            taken: 0,
            created: None,
            memory: None,
            written: 0,
            epoch: epoch(),
            next: AtomicPtr::new(null_mut()),
        }
    }

    /// A file in memory, whose text is at `place` with its size at `size` when it was flushed or closed.
    pub fn in_memory(place: *mut *mut c_char, size: *mut usize) -> Self {
        let text = Vec::new();
        Self {
            memory: Some(Memory { text, place, size }),
            ..Self::of(NO_FILE, "w")
        }
    }

    /// Gives the user the text of a file in memory, with a null after it. Returns true if all is well.
    pub fn show_memory(&mut self) -> bool {
        let Some(memory) = &self.memory else {
            return false;
        };
        let n = memory.text.len();
        // SAFETY: C's contract: the places can be written, and the first has a block of `malloc` once there is one.
        unsafe {
            let before = if n == 0 { null_mut() } else { *memory.place };
            let text = realloc(before.cast(), n + 1).cast::<u8>();
            if text.is_null() {
                return false;
            }
            text.copy_from_nonoverlapping(memory.text.as_ptr(), n);
            text.add(n).write(0);
            *memory.place = text.cast();
            *memory.size = n;
        }
        true
    }

    /// Puts it into the list of all files.
    pub fn add(mut self) -> *mut Self {
        Uninterrupted::run(|_| {
            // A closed one is used again. Its lock is held from here on to the end.
            let mut known = FILES.load(Ordering::Acquire);
            while !known.is_null() {
                // SAFETY: files in the list are never freed.
                let file = unsafe { &mut *known };
                if file.lock.try_lock() {
                    if file.fd < 0 {
                        let next = file.next.load(Ordering::Acquire);
                        self.next = AtomicPtr::new(next);
                        self.lock.lock();
                        *file = self;
                        file.lock.unlock();
                        return known;
                    }
                    file.lock.unlock();
                }
                known = file.next.load(Ordering::Acquire);
            }
            let file = Box::into_raw(Box::new(self));
            let mut first = FILES.load(Ordering::Acquire);
            loop {
                // SAFETY: nobody else knows the file yet.
                unsafe { (*file).next.store(first, Ordering::Release) };
                match FILES.compare_exchange(first, file, Ordering::AcqRel, Ordering::Acquire) {
                    Ok(_) => return file,
                    Err(other) => first = other,
                }
            }
        })
    }

    /// Opens a file. `None` with `errno`.
    pub fn open(path: &CStr, mode: &str) -> Option<*mut Self> {
        let name = path.to_string_lossy();
        let is_exclusive = mode.contains('x');
        if mode.starts_with('w') && !mode.contains('+') && !is_exclusive {
            return Self::create(&name, mode);
        }
        let flags = match (mode.as_bytes().first()?, mode.contains('+')) {
            (b'r', false) => libc::O_RDONLY,
            (b'r', true) => libc::O_RDWR,
            (b'a', false) => libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND,
            (b'a', true) => libc::O_RDWR | libc::O_CREAT | libc::O_APPEND,
            (b'w', false) => libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC,
            (b'w', true) => libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC,
            _ => {
                super::set_errno(libc::EINVAL);
                return None;
            }
        };
        let exclusive = if is_exclusive { libc::O_EXCL } else { 0 };
        // SAFETY: a string of C.
        let fd = unsafe { open(path.as_ptr(), flags | exclusive | libc::O_CLOEXEC, 0o666) };
        (fd >= 0).then(|| Self::add(Self::of(fd, mode)))
    }

    /// Creates a file for results, as the tools in Rust do: relative names count from where the program was started,
    /// and an older file is kept under another name.
    fn create(name: &str, mode: &str) -> Option<*mut Self> {
        let path = output::path(name);
        match output::create_file(&path) {
            Ok(created) => {
                let mut file = Self::of(std::os::fd::IntoRawFd::into_raw_fd(created), mode);
                file.created = Some((name.to_owned(), path));
                Some(Self::add(file))
            }
            Err(e) => {
                super::set_errno(e.raw_os_error().unwrap_or(libc::EIO));
                None
            }
        }
    }

    /// Uses a file while nobody else does.
    ///
    /// # Safety
    /// It is a file of this module.
    pub unsafe fn with<R>(file: *mut Self, then: impl FnOnce(&mut Self) -> R) -> R {
        Uninterrupted::run(|_| {
            // SAFETY: files are never freed; the lock is an atomic.
            unsafe { (*file).lock.lock_for_process() };
            // SAFETY: the lock is held.
            let file = unsafe { &mut *file };
            if file.epoch != epoch() {
                file.inherit();
            }
            let result = then(file);
            file.lock.unlock();
            result
        })
    }

    /// Makes an inherited file this process's own.
    fn inherit(&mut self) {
        self.epoch = epoch();
        let Some((name, of_parent)) = self.created.take() else {
            self.out.clear();
            return;
        };
        let path = output::path(&name);
        let opened = output::create_file(&path);
        // The descriptor is shared with the parent; closing it here leaves the parent's.
        // SAFETY: nobody else uses it in this process.
        unsafe { close(self.fd) };
        let Ok(mut own) = opened else {
            self.fd = NO_FILE;
            self.flags |= HAS_FAILED;
            return;
        };
        let copied = std::fs::File::open(&of_parent)
            .and_then(|from| std::io::copy(&mut std::io::Read::take(from, self.written), &mut own));
        if copied.is_err() {
            self.flags |= HAS_FAILED;
        }
        self.fd = std::os::fd::IntoRawFd::into_raw_fd(own);
        self.created = Some((name, path));
    }

    /// Takes output. Returns true if all is well.
    pub fn put(&mut self, text: &[u8]) -> bool {
        if !self.can_write {
            self.flags |= HAS_FAILED;
            super::set_errno(libc::EBADF);
            return false;
        }
        self.drop_input();
        self.out.extend_from_slice(text);
        let is_due = match self.buffering {
            Buffering::Full => self.out.len() >= BUFFER,
            Buffering::Lines => self.out.len() >= BUFFER || text.contains(&b'\n'),
            Buffering::None => true,
        };
        !is_due || self.flush()
    }

    /// Writes what waits. Returns true if all of it was written.
    pub fn flush(&mut self) -> bool {
        let text = std::mem::take(&mut self.out);
        if text.is_empty() {
            return true;
        }
        if let Some(memory) = &mut self.memory {
            memory.text.extend(text);
            return self.show_memory();
        }
        let is_written = match self.fd {
            1 => {
                let mut stdout = output::stdout();
                stdout
                    .write_all(&text)
                    .and_then(|()| stdout.flush())
                    .is_ok()
            }
            fd => write_all(fd, &text),
        };
        self.written += text.len() as u64;
        if !is_written {
            self.flags |= HAS_FAILED;
        }
        is_written
    }

    /// The next byte of the input.
    pub fn next_byte(&mut self) -> Option<u8> {
        if self.taken == self.input.len() && !self.fill() {
            return None;
        }
        let byte = self.input[self.taken];
        self.taken += 1;
        Some(byte)
    }

    /// Gives a byte back, which is the next one again.
    pub fn give_back(&mut self, byte: u8) {
        match self.taken.checked_sub(1) {
            Some(before) => {
                self.taken = before;
                self.input[before] = byte;
            }
            None => self.input.insert(0, byte),
        }
        self.flags &= !AT_END;
    }

    fn fill(&mut self) -> bool {
        if !self.can_read {
            self.flags |= HAS_FAILED;
            super::set_errno(libc::EBADF);
            return false;
        }
        self.flush();
        self.input.resize(BUFFER, 0);
        let read = loop {
            // SAFETY: the buffer has this size.
            let read = unsafe { read(self.fd, self.input.as_mut_ptr().cast(), BUFFER) };
            if read >= 0 || errno() != libc::EINTR {
                break read;
            }
        };
        self.taken = 0;
        self.input.truncate(read.max(0) as usize);
        self.flags |= match read {
            0 => AT_END,
            _ if read < 0 => HAS_FAILED,
            _ => 0,
        };
        read > 0
    }

    /// Forgets input that was not taken; the next byte that is written goes where the next one was read from.
    fn drop_input(&mut self) {
        let left = self.input.len() - self.taken;
        if left > 0 {
            // SAFETY: a system call on a number. What cannot be sought (a pipe) has no position to set.
            unsafe { lseek(self.fd, -(left as c_long), libc::SEEK_CUR) };
        }
        self.input.clear();
        self.taken = 0;
    }

    /// Sets the position. Returns true if all is well.
    pub fn seek(&mut self, offset: c_long, from: c_int) -> bool {
        let is_flushed = self.flush();
        self.drop_input();
        self.flags &= !AT_END;
        // SAFETY: a system call on a number.
        is_flushed && unsafe { lseek(self.fd, offset, from) } >= 0
    }

    /// The position, or -1.
    pub fn tell(&mut self) -> c_long {
        // SAFETY: a system call on a number.
        let position = unsafe { lseek(self.fd, 0, libc::SEEK_CUR) };
        match position {
            -1 => -1,
            _ => position + self.out.len() as c_long - (self.input.len() - self.taken) as c_long,
        }
    }

    /// Writes and closes. Returns true if all is well.
    pub fn close(&mut self) -> bool {
        let is_written = self.flush() && self.flags & HAS_FAILED == 0;
        self.drop_input();
        // SAFETY: nobody uses the descriptor any more.
        let is_closed = self.memory.take().is_some() || unsafe { close(self.fd) } == 0;
        self.fd = -1;
        (self.can_read, self.can_write) = (false, false);
        self.created = None;
        is_written && is_closed
    }

    pub fn descriptor(&self) -> c_int {
        self.fd
    }

    pub fn is_at_end(&self) -> bool {
        self.flags & AT_END != 0
    }

    pub fn has_failed(&self) -> bool {
        self.flags & HAS_FAILED != 0
    }

    pub fn clear(&mut self) {
        self.flags = 0;
    }

    pub fn set_buffering(&mut self, buffering: Buffering) {
        self.buffering = buffering;
    }
}

/// Writes all of a text to a descriptor.
fn write_all(fd: c_int, mut text: &[u8]) -> bool {
    while !text.is_empty() {
        // SAFETY: the bytes can be read.
        let written = unsafe { write(fd, text.as_ptr().cast(), text.len()) };
        match usize::try_from(written) {
            Ok(n) => text = &text[n..],
            Err(_) if errno() == libc::EINTR => {}
            Err(_) => return false,
        }
    }
    true
}

/// Calls a function for each open file.
pub fn for_each(mut then: impl FnMut(&mut File)) {
    let mut file = FILES.load(Ordering::Acquire);
    while !file.is_null() {
        // SAFETY: files in the list are never freed.
        unsafe {
            File::with(file, |file| {
                if file.fd >= 0 {
                    then(file);
                }
            });
            file = (*file).next.load(Ordering::Acquire);
        }
    }
}

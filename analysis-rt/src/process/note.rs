//! Notes in the record of the run, made with nothing but system calls.
//!
//! The tool's interface writes reports' names there (`atom-tool/src/report/output/record.rs`, which describes the
//! file). This module is for notes that are made just before a program is executed, perhaps in a child in
//! its parent's memory (`vfork`): no memory that outlives the call is changed.

use core::mem::MaybeUninit;

use crate::process::{run, told};
use crate::sys::call::{getpid, syscall};
use crate::sys::decimal::{self, Decimal};

/// Size in bytes of the longest path of a record.
const MOST: usize = 1024;

/// Adds an entry to the record: a letter, text, and a null. Nothing happens if nobody waits for it.
pub(crate) fn leave(kind: u8, text: &[&[u8]]) {
    const PARTS: usize = 10;
    let Some(file) = open_beside("", libc::O_WRONLY | libc::O_APPEND) else {
        return;
    };
    let letter = [kind];
    let ends: [&[u8]; 2] = [&letter, b"\0"];
    let parts = ends[..1].iter().chain(text).chain(&ends[1..]);
    let mut vectors = [[0usize; 2]; PARTS];
    let mut count = 0;
    for (vector, part) in vectors.iter_mut().zip(parts) {
        *vector = [part.as_ptr() as usize, part.len()];
        count += 1;
    }
    // SAFETY: the kernel reads the parts, which live across the calls.
    unsafe {
        syscall!(libc::SYS_writev, file, vectors.as_ptr(), count);
        syscall!(libc::SYS_close, file);
    }
}

/// As [`leave`], with the numbers of the process and of its parent in front of the text.
pub(crate) fn leave_of_process(kind: u8, text: &[&[u8]]) {
    const MOST: usize = 4;
    let number = Decimal::new(getpid().into());
    // SAFETY: a system call without effects.
    let parent = Decimal::new(unsafe { syscall!(libc::SYS_getppid) } as u64);
    let mut parts: [&[u8]; 4 + MOST] = [
        number.digits(),
        b" ",
        parent.digits(),
        b" ",
        b"",
        b"",
        b"",
        b"",
    ];
    let count = text.len().min(MOST);
    parts[4..4 + count].copy_from_slice(&text[..count]);
    leave(kind, &parts);
}

/// Opens the file whose name is the record's with `suffix` after it; `None` if nobody has made it for this user.
pub(crate) fn open_beside(suffix: &str, flags: i32) -> Option<isize> {
    let mut path = [0; MOST];
    if !path_beside(suffix, &mut path) {
        return None;
    }
    let flags = flags | libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
    // SAFETY: the path ends with a null; the kernel writes a structure.
    unsafe {
        let file = syscall!(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0);
        if file < 0 {
            return None;
        }
        let mut stat = MaybeUninit::<libc::stat>::uninit();
        if syscall!(libc::SYS_fstat, file, stat.as_mut_ptr()) == 0 {
            let stat = stat.assume_init();
            let is_file = stat.st_mode & libc::S_IFMT == libc::S_IFREG;
            let user = syscall!(libc::SYS_geteuid) as u32;
            if is_file && stat.st_uid == user {
                return Some(file);
            }
        }
        syscall!(libc::SYS_close, file);
    }
    None
}

/// Writes the path of the record, with a suffix and a null after it; false if there is none.
fn path_beside(suffix: &str, path: &mut [u8; MOST]) -> bool {
    let (Some(stem), waiter) = (told::record(), run::waiter()) else {
        return false;
    };
    let number = Decimal::new(waiter.into());
    let time = Decimal::new(start_time(waiter));
    let mut at = 0;
    let suffix = suffix.as_bytes();
    for part in [
        stem.as_bytes(),
        number.digits(),
        b"-",
        time.digits(),
        suffix,
        b"\0",
    ] {
        let Some(place) = path.get_mut(at..at + part.len()) else {
            return false;
        };
        place.copy_from_slice(part);
        at += part.len();
    }
    true
}

/// When a process started, in clock ticks since the system's start; 0 if it cannot be found out.
fn start_time(process: u32) -> u64 {
    /// Number of fields between the command's name and the time.
    const BETWEEN: usize = 19;
    let mut path = [0u8; 32];
    let number = Decimal::new(process.into());
    let parts: [&[u8]; 3] = [b"/proc/", number.digits(), b"/stat"];
    let mut at = 0;
    for part in parts {
        path[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    let mut text = [0u8; 1024];
    // SAFETY: the path ends with a null; the kernel writes at most the buffer's size.
    let len = unsafe {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        let file = syscall!(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0);
        if file < 0 {
            return 0;
        }
        let len = syscall!(libc::SYS_read, file, text.as_mut_ptr(), text.len());
        syscall!(libc::SYS_close, file);
        len.max(0) as usize
    };
    let text = &text[..len];
    let behind = text.iter().rposition(|b| *b == b')').map_or(0, |at| at + 1);
    let mut fields = text[behind..]
        .split(|b| *b == b' ')
        .filter(|f| !f.is_empty());
    fields
        .nth(BETWEEN)
        .map_or(0, |field| decimal::parse(field).0)
}

//! System calls of the fork server, made directly: the program's libc is not used.

use std::ffi::{c_int, c_long};

pub const SYS_READ: c_long = 0;
pub const SYS_WRITE: c_long = 1;
pub const SYS_CLOSE: c_long = 3;
pub const SYS_MMAP: c_long = 9;
pub const SYS_MUNMAP: c_long = 11;
pub const SYS_RT_SIGACTION: c_long = 13;
pub const SYS_MREMAP: c_long = 25;
pub const SYS_SHMAT: c_long = 30;
pub const SYS_SHMCTL: c_long = 31;
pub const SYS_GETPID: c_long = 39;
pub const SYS_CLONE: c_long = 56;
pub const SYS_WAIT4: c_long = 61;
pub const SYS_KILL: c_long = 62;
pub const SYS_SHMDT: c_long = 67;
pub const SYS_PRCTL: c_long = 157;
pub const SYS_ARCH_PRCTL: c_long = 158;
pub const SYS_GETTID: c_long = 186;
pub const SYS_TGKILL: c_long = 234;
pub const SYS_EXIT_GROUP: c_long = 231;

pub const SIGTERM: c_int = 15;
pub const SIGCHLD: c_int = 17;
pub const SIGCONT: c_int = 18;
pub const SIGSTOP: c_int = 19;

unsafe extern "C" {
    /// C's `syscall`: -1 for an error.
    pub fn syscall(number: c_long, ...) -> c_long;
}

/// The thread's number in the system.
pub fn gettid() -> u32 {
    // SAFETY: no effect on memory.
    unsafe { syscall(SYS_GETTID) as u32 }
}

/// Ends the process without the calls at its end.
pub fn exit(code: c_int) -> ! {
    loop {
        // SAFETY: the process ends here.
        unsafe { syscall(SYS_EXIT_GROUP, code) };
    }
}

/// Reads a word; `None` at the end of the input and after an error.
pub fn read_word(descriptor: c_int) -> Option<u32> {
    let mut word = [0u8; 4];
    // SAFETY: the kernel writes at most the bytes of `word`.
    let read = unsafe { syscall(SYS_READ, descriptor, word.as_mut_ptr(), word.len()) };
    (read == word.len() as c_long).then(|| u32::from_le_bytes(word))
}

/// Writes a word; false after an error.
pub fn write_word(descriptor: c_int, word: u32) -> bool {
    let word = word.to_le_bytes();
    // SAFETY: the kernel reads the bytes of `word`.
    let written = unsafe { syscall(SYS_WRITE, descriptor, word.as_ptr(), word.len()) };
    written == word.len() as c_long
}

/// Closes a descriptor.
pub fn close(descriptor: c_int) {
    // SAFETY: no effect on memory.
    unsafe { syscall(SYS_CLOSE, descriptor) };
}

/// The disposition of a signal, as the kernel keeps it; all zeros is the default action.
#[derive(Clone, Copy, Default)]
pub struct Disposition([u64; 4]);

/// Sets a signal's disposition; returns the one before.
pub fn set_disposition(signal: c_int, new: Disposition) -> Disposition {
    const MASK_SIZE: usize = 8;
    let mut old = Disposition::default();
    // SAFETY: the kernel's structure has four words: handler, flags, restorer, mask.
    unsafe {
        let (new, old) = (new.0.as_ptr(), old.0.as_mut_ptr());
        syscall(SYS_RT_SIGACTION, signal, new, old, MASK_SIZE);
    }
    old
}

//! System calls of the fork server, made directly: the program's libc is not used.

use std::ffi::{c_int, c_long};

unsafe extern "C" {
    /// C's `syscall`: -1 for an error.
    pub fn syscall(number: c_long, ...) -> c_long;
}

/// The thread's number in the system.
pub fn gettid() -> u32 {
    // SAFETY: no effect on memory.
    unsafe { syscall(libc::SYS_gettid) as u32 }
}

/// Ends the process without the calls at its end.
pub fn exit(code: c_int) -> ! {
    loop {
        // SAFETY: the process ends here.
        unsafe { syscall(libc::SYS_exit_group, code) };
    }
}

/// Reads a word; `None` at the end of the input and after an error.
pub fn read_word(descriptor: c_int) -> Option<u32> {
    let mut word = [0u8; 4];
    // SAFETY: the kernel writes at most the bytes of `word`.
    let read = unsafe { syscall(libc::SYS_read, descriptor, word.as_mut_ptr(), word.len()) };
    (read == word.len() as c_long).then(|| u32::from_le_bytes(word))
}

/// Writes a word; false after an error.
pub fn write_word(descriptor: c_int, word: u32) -> bool {
    let word = word.to_le_bytes();
    // SAFETY: the kernel reads the bytes of `word`.
    let written = unsafe { syscall(libc::SYS_write, descriptor, word.as_ptr(), word.len()) };
    written == word.len() as c_long
}

/// Closes a descriptor.
pub fn close(descriptor: c_int) {
    // SAFETY: no effect on memory.
    unsafe { syscall(libc::SYS_close, descriptor) };
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
        syscall(libc::SYS_rt_sigaction, signal, new, old, MASK_SIZE);
    }
    old
}

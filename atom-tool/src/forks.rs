//! Noticing that a process is a forked child.
//!
//! A child has a copy of all of a tool's data, and nobody tells the tool of the fork.
//! What must not be in the child, such as what the parent has not written yet, is told
//! by memory that the kernel empties there. (A child of `vfork` shares its parent's memory, where nothing is
//! emptied.)

use std::ffi::{c_int, c_void};
use std::ptr::{NonNull, null_mut};

/// Bytes at the start that are empty in a child.
pub const WIPED: usize = 4096;

unsafe extern "C" {
    fn mmap(
        at: *mut c_void,
        len: usize,
        prot: c_int,
        flags: c_int,
        fd: c_int,
        offset: i64,
    ) -> *mut c_void;
    fn madvise(at: *mut c_void, len: usize, advice: c_int) -> c_int;
    fn getpid() -> c_int;
    fn syscall(number: std::ffi::c_long, ...) -> std::ffi::c_long;
}

/// Memory of zeros whose first [`WIPED`] bytes are zeros again in a forked child; `size` further bytes
/// follow. It is never given back. `None` if there is none, or the kernel (before Linux 4.14) cannot do that.
pub fn memory(size: usize) -> Option<NonNull<u64>> {
    const PROT_READ_WRITE: c_int = 3;
    const MAP_PRIVATE_ANONYMOUS: c_int = 0x22;
    const MADV_WIPEONFORK: c_int = 18;
    // SAFETY: fresh memory, of which the first page is advised.
    unsafe {
        let flags = MAP_PRIVATE_ANONYMOUS;
        let at = mmap(null_mut(), WIPED + size, PROT_READ_WRITE, flags, -1, 0);
        if at as isize == -1 || madvise(at, WIPED, MADV_WIPEONFORK) != 0 {
            return None;
        }
        NonNull::new(at.cast())
    }
}

/// True if a thread of this process has that number.
pub fn is_alive(thread: u32) -> bool {
    const SYS_TGKILL: std::ffi::c_long = 234;
    // SAFETY: signal 0 only asks.
    thread != 0 && unsafe { syscall(SYS_TGKILL, getpid(), thread, 0) == 0 }
}

//! Noticing that a process is a forked child.
//!
//! A child has a copy of all of a tool's data, and nobody tells the tool of the fork.
//! What must not be in the child, such as what the parent has not written yet, is told
//! by memory that the kernel empties there. (A child of `vfork` shares its parent's memory, where nothing is
//! emptied.)

use std::ffi::{c_int, c_long};
use std::ptr::NonNull;

/// Bytes at the start that are empty in a child.
pub const WIPED: usize = 4096;

unsafe extern "C" {
    fn getpid() -> c_int;
    fn syscall(number: c_long, ...) -> c_long;
}

/// Memory of zeros whose first [`WIPED`] bytes are zeros again in a forked child; `size` further bytes
/// follow. It is never given back. `None` if there is none, or the kernel (before Linux 4.14) cannot do that.
pub fn memory(size: usize) -> Option<NonNull<u64>> {
    NonNull::new(analysis_rt::map_wiped(WIPED, WIPED + size).cast())
}

/// True if a thread of this process has that number.
pub fn is_alive(thread: u32) -> bool {
    const SYS_TGKILL: c_long = 234;
    // SAFETY: signal 0 only asks.
    thread != 0 && unsafe { syscall(SYS_TGKILL, getpid(), thread, 0) == 0 }
}

//! What can be written where.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Bytes that may still be written to the file system of a folder.
pub fn free_space(folder: &Path) -> u64 {
    let Ok(path) = CString::new(folder.as_os_str().as_bytes()) else {
        return 0;
    };
    // SAFETY: numbers, which the kernel fills in.
    let mut system: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel reads a string and writes a record, which live across the call.
    let done = unsafe { libc::statvfs(path.as_ptr(), &raw mut system) };
    if done == 0 {
        system.f_bavail * system.f_frsize
    } else {
        0
    }
}

/// True if a file that is there can be written, or if files can be made in a folder.
pub fn is_writable(path: &Path) -> bool {
    let mode = if path.is_dir() {
        libc::W_OK | libc::X_OK
    } else {
        libc::W_OK
    };
    let path = CString::new(path.as_os_str().as_bytes());
    // SAFETY: the kernel reads a string, which lives across the call.
    path.is_ok_and(|path| unsafe { libc::access(path.as_ptr(), mode) } == 0)
}

//! The end of a process by `exec`, which may fail.
//!
//! Inserted code calls [`exec`] before the program's own call. The runtime ends there as at any
//! other end, but is ready to continue. If the call fails, the program continues, and the real end writes
//! totals once more, which replace the ones written here. Programs look for a file in several places by calling
//! `execve` for each place; so nothing happens where the file does not exist.
//!
//! A child in its parent's memory may have some KB of stack, above the parent's frames (`posix_spawn`). So functions with large
//! frames are not part of [`exec`], and none is active while another one runs.

use core::ffi::c_char;

use crate::c::environment::getenv;
use crate::c::string::bytes;
use crate::lifecycle::{end, watcher};
use crate::process::{dispatch, note, told};
use crate::sys::call::syscall;
use crate::sys::limit;

/// The file to execute is given by its path.
const BY_PATH: usize = 0;
/// The file to execute is given by a name, which is looked up in `PATH` if it has no slash.
const BY_NAME: usize = 1;

/// Size in bytes of the longest path that is looked at, with its null.
const MOST: usize = libc::PATH_MAX as usize;

/// Ends the runtime, for the time being, if the process may become another program now.
///
/// # Safety
/// Called by the instrumented program after the start, with what
/// it passes to a function of the `exec` family. `how` is 0 for a path, 1 for
/// a name, 2 for anything else, which is not looked at.
pub unsafe extern "C" fn exec(file: *const c_char, how: usize) {
    if dispatch::is_emulated() {
        return;
    }
    // SAFETY: the program passes these arguments to `exec` next; the kernel answers EFAULT to a bad path.
    let may_succeed = match how {
        BY_PATH => unsafe { is_executable(file) },
        BY_NAME => unsafe { is_found(file) },
        _ => true,
    };
    if may_succeed {
        // SAFETY: the caller's promise.
        unsafe {
            prepare();
            if how == BY_PATH && told::follow().is_none() {
                note_name(file);
            }
        }
    }
}

/// Leaves a note that the process becomes a program that nobody follows. A report of the process after the note means that it has not.
///
/// # Safety
/// The path can be read.
#[inline(never)]
unsafe fn note_name(path: *const c_char) {
    const BECOMES: u8 = b'B';
    // SAFETY: the caller's promise.
    let name = unsafe { bytes(path) };
    note::leave_of_process(BECOMES, &[name]);
}

/// Ends the runtime, for the time being, as the process becomes another program now.
///
/// # Safety
/// Called by the instrumented program after the start.
pub(crate) unsafe fn prepare() {
    // SAFETY: the caller's promise.
    unsafe { end::finish_for_now() };
    watcher::expect_replacement();
    limit::leave();
}

/// Whether the kernel may execute the file of a path.
///
/// # Safety
/// The kernel reads the path; it may be a bad pointer.
unsafe fn is_executable(file: *const c_char) -> bool {
    // SAFETY: the kernel reads the string, or answers EFAULT.
    unsafe { syscall!(libc::SYS_faccessat, libc::AT_FDCWD, file, libc::X_OK) == 0 }
}

/// Whether a name leads to a file that the kernel may execute. True if that is not known.
///
/// # Safety
/// `name` is null or a string.
#[inline(never)]
unsafe fn is_found(name: *const c_char) -> bool {
    // SAFETY: the caller's promise.
    let name = unsafe {
        if name.is_null() {
            return false;
        }
        bytes(name)
    };
    if name.contains(&b'/') {
        // SAFETY: the caller's promise.
        return unsafe { is_executable(name.as_ptr().cast()) };
    }
    // SAFETY: the name is a constant string; values of variables are strings.
    let path = unsafe {
        let path = getenv(c"PATH".as_ptr());
        if path.is_null() {
            return true;
        }
        bytes(path)
    };
    let mut buffer = [0u8; MOST];
    path.split(|b| *b == b':').any(|folder| {
        let len = folder.len() + 1 + name.len();
        if len >= MOST {
            return true;
        }
        buffer[..folder.len()].copy_from_slice(folder);
        buffer[folder.len()] = b'/';
        buffer[folder.len() + 1..len].copy_from_slice(name);
        buffer[len] = 0;
        // An empty folder is the current one.
        let start = usize::from(folder.is_empty());
        // SAFETY: a string that ends with a zero.
        unsafe { is_executable(buffer[start..].as_ptr().cast()) }
    })
}

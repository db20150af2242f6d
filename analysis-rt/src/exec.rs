//! The end of a process by `exec`, which may fail.
//!
//! Inserted code calls [`exec`] before the program's own call. The runtime ends there as at any
//! other end, but is ready to go on: if the call fails, the program does, and
//! what is counted meanwhile is in the totals of the real end, which
//! replace those written here. Programs look for a file in several places by calling
//! `execve` for each; so nothing is done where the file is not there.

use core::ffi::c_char;

use crate::env;
use crate::start;
use crate::string::strlen;
use crate::sys::{nr, syscall};

/// How the file to execute is given: by its path.
const BY_PATH: usize = 0;
/// By a name that is looked up in `PATH` if it has no slash.
const BY_NAME: usize = 1;

const AT_FDCWD: isize = -100;
const X_OK: usize = 1;
/// Longest path that is looked at, with its end.
const MOST: usize = 4096;

/// Ends the runtime, for the time being, if the process may become another program now.
///
/// # Safety
/// Called by the instrumented program after [`start`](start::start), with what
/// it passes to a function of the `exec` family. `how` is 0 for a path, 1 for
/// a name, 2 for anything else, which is not looked at.
pub unsafe extern "C" fn exec(file: *const c_char, how: usize) {
    // SAFETY: the kernel tells a bad pointer by an error; it is read only if it is good.
    let there = match how {
        BY_PATH => unsafe { is_executable(file) },
        BY_NAME => unsafe { is_found(file) },
        _ => true,
    };
    if there {
        // SAFETY: the caller's promise.
        unsafe { start::finish_for_now() };
    }
}

unsafe fn is_executable(file: *const c_char) -> bool {
    // SAFETY: the kernel reads the string, or answers EFAULT.
    unsafe { syscall!(nr::FACCESSAT, AT_FDCWD, file, X_OK) == 0 }
}

/// True if the name is that of a file, or if that is not known.
unsafe fn is_found(name: *const c_char) -> bool {
    // SAFETY: the program passes a string; libc reads it next.
    let name = unsafe {
        if name.is_null() {
            return false;
        }
        core::slice::from_raw_parts(name.cast::<u8>(), strlen(name))
    };
    if name.contains(&b'/') {
        // SAFETY: as above.
        return unsafe { is_executable(name.as_ptr().cast()) };
    }
    // SAFETY: a constant string; variables are strings.
    let path = unsafe {
        let path = env::getenv(c"PATH".as_ptr());
        if path.is_null() {
            return true;
        }
        core::slice::from_raw_parts(path.cast::<u8>(), strlen(path))
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

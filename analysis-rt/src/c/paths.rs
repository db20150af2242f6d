//! The current directory and canonical paths.

use core::ffi::c_char;
use core::ptr::null_mut;

use crate::heap::alloc::{alloc, free};
use crate::sys::call::syscall;
use crate::threads::current::set_errno;

const PATH_MAX: usize = libc::PATH_MAX as usize;

/// Null, with `errno` set.
fn failed(error: i32) -> *mut c_char {
    set_errno(error);
    null_mut()
}

/// # Safety
/// As C's function; a null buffer asks for one from the heap.
pub(crate) unsafe extern "C" fn getcwd(buffer: *mut c_char, size: usize) -> *mut c_char {
    let own = buffer.is_null();
    let size = if own && size == 0 { PATH_MAX } else { size };
    let target = if own { alloc(size).cast() } else { buffer };
    if target.is_null() {
        return failed(libc::ENOMEM);
    }
    // SAFETY: `size` bytes are writable at the target.
    let r = unsafe { syscall!(libc::SYS_getcwd, target, size) };
    if r < 0 {
        if own {
            // SAFETY: allocated above.
            unsafe { free(target.cast()) };
        }
        return failed(-r as i32);
    }
    target
}

/// `realpath`: the kernel resolves the path when it opens the file, and /proc has the result.
///
/// # Safety
/// As C's function; a null buffer asks for one from the heap.
pub(crate) unsafe extern "C" fn realpath(path: *const c_char, buffer: *mut c_char) -> *mut c_char {
    const FLAGS: i32 = libc::O_PATH | libc::O_CLOEXEC;
    const FOLDER: &[u8] = b"/proc/self/fd/";
    const MOST_DIGITS: usize = 10;
    let own = buffer.is_null();
    // SAFETY: the caller's promise about both; what is opened is closed here,
    // and at most PATH_MAX - 1 bytes and a null are written.
    unsafe {
        let fd = syscall!(libc::SYS_openat, libc::AT_FDCWD, path, FLAGS, 0);
        if fd < 0 {
            return failed(-fd as i32);
        }
        let target = if own { alloc(PATH_MAX).cast() } else { buffer };
        let mut link = [0u8; FOLDER.len() + MOST_DIGITS + 1];
        link[..FOLDER.len()].copy_from_slice(FOLDER);
        let mut digits = [0u8; MOST_DIGITS];
        let (mut n, mut rest) = (0, fd as u32);
        while n == 0 || rest != 0 {
            digits[n] = b'0' + (rest % 10) as u8;
            rest /= 10;
            n += 1;
        }
        for i in 0..n {
            link[FOLDER.len() + i] = digits[n - 1 - i];
        }
        let r = if target.is_null() {
            -(libc::ENOMEM as isize)
        } else {
            syscall!(libc::SYS_readlink, link.as_ptr(), target, PATH_MAX - 1)
        };
        syscall!(libc::SYS_close, fd);
        if r < 0 || r as usize >= PATH_MAX - 1 {
            if own {
                free(target.cast());
            }
            return failed(if r < 0 { -r as i32 } else { libc::ENAMETOOLONG });
        }
        target.add(r as usize).write(0);
        target
    }
}

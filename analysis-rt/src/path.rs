//! The current directory and canonical paths.

use core::ffi::c_char;
use core::ptr::null_mut;

use crate::heap;
use crate::sys::{AT_FDCWD, errno, nr, syscall};
use crate::tls::set_errno;

const PATH_MAX: usize = 4096;

fn failed(error: i32) -> *mut c_char {
    set_errno(error);
    null_mut()
}

/// # Safety
/// As C's function; a null buffer asks for one from the heap.
pub(crate) unsafe extern "C" fn getcwd(buffer: *mut c_char, size: usize) -> *mut c_char {
    let own = buffer.is_null();
    let size = if own && size == 0 { PATH_MAX } else { size };
    let target = if own {
        heap::alloc(size).cast()
    } else {
        buffer
    };
    if target.is_null() {
        return failed(errno::ENOMEM);
    }
    // SAFETY: `size` bytes are writable at the target.
    let r = unsafe { syscall!(nr::GETCWD, target, size) };
    if r < 0 {
        if own {
            // SAFETY: allocated above.
            unsafe { heap::free(target.cast()) };
        }
        return failed(-r as i32);
    }
    target
}

/// `realpath`: the kernel resolves the path when it opens it, and /proc says to what.
///
/// # Safety
/// As C's function; a null buffer asks for one from the heap.
pub(crate) unsafe extern "C" fn realpath(path: *const c_char, buffer: *mut c_char) -> *mut c_char {
    const PATH_CLOEXEC: usize = 0o12000000;
    let own = buffer.is_null();
    // SAFETY: the caller's promise about both; what is opened is closed here,
    // and at most PATH_MAX - 1 bytes and a null are written.
    unsafe {
        let fd = syscall!(nr::OPENAT, AT_FDCWD, path, PATH_CLOEXEC, 0);
        if fd < 0 {
            return failed(-fd as i32);
        }
        let target = if own {
            heap::alloc(PATH_MAX).cast()
        } else {
            buffer
        };
        let mut link = *b"/proc/self/fd/\0\0\0\0\0\0\0\0\0\0\0";
        let mut digits = [0u8; 10];
        let (mut n, mut rest) = (0, fd as u32);
        while n == 0 || rest != 0 {
            digits[n] = b'0' + (rest % 10) as u8;
            rest /= 10;
            n += 1;
        }
        for i in 0..n {
            link[14 + i] = digits[n - 1 - i];
        }
        let r = if target.is_null() {
            -(errno::ENOMEM as isize)
        } else {
            syscall!(nr::READLINK, link.as_ptr(), target, PATH_MAX - 1)
        };
        syscall!(nr::CLOSE, fd);
        if r < 0 || r as usize >= PATH_MAX - 1 {
            if own {
                heap::free(target.cast());
            }
            return failed(if r < 0 {
                -r as i32
            } else {
                errno::ENAMETOOLONG
            });
        }
        target.add(r as usize).write(0);
        target
    }
}

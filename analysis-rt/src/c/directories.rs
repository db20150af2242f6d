//! Reading directories.
//!
//! ABI: the records of `getdents64` have the layout of C's `struct dirent64`,
//! so callers get pointers into the buffer. A `DIR` is opaque.

use core::ffi::c_char;
use core::ptr::null_mut;

use crate::c::errno::check;
use crate::c::files::open;
use crate::heap::alloc::{alloc, free};
use crate::sys::call::syscall;
use crate::threads::current::set_errno;

/// Size in bytes of the buffer for records.
const BUFFER: usize = 8 << 10;

/// An open directory.
#[repr(C)]
pub(crate) struct Dir {
    buffer: [u64; BUFFER / 8],
    fd: isize,
    /// Bytes of the buffer: offset of the next record, and end of the records.
    at: usize,
    end: usize,
}

pub(crate) extern "C" fn fdopendir(fd: i32) -> *mut Dir {
    let dir = alloc(size_of::<Dir>()).cast::<Dir>();
    if dir.is_null() {
        set_errno(libc::ENOMEM);
        return dir;
    }
    // SAFETY: fresh memory of the right size; the buffer is read only as far as the kernel wrote.
    unsafe {
        (*dir).fd = fd as isize;
        (*dir).at = 0;
        (*dir).end = 0;
    }
    dir
}

/// # Safety
/// As C's function.
pub(crate) unsafe extern "C" fn opendir(path: *const c_char) -> *mut Dir {
    const FLAGS: i32 = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: the caller's promise.
    let fd = unsafe { open(path, FLAGS as usize, 0) };
    if fd < 0 {
        return null_mut();
    }
    let dir = fdopendir(fd as i32);
    if dir.is_null() {
        // SAFETY: nobody else knows this descriptor.
        unsafe { syscall!(libc::SYS_close, fd) };
    }
    dir
}

/// # Safety
/// As C's function.
pub(crate) unsafe extern "C" fn readdir(dir: *mut Dir) -> *mut u8 {
    const RECORD_LENGTH: usize = core::mem::offset_of!(libc::dirent64, d_reclen);
    // SAFETY: the directory is live; the kernel fills whole records.
    unsafe {
        let dir = &mut *dir;
        let buffer = dir.buffer.as_mut_ptr().cast::<u8>();
        if dir.at >= dir.end {
            let n = check(syscall!(libc::SYS_getdents64, dir.fd, buffer, BUFFER));
            if n <= 0 {
                return null_mut();
            }
            dir.at = 0;
            dir.end = n as usize;
        }
        let entry = buffer.add(dir.at);
        dir.at += entry.add(RECORD_LENGTH).cast::<u16>().read_unaligned() as usize;
        entry
    }
}

/// # Safety
/// As C's function.
pub(crate) unsafe extern "C" fn dirfd(dir: *mut Dir) -> i32 {
    // SAFETY: the directory is live.
    unsafe { (*dir).fd as i32 }
}

/// # Safety
/// As C's function.
pub(crate) unsafe extern "C" fn closedir(dir: *mut Dir) -> isize {
    // SAFETY: the directory is live and not used afterwards.
    unsafe {
        let fd = (*dir).fd;
        free(dir.cast());
        check(syscall!(libc::SYS_close, fd))
    }
}

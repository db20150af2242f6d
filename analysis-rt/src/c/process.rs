//! Signals, and questions about processes.

use core::ptr;

use crate::c::errno::check;
use crate::c::futex;
use crate::sys::call::{self, call6, syscall};
use crate::sys::fatal::fatal;
use crate::sys::memory::PAGE;
use crate::threads::current::set_errno;

pub(crate) extern "C" fn getpid() -> i32 {
    call::getpid() as i32
}

/// Stands for all imports that the runtime lacks. `atom` refuses a tool
/// whose routines plainly reach one; an indirect call ends here.
pub(crate) extern "C" fn missing() -> ! {
    fatal("an analysis routine called a C function that does not exist here")
}

/// `sigaction`: reports the default action, since the C library's view is not known here. It refuses
/// a change: handlers are the application's.
///
/// # Safety
/// As C's `sigaction`.
pub(crate) unsafe extern "C" fn sigaction(_signal: i32, new: *const u8, old: *mut u8) -> i32 {
    if !new.is_null() {
        set_errno(libc::EPERM);
        return -1;
    }
    if !old.is_null() {
        // SAFETY: C's contract.
        unsafe { ptr::write_bytes(old, 0, size_of::<libc::sigaction>()) };
    }
    0
}

/// `signal`, `sigaltstack`, `pthread_sigmask`, `chdir` and the like: refused,
/// because they would change the application's state.
pub(crate) extern "C" fn refused() -> isize {
    set_errno(libc::EPERM);
    -1
}

pub(crate) extern "C" fn sysconf(name: i32) -> isize {
    match name {
        libc::_SC_PAGESIZE => PAGE as isize,
        libc::_SC_NPROCESSORS_CONF | libc::_SC_NPROCESSORS_ONLN => {
            let mut mask = [0u64; 128];
            // SAFETY: the kernel writes at most the size given.
            let n = unsafe {
                syscall!(
                    libc::SYS_sched_getaffinity,
                    0,
                    size_of_val(&mask),
                    mask.as_mut_ptr()
                )
            };
            if n <= 0 {
                1
            } else {
                mask.iter().map(|w| w.count_ones() as isize).sum()
            }
        }
        _ => {
            set_errno(libc::EINVAL);
            -1
        }
    }
}

/// C's variadic `syscall`.
///
/// ABI: variadic integers are passed like fixed ones, in registers and then on
/// the stack, so a function with seven fixed ones receives them all; those
/// that the caller did not pass are rubbish that the kernel does not look at.
///
/// # Safety
/// As for the system call.
pub(crate) unsafe extern "C" fn raw_syscall(
    n: usize,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> isize {
    let args = [a, b, c, d, e, f];
    // SAFETY: the caller's promise.
    unsafe {
        check(if n == libc::SYS_futex as usize {
            futex::call(args)
        } else {
            call6(n, args)
        })
    }
}

/// `sched_getaffinity`: C answers 0 where the kernel answers a length.
///
/// # Safety
/// As C's function.
pub(crate) unsafe extern "C" fn sched_getaffinity(pid: i32, size: usize, mask: *mut u8) -> i32 {
    // SAFETY: the caller's promise.
    unsafe {
        let n = check(syscall!(libc::SYS_sched_getaffinity, pid, size, mask));
        if n < 0 {
            return -1;
        }
        ptr::write_bytes(mask.add(n as usize), 0, size.saturating_sub(n as usize));
    }
    0
}

/// `__xpg_strerror_r`: "error N", and names for the errors that matter most.
///
/// # Safety
/// As C's function.
pub(crate) unsafe extern "C" fn strerror_r(error: i32, buffer: *mut u8, len: usize) -> i32 {
    let text: &str = match error {
        libc::EPERM => "Operation not permitted",
        libc::ENOENT => "No such file or directory",
        libc::ESRCH => "No such process",
        libc::EINTR => "Interrupted system call",
        libc::EIO => "Input/output error",
        libc::EBADF => "Bad file descriptor",
        libc::EAGAIN => "Resource temporarily unavailable",
        libc::ENOMEM => "Cannot allocate memory",
        libc::EACCES => "Permission denied",
        libc::EFAULT => "Bad address",
        libc::EEXIST => "File exists",
        libc::EXDEV => "Invalid cross-device link",
        libc::ENOTDIR => "Not a directory",
        libc::EISDIR => "Is a directory",
        libc::EINVAL => "Invalid argument",
        libc::ENFILE => "Too many open files in system",
        libc::EMFILE => "Too many open files",
        libc::EFBIG => "File too large",
        libc::ENOSPC => "No space left on device",
        libc::EROFS => "Read-only file system",
        libc::EPIPE => "Broken pipe",
        libc::ENAMETOOLONG => "File name too long",
        libc::ENOSYS => "Function not implemented",
        libc::ENOTEMPTY => "Directory not empty",
        libc::ELOOP => "Too many levels of symbolic links",
        _ => "Unknown error",
    };
    if len <= text.len() {
        return libc::ERANGE;
    }
    // SAFETY: C's contract: `len` bytes are writable.
    unsafe {
        ptr::copy_nonoverlapping(text.as_ptr(), buffer, text.len());
        buffer.add(text.len()).write(0);
    }
    0
}

//! Ending the process, signals, and questions about processes.

use core::ptr;

use crate::futex;
use crate::start;
use crate::sys::{self, PAGE, errno, nr, syscall};
use crate::tls::set_errno;

pub(crate) extern "C" fn getpid() -> i32 {
    sys::getpid() as i32
}

/// What imports are bound to that the runtime lacks. `atom` refuses a tool
/// whose routines plainly reach one; a call by a roundabout way ends here.
pub(crate) extern "C" fn missing() -> ! {
    sys::fatal("an analysis routine called a C function that does not exist here")
}

/// `_exit`: at once, without the ProgramAfter calls.
pub(crate) extern "C" fn exit_now(code: i32) -> ! {
    loop {
        // SAFETY: ends the process.
        unsafe { syscall!(nr::EXIT_GROUP, code) };
    }
}

/// `exit` by an analysis routine: the program ends here, as the tool wishes.
pub(crate) extern "C" fn exit(code: i32) -> ! {
    // SAFETY: analysis code runs only after the start.
    unsafe { start::finish() };
    exit_now(code)
}

/// Dies by SIGABRT even if the application handles, ignores or blocks it.
pub(crate) extern "C" fn abort() -> ! {
    const SIGABRT: usize = 6;
    const SIG_UNBLOCK: usize = 1;
    let default = [0usize; 4];
    let set = 1u64 << (SIGABRT - 1);
    // SAFETY: the process ends; its handlers no longer matter. The kernel's
    // action is {handler, flags, restorer, mask}: all zero is the default.
    unsafe {
        syscall!(nr::RT_SIGACTION, SIGABRT, default.as_ptr(), 0, 8);
        syscall!(nr::RT_SIGPROCMASK, SIG_UNBLOCK, &raw const set, 0, 8);
        syscall!(nr::TGKILL, sys::getpid(), sys::gettid(), SIGABRT);
    }
    exit_now(134)
}

/// `sigaction`: a question is answered with "default" for lack of the C
/// library's view, a change is refused: handlers are the application's.
///
/// # Safety
/// As C's `sigaction`; its structure has 152 bytes.
pub(crate) unsafe extern "C" fn sigaction(_signal: i32, new: *const u8, old: *mut u8) -> i32 {
    if !new.is_null() {
        set_errno(errno::EPERM);
        return -1;
    }
    if !old.is_null() {
        // SAFETY: C's contract.
        unsafe { ptr::write_bytes(old, 0, 152) };
    }
    0
}

/// `signal`, `sigaltstack`, `pthread_sigmask`, `chdir` and the like: refused,
/// for they would change the application's state.
pub(crate) extern "C" fn refused() -> isize {
    set_errno(errno::EPERM);
    -1
}

pub(crate) extern "C" fn sysconf(name: i32) -> isize {
    const PAGESIZE: i32 = 30;
    const NPROCESSORS_CONF: i32 = 83;
    const NPROCESSORS_ONLN: i32 = 84;
    match name {
        PAGESIZE => PAGE as isize,
        NPROCESSORS_CONF | NPROCESSORS_ONLN => {
            let mut mask = [0u64; 128];
            // SAFETY: the kernel writes at most the size given.
            let n = unsafe {
                syscall!(
                    nr::SCHED_GETAFFINITY,
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
            set_errno(errno::EINVAL);
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
        sys::check(if n == nr::FUTEX {
            futex::call(args)
        } else {
            sys::call6(n, args)
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
        let n = sys::check(syscall!(nr::SCHED_GETAFFINITY, pid, size, mask));
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
        1 => "Operation not permitted",
        2 => "No such file or directory",
        3 => "No such process",
        4 => "Interrupted system call",
        5 => "Input/output error",
        9 => "Bad file descriptor",
        11 => "Resource temporarily unavailable",
        12 => "Cannot allocate memory",
        13 => "Permission denied",
        14 => "Bad address",
        17 => "File exists",
        18 => "Invalid cross-device link",
        20 => "Not a directory",
        21 => "Is a directory",
        22 => "Invalid argument",
        23 => "Too many open files in system",
        24 => "Too many open files",
        27 => "File too large",
        28 => "No space left on device",
        30 => "Read-only file system",
        32 => "Broken pipe",
        36 => "File name too long",
        38 => "Function not implemented",
        39 => "Directory not empty",
        40 => "Too many levels of symbolic links",
        _ => "Unknown error",
    };
    if len <= text.len() {
        return errno::ERANGE;
    }
    // SAFETY: C's contract: `len` bytes are writable.
    unsafe {
        ptr::copy_nonoverlapping(text.as_ptr(), buffer, text.len());
        buffer.add(text.len()).write(0);
    }
    0
}

//! Clocks and sleeping.

use crate::c::errno::check;
use crate::sys::call::syscall;

/// # Safety
/// As C's function.
pub(crate) unsafe extern "C" fn clock_gettime(clock: i32, out: *mut [i64; 2]) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { check(syscall!(libc::SYS_clock_gettime, clock, out)) as i32 }
}

/// `clock_nanosleep`: returns the error number itself, not -1, as POSIX demands.
///
/// # Safety
/// As C's function.
pub(crate) unsafe extern "C" fn clock_nanosleep(
    clock: i32,
    flags: i32,
    time: *const [i64; 2],
    left: *mut [i64; 2],
) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { -syscall!(libc::SYS_clock_nanosleep, clock, flags, time, left) as i32 }
}

/// # Safety
/// As C's function.
pub(crate) unsafe extern "C" fn nanosleep(time: *const [i64; 2], left: *mut [i64; 2]) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { check(syscall!(libc::SYS_nanosleep, time, left)) as i32 }
}

/// # Safety
/// As C's function.
pub(crate) unsafe extern "C" fn time(out: *mut i64) -> isize {
    // SAFETY: the caller's promise.
    unsafe { syscall!(libc::SYS_time, out) }
}

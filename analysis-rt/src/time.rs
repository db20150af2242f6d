//! Clocks and sleeping.

use crate::sys::{call6, check, nr, syscall};

/// # Safety
/// As C's function.
pub(crate) unsafe extern "C" fn clock_gettime(clock: i32, out: *mut [i64; 2]) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { check(syscall!(nr::CLOCK_GETTIME, clock, out)) as i32 }
}

/// Answers the error itself, not -1, as POSIX has it for this one.
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
    unsafe { -syscall!(nr::CLOCK_NANOSLEEP, clock, flags, time, left) as i32 }
}

/// # Safety
/// As C's function.
pub(crate) unsafe extern "C" fn nanosleep(time: *const [i64; 2], left: *mut [i64; 2]) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { check(syscall!(nr::NANOSLEEP, time, left)) as i32 }
}

/// # Safety
/// As C's function.
pub(crate) unsafe extern "C" fn time(out: *mut i64) -> isize {
    // SAFETY: the caller's promise.
    unsafe { call6(nr::TIME, [out as usize, 0, 0, 0, 0, 0]) }
}

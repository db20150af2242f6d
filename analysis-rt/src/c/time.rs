//! Clocks and sleeping.

use core::sync::atomic::{AtomicI64, Ordering};

use crate::c::errno::check;
use crate::sys::call::syscall;
use crate::sys::sandbox;

/// # Safety
/// As C's function.
pub(crate) unsafe extern "C" fn clock_gettime(clock: i32, out: *mut [i64; 2]) -> i32 {
    let last = LAST.get(clock as usize);
    // SAFETY: the caller's promise.
    unsafe {
        let answer = syscall!(libc::SYS_clock_gettime, clock, out);
        match last {
            Some(last) if answer == 0 => {
                for (word, now) in last.iter().zip(*out) {
                    word.store(now, Ordering::Relaxed);
                }
            }
            Some(last) if sandbox::is_denied(libc::SYS_clock_gettime) => {
                *out = last.each_ref().map(|word| word.load(Ordering::Relaxed));
                return 0;
            }
            _ => {}
        }
        check(answer) as i32
    }
}

/// What the clocks CLOCK_REALTIME and CLOCK_MONOTONIC have said last: they stop for a process that has forbidden itself to
/// read them.
static LAST: [[AtomicI64; 2]; 2] = [const { [const { AtomicI64::new(0) }; 2] }; 2];

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

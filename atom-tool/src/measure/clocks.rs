//! Clocks that analysis routines read.
//!
//! `std::time::Instant` works, too. The functions here return plain numbers, and one reads the
//! processor's counter, which is by far the cheapest: reading a clock of the system is a system
//! call in an analysis routine.

use std::ffi::{c_int, c_long};

const CLOCK_REALTIME: c_int = 0;
const CLOCK_MONOTONIC: c_int = 1;
const CLOCK_THREAD_CPUTIME_ID: c_int = 3;
const SYS_GETITIMER: c_long = 36;
const SYS_SETITIMER: c_long = 38;
const ITIMER_PROF: c_int = 2;

unsafe extern "C" {
    fn clock_gettime(clock: c_int, time: *mut [i64; 2]) -> c_int;
    fn syscall(number: c_long, ...) -> c_long;
}

fn nanoseconds(clock: c_int) -> u64 {
    let mut time = [0; 2];
    // SAFETY: a `struct timespec` is two of these words.
    unsafe { clock_gettime(clock, &raw mut time) };
    time[0] as u64 * 1_000_000_000 + time[1] as u64
}

/// The processor's time-stamp counter. Compare it with [`monotonic`] to find its rate.
#[inline(always)]
pub fn time_stamp() -> u64 {
    // SAFETY: every x86-64 processor has it, and Linux lets programs read it.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Nanoseconds of `CLOCK_MONOTONIC`.
pub fn monotonic() -> u64 {
    nanoseconds(CLOCK_MONOTONIC)
}

/// Nanoseconds since 1970.
pub fn since_1970() -> u64 {
    nanoseconds(CLOCK_REALTIME)
}

/// Nanoseconds of processor time that the running thread has used.
pub fn thread_cpu() -> u64 {
    nanoseconds(CLOCK_THREAD_CPUTIME_ID)
}

/// The timer `ITIMER_PROF`: the processor time of the process, as a timer that counts
/// downwards. There is one in a process, and the program may use it itself.
#[derive(Clone, Copy, Debug)]
pub struct ProfTimer;

impl ProfTimer {
    /// Seconds from which the timer counts downwards: several years of processor time.
    pub const SECONDS: i64 = 100_000_000;

    /// Starts the timer, unless it runs already. True if it counts from [`Self::SECONDS`] now.
    pub fn start() -> bool {
        if Self::left() != 0 {
            return false;
        }
        // Interval and value, each in seconds and microseconds.
        let value = [0, 0, Self::SECONDS, 0];
        // SAFETY: a `struct itimerval` is four words.
        unsafe { syscall(SYS_SETITIMER, ITIMER_PROF, value.as_ptr(), 0usize) == 0 }
    }

    /// Microseconds left; 0 if the timer does not run.
    pub fn left() -> u64 {
        let mut value = [0i64; 4];
        // SAFETY: as above.
        unsafe { syscall(SYS_GETITIMER, ITIMER_PROF, value.as_mut_ptr()) };
        value[2] as u64 * 1_000_000 + value[3] as u64
    }
}

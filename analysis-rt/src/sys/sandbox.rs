//! System calls that the process has forbidden itself by seccomp filters. The kernel ends a process at a call
//! that a filter forbids, so the runtime must not make such a call where the application would not. [`super::call`] fails
//! with EPERM instead.
//!
//! Filters are only added, never removed, and forked children inherit them, as they inherit the table. A filter of one
//! thread counts for all threads. `process::filters` fills the table.

use core::arch::asm;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Number of system calls in the table; later ones count as forbidden.
const CALLS: usize = 512;

/// A bit for each system call: set if it is forbidden, or may be.
static FORBIDDEN: [AtomicU64; CALLS / 64] = [const { AtomicU64::new(0) }; CALLS / 64];
/// As [`FORBIDDEN`], for calls that fail.
static FAILING: [AtomicU64; CALLS / 64] = [const { AtomicU64::new(0) }; CALLS / 64];
/// As [`FORBIDDEN`], for calls that are certainly forbidden.
static DENIED: [AtomicU64; CALLS / 64] = [const { AtomicU64::new(0) }; CALLS / 64];
static HAS_FILTER: AtomicBool = AtomicBool::new(false);

/// What a filter does with a system call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Effect {
    /// The call is made.
    Passes,
    /// It fails with an error.
    Fails,
    /// The process ends.
    Ends,
    /// That depends on its arguments, or nobody knows.
    Depends,
}

/// System calls without which no report can be made.
const NEEDED: [i64; 6] = [
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_openat,
    libc::SYS_write,
    libc::SYS_mmap,
    libc::SYS_rt_sigprocmask,
];

/// System calls that tools make when they report.
const REPORTING: [i64; 19] = [
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_openat,
    libc::SYS_write,
    libc::SYS_close,
    libc::SYS_fcntl,
    libc::SYS_flock,
    libc::SYS_statx,
    libc::SYS_renameat2,
    libc::SYS_rename,
    libc::SYS_uname,
    libc::SYS_sched_getaffinity,
    libc::SYS_clock_gettime,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_rt_sigprocmask,
    libc::SYS_nanosleep,
    libc::SYS_exit_group,
];

/// True if no filter ends the process at this system call.
pub(crate) fn is_allowed(number: i64) -> bool {
    if !HAS_FILTER.load(Ordering::Relaxed) {
        return true;
    }
    is_clear(&FORBIDDEN, number)
}

/// True if a system call must not be made, as a filter certainly ends the process there. The last resort, `exit`, is no such
/// call.
#[inline]
pub(crate) fn is_denied(number: i64) -> bool {
    HAS_FILTER.load(Ordering::Relaxed) && is_denied_by_filter(number)
}

#[cold]
fn is_denied_by_filter(number: i64) -> bool {
    number != libc::SYS_exit && !is_clear(&DENIED, number) && !is_free()
}

/// The stack of a process that shares the memory and has no filter: its lowest address, and its end.
static FREE_STACK: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// From now on what runs on this stack may make all system calls.
pub(crate) fn free(stack: Range<usize>) {
    FREE_STACK[0].store(stack.start, Ordering::Relaxed);
    FREE_STACK[1].store(stack.end, Ordering::Relaxed);
}

/// True on the stack of [`free`].
fn is_free() -> bool {
    let at: usize;
    // SAFETY: reads the stack pointer.
    unsafe { asm!("mov {}, rsp", out(reg) at, options(nomem, nostack, preserves_flags)) };
    let [start, end] = FREE_STACK.each_ref().map(|a| a.load(Ordering::Relaxed));
    (start..end).contains(&at)
}

/// Forgets all filters: the process that had them is gone, and another one acts for it.
pub(crate) fn lift() {
    HAS_FILTER.store(false, Ordering::Relaxed);
}

/// True if a system call is in a table, and its bit is not set.
fn is_clear(bits: &[AtomicU64], number: i64) -> bool {
    let number = number as usize;
    let word = bits.get(number / 64);
    word.is_some_and(|word| word.load(Ordering::Relaxed) >> (number % 64) & 1 == 0)
}

/// True if the process can make the system calls of a report.
pub(crate) fn may_report() -> bool {
    let works = |n: &i64| is_clear(&FAILING, *n);
    !HAS_FILTER.load(Ordering::Relaxed)
        || REPORTING.iter().all(|n| is_allowed(*n)) && NEEDED.iter().all(works)
}

/// Notes what a new filter does with system calls.
pub(crate) fn forbid(effect: impl Fn(usize) -> Effect) {
    for number in 0..CALLS {
        let bits = match effect(number) {
            Effect::Passes => continue,
            Effect::Fails => &[&FAILING][..],
            Effect::Ends => &[&FORBIDDEN, &DENIED],
            Effect::Depends => &[&FORBIDDEN],
        };
        for bits in bits {
            bits[number / 64].fetch_or(1 << (number % 64), Ordering::Relaxed);
        }
    }
    HAS_FILTER.store(true, Ordering::Relaxed);
}

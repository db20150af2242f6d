//! System calls that the process has forbidden itself by seccomp filters. The kernel ends a process at a call
//! that a filter forbids, so the runtime must not make such a call where the application would not.
//!
//! Filters are only added, never removed, and forked children inherit them, as they inherit the table. A filter of one
//! thread counts for all threads. [`super::filters`] fills the table.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Number of system calls in the table; later ones count as forbidden.
const CALLS: usize = 512;

/// A bit for each system call: set if it is forbidden.
static FORBIDDEN: [AtomicU64; CALLS / 64] = [const { AtomicU64::new(0) }; CALLS / 64];
static HAS_FILTER: AtomicBool = AtomicBool::new(false);

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
    let number = number as usize;
    let word = FORBIDDEN.get(number / 64);
    word.is_some_and(|word| word.load(Ordering::Relaxed) >> (number % 64) & 1 == 0)
}

/// True if the process may make the system calls of a report.
pub(crate) fn may_report() -> bool {
    !HAS_FILTER.load(Ordering::Relaxed) || REPORTING.iter().all(|n| is_allowed(*n))
}

/// Notes the system calls that a new filter forbids.
pub(crate) fn forbid(is_forbidden: impl Fn(usize) -> bool) {
    for number in (0..CALLS).filter(|n| is_forbidden(*n)) {
        FORBIDDEN[number / 64].fetch_or(1 << (number % 64), Ordering::Relaxed);
    }
    HAS_FILTER.store(true, Ordering::Relaxed);
}

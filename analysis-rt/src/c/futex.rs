//! Waiting for locks, and ending waits for which no wake-up can come.
//!
//! `std`'s locks wait in the kernel until the lock's holder wakes them.
//! In three situations of instrumented programs no thread can do that:
//! - A program with several threads forks while another thread is inside an
//!   analysis routine. The child has the locked lock but not the thread.
//! - A signal handler enters analysis code on the thread that holds the lock.
//!
//! - The process was killed while a thread held the lock, and the watcher reports.
//!
//! The watcher takes such locks over. In the other situations the waiter is the only thread of its process. So a wait without a
//! time limit is cut into short ones. When one of them runs out and the process has no other thread,
//! a forked child takes the lock over (its holder does not exist there),
//! and the original process ends with an explanation instead of hanging.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::process::identity::{self, ProcessKind};
use crate::sys::call::{call6, getpid, gettid, syscall};
use crate::sys::fatal::fatal;
use crate::sys::spin::holders_are_gone;

/// Operation without the private and clock flags.
const COMMAND: i32 = libc::FUTEX_CMD_MASK;
/// Length of one wait in nanoseconds.
const PATIENCE_NS: i64 = 100_000_000;
const NS_PER_SECOND: i64 = 1_000_000_000;
/// Most locks that a forked child takes over. No process holds more when it forks, so another mistake is
/// likely then.
const MOST_TAKEN: u32 = 1000;

/// The futex system call. Its arguments are word, operation, value, timeout, second word, bits.
///
/// # Safety
/// As for the system call.
pub(crate) unsafe fn call(a: [usize; 6]) -> isize {
    let command = a[1] as i32 & COMMAND;
    let has_timeout = a[3] != 0;
    if (command != libc::FUTEX_WAIT && command != libc::FUTEX_WAIT_BITSET) || has_timeout {
        // SAFETY: the caller's promise.
        return unsafe { call6(libc::SYS_futex as usize, a) };
    }
    let mut limit = [0i64, PATIENCE_NS];
    let mut op = a[1];
    // SAFETY: the caller's promise; the time limit lives during the call.
    let r = unsafe {
        if command == libc::FUTEX_WAIT_BITSET {
            // This operation takes a point in time, on the monotonic clock.
            op &= !(libc::FUTEX_CLOCK_REALTIME as usize);
            syscall!(
                libc::SYS_clock_gettime,
                libc::CLOCK_MONOTONIC,
                limit.as_mut_ptr()
            );
            limit[1] += PATIENCE_NS;
            if limit[1] >= NS_PER_SECOND {
                limit = [limit[0] + 1, limit[1] - NS_PER_SECOND];
            }
        }
        call6(
            libc::SYS_futex as usize,
            [a[0], op, a[2], limit.as_ptr() as usize, a[4], a[5]],
        )
    };
    if r != -(libc::ETIMEDOUT as isize) {
        return r;
    }
    if alone() || holders_are_gone() {
        // SAFETY: the caller's promise: a futex word.
        nobody_will_wake(unsafe { &*(a[0] as *const AtomicU32) }, a[2] as u32);
    }
    // The caller sees a spurious wake-up, for which it must be prepared.
    0
}

/// Ends a wait for a lock whose holder cannot release it.
fn nobody_will_wake(word: &AtomicU32, value: u32) {
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    match identity::kind() {
        _ if holders_are_gone() => {
            let _ = word.compare_exchange(value, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
        ProcessKind::Original => fatal(
            "an analysis routine waits for a lock that its own thread holds: \
             a signal handler entered it a second time",
        ),
        ProcessKind::Forked => {
            if TAKEN.fetch_add(1, Ordering::Relaxed) > MOST_TAKEN {
                fatal(
                    "an analysis routine waits for a thread that this forked child does not have",
                );
            }
            // 0 is "free" for `std`'s Mutex and RwLock.
            let _ = word.compare_exchange(value, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
        ProcessKind::Other => {}
    }
}

/// Whether this is certainly the only thread of its process, and no watcher reports. The directory of
/// threads has two links, and one more for each thread.
fn alone() -> bool {
    const LINKS_OF_ONE_THREAD: u64 = 3;
    // SAFETY: all zeros are a valid structure of numbers.
    let mut stat: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: the kernel reads a C string and writes a `struct stat`.
    let r = unsafe {
        syscall!(
            libc::SYS_newfstatat,
            libc::AT_FDCWD,
            c"/proc/self/task".as_ptr(),
            &raw mut stat,
            0
        )
    };
    r == 0
        && stat.st_nlink == LINKS_OF_ONE_THREAD
        && gettid() == getpid()
        && !identity::watcher_reports()
}

//! Waiting for locks, with an eye on waits that can never end.
//!
//! `std`'s locks wait in the kernel for a wake-up by whoever holds the lock.
//! Two situations of instrumented programs leave nobody to do that:
//! - A program with several threads forks while another thread is inside an
//!   analysis routine. The child has the locked lock but not the thread.
//! - A signal handler enters analysis code on the thread that holds the lock.
//!
//! In both the waiter is the only thread of its process. So a wait without a
//! time limit is cut into short ones, and when one runs out and nobody else is
//! there, a forked child takes the lock over (its holder will not miss it),
//! and the original process ends with an explanation instead of hanging.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::start::{self, Kind};
use crate::sys::{self, AT_FDCWD, call6, fatal, nr, syscall};

const WAIT: usize = 0;
const WAIT_BITSET: usize = 9;
/// Without the private and clock flags.
const COMMAND: usize = 0x7F;
const CLOCK_REALTIME: usize = 256;
const PATIENCE_NS: i64 = 100_000_000;
const ETIMEDOUT: isize = -110;
/// More locks than this are not held when a process forks: something else is wrong.
const MOST_TAKEN: u32 = 1000;

/// The futex system call: word, operation, value, timeout, second word, bits.
///
/// # Safety
/// As for the system call.
pub(crate) unsafe fn call(a: [usize; 6]) -> isize {
    let command = a[1] & COMMAND;
    if (command != WAIT && command != WAIT_BITSET) || a[3] != 0 {
        // SAFETY: the caller's promise.
        return unsafe { call6(nr::FUTEX, a) };
    }
    let mut limit = [0i64, PATIENCE_NS];
    let mut op = a[1];
    // SAFETY: the caller's promise; the time limit lives during the call.
    let r = unsafe {
        if command == WAIT_BITSET {
            // This one takes a point in time, on the monotonic clock.
            const MONOTONIC: usize = 1;
            op &= !CLOCK_REALTIME;
            syscall!(nr::CLOCK_GETTIME, MONOTONIC, limit.as_mut_ptr());
            limit[1] += PATIENCE_NS;
            if limit[1] >= 1_000_000_000 {
                limit = [limit[0] + 1, limit[1] - 1_000_000_000];
            }
        }
        call6(
            nr::FUTEX,
            [a[0], op, a[2], limit.as_ptr() as usize, a[4], a[5]],
        )
    };
    if r != ETIMEDOUT {
        return r;
    }
    if alone() {
        // SAFETY: the caller's promise: a futex word.
        nobody_will_wake(unsafe { &*(a[0] as *const AtomicU32) }, a[2] as u32);
    }
    // To the caller a wake-up without cause, for which it must be prepared.
    0
}

fn nobody_will_wake(word: &AtomicU32, value: u32) {
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    match start::kind() {
        Kind::Original => fatal(
            "an analysis routine waits for a lock that its own thread holds: \
             a signal handler entered it a second time",
        ),
        Kind::Forked => {
            if TAKEN.fetch_add(1, Ordering::Relaxed) > MOST_TAKEN {
                fatal(
                    "an analysis routine waits for a thread that this forked child does not have",
                );
            }
            // 0 is "free" for `std`'s Mutex and RwLock.
            let _ = word.compare_exchange(value, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
        Kind::Other => {}
    }
}

/// Whether this is certainly the only thread of its process: the directory of
/// threads has two links and one more for each.
fn alone() -> bool {
    const LINKS_OFFSET: usize = 16 / 8;
    let mut stat = [0u64; 18];
    // SAFETY: a C string is read and a `struct stat`, 144 bytes, is written.
    let r = unsafe {
        syscall!(
            nr::NEWFSTATAT,
            AT_FDCWD,
            c"/proc/self/task".as_ptr(),
            stat.as_mut_ptr(),
            0
        )
    };
    r == 0 && stat[LINKS_OFFSET] == 3 && sys::gettid() == sys::getpid()
}

//! Keeping signals away from a routine that holds a lock.
//!
//! A handler of the application is instrumented like everything else. If it
//! interrupts a routine that holds a lock and enters the same one, it waits for
//! what it has interrupted. A thread that is cancelled there takes the lock
//! with it, for cancellation is a signal too. With signals blocked both happen
//! once the routine has ended. The application's mask comes back as it was.
//!
//! Signals by which the processor reports a fault stay: blocked, they would kill.

use core::marker::PhantomData;
use core::ptr;

use crate::sys::{errno, nr, syscall};

const BLOCK: usize = 0;
const SETMASK: usize = 2;
/// All but SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV and SIGSYS.
const MOST: u64 = !(1 << 3 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 10 | 1 << 30);

/// While it lives, signals for this thread wait.
pub struct Uninterrupted {
    before: u64,
    /// The mask is this thread's.
    _this_thread: PhantomData<*const ()>,
}

impl Uninterrupted {
    /// Blocks signals.
    #[inline]
    pub fn begin() -> Self {
        let mut before = 0u64;
        // SAFETY: reads one mask and writes the other, 8 bytes each.
        unsafe {
            syscall!(
                nr::RT_SIGPROCMASK,
                SETMASK,
                ptr::from_ref(&MOST),
                &raw mut before,
                8
            )
        };
        Self {
            before,
            _this_thread: PhantomData,
        }
    }
}

impl Drop for Uninterrupted {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: reads the mask.
        unsafe { syscall!(nr::RT_SIGPROCMASK, SETMASK, &raw const self.before, 0, 8) };
    }
}

/// SIGPIPE and SIGXFSZ: a pipe without a reader and a file grown too long kill who writes.
const OF_WRITES: u64 = 1 << 12 | 1 << 24;

/// Makes a system call that writes for the tool. The signal for what cannot be written is
/// taken back, so that the application neither dies of it nor handles it; the error stays.
pub(crate) fn without_write_signals(call: impl FnOnce() -> isize) -> isize {
    let (mut before, mut pending) = (0u64, 0u64);
    // SAFETY: reads and writes masks, 8 bytes each.
    unsafe {
        let new = ptr::from_ref(&OF_WRITES);
        syscall!(nr::RT_SIGPROCMASK, BLOCK, new, &raw mut before, 8);
        // Only what the application had blocked itself can be waiting already.
        if before & OF_WRITES != 0 {
            syscall!(nr::RT_SIGPENDING, &raw mut pending, 8);
        }
    }
    let result = call();
    let ours = OF_WRITES & !pending;
    let at_once = [0usize; 2];
    // SAFETY: as above; the signal is this thread's own, so it waits there by now.
    unsafe {
        if [errno::EPIPE, errno::EFBIG].contains(&(-result as i32)) {
            syscall!(nr::RT_SIGTIMEDWAIT, &raw const ours, 0, at_once.as_ptr(), 8);
        }
        syscall!(nr::RT_SIGPROCMASK, SETMASK, &raw const before, 0, 8);
    }
    result
}

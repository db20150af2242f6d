//! Keeping signals away from a routine that holds a lock.
//!
//! A handler of the application is instrumented like everything else. If it
//! interrupts a routine that holds a lock and enters the same routine, it waits for
//! the code that it has interrupted. A thread that is cancelled there takes the lock
//! with it, for cancellation is a signal too. With signals blocked both happen
//! once the routine has ended. The application's mask comes back as it was.
//!
//! Signals by which the processor reports a fault stay unblocked: a blocked one would kill the process.

use core::marker::PhantomData;
use core::ptr;

use crate::sys::call::syscall;

/// Size in bytes of the kernel's signal mask; C's `sigset_t` is larger.
pub(crate) const KERNEL_SIGSET_SIZE: usize = 8;

/// The bit of a signal in the kernel's mask.
pub(crate) const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// Signals that report a fault of the running instruction, or `abort`.
const FAULTS: u64 = bit(libc::SIGILL)
    | bit(libc::SIGTRAP)
    | bit(libc::SIGABRT)
    | bit(libc::SIGBUS)
    | bit(libc::SIGFPE)
    | bit(libc::SIGSEGV)
    | bit(libc::SIGSYS);

/// All signals that may wait.
const DEFERRABLE: u64 = !FAULTS;

/// Blocks signals of the calling thread, except those that report faults, until it is dropped.
pub struct Uninterrupted {
    before: u64,
    /// Keeps the value in its thread, whose mask it restores.
    _this_thread: PhantomData<*const ()>,
}

impl Uninterrupted {
    /// Blocks signals.
    #[inline]
    pub fn begin() -> Self {
        Self {
            before: change_mask(libc::SIG_SETMASK, DEFERRABLE),
            _this_thread: PhantomData,
        }
    }
}

impl Drop for Uninterrupted {
    #[inline]
    fn drop(&mut self) {
        change_mask(libc::SIG_SETMASK, self.before);
    }
}

/// Runs a piece of the runtime while all signals of the calling thread wait.
pub(crate) fn with_all_blocked<R>(run: impl FnOnce() -> R) -> R {
    let before = change_mask(libc::SIG_SETMASK, u64::MAX);
    let result = run();
    change_mask(libc::SIG_SETMASK, before);
    result
}

/// Changes the calling thread's mask; returns the one before.
#[inline]
fn change_mask(how: i32, mask: u64) -> u64 {
    let mut before = 0u64;
    // SAFETY: the kernel reads one mask and writes the other, each of the given size.
    unsafe {
        syscall!(
            libc::SYS_rt_sigprocmask,
            how,
            ptr::from_ref(&mask),
            &raw mut before,
            KERNEL_SIGSET_SIZE
        )
    };
    before
}

/// Signals that a write may raise: SIGPIPE for a pipe without a reader, SIGXFSZ for a file that
/// grows beyond its limit. The default action of both ends the process.
const OF_WRITES: u64 = bit(libc::SIGPIPE) | bit(libc::SIGXFSZ);

/// Makes a system call that writes `wanted` bytes for the tool. The signal that a failed write raises is
/// taken back, so that the application neither dies of it nor handles it; the error stays. A pipe whose reader goes in the
/// middle of a write raises it, too: the call returns the number of bytes until then.
pub(crate) fn without_write_signals(wanted: usize, call: impl FnOnce() -> isize) -> isize {
    let before = change_mask(libc::SIG_BLOCK, OF_WRITES);
    let mut pending = 0u64;
    // Only a signal that the application had blocked itself can be waiting already.
    if before & OF_WRITES != 0 {
        // SAFETY: the kernel writes a mask of the given size.
        unsafe {
            syscall!(
                libc::SYS_rt_sigpending,
                &raw mut pending,
                KERNEL_SIGSET_SIZE
            )
        };
    }
    let result = call();
    let is_partial = usize::try_from(result).is_ok_and(|written| written < wanted);
    if is_partial || [libc::EPIPE, libc::EFBIG].contains(&(-result as i32)) {
        let ours = OF_WRITES & !pending;
        let at_once = [0usize; 2];
        // SAFETY: the kernel reads mask and time limit. The signal is this thread's own, so it is
        // pending by now if there is one.
        unsafe {
            syscall!(
                libc::SYS_rt_sigtimedwait,
                &raw const ours,
                0,
                at_once.as_ptr(),
                KERNEL_SIGSET_SIZE
            )
        };
    }
    change_mask(libc::SIG_SETMASK, before);
    result
}

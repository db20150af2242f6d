//! Keeping signals away from a routine that holds a lock, and the routine away from the program's stack.
//!
//! A handler of the application is instrumented like everything else. If it
//! interrupts a routine that holds a lock and enters the same routine, it waits for
//! the code that it has interrupted. A thread that is cancelled there takes the lock
//! with it, for cancellation is a signal too. With signals blocked both happen
//! once the routine has ended. The application's mask comes back as it was.
//!
//! Signals by which the processor reports a fault stay unblocked: a blocked one would kill the process.

use core::ffi::c_void;
use core::marker::PhantomData;
use core::ptr;

use crate::sys::call::syscall;
use crate::sys::fatal::fatal;
use crate::sys::masks::{KERNEL_SIGSET_SIZE, bit};
use crate::sys::{processor, stacks};

/// Signals that report a fault of the running instruction, or `abort`.
const FAULTS: u64 = bit(libc::SIGILL)
    | bit(libc::SIGTRAP)
    | bit(libc::SIGABRT)
    | bit(libc::SIGBUS)
    | bit(libc::SIGFPE)
    | bit(libc::SIGSEGV)
    | bit(libc::SIGSYS);

/// All signals that may wait.
pub(crate) const DEFERRABLE: u64 = !FAULTS;

/// Proof that signals of the calling thread wait, except those that report faults.
pub struct Uninterrupted {
    /// Keeps the value in its thread.
    _this_thread: PhantomData<*const ()>,
}

/// Work on its way to another stack, and its result on the way back.
struct Passed<F, R> {
    work: Option<F>,
    result: Option<R>,
}

impl Uninterrupted {
    /// Does work while signals wait, on a stack of the runtime's own: the program's may be small (see
    /// [`stacks`]). What is on the caller's side of it must need little room.
    #[inline]
    pub fn run<R>(work: impl FnOnce(&Self) -> R) -> R {
        unsafe extern "C" fn call<R, F: FnOnce(&Uninterrupted) -> R>(passed: *mut c_void) {
            // SAFETY: `run` passes this structure, which lives on its stack meanwhile.
            let passed = unsafe { &mut *passed.cast::<Passed<F, R>>() };
            let proof = Uninterrupted {
                _this_thread: PhantomData,
            };
            passed.result = passed.work.take().map(|work| work(&proof));
        }
        fn pass<R, F: FnOnce(&Uninterrupted) -> R>(work: F) -> Option<R> {
            let mut passed = Passed {
                work: Some(work),
                result: None,
            };
            // SAFETY: the function takes what is passed.
            unsafe { uninterrupted(call::<R, F>, (&raw mut passed).cast()) };
            passed.result
        }
        pass(work).unwrap_or_else(|| fatal("uninterrupted work has not ended"))
    }
}

/// Does work on a stack of the runtime's own while signals wait.
///
/// # Safety
/// As for the work.
#[inline(never)]
pub(crate) unsafe extern "C" fn uninterrupted(work: stacks::Work, argument: *mut c_void) {
    // SAFETY: the caller's promise.
    unsafe {
        // Work inside of such work.
        if stacks::is_own() {
            return work(argument);
        }
        let before = change_mask(libc::SIG_SETMASK, DEFERRABLE);
        processor::with_defaults(|| stacks::call(work, argument));
        stacks::left();
        change_mask(libc::SIG_SETMASK, before);
    }
}

/// Runs a piece of the runtime while all signals of the calling thread wait.
pub(crate) fn with_all_blocked<R>(run: impl FnOnce() -> R) -> R {
    with_blocked(u64::MAX, run)
}

/// Runs a piece of the runtime while these signals of the calling thread wait, and no others.
pub(crate) fn with_blocked<R>(mask: u64, run: impl FnOnce() -> R) -> R {
    let before = replace_mask(mask);
    let result = run();
    replace_mask(before);
    result
}

/// Sets the calling thread's mask; returns the one before.
pub(crate) fn replace_mask(mask: u64) -> u64 {
    change_mask(libc::SIG_SETMASK, mask)
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

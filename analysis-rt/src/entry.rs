//! Guarding analysis routines against being entered twice by one thread.
//!
//! A signal handler of the application is instrumented like everything else,
//! and may interrupt an analysis routine. The heap and thread-local storage
//! bear that; a routine's own `Mutex` or `RefCell` does not. A routine that
//! takes locks can ask here first and do nothing when it would be nested.
//!
//! A handler may also leave by `siglongjmp` and so abandon the routine that it
//! interrupted. That shows in the stack pointer: a new entry from higher up on
//! the same stack means that the frames of the old one are gone. A handler on
//! an alternate stack is elsewhere, not slightly higher up.

use core::arch::asm;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::tls;

/// Stacks are not farther apart than this by chance.
const SAME_STACK: usize = 1 << 20;

static REFUSED: AtomicU64 = AtomicU64::new(0);

/// Proof that the thread is in guarded analysis code; ends when dropped.
pub struct Entered {
    /// Not for another thread: the mark is in this thread's block.
    _this_thread: PhantomData<*const ()>,
}

/// Enters guarded analysis code, or answers `None` if this thread is in it
/// already, which means that a signal handler interrupted it.
#[inline]
pub fn enter() -> Option<Entered> {
    let at: usize;
    // SAFETY: reads the stack pointer.
    unsafe { asm!("mov {}, rsp", out(reg) at, options(nomem, nostack, preserves_flags)) };
    let block = tls::block();
    // SAFETY: the block is this thread's own. A handler between the two accesses
    // enters and leaves, and finds and leaves the mark as it was.
    unsafe {
        let before = (*block).entered_at;
        if before != 0 && !(at > before && at - before < SAME_STACK) {
            REFUSED.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        (&raw mut (*block).entered_at).write_volatile(at);
    }
    Some(Entered {
        _this_thread: PhantomData,
    })
}

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the block is this thread's own.
        unsafe { (&raw mut (*tls::block()).entered_at).write_volatile(0) };
    }
}

/// How often [`enter`] answered `None` in this process so far.
pub fn refused_entries() -> u64 {
    REFUSED.load(Ordering::Relaxed)
}

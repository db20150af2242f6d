//! Guarding analysis routines against being entered twice by one thread.
//!
//! A signal handler of the application is instrumented like everything else,
//! and may interrupt an analysis routine. The heap and thread-local storage
//! work then all the same; a routine's own `Mutex` or `RefCell` does not. A routine that
//! takes locks can ask here first, and do nothing if it runs inside another one.
//!
//! A handler may also leave by `siglongjmp` and so abandon the routine that it
//! interrupted. The stack pointer tells: a new entry from higher up on
//! the same stack means that the frames of the old one are gone. A handler on
//! an alternate stack has a stack pointer that is farther away.

use core::arch::asm;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::threads::current;

/// Largest distance in bytes of two stack pointers that are taken to be on the same stack.
const SAME_STACK: usize = 1 << 20;

/// Number of refused entries.
static REFUSED: AtomicU64 = AtomicU64::new(0);

/// Proof that the thread is in guarded analysis code; ends when dropped.
pub struct Entered {
    /// Keeps the value in its thread, in whose record the mark is.
    _this_thread: PhantomData<*const ()>,
}

/// Enters guarded analysis code, or answers `None` if this thread is in it
/// already, which means that a signal handler interrupted it.
#[inline]
pub fn enter() -> Option<Entered> {
    let at: usize;
    // SAFETY: reads the stack pointer.
    unsafe { asm!("mov {}, rsp", out(reg) at, options(nomem, nostack, preserves_flags)) };
    let record = current::record();
    // SAFETY: the record is this thread's own. A handler between the two accesses
    // enters and leaves, and the mark is afterwards as the handler found it.
    unsafe {
        let before = (*record).entered_at;
        if before != 0 && !(at > before && at - before < SAME_STACK) {
            REFUSED.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        (&raw mut (*record).entered_at).write_volatile(at);
    }
    Some(Entered {
        _this_thread: PhantomData,
    })
}

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the record is this thread's own.
        unsafe { (&raw mut (*current::record()).entered_at).write_volatile(0) };
    }
}

/// How often [`enter`] answered `None` in this process so far.
pub fn refused_entries() -> u64 {
    REFUSED.load(Ordering::Relaxed)
}

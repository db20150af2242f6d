//! Begins and ends of threads, for tools that want to know of them.
//!
//! A thread begins when it gets a block of per-thread data, and ends at its system call `exit`, where the runtime sees that. Both
//! functions run in the thread itself. All that a tool pays without asking for it is a look at a pointer where a thread gets its block, and where it
//! ends.

use core::ffi::c_void;
use core::mem::transmute;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

use atom_abi::ThreadBlock;

use crate::sys::signals::Uninterrupted;

/// What is done with the block of a thread that begins or ends.
pub type ThreadEvent = fn(*mut ThreadBlock);

/// The functions for a thread's begin and end, or null.
static EVENTS: [AtomicPtr<c_void>; 2] = [const { AtomicPtr::new(null_mut()) }; 2];

/// Sets what runs in a thread when it begins, and when it ends. The calling thread has begun.
pub fn watch_threads(begin: ThreadEvent, end: ThreadEvent) {
    for (to, event) in EVENTS.iter().zip([begin, end]) {
        to.store(event as *mut c_void, Ordering::Release);
    }
}

/// This thread has got its block.
#[inline]
pub(super) fn begun(block: *mut ThreadBlock) {
    tell(&EVENTS[0], block);
}

/// This thread ends.
#[inline]
pub(super) fn ended(block: *mut ThreadBlock) {
    tell(&EVENTS[1], block);
}

fn tell(event: &AtomicPtr<c_void>, block: *mut ThreadBlock) {
    let event = event.load(Ordering::Acquire);
    if !event.is_null() {
        // SAFETY: only `watch_threads` writes it, always with a `ThreadEvent`.
        let event: ThreadEvent = unsafe { transmute(event) };
        Uninterrupted::run(|_| event(block));
    }
}

//! Numbers of threads in messages: 1 for the thread with which the process began, then in the order of first errors.

use std::cell::Cell;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

/// The next thread's number.
static NEXT: AtomicU32 = AtomicU32::new(1);

thread_local! {
    /// The running thread's number; 0 if it has none yet. A forked child's thread has its parent's number.
    static NUMBER: Cell<u32> = const { Cell::new(0) };
}

/// The running thread's number.
pub fn number() -> u32 {
    NUMBER.with(|number| {
        if number.get() == 0 {
            number.set(NEXT.fetch_add(1, Relaxed));
        }
        number.get()
    })
}

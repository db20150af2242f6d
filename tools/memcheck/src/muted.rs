//! Threads that have asked that their errors are not reported.

use std::cell::Cell;

thread_local! {
    /// How often the thread has asked that its errors are not reported. A forked child's thread has its parent's number.
    static LEVEL: Cell<u64> = const { Cell::new(0) };
}

/// The thread's errors are reported no more, or (with -1) again.
pub fn mute(change: u64) {
    LEVEL.with(|level| {
        level.set(match change {
            1 => level.get() + 1,
            _ => level.get().saturating_sub(1),
        });
    });
}

/// True if errors of the running thread are not reported.
pub fn is_muted() -> bool {
    LEVEL.with(Cell::get) != 0
}

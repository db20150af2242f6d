//! A value that all threads of the process share.

use std::cell::UnsafeCell;

use crate::{SpinLock, Uninterrupted};

/// Analysis side: a value under a lock, as a static of a tool. A forked child takes the lock over if a thread of its
/// parent held it at the fork; what that thread was changing may then be half changed.
pub struct Shared<T> {
    lock: SpinLock,
    value: UnsafeCell<T>,
}

// SAFETY: only `with` accesses the value, under the lock.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T> Shared<T> {
    /// A shared value.
    pub const fn new(value: T) -> Self {
        Self {
            lock: SpinLock::new(),
            value: UnsafeCell::new(value),
        }
    }

    /// Calls `work` under the lock, with signals blocked. It must not call this method of the same value.
    pub fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        Uninterrupted::run(|signals_wait| self.with_blocked(signals_wait, work))
    }

    /// As [`Shared::with`], where signals are blocked already.
    pub fn with_blocked<R>(
        &self,
        _signals_wait: &Uninterrupted,
        work: impl FnOnce(&mut T) -> R,
    ) -> R {
        self.lock.lock_for_process();
        // SAFETY: this thread holds the lock, and signal handlers do not run in it meanwhile.
        let result = work(unsafe { &mut *self.value.get() });
        self.lock.unlock();
        result
    }
}

//! A lock for code that must know when not to wait.
//!
//! The holder of a lock may be the thread that asks (a signal handler interrupted it), or may not exist (another
//! thread, seen from a forked child). So a lock is tried, or waited for with an end, unless the caller
//! has ruled both cases out.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::sys::call::{getpid, yield_now};

const FREE: u32 = 0;
const TAKEN: u32 = 1;

/// True once all threads that could hold locks are gone, and one acts for them.
static HOLDERS_ARE_GONE: AtomicBool = AtomicBool::new(false);

/// Lets the calling thread take all locks over: the process whose threads held them has been killed. What a thread was
/// changing may be half changed.
pub(crate) fn take_over_locks() {
    HOLDERS_ARE_GONE.store(true, Ordering::Relaxed);
}

/// True after [`take_over_locks`].
pub(crate) fn holders_are_gone() -> bool {
    HOLDERS_ARE_GONE.load(Ordering::Relaxed)
}

/// A lock that may be in memory of zeros, which are a free one.
#[repr(transparent)]
pub struct SpinLock(AtomicU32);

impl Default for SpinLock {
    fn default() -> Self {
        Self::new()
    }
}

impl SpinLock {
    /// A free lock.
    pub const fn new() -> Self {
        Self(AtomicU32::new(FREE))
    }

    /// Takes the lock if it is free; true if it did.
    #[inline]
    pub fn try_lock(&self) -> bool {
        self.0.load(Ordering::Relaxed) == FREE && self.take(FREE, TAKEN)
    }

    /// Takes the lock, for which it looks at most `rounds` times more and lets other threads run in between.
    /// True if it did.
    pub fn lock_within(&self, rounds: u32) -> bool {
        for _ in 0..rounds {
            if self.try_lock() {
                return true;
            }
            if holders_are_gone() {
                return false;
            }
            yield_now();
        }
        self.try_lock()
    }

    /// Takes the lock, however long it takes. The caller knows that its holder is another thread of this
    /// process: signals wait while the lock is held, and it is free in forked children.
    pub fn lock(&self) {
        while !self.try_lock() {
            if holders_are_gone() {
                return;
            }
            yield_now();
        }
    }

    /// Takes the lock, however long it takes, for this process. A forked child takes it over if a thread of
    /// its parent held it at the fork. Signals must wait while it is held.
    pub fn lock_for_process(&self) {
        let me = getpid();
        loop {
            let holder = self.0.load(Ordering::Relaxed);
            let is_free = holder != me || holders_are_gone();
            if is_free && self.take(holder, me) {
                return;
            }
            yield_now();
        }
    }

    /// Takes the lock for this process if it is free, or held by a thread of its parent's at the fork.
    pub fn try_lock_for_process(&self) -> bool {
        let me = getpid();
        let holder = self.0.load(Ordering::Relaxed);
        holder != me && self.take(holder, me)
    }

    /// Releases the lock, which the caller holds.
    #[inline]
    pub fn unlock(&self) {
        self.0.store(FREE, Ordering::Release);
    }

    #[inline]
    fn take(&self, from: u32, to: u32) -> bool {
        self.0
            .compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Threads that all take the lock in one way: the two ways do not mix, as a process takes over what
    /// it has not locked itself.
    fn one_holder(lock: fn(&SpinLock)) {
        let (held, count) = (SpinLock::new(), AtomicU32::new(0));
        let work = || {
            for _ in 0..1000 {
                lock(&held);
                let now = count.load(Ordering::Relaxed);
                count.store(now + 1, Ordering::Relaxed);
                held.unlock();
            }
        };
        std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(work))));
        assert_eq!(count.load(Ordering::Relaxed), 4000);
    }

    #[test]
    fn one_holder_at_a_time() {
        one_holder(SpinLock::lock);
        one_holder(SpinLock::lock_for_process);
    }

    #[test]
    fn waiting_ends_and_a_child_takes_over() {
        let lock = SpinLock::new();
        assert!(lock.lock_within(0));
        assert!(!lock.try_lock() && !lock.lock_within(3));
        // Held by another process, as after a fork: any number but this process's.
        lock.lock_for_process();
        assert!(!lock.try_lock());
        lock.unlock();
        assert!(lock.try_lock());
    }
}

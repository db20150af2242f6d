//! The recorder of one thread number, and the protocol for using it.
//!
//! Each thread number has one recorder, which one thread at a time owns. The owner uses it
//! without a lock:
//! 1. it sees its thread pointer in `owner`;
//! 2. it sets `busy`, which only the owner does;
//! 3. it looks at `owner` again; if it is still there, the recorder is its own until it clears `busy`.
//!
//! A thread that takes a recorder away stores another owner, makes all threads pass a
//! memory barrier and waits until `busy` is clear. An owner between steps 1 and 3 either has set `busy` by then or will
//! see the new owner in step 3. `busy` also tells a callback or a signal handler that its thread is already inside.
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering, compiler_fence};
use std::time::{Duration, Instant};

use arp_core::ThreadRecorder;

use crate::context::ContextCell;
use crate::system;

/// Value of `owner`: no thread owns the recorder.
pub(crate) const FREE: usize = 0;
/// Value of `owner`: no thread will ever own the recorder again.
pub(crate) const CLOSED: usize = usize::MAX;

/// Longest wait for a thread that is in a callback when its recorder is taken.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

pub(crate) struct Slot {
    owner: AtomicUsize,
    busy: AtomicBool,
    /// The kernel's thread id of the owner.
    system_thread: AtomicI32,
    recorder: UnsafeCell<ThreadRecorder>,
    /// Number of threads that this thread spawned and that were not joined.
    pub children: AtomicU32,
    /// Context pointer of each set of callbacks.
    pub contexts: Vec<ContextCell>,
}

// SAFETY: the recorder is reached only by the protocol above, by one thread at a time; it is Send.
unsafe impl Sync for Slot {}

/// Why a recorder cannot be used.
pub(crate) enum Refusal {
    /// The calling thread does not own it.
    NotOwner,
    /// The calling thread is using it already.
    Busy,
}

impl Slot {
    pub fn new(recorder: ThreadRecorder, contexts: Vec<ContextCell>) -> Self {
        Self {
            owner: AtomicUsize::new(FREE),
            busy: AtomicBool::new(false),
            system_thread: AtomicI32::new(0),
            recorder: UnsafeCell::new(recorder),
            children: AtomicU32::new(0),
            contexts,
        }
    }

    /// Runs `work` on the recorder if the calling thread, whose thread pointer is `me`, owns it and is not inside already.
    #[inline]
    pub fn with<R>(
        &self,
        me: usize,
        work: impl FnOnce(&mut ThreadRecorder) -> R,
    ) -> Result<R, Refusal> {
        if self.owner.load(Ordering::Acquire) != me {
            return Err(Refusal::NotOwner);
        }
        if self.busy.load(Ordering::Relaxed) {
            return Err(Refusal::Busy);
        }
        self.busy.store(true, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        if self.owner.load(Ordering::Acquire) != me {
            self.busy.store(false, Ordering::Release);
            return Err(Refusal::NotOwner);
        }
        // SAFETY: steps 1 to 3 of the protocol.
        let result = work(unsafe { &mut *self.recorder.get() });
        self.busy.store(false, Ordering::Release);
        Ok(result)
    }

    pub fn owner(&self) -> usize {
        self.owner.load(Ordering::Acquire)
    }

    /// The kernel's thread id of the last owner; 0 if there was none.
    pub fn system_thread(&self) -> i32 {
        self.system_thread.load(Ordering::Relaxed)
    }

    /// Makes the calling thread the owner of a free recorder. The table's lock must be held.
    pub fn claim(&self, me: usize) {
        self.system_thread
            .store(system::thread_id(), Ordering::Relaxed);
        self.owner.store(me, Ordering::Release);
    }

    /// Takes the recorder from its owner, runs `work` on it and gives it to the owner `next`. `None` if the
    /// owner does not stop using it within `patience`. The table's lock must be held: it excludes other takers, and an
    /// owner that enters meanwhile waits for it.
    pub fn take<R>(
        &self,
        next: usize,
        patience: Duration,
        work: impl FnOnce(&mut ThreadRecorder) -> R,
    ) -> Option<R> {
        let me = system::thread_pointer();
        let old = self.owner.load(Ordering::Acquire);
        if old == me && self.busy.load(Ordering::Relaxed) {
            // The call comes from a callback of this very recorder.
            return None;
        }
        self.owner.store(CLOSED, Ordering::SeqCst);
        if old != FREE && old != CLOSED && old != me {
            system::fence_all_threads();
            let start = Instant::now();
            while self.busy.load(Ordering::Acquire) {
                // A thread that was cancelled in a callback never clears `busy`.
                if !system::is_alive(self.system_thread()) {
                    break;
                }
                if start.elapsed() > patience {
                    // Put the old owner back, unless the recorder was closed meanwhile.
                    self.owner
                        .store(if next == CLOSED { CLOSED } else { old }, Ordering::Release);
                    return None;
                }
                std::thread::sleep(Duration::from_micros(20));
            }
        }
        self.busy.store(false, Ordering::Relaxed);
        // SAFETY: no owner is between the protocol's steps any more, and none can start them.
        let result = work(unsafe { &mut *self.recorder.get() });
        self.owner.store(next, Ordering::Release);
        Some(result)
    }
}

//! Free slots of each thread, and the queue of freed blocks.
//!
//! A thread allocates from lists of its own. It takes slots of a class, and hands over what it has freed, several at once,
//! under the one lock that there is. Freed blocks wait in a queue of all threads until their bytes exceed a limit.

use std::cell::UnsafeCell;
use std::sync::atomic::Ordering::Relaxed;

use atom_tool::prelude::*;
use atom_tool::{SpinLock, thread_state};

use crate::slots::{self, Block, CLASSES};

thread_state! {
    /// What a thread has of the heap.
    pub struct Cache {
        /// For each class a list of free slots.
        free: [ThreadCell<u64>; CLASSES],
        /// For each class slots that were never used: the first, and their number.
        fresh: [ThreadCell<u64>; CLASSES],
        left: [ThreadCell<u64>; CLASSES],
        /// Blocks that the thread has freed lately: first, last, number and bytes.
        first: ThreadCell<u64>,
        last: ThreadCell<u64>,
        count: ThreadCell<u64>,
        waiting: ThreadCell<u64>,
        pub allocations: ThreadCell<u64>,
        pub frees: ThreadCell<u64>,
        pub bytes: ThreadCell<u64>,
        /// Address of what `traces` keeps of the thread; 0 if there is nothing.
        pub walks: ThreadCell<u64>,
        /// Start and end of the stack that a request was last made on.
        pub stack: [ThreadCell<u64>; 2],
    }
}

/// Number of slots that a thread takes from the lists of all threads at once.
const BATCH: usize = 32;
/// Number of freed blocks and their bytes that a thread keeps to itself.
const MOST: u64 = 256;
const MOST_BYTES: u64 = 1 << 16;

/// What all threads share.
struct Heap {
    /// For each class a list of free slots.
    free: [u64; CLASSES],
    /// The queue of freed blocks: first, last, the sum of their sizes and its limit.
    first: u64,
    last: u64,
    waiting: u64,
    limit: u64,
}

struct Locked {
    lock: SpinLock,
    heap: UnsafeCell<Heap>,
}
// SAFETY: the heap is used by the holder of the lock alone.
unsafe impl Sync for Locked {}

static HEAP: Locked = Locked {
    lock: SpinLock::new(),
    heap: UnsafeCell::new(Heap {
        free: [0; CLASSES],
        first: 0,
        last: 0,
        waiting: 0,
        limit: 0,
    }),
};

/// Does something with what threads share. Signals wait until a routine has ended, so its holder is never interrupted.
fn with<R>(work: impl FnOnce(&mut Heap) -> R) -> R {
    HEAP.lock.lock();
    // SAFETY: the lock is held.
    let result = work(unsafe { &mut *HEAP.heap.get() });
    HEAP.lock.unlock();
    result
}

/// In a forked child: a thread that is not there may have held the lock.
pub fn in_child() {
    HEAP.lock.unlock();
}

/// The queue of freed blocks gets this limit in bytes.
pub fn begin(limit: u64) {
    with(|heap| heap.limit = limit);
}

impl Cache {
    /// Takes a slot of a class; returns the address of what is known of it.
    #[inline]
    pub fn take(&self, class: usize) -> Option<u64> {
        let free = self.free[class].get();
        if free != 0 {
            self.free[class].set(slots::block_at(free).next.load(Relaxed));
            return Some(free);
        }
        let left = self.left[class].get();
        if left == 0 {
            return self.refill(class);
        }
        let fact = self.fresh[class].get();
        self.fresh[class].set(slots::next_fact(fact));
        self.left[class].set(left - 1);
        Some(fact)
    }

    #[cold]
    #[inline(never)]
    fn refill(&self, class: usize) -> Option<u64> {
        let first = with(|heap| {
            let first = heap.free[class];
            let mut last = first;
            for _ in 1..BATCH {
                let next = match last {
                    0 => 0,
                    last => slots::block_at(last).next.load(Relaxed),
                };
                if next == 0 {
                    break;
                }
                last = next;
            }
            if last != 0 {
                heap.free[class] = slots::block_at(last).next.swap(0, Relaxed);
            }
            first
        });
        if first != 0 {
            self.free[class].set(slots::block_at(first).next.load(Relaxed));
            return Some(first);
        }
        let (fact, count) = slots::take_fresh(class);
        if count == 0 {
            return None;
        }
        self.fresh[class].set(slots::next_fact(fact));
        self.left[class].set(count - 1);
        Some(fact)
    }

    #[inline]
    pub fn count_allocation(&self, size: u64) {
        self.allocations.add(1);
        self.bytes.add(size);
    }

    /// Puts a block that was freed in the queue.
    #[inline]
    pub fn put(&self, block: &Block, size: u64) {
        block.next.store(0, Relaxed);
        let fact = block.fact();
        match self.last.get() {
            0 => self.first.set(fact),
            last => slots::block_at(last).next.store(fact, Relaxed),
        }
        self.last.set(fact);
        self.frees.add(1);
        let (count, waiting) = (self.count.get() + 1, self.waiting.get() + size);
        self.count.set(count);
        self.waiting.set(waiting);
        if count >= MOST || waiting >= MOST_BYTES {
            self.hand_over();
        }
    }

    /// Moves the thread's freed blocks to the queue, and free what waited longest there.
    #[cold]
    #[inline(never)]
    fn hand_over(&self) {
        with(|heap| {
            match heap.last {
                0 => heap.first = self.first.get(),
                last => (slots::block_at(last).next).store(self.first.get(), Relaxed),
            }
            heap.last = self.last.get();
            heap.waiting += self.waiting.get();
            for cell in [&self.first, &self.last, &self.count, &self.waiting] {
                cell.set(0);
            }
            while heap.waiting > heap.limit && heap.first != heap.last {
                let first = heap.first;
                let block = slots::block_at(first);
                let class = slots::class_of_fact(first);
                heap.first = block.next.load(Relaxed);
                heap.waiting -= block.size();
                block.next.store(heap.free[class], Relaxed);
                heap.free[class] = first;
            }
        });
    }
}

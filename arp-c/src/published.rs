//! A thread's stack of sections, readable by other threads while it changes.
//!
//! A spawned thread takes over its parent's stack while the parent may go on. The
//! parent writes each change between two increments of a sequence number, so a reader knows
//! whether what it read was all of one moment. All cells are atomic: there is no data race, and on
//! x86-64 the writer's stores are plain ones.
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicUsize, Ordering, fence};

use arp_core::{Sid, Step, ThreadRecorder};

/// As many as a recorder's stack can have.
const DEPTH: usize = 1024;

struct Cell {
    sid: AtomicU32,
    counter: AtomicI64,
}

pub(crate) struct Published {
    sequence: AtomicUsize,
    depth: AtomicUsize,
    cells: Box<[Cell]>,
}

impl Published {
    pub fn new() -> Self {
        let cell = |_| Cell {
            sid: AtomicU32::new(0),
            counter: AtomicI64::new(0),
        };
        Self {
            sequence: AtomicUsize::new(0),
            depth: AtomicUsize::new(0),
            cells: (0..DEPTH).map(cell).collect(),
        }
    }

    /// After a section was entered or left: only the innermost entry is new. By the owner only.
    #[inline]
    pub fn update(&self, recorder: &ThreadRecorder) {
        let depth = recorder.recorded_depth();
        let sequence = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(sequence + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        if let Some(step) = recorder.top() {
            self.set(depth, step);
        }
        self.depth.store(depth, Ordering::Relaxed);
        self.sequence.store(sequence + 2, Ordering::Release);
    }

    /// All of it is new.
    pub fn replace(&self, stack: &[Step]) {
        let sequence = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(sequence + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        for (index, step) in stack.iter().enumerate() {
            self.set(index + 1, *step);
        }
        self.depth.store(stack.len(), Ordering::Relaxed);
        self.sequence.store(sequence + 2, Ordering::Release);
    }

    #[inline]
    fn set(&self, depth: usize, step: Step) {
        if let Some(cell) = self.cells.get(depth - 1) {
            cell.sid.store(step.sid.0, Ordering::Relaxed);
            cell.counter.store(step.counter, Ordering::Relaxed);
        }
    }

    /// The stack as it was at some moment of the call.
    pub fn stack(&self) -> Vec<Step> {
        loop {
            let before = self.sequence.load(Ordering::Acquire);
            if before.is_multiple_of(2) {
                let depth = self.depth.load(Ordering::Relaxed).min(DEPTH);
                let step = |cell: &Cell| Step {
                    sid: Sid(cell.sid.load(Ordering::Relaxed)),
                    counter: cell.counter.load(Ordering::Relaxed),
                };
                let stack = self.cells[..depth].iter().map(step).collect();
                fence(Ordering::Acquire);
                if self.sequence.load(Ordering::Relaxed) == before {
                    return stack;
                }
            }
            std::hint::spin_loop();
        }
    }
}

//! The blocks that are live, and the figures of each call path.
//!
//! Notes are taken a buffer at a time. The notes of one thread are in their order. With several threads, notes are kept until
//! there are many, and the older half of them is brought into the order of time. A thread that makes few notes may be
//! later with them: a free that is taken before the allocation, because that is in another thread's buffer, waits for it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use atom_tool::clocks;
use atom_tool::notes::{self, Consume, Taken};
use atom_tool::paths::PathNode;
use rustc_hash::FxHashMap;

use crate::note::{ALLOCATED, BLOCK, FREED, Note, REALLOCATED, WORDS};
use crate::table::{Block, Table};
use crate::time::Timeline;

/// With several threads: largest number of notes that are kept.
const KEPT: usize = 1 << 18;
/// Number of notes whose blocks are looked for in the caches ahead of time.
const AHEAD: usize = 32;

/// The figures of a call path.
#[derive(Clone, Copy, Default)]
pub struct Figures {
    /// Number of allocations.
    pub allocations: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Number and bytes of the blocks that are live.
    pub live: [u64; 2],
    /// Number and bytes of its blocks that were freed, and the sum of their lifetimes.
    pub freed: [u64; 2],
    pub lifetimes: u64,
    /// The largest block.
    pub largest: u64,
    /// Number of frees of what is no live block, made here.
    pub bad_frees: u64,
    /// Number and bytes of blocks that were live at the peak `peak`.
    at_peak: [u64; 2],
    /// Number of the process's peak up to which `at_peak` is right.
    peak: u64,
}

impl Figures {
    /// Number and bytes of blocks that were live at the process's last peak.
    pub fn at_peak(&self, peak: u64) -> [u64; 2] {
        if self.peak == peak {
            self.at_peak
        } else {
            // Nothing has changed here since.
            self.live
        }
    }

    /// Notes what was live at the peak, before a change.
    #[inline]
    fn settle(&mut self, peak: u64) {
        if self.peak != peak {
            self.peak = peak;
            self.at_peak = self.live;
        }
    }
}

/// The figures of the process.
#[derive(Clone, Copy, Default)]
pub struct Totals {
    /// Number of allocations, with reallocations.
    pub allocations: u64,
    /// Number of reallocations.
    pub reallocations: u64,
    /// Number of frees, with those of reallocations.
    pub frees: u64,
    /// Bytes of all allocations.
    pub bytes: u64,
    /// Number of allocations that failed.
    pub failed: u64,
    /// Number and bytes of live blocks.
    pub live: [u64; 2],
    /// Number and bytes of live blocks at the peak, and its time.
    pub peak: [u64; 2],
    pub peak_time: u64,
    /// Number of blocks whose free was not seen: another block was allocated at the same address.
    pub unseen_frees: u64,
    /// In a forked child: number of frees of what the parent had allocated.
    pub inherited: u64,
}

/// What is known of the heap.
pub struct Heap {
    blocks: Table,
    /// The figures by the number that a node of a call path has, minus one.
    pub paths: Vec<Figures>,
    pub totals: Totals,
    /// Number of the last peak.
    pub peaks: u64,
    pub timeline: Timeline,
    /// Frees whose allocation has not been seen: for each block the time, and the address of the call path's node.
    early: FxHashMap<u64, Vec<(u64, u64)>>,
    /// For blocks of which a newer one was seen before the free: the number of frees that are still to come.
    owed: FxHashMap<u64, u64>,
    /// Number of threads with notes.
    threads: usize,
    /// Notes of several threads.
    kept: Vec<Note>,
    /// The process is a forked child.
    is_child: bool,
    /// Time at which the tool began; in a child it is the parent's.
    pub origin: u64,
    /// Time of the start, and of the last note.
    pub start: u64,
    pub last: u64,
}

static HEAP: Mutex<Option<Heap>> = Mutex::new(None);

/// Begins at the program's start.
pub fn begin() {
    let start = clocks::time_stamp();
    let heap = Heap {
        blocks: Table::default(),
        paths: Vec::new(),
        totals: Totals::default(),
        peaks: 0,
        timeline: Timeline::new(start),
        early: FxHashMap::default(),
        owed: FxHashMap::default(),
        threads: 0,
        kept: Vec::new(),
        is_child: false,
        origin: start,
        start,
        last: start,
    };
    *lock() = Some(heap);
}

/// Locks the heap. Signals must be blocked meanwhile.
pub fn lock() -> MutexGuard<'static, Option<Heap>> {
    HEAP.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Forgets what the parent did, in a forked child. Another thread of the parent may have held the lock; the child then has
/// no figures.
pub fn in_child() {
    let Ok(mut heap) = HEAP.try_lock() else {
        return;
    };
    let Some(heap) = heap.as_mut() else { return };
    heap.blocks = Table::default();
    heap.early.clear();
    heap.owed.clear();
    heap.kept.clear();
    heap.threads = 1;
    heap.paths.fill(Figures::default());
    heap.totals = Totals::default();
    heap.peaks = 0;
    heap.is_child = true;
    heap.start = clocks::time_stamp();
    heap.last = heap.start;
    heap.timeline = Timeline::new(heap.start);
}

/// A thread's notes go to the heap.
pub struct Thread;

impl Thread {
    /// For a thread's first note.
    pub fn new() -> Self {
        if let Some(heap) = lock().as_mut() {
            heap.threads += 1;
        }
        Self
    }
}

impl Consume<WORDS> for Thread {
    fn take(&mut self, notes: Taken<WORDS>) {
        let notes = notes.filter(|note| note[0] != 0);
        let mut heap = lock();
        let Some(heap) = heap.as_mut() else { return };
        if heap.threads == 1 {
            return heap.take_all(notes);
        }
        heap.kept.extend(notes);
        if heap.kept.len() > KEPT {
            heap.take_kept(KEPT / 2);
        }
    }

    fn take_inherited(&mut self, notes: Taken<WORDS>) {
        // The parent takes its own notes.
        notes.for_each(drop);
    }
}

impl Heap {
    /// Takes the oldest notes of those that are kept.
    fn take_kept(&mut self, count: usize) {
        let mut kept = std::mem::take(&mut self.kept);
        kept.sort_by_key(|[_, time, ..]| *time);
        kept.drain(..count.min(kept.len()))
            .for_each(|note| self.take_one(note));
        self.kept = kept;
    }

    /// Takes notes that are in their order.
    fn take_all(&mut self, mut notes: impl Iterator<Item = Note>) {
        let mut ahead = [[0; WORDS]; AHEAD];
        loop {
            let mut count = 0;
            for (place, note) in ahead.iter_mut().zip(&mut notes) {
                *place = note;
                self.blocks.prefetch(note[BLOCK]);
                count += 1;
            }
            if count == 0 {
                return;
            }
            ahead[..count].iter().for_each(|note| self.take_one(*note));
        }
    }

    fn take_one(&mut self, note: Note) {
        let [word, time, block, size, node, other] = note;
        match notes::kind(word) {
            FREED => self.free(block, time, node),
            kind => {
                let is_again = kind == REALLOCATED && other != 0;
                debug_assert!(kind == ALLOCATED || kind == REALLOCATED);
                // A `realloc` that fails leaves the block; to a size of 0 it frees the block.
                if is_again && (block != 0 || size == 0) {
                    self.totals.reallocations += 1;
                    self.free(other, time, node);
                }
                if block != 0 {
                    let path = self.path(node);
                    self.allocate(block, size, time, path);
                } else if size != 0 {
                    self.totals.failed += 1;
                }
            }
        }
        self.last = self.last.max(time);
        self.timeline.pass(self.last, self.totals.live[1]);
    }

    /// The number of a call path, given the address of its node.
    #[inline]
    fn path(&mut self, node: u64) -> u32 {
        let node = std::ptr::with_exposed_provenance::<PathNode>(node as usize);
        // SAFETY: the address of a node, which lives for ever.
        let node = unsafe { &*node };
        if node.tool() == 0 {
            self.paths.push(Figures::default());
            node.set_tool(self.paths.len() as u64);
        }
        node.tool() as u32 - 1
    }

    fn allocate(&mut self, at: u64, size: u64, time: u64, path: u32) {
        let totals = &mut self.totals;
        totals.allocations += 1;
        totals.bytes += size;
        let figures = &mut self.paths[path as usize];
        figures.settle(self.peaks);
        figures.allocations += 1;
        figures.bytes += size;
        figures.largest = figures.largest.max(size);
        figures.live = [figures.live[0] + 1, figures.live[1] + size];
        totals.live = [totals.live[0] + 1, totals.live[1] + size];
        if totals.live[1] > totals.peak[1] {
            (totals.peak, totals.peak_time) = (totals.live, time);
            self.peaks += 1;
        }
        let born = time;
        if let Some(old) = self.blocks.insert(at, Block { size, born, path }) {
            self.gone(old, time);
            if self.threads > 1 {
                *self.owed.entry(at).or_default() += 1
            } else {
                self.totals.unseen_frees += 1
            }
        }
        if !self.early.is_empty()
            && let Some(frees) = self.early.get_mut(&at)
            && let Some(which) = (0..frees.len())
                .filter(|i| frees[*i].0 > time)
                .min_by_key(|i| frees[*i].0)
        {
            let (freed, node) = frees.swap_remove(which);
            if frees.is_empty() {
                self.early.remove(&at);
            }
            self.free(at, freed, node);
        }
    }

    /// A block is freed. `node` is the address of the call path's node.
    fn free(&mut self, at: u64, time: u64, node: u64) {
        if !self.owed.is_empty()
            && let Some(owed) = self.owed.get_mut(&at)
        {
            *owed -= 1;
            if *owed == 0 {
                self.owed.remove(&at);
            }
            self.totals.frees += 1;
            return;
        }
        if let Some(block) = self.blocks.remove(at) {
            self.totals.frees += 1;
            return self.gone(block, time);
        }
        if self.is_child {
            self.totals.inherited += 1;
        } else if self.threads > 1 {
            self.early.entry(at).or_default().push((time, node));
        } else {
            self.bad(node);
        }
    }

    fn bad(&mut self, node: u64) {
        let path = self.path(node);
        self.paths[path as usize].bad_frees += 1;
    }

    /// A block is not live any more.
    fn gone(&mut self, block: Block, time: u64) {
        let figures = &mut self.paths[block.path as usize];
        figures.settle(self.peaks);
        figures.live = [figures.live[0] - 1, figures.live[1] - block.size];
        figures.freed = [figures.freed[0] + 1, figures.freed[1] + block.size];
        figures.lifetimes += time.saturating_sub(block.born);
        let live = &mut self.totals.live;
        *live = [live[0] - 1, live[1] - block.size];
    }

    /// All notes have been taken: what waits for an allocation waits in vain.
    pub fn end(&mut self) {
        self.take_kept(usize::MAX);
        for (_, frees) in std::mem::take(&mut self.early) {
            for (_, node) in frees {
                self.bad(node);
            }
        }
        self.totals.unseen_frees += std::mem::take(&mut self.owed).values().sum::<u64>();
    }
}

//! The allocator that is in the place of the program's.
//!
//! A block is in a slot of a class of sizes, with redzones on both sides. All slots of a class are in one range of addresses, so
//! an address tells its slot; what is known of a slot is kept elsewhere, where the program does not write by mistake. A
//! freed block waits in a queue until the bytes of all blocks there exceed a limit.

use std::cell::UnsafeCell;
use std::hint::spin_loop;
use std::ptr::{copy_nonoverlapping, with_exposed_provenance_mut};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};

use crate::shadow;

/// Address of the slots, and of what is known of them.
const SLOTS: u64 = 0x1100_0000_0000;
const FACTS: u64 = 0x2000_0000_0000;
/// Size of a class's range of addresses, as a power of two; twice that for what is known.
const RANGE: u32 = 36;
/// Classes of 16, 32 ... 1024 bytes, and four for each further power of two.
const SMALL: usize = 64;
const CLASSES: usize = SMALL + 4 * 25;
/// Smallest and largest redzone in bytes.
const REDZONE: [u64; 2] = [16, 2048];
/// Size of a block from which on its pages are given back when it is freed.
const LARGE: u64 = 1 << 18;

/// How a block was allocated, or is freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    Malloc,
    New,
    NewArray,
}

impl Kind {
    /// The name of the function that allocates.
    pub fn name(self) -> &'static str {
        match self {
            Self::Malloc => "malloc",
            Self::New => "operator new",
            Self::NewArray => "operator new[]",
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum State {
    Never,
    Live,
    Freed,
}

/// What is known of a slot.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Block {
    /// Address of the block.
    pub start: u64,
    /// Its requested size in bytes.
    pub size: u64,
    /// The next one of a list: address of what is known of it, or 0.
    next: u64,
    /// Numbers of the stacks at which it was allocated and freed.
    pub allocated: u32,
    pub freed: u32,
    pub kind: Kind,
    pub state: State,
    /// How leaks were reached.
    pub mark: u8,
    _unused: [u8; 5],
}

/// Size in bytes of a [`Block`].
const FACT: u64 = size_of::<Block>() as u64;

pub struct Heap {
    /// Number of slots of each class that have been used, and a list of those that are free.
    used: [u64; CLASSES],
    free: [u64; CLASSES],
    /// The queue of freed blocks: first, last, and the sum of their sizes.
    queue: [u64; 2],
    waiting: u64,
    limit: u64,
    pub allocations: u64,
    pub frees: u64,
    pub bytes: u64,
}

struct Locked {
    is_locked: AtomicBool,
    heap: UnsafeCell<Heap>,
}
// SAFETY: the heap is used by the holder of the lock alone.
unsafe impl Sync for Locked {}

static HEAP: Locked = Locked {
    is_locked: AtomicBool::new(false),
    heap: UnsafeCell::new(Heap {
        used: [0; CLASSES],
        free: [0; CLASSES],
        queue: [0; 2],
        waiting: 0,
        limit: 0,
        allocations: 0,
        frees: 0,
        bytes: 0,
    }),
};

/// Does something with the heap, which other threads then wait for.
pub fn with<R>(work: impl FnOnce(&mut Heap) -> R) -> R {
    while HEAP.is_locked.swap(true, Acquire) {
        spin_loop();
    }
    // SAFETY: the lock is held.
    let result = work(unsafe { &mut *HEAP.heap.get() });
    HEAP.is_locked.store(false, Release);
    result
}

/// In a forked child: a thread that is not there may have held the lock.
pub fn in_child() {
    HEAP.is_locked.store(false, Release);
}

/// Maps the heap, whose queue of freed blocks has this limit in bytes.
pub fn begin(limit: u64) -> bool {
    with(|heap| heap.limit = limit);
    let classes = CLASSES as u64;
    shadow::map(SLOTS, classes << RANGE) && shadow::map(FACTS, classes << (RANGE + 1))
}

/// The size of the slots of a class.
fn slot_size(class: usize) -> u64 {
    match class.checked_sub(SMALL) {
        None => 16 * (class as u64 + 1),
        Some(more) => {
            let quarter = 256 << (more / 4);
            4 * quarter + (more as u64 % 4 + 1) * quarter
        }
    }
}

/// The class of the smallest slots of at least this size.
fn class_of(size: u64) -> Option<usize> {
    if size <= 1024 {
        return Some((size.max(16).div_ceil(16) - 1) as usize);
    }
    let log = (size - 1).ilog2();
    let quarter = 1u64 << (log - 2);
    let class = SMALL + 4 * (log as usize - 10) + ((size - 1 - 4 * quarter) / quarter) as usize;
    (class < CLASSES).then_some(class)
}

fn block_at<'a>(fact: u64) -> &'a mut Block {
    // SAFETY: one of a slot, which is mapped; the lock is held.
    unsafe { &mut *with_exposed_provenance_mut(fact as usize) }
}

fn fact_of(class: usize, slot: u64) -> u64 {
    FACTS + ((class as u64) << (RANGE + 1)) + slot * FACT
}

/// True for an address between blocks or in one.
pub fn has(address: u64) -> bool {
    address.wrapping_sub(SLOTS) < (CLASSES as u64) << RANGE
}

/// True for an address of what this module keeps.
pub fn is_own(address: u64) -> bool {
    has(address) || address.wrapping_sub(FACTS) < (CLASSES as u64) << (RANGE + 1)
}

impl Heap {
    /// The slot of an address, if it was ever used.
    pub fn find(&self, address: u64) -> Option<&'static mut Block> {
        if !has(address) {
            return None;
        }
        let class = ((address - SLOTS) >> RANGE) as usize;
        let slot = ((address - SLOTS) & ((1 << RANGE) - 1)) / slot_size(class);
        let block = (slot < self.used[class]).then(|| block_at(fact_of(class, slot)))?;
        (block.state != State::Never).then_some(block)
    }

    /// All blocks that are allocated.
    pub fn live(&self) -> impl Iterator<Item = &'static mut Block> {
        let all = (0..CLASSES).flat_map(|c| (0..self.used[c]).map(move |i| fact_of(c, i)));
        all.map(block_at).filter(|b| b.state == State::Live)
    }

    /// Allocates a block; `None` if there is no room for it.
    pub fn allocate(
        &mut self,
        size: u64,
        align: u64,
        (kind, stack): (Kind, u32),
        is_zero: bool,
    ) -> Option<u64> {
        if size >> RANGE != 0 || align > 1 << 30 {
            return None;
        }
        let redzone = (size / 4)
            .next_multiple_of(16)
            .clamp(REDZONE[0], REDZONE[1]);
        let extra = if align > 16 { align } else { 0 };
        let class = class_of(redzone + extra + size.next_multiple_of(16) + redzone)?;
        let room = slot_size(class);
        let free = self.free[class];
        let fact = if free != 0 {
            self.free[class] = block_at(free).next;
            free
        } else {
            let slot = self.used[class];
            if ((slot + 1) * room) >> RANGE != 0 {
                return None;
            }
            self.used[class] += 1;
            fact_of(class, slot)
        };
        let slot = (fact - fact_of(class, 0)) / FACT;
        let start = SLOTS + ((class as u64) << RANGE) + slot * room;
        let at = (start + redzone).next_multiple_of(align.max(16));
        if free != 0 || size < LARGE {
            shadow::set(start, start + room, shadow::REDZONE);
            shadow::open(at, size);
        } else {
            // Its shadow is zeros.
            shadow::set(start, at, shadow::REDZONE);
            shadow::set(at + (size & !7), start + room, shadow::REDZONE);
            shadow::open(at + (size & !7), size % 8);
        }
        if is_zero && free != 0 {
            // SAFETY: the block is free.
            unsafe { with_exposed_provenance_mut::<u8>(at as usize).write_bytes(0, size as usize) };
        }
        *block_at(fact) = Block {
            start: at,
            size,
            next: 0,
            allocated: stack,
            freed: 0,
            kind,
            state: State::Live,
            mark: 0,
            _unused: [0; 5],
        };
        self.allocations += 1;
        self.bytes += size;
        Some(at)
    }

    /// Frees a block that is allocated.
    pub fn free(&mut self, block: &mut Block, stack: u32) {
        block.state = State::Freed;
        block.freed = stack;
        block.next = 0;
        shadow::set(block.start, block.start + block.size, shadow::FREED);
        if block.size >= LARGE {
            shadow::give_back(block.start, block.start + block.size);
        }
        self.frees += 1;
        self.waiting += block.size;
        let fact = (&raw mut *block).expose_provenance() as u64;
        match self.queue {
            [0, _] => self.queue = [fact; 2],
            [_, last] => {
                block_at(last).next = fact;
                self.queue[1] = fact;
            }
        }
        while self.waiting > self.limit && self.queue[0] != self.queue[1] {
            let first = self.queue[0];
            let block = block_at(first);
            self.queue[0] = block.next;
            self.waiting -= block.size;
            let class = ((first - FACTS) >> (RANGE + 1)) as usize;
            block.next = self.free[class];
            self.free[class] = first;
        }
    }
}

/// Copies bytes between two blocks.
pub fn copy(from: u64, to: u64, len: u64) {
    let [from, to] = [from, to].map(|at| with_exposed_provenance_mut::<u8>(at as usize));
    // SAFETY: both have this size and are different.
    unsafe { copy_nonoverlapping(from, to, len as usize) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_has_room_for_its_sizes() {
        for size in (1..5000).chain([1 << 20, (1 << 20) + 1, 3 << 28]) {
            let class = class_of(size).expect("there is a class");
            assert!(slot_size(class) >= size);
            assert!(class == 0 || slot_size(class - 1) < size, "{size}");
        }
    }
}

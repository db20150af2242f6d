//! The slots of blocks, and what is known of each.
//!
//! A block is in a slot of a class of sizes. All slots of a class are in one range of addresses, so an address tells its slot;
//! what is known of a slot is kept elsewhere, where the program does not write by mistake.

use std::ptr::with_exposed_provenance;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

use crate::names::Does;
use crate::shadow;

/// Address of the slots, and of what is known of them: where the kernel maps nothing by itself, whatever the limit of the stack is.
/// Without a limit mappings begin below 0x1555_5555_5000, or (older kernels) above 0x2aaa_aaaa_a000.
const SLOTS: u64 = 0x1600_0000_0000;
const FACTS: u64 = 0x3000_0000_0000;
/// Size of a class's range of addresses, as a power of two; twice that for what is known.
pub const RANGE: u32 = 36;
/// Classes of 16, 32 ... 1024 bytes, and four for each further power of two.
const SMALL: usize = 64;
pub const CLASSES: usize = SMALL + 4 * 25;
/// Size of a block from which on its pages are given back when it is freed.
pub const LARGE: u64 = 1 << 18;
/// Bytes and number of slots that a thread takes at once.
const CHUNK: u64 = 1 << 13;
const MOST_OF_CHUNK: u64 = 32;

/// States of a slot.
pub const LIVE: u8 = 1;
pub const FREED: u8 = 2;

/// What is known of a slot. It is all zeros before the first use.
#[derive(Default)]
#[repr(C)]
pub struct Block {
    pub start: AtomicU64,
    pub size: AtomicU64,
    /// The next one of a list: address of what is known of it, or 0.
    pub next: AtomicU64,
    /// Numbers of the stacks at which it was allocated and freed.
    pub allocated: AtomicU32,
    pub freed: AtomicU32,
    /// What allocated it: a [`Does`].
    pub does: AtomicU8,
    pub state: AtomicU8,
    /// How leaks were reached.
    pub mark: AtomicU8,
    _unused: [u8; 5],
}

/// What is known of a block at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// Address of the block.
    pub start: u64,
    /// Its requested size in bytes.
    pub size: u64,
    pub allocated: u32,
    pub freed: u32,
    pub does: Does,
    pub is_live: bool,
}

impl Block {
    /// The block is allocated.
    #[inline]
    pub fn begin(&self, start: u64, size: u64, does: Does, stack: u32) {
        self.start.store(start, Relaxed);
        self.size.store(size, Relaxed);
        self.allocated.store(stack, Relaxed);
        self.freed.store(0, Relaxed);
        self.does.store(does as u8, Relaxed);
        self.mark.store(0, Relaxed);
        self.state.store(LIVE, Relaxed);
    }

    pub fn known(&self) -> Known {
        Known {
            start: self.start.load(Relaxed),
            size: self.size.load(Relaxed),
            allocated: self.allocated.load(Relaxed),
            freed: self.freed.load(Relaxed),
            does: Does::from_number(self.does.load(Relaxed).into()),
            is_live: self.is_live(),
        }
    }

    #[inline]
    pub fn start(&self) -> u64 {
        self.start.load(Relaxed)
    }

    #[inline]
    pub fn size(&self) -> u64 {
        self.size.load(Relaxed)
    }

    #[inline]
    pub fn allocated(&self) -> u32 {
        self.allocated.load(Relaxed)
    }

    #[inline]
    pub fn does(&self) -> Does {
        Does::from_number(self.does.load(Relaxed).into())
    }

    #[inline]
    pub fn is_live(&self) -> bool {
        self.state.load(Relaxed) == LIVE
    }

    /// The address of this structure.
    #[inline]
    pub fn fact(&self) -> u64 {
        std::ptr::from_ref(self).expose_provenance() as u64
    }
}

/// Size in bytes of a [`Block`].
const FACT: u64 = size_of::<Block>() as u64;

/// Number of slots of each class that threads have taken.
static USED: [AtomicU64; CLASSES] = [const { AtomicU64::new(0) }; CLASSES];

/// Maps the heap.
pub fn begin() -> bool {
    let classes = CLASSES as u64;
    shadow::map(SLOTS, classes << RANGE) && shadow::map(FACTS, classes << (RANGE + 1))
}

/// The size of the slots of a class.
pub const fn slot_size(class: usize) -> u64 {
    if class < SMALL {
        return 16 * (class as u64 + 1);
    }
    let more = class - SMALL;
    let quarter = 256 << (more / 4);
    4 * quarter + (more as u64 % 4 + 1) * quarter
}

/// For each class 2 to the 64th divided by the size of its slots, rounded up.
static RECIPROCALS: [u64; CLASSES] = {
    let mut all = [0; CLASSES];
    let mut class = 0;
    while class < CLASSES {
        all[class] = u64::MAX / slot_size(class) + 1;
        class += 1;
    }
    all
};

/// The class of the smallest slots of at least this size.
#[inline]
pub fn class_of(size: u64) -> Option<usize> {
    if size <= 1024 {
        return Some((size.max(16).div_ceil(16) - 1) as usize);
    }
    let log = (size - 1).ilog2();
    let quarter = 1u64 << (log - 2);
    let class = SMALL + 4 * (log as usize - 10) + ((size - 1 - 4 * quarter) / quarter) as usize;
    (class < CLASSES).then_some(class)
}

/// What is known of a slot, by the address of that.
#[inline]
pub fn block_at(fact: u64) -> &'static Block {
    // SAFETY: one of a slot, which is mapped for ever.
    unsafe { &*with_exposed_provenance(fact as usize) }
}

fn fact_of(class: usize, slot: u64) -> u64 {
    FACTS + ((class as u64) << (RANGE + 1)) + slot * FACT
}

/// The class of a slot, by the address of what is known of it.
#[inline]
pub fn class_of_fact(fact: u64) -> usize {
    ((fact - FACTS) >> (RANGE + 1)) as usize
}

/// True for an address between blocks or in one.
#[inline]
pub fn has(address: u64) -> bool {
    address.wrapping_sub(SLOTS) < (CLASSES as u64) << RANGE
}

/// True for an address of what this module keeps.
pub fn is_own(address: u64) -> bool {
    has(address) || address.wrapping_sub(FACTS) < (CLASSES as u64) << (RANGE + 1)
}

/// Number of the slot of a class that has this offset in the class's range.
#[inline]
fn slot_of(class: usize, offset: u64) -> u64 {
    // The error is below 2 to the power of 36 - 64, so it matters for no slot below 2 to the 28th.
    if class < SMALL + 4 * 16 {
        return ((u128::from(offset) * u128::from(RECIPROCALS[class])) >> 64) as u64;
    }
    offset / slot_size(class)
}

/// The slot of an address, if it was ever used.
#[inline]
pub fn find(address: u64) -> Option<&'static Block> {
    if !has(address) {
        return None;
    }
    let class = ((address - SLOTS) >> RANGE) as usize;
    let slot = slot_of(class, (address - SLOTS) & ((1 << RANGE) - 1));
    let block = block_at(fact_of(class, slot));
    (block.state.load(Relaxed) != 0).then_some(block)
}

/// All blocks that are allocated.
pub fn live() -> impl Iterator<Item = &'static Block> {
    let used = |class: usize| USED[class].load(Relaxed);
    let all = (0..CLASSES).flat_map(move |c| (0..used(c)).map(move |i| fact_of(c, i)));
    all.map(block_at).filter(|block| block.is_live())
}

/// Takes slots of a class that were never used. Returns the first one and their number, or none if there is no room.
pub fn take_fresh(class: usize) -> (u64, u64) {
    let room = slot_size(class);
    let count = (CHUNK / room).clamp(1, MOST_OF_CHUNK);
    let first = USED[class].fetch_add(count, Relaxed);
    if ((first + count) * room) >> RANGE != 0 {
        USED[class].fetch_sub(count, Relaxed);
        return (0, 0);
    }
    if room < LARGE {
        let start = SLOTS + ((class as u64) << RANGE) + first * room;
        shadow::set(start, start + count * room, shadow::REDZONE);
    }
    (fact_of(class, first), count)
}

/// The address of a slot, by the address of what is known of it.
#[inline]
pub fn slot_at(fact: u64, class: usize) -> u64 {
    let slot = (fact - fact_of(class, 0)) / FACT;
    SLOTS + ((class as u64) << RANGE) + slot * slot_size(class)
}

/// The address of what is known of the next slot.
pub fn next_fact(fact: u64) -> u64 {
    fact + FACT
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

    #[test]
    fn an_offset_leads_to_its_slot() {
        for class in 0..CLASSES {
            let size = slot_size(class);
            let last = (1 << RANGE) / size;
            for slot in (0..100).chain(last.saturating_sub(100)..=last) {
                for offset in [slot * size, slot * size + 1, (slot + 1) * size - 1] {
                    assert_eq!(slot_of(class, offset), slot, "{size}");
                }
            }
        }
    }
}

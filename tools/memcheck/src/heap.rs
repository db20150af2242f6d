//! The allocator that is in the place of the program's.
//!
//! A block has redzones on both sides in its slot (`slots`). Each thread has slots of its own that are free (`caches`).

use std::ptr::{copy_nonoverlapping, with_exposed_provenance_mut};
use std::sync::atomic::AtomicU16;
use std::sync::atomic::Ordering::Relaxed;

use atom_tool::prelude::*;

use crate::caches::Cache;
use crate::names::Does;
use crate::shadow;
use crate::slots::{self, Block, FREED, LARGE, LIVE, RANGE, class_of, slot_size};

/// Smallest and largest redzone in bytes.
const REDZONE: [u64; 2] = [16, 2048];

/// In the place of a byte: nothing is filled.
pub const NO_FILL: u16 = 0x100;

plain_data! {
    /// Bytes with which blocks are filled.
    pub struct Fill {
        pub allocated: u16,
        pub freed: u16,
    }
}

static ALLOCATED: AtomicU16 = AtomicU16::new(NO_FILL);
static FREED_BYTE: AtomicU16 = AtomicU16::new(NO_FILL);

pub fn begin(fill: Fill) {
    ALLOCATED.store(fill.allocated, Relaxed);
    FREED_BYTE.store(fill.freed, Relaxed);
}

/// Fills a block. Returns false if there is nothing to fill it with.
#[inline]
fn fill(byte: &AtomicU16, at: u64, size: u64) -> bool {
    let byte = byte.load(Relaxed);
    if byte == NO_FILL {
        return false;
    }
    // SAFETY: the block is nobody's: it is not handed out yet, or is not any more.
    unsafe {
        with_exposed_provenance_mut::<u8>(at as usize).write_bytes(byte as u8, size as usize)
    };
    true
}

/// What is to be allocated.
#[derive(Clone, Copy)]
pub struct Wanted {
    pub size: u64,
    /// A power of two.
    pub align: u64,
    pub does: Does,
    pub stack: u32,
}

/// The size of the redzones of a block.
#[inline]
fn redzone(size: u64) -> u64 {
    size.div_ceil(4)
        .next_multiple_of(16)
        .clamp(REDZONE[0], REDZONE[1])
}

/// Allocates a block; `None` if there is no room for it.
#[inline]
pub fn allocate(cache: &Cache, wanted: Wanted, is_zero: bool) -> Option<u64> {
    let Wanted { size, align, .. } = wanted;
    if size >> RANGE != 0 || align > 1 << 30 {
        return None;
    }
    let redzone = redzone(size);
    let extra = if align > 16 { align } else { 0 };
    let class = class_of(redzone + extra + size.next_multiple_of(16) + redzone)?;
    let room = slot_size(class);
    let fact = cache.take(class)?;
    let start = slots::slot_at(fact, class);
    let at = (start + redzone).next_multiple_of(align.max(16));
    let block = slots::block_at(fact);
    let is_fresh = block.state.load(Relaxed) == 0;
    if !is_fresh {
        let (old, old_size) = (block.start(), block.size());
        if old != at || old_size.next_multiple_of(16) != size.next_multiple_of(16) {
            shadow::set(old, old + old_size, shadow::REDZONE);
        }
    } else if room >= LARGE {
        // Its shadow is zeros.
        shadow::set(start, at, shadow::REDZONE);
        shadow::set(at + (size & !7), start + room, shadow::REDZONE);
    }
    if is_fresh && room >= LARGE {
        shadow::open(at + (size & !7), size % 8);
    } else {
        shadow::open(at, size);
    }
    if !is_zero {
        fill(&ALLOCATED, at, size);
    } else if !is_fresh {
        // SAFETY: the block is free.
        unsafe { with_exposed_provenance_mut::<u8>(at as usize).write_bytes(0, size as usize) };
    }
    block.begin(at, size, wanted.does, wanted.stack);
    cache.count_allocation(size);
    Some(at)
}

/// Frees a block; false if another thread has freed it.
#[inline]
pub fn free(cache: &Cache, block: &'static Block, stack: u32) -> bool {
    let was = block.state.compare_exchange(LIVE, FREED, Relaxed, Relaxed);
    if was.is_err() {
        return false;
    }
    block.freed.store(stack, Relaxed);
    let (start, size) = (block.start(), block.size());
    shadow::set(start, start + size, shadow::FREED);
    if !fill(&FREED_BYTE, start, size) && size >= LARGE {
        shadow::give_back(start, start + size);
    }
    cache.put(block, size);
    true
}

/// Copies bytes between two blocks.
pub fn copy(from: u64, to: u64, len: u64) {
    let [from, to] = [from, to].map(|at| with_exposed_provenance_mut::<u8>(at as usize));
    // SAFETY: both have this size and are different.
    unsafe { copy_nonoverlapping(from, to, len as usize) }
}

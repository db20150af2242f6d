//! The table of live blocks.
//!
//! An open hash table with linear search. Blocks that are neighbours in memory are mostly neighbours here, too: the
//! hash is one of 256 bytes of addresses, in which each 32 bytes have a place of their own, the distance of
//! glibc's smallest blocks. So a program that works on neighbouring blocks misses the caches less.

use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

/// A live block.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Block {
    /// Size in bytes.
    pub size: u64,
    /// Time of its allocation.
    pub born: u64,
    /// Index of its call path's figures.
    pub path: u32,
}

/// A place for a block; the address 0 is that of no block.
#[derive(Clone, Copy, Default)]
struct Slot {
    at: u64,
    block: Block,
}

/// The live blocks by their addresses, which are not 0.
pub struct Table {
    /// A power of two of them, at most two thirds of them in use.
    slots: Vec<Slot>,
    used: usize,
}

/// Number of slots at first.
const FIRST: usize = 1 << 12;
/// Bits of an address within one place of a group, and within a group.
const PLACE_BITS: u32 = 5;
const GROUP_BITS: u32 = 8;
/// Number of places of a group.
const GROUP: usize = 1 << (GROUP_BITS - PLACE_BITS);

impl Default for Table {
    fn default() -> Self {
        Self {
            slots: vec![Slot::default(); FIRST],
            used: 0,
        }
    }
}

impl Table {
    fn mask(&self) -> usize {
        self.slots.len() - 1
    }

    /// Where the search for a block begins.
    #[inline]
    fn home(&self, at: u64) -> usize {
        let group = (at >> GROUP_BITS).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let place = (at >> PLACE_BITS) as usize % GROUP;
        (group as usize * GROUP + place) & self.mask()
    }

    /// Has the processor load the place of a block that will be looked for.
    #[inline]
    pub fn prefetch(&self, at: u64) {
        let slot = self.slots.as_ptr().wrapping_add(self.home(at));
        // SAFETY: a prefetch accesses nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(slot.cast()) };
    }

    /// Puts a block into the table; returns the one that it replaces.
    #[inline]
    pub fn insert(&mut self, at: u64, block: Block) -> Option<Block> {
        let mask = self.mask();
        let mut i = self.home(at);
        loop {
            let slot = &mut self.slots[i & mask];
            if slot.at == at {
                return Some(std::mem::replace(&mut slot.block, block));
            }
            if slot.at == 0 {
                *slot = Slot { at, block };
                break;
            }
            i += 1;
        }
        self.used += 1;
        if self.used * 3 > self.slots.len() * 2 {
            self.grow();
        }
        None
    }

    /// Takes a block out of the table.
    #[inline]
    pub fn remove(&mut self, at: u64) -> Option<Block> {
        let mask = self.mask();
        let mut i = self.home(at) & mask;
        while self.slots[i].at != at {
            if self.slots[i].at == 0 {
                return None;
            }
            i = (i + 1) & mask;
        }
        let block = self.slots[i].block;
        self.used -= 1;
        // Blocks after it move up, unless that is in front of where their search begins.
        let mut gap = i;
        loop {
            i = (i + 1) & mask;
            let next = self.slots[i];
            if next.at == 0 {
                break;
            }
            let from_home = i.wrapping_sub(self.home(next.at)) & mask;
            if from_home >= i.wrapping_sub(gap) & mask {
                self.slots[gap] = next;
                gap = i;
            }
        }
        self.slots[gap].at = 0;
        Some(block)
    }

    #[cold]
    fn grow(&mut self) {
        let larger = vec![Slot::default(); self.slots.len() * 2];
        let old = std::mem::replace(&mut self.slots, larger);
        self.used = 0;
        for slot in old.into_iter().filter(|slot| slot.at != 0) {
            self.insert(slot.at, slot.block);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::{Block, Table};

    #[test]
    fn it_is_a_map() {
        let mut table = Table::default();
        let mut model: HashMap<u64, Block> = HashMap::new();
        let mut random = 1u64;
        for turn in 0..400_000u64 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            // Dense blocks, of which most are neighbours, so that searches are long.
            let most = if turn % 100_000 < 60_000 { 12_000 } else { 300 };
            let at = 0x5555_0000_0000 + (random >> 40) % most * 16;
            let block = Block {
                size: turn,
                born: random,
                path: turn as u32,
            };
            if random >> 33 & 1 == 0 {
                assert_eq!(table.insert(at, block), model.insert(at, block));
            } else {
                assert_eq!(table.remove(at), model.remove(&at));
            }
            assert_eq!(table.used, model.len());
        }
    }
}

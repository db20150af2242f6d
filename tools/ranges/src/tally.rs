//! Counts that are made on the cold path, by memory operand and set of ranges.
//!
//! A hash table with open addressing, which grows by further tables and has no lock: a key is
//! written once, by compare-and-swap, and counts are added atomically. So threads can share it,
//! and a signal handler may interrupt at any point.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicPtr, AtomicU64};

const FIRST: usize = 1 << 12;
/// Number of slots that are probed in one table.
const PROBES: usize = 24;

/// Counts of a memory operand and a set of ranges.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Tally {
    /// Number of references.
    pub references: u64,
    /// Number of their bytes that are in the ranges.
    pub bytes: u64,
    /// Number of misses.
    pub misses: u64,
}

struct Slot {
    /// Memory operand and set, plus 1; 0 is an empty slot.
    key: AtomicU64,
    cells: [AtomicU64; 3],
}

struct Table {
    slots: AtomicPtr<Slot>,
    len: usize,
    next: AtomicPtr<Table>,
}

static FIRST_SLOTS: [Slot; FIRST] = [const {
    Slot {
        key: AtomicU64::new(0),
        cells: [const { AtomicU64::new(0) }; 3],
    }
}; FIRST];
static TABLE: Table = Table {
    slots: AtomicPtr::new(&raw const FIRST_SLOTS as *mut Slot),
    len: FIRST,
    next: AtomicPtr::new(std::ptr::null_mut()),
};
/// Number of references that were not counted for lack of memory.
pub static LOST: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" {
    fn mmap(at: *mut u8, len: usize, prot: i32, flags: i32, fd: i32, offset: i64) -> *mut u8;
}

impl Table {
    fn slot(&self, i: usize) -> &Slot {
        // SAFETY: `len` slots that live for ever, and a power of two of them.
        unsafe { &*self.slots.load(Relaxed).add(i & (self.len - 1)) }
    }

    fn next(&self) -> Option<&'static Table> {
        // SAFETY: null or a table, which lives for ever.
        unsafe { self.next.load(Acquire).as_ref() }
    }

    fn grown(&self) -> Option<&'static Table> {
        if let Some(next) = self.next() {
            return Some(next);
        }
        let len = self.len * 4;
        // This memory is not from the heap, as a signal handler may have interrupted the heap.
        let size = size_of::<Table>() + len * size_of::<Slot>();
        // SAFETY: fresh memory, readable, writable, private and of zeros, to which no other pointer exists.
        let memory = unsafe { mmap(std::ptr::null_mut(), size, 3, 0x22, -1, 0) };
        if memory.is_null() || memory.addr() > usize::MAX - 4096 {
            return None;
        }
        let table = memory.cast::<Table>();
        // SAFETY: a table and its slots fit; zeros are empty slots.
        unsafe {
            table.write(Table {
                slots: AtomicPtr::new(table.add(1).cast()),
                len,
                next: AtomicPtr::new(std::ptr::null_mut()),
            });
        }
        // If another thread was first, this memory stays unused.
        let _ = self
            .next
            .compare_exchange(std::ptr::null_mut(), table, AcqRel, Acquire);
        self.next()
    }
}

/// Adds counts of a memory operand and a set of ranges.
pub fn add(place: u32, set: u32, tally: Tally) {
    let key = (u64::from(place) << 32 | u64::from(set)) + 1;
    let hash = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize;
    let mut table = Some(&TABLE);
    while let Some(t) = table {
        for probe in 0..PROBES {
            let slot = t.slot(hash + probe);
            let mut known = slot.key.load(Acquire);
            if known == 0 {
                let set = slot.key.compare_exchange(0, key, AcqRel, Acquire);
                known = set.err().unwrap_or(key);
            }
            if known == key {
                let values = [tally.references, tally.bytes, tally.misses];
                for (cell, n) in slot.cells.iter().zip(values).filter(|(_, n)| *n != 0) {
                    cell.fetch_add(n, Relaxed);
                }
                return;
            }
        }
        table = t.grown();
    }
    LOST.fetch_add(tally.references, Relaxed);
}

/// Sets all counts to 0.
pub fn clear() {
    let mut table = Some(&TABLE);
    while let Some(t) = table {
        let slots = (0..t.len).map(|i| t.slot(i));
        for cell in slots.flat_map(|slot| &slot.cells) {
            // A page that was never written stays so.
            if cell.load(Relaxed) != 0 {
                cell.store(0, Relaxed);
            }
        }
        table = t.next();
    }
    LOST.store(0, Relaxed);
}

/// All counts, with memory operand and set.
pub fn all() -> Vec<(u32, u32, Tally)> {
    let mut found = Vec::new();
    let mut table = Some(&TABLE);
    while let Some(t) = table {
        for slot in (0..t.len).map(|i| t.slot(i)) {
            let key = slot.key.load(Acquire);
            if key != 0 {
                let cell = |i: usize| slot.cells[i].load(Relaxed);
                let tally = Tally {
                    references: cell(0),
                    bytes: cell(1),
                    misses: cell(2),
                };
                found.push((((key - 1) >> 32) as u32, (key - 1) as u32, tally));
            }
        }
        table = t.next();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_more_than_one_table_holds() {
        for round in 0..3u64 {
            for place in 0..3 * FIRST as u32 {
                add(
                    place,
                    place % 7,
                    Tally {
                        references: 1,
                        bytes: round,
                        misses: 0,
                    },
                );
            }
        }
        let mut all = all();
        all.sort_unstable_by_key(|a| (a.0, a.1));
        assert_eq!(all.len(), 3 * FIRST);
        for (i, (place, set, tally)) in all.into_iter().enumerate() {
            assert_eq!((place, set), (i as u32, i as u32 % 7));
            assert_eq!(
                tally,
                Tally {
                    references: 3,
                    bytes: 3,
                    misses: 0
                }
            );
        }
        assert_eq!(LOST.load(Relaxed), 0);
        clear();
        assert!(
            self::all()
                .iter()
                .all(|(.., tally)| *tally == Tally::default())
        );
    }
}

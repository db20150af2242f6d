//! The table of threads' records, by thread key (see `current`).
//!
//! It is open-addressed, grows by further tables, never shrinks and has no
//! lock: compare-and-swap writes an entry's key once, and its record once. A signal handler that comes
//! between the two finds the key and makes the record.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::sys::fatal::fatal;
use crate::sys::memory;
use crate::threads::record::ThreadRecord;

/// Number of entries of the first table; each further one has four times as many.
const ROOT_SLOTS: usize = 1024;
/// Number of consecutive entries in which a key may be.
const PROBES: usize = 16;

/// Entry of one thread. An entry with key 0 is empty.
pub(crate) struct Slot {
    /// Thread key, written once.
    pub key: AtomicUsize,
    /// Null until the record is made.
    pub record: AtomicPtr<ThreadRecord>,
}

/// One of the tables.
pub(crate) struct Table {
    slots: *const Slot,
    /// Number of entries minus 1; the number is a power of two.
    mask: usize,
    next: AtomicPtr<Table>,
}

// SAFETY: `slots` points to memory that lives for ever and is only accessed atomically.
unsafe impl Sync for Table {}

static ROOT_MEMORY: [Slot; ROOT_SLOTS] = [const {
    Slot {
        key: AtomicUsize::new(0),
        record: AtomicPtr::new(null_mut()),
    }
}; ROOT_SLOTS];
/// The first table.
pub(crate) static ROOT: Table = Table {
    slots: &raw const ROOT_MEMORY as *const Slot,
    mask: ROOT_SLOTS - 1,
    next: AtomicPtr::new(null_mut()),
};

impl Table {
    /// The entry in which a key may be: the first one for `probe` 0, then the ones after it.
    #[inline]
    pub fn slot(&self, key: usize, probe: usize) -> &Slot {
        let at = (key >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        // SAFETY: the mask keeps the index inside the table.
        unsafe { &*self.slots.add((at + probe) & self.mask) }
    }

    /// The next table, made if there is none.
    fn grown(&self) -> &Table {
        let next = self.next.load(Ordering::Acquire);
        if !next.is_null() {
            // SAFETY: tables live for ever.
            return unsafe { &*next };
        }
        let slots = (self.mask + 1) * 4;
        let bytes = slots * size_of::<Slot>() + size_of::<Table>();
        let memory = memory::map(bytes);
        if memory.is_null() {
            fatal("no memory for another thread");
        }
        // SAFETY: fresh zeroed memory of the right size; all-zero slots are empty slots.
        unsafe {
            let table = memory.add(slots * size_of::<Slot>()).cast::<Table>();
            let next = AtomicPtr::new(null_mut());
            table.write(Table {
                slots: memory.cast(),
                mask: slots - 1,
                next,
            });
            match self
                .next
                .compare_exchange(null_mut(), table, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => &*table,
                Err(other) => {
                    memory::unmap(memory, memory::pages(bytes));
                    &*other
                }
            }
        }
    }
}

/// The entry of a key if it has one. An empty entry ends the search for good:
/// keys are never removed, so a key that is in a later table found none here.
pub(crate) fn find(key: usize) -> Option<&'static Slot> {
    let mut table = &ROOT;
    loop {
        for probe in 0..PROBES {
            let slot = table.slot(key, probe);
            match slot.key.load(Ordering::Acquire) {
                0 => return None,
                k if k == key => return Some(slot),
                _ => {}
            }
        }
        let next = table.next.load(Ordering::Acquire);
        if next.is_null() {
            return None;
        }
        // SAFETY: tables live for ever.
        table = unsafe { &*next };
    }
}

/// The entry of a key, made if it has none.
pub(crate) fn find_or_insert(key: usize) -> &'static Slot {
    let mut table = &ROOT;
    loop {
        for probe in 0..PROBES {
            let slot = table.slot(key, probe);
            let had = slot
                .key
                .compare_exchange(0, key, Ordering::AcqRel, Ordering::Acquire);
            if had.is_ok() || had == Err(key) {
                return slot;
            }
        }
        table = table.grown();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ptr;

    #[test]
    fn table_grows_and_keeps_every_key() {
        let keys: Vec<usize> = (1..=20_000).map(|i| 1 << 63 | i << 12).collect();
        let slots: Vec<_> = keys
            .iter()
            .map(|&k| ptr::from_ref(find_or_insert(k)))
            .collect();
        for (&k, &s) in keys.iter().zip(&slots) {
            assert!(ptr::eq(find(k).expect("inserted"), s));
            assert!(ptr::eq(find_or_insert(k), s));
        }
        let mut distinct = slots.clone();
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), keys.len());
        assert!(find(1 << 63 | 7).is_none());
    }
}

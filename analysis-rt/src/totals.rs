//! Totals of calls that were counted by control flow instead of being made.
//!
//! `atom` leaves a table that says how the tool's cells follow from the flow's
//! counters; its form is described at `atom_abi::Totals`. It is `atom`'s own work
//! and as long as it says, so it is not checked again here.

use core::sync::atomic::{AtomicU64, Ordering};

use atom_abi::{StartInfo, ThreadInfo};

/// Reads a table from its start to its end.
struct Table {
    at: *const u8,
    end: *const u8,
}

impl Table {
    fn is_at_end(&self) -> bool {
        self.at >= self.end
    }

    /// The next number.
    ///
    /// # Safety
    /// There must be one.
    unsafe fn next(&mut self) -> u64 {
        let (mut value, mut shift) = (0u64, 0u32);
        loop {
            // SAFETY: the caller's promise; the last byte of a number is below 0x80.
            let byte = unsafe { *self.at };
            self.at = self.at.wrapping_add(1);
            value |= u64::from(byte & 0x7f).wrapping_shl(shift);
            shift += 7;
            if byte < 0x80 {
                return value;
            }
        }
    }
}

fn unfolded(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// Where the sum over all threads lies of a cell that may be the threads' own.
fn in_totals(threads: &ThreadInfo, cell: *mut u64) -> *mut u64 {
    let offset = (cell as usize).wrapping_sub(threads.main as usize);
    if offset >= threads.size {
        return cell;
    }
    let totals = threads.totals.load(Ordering::Acquire);
    totals.cast::<u64>().wrapping_byte_add(offset)
}

/// Adds what was counted to the tool's cells and starts counting anew, so
/// that it may be done again, say in a child that is forked later.
///
/// # Safety
/// `info` must describe a table that `atom` wrote, with all that it points to;
/// what threads have counted has been summed.
pub(crate) unsafe fn settle(info: &StartInfo) {
    let totals = &info.totals;
    if totals.table.is_null() {
        return;
    }
    // SAFETY: null, or in the image.
    let threads = unsafe { info.threads.as_ref() };
    let summed = |cell: *mut u64| threads.map_or(cell, |threads| in_totals(threads, cell));
    let mut table = Table {
        at: totals.table,
        end: totals.table.wrapping_add(totals.table_size),
    };
    let mut counter = summed(totals.counters);
    let values = totals.scratch;
    // SAFETY: the table names only counters, values and cells that there are;
    // other threads may count meanwhile, so those are accessed atomically.
    unsafe {
        while !table.is_at_end() {
            let mut count = 0usize;
            for _ in 0..table.next() {
                let counted = AtomicU64::from_ptr(counter).swap(0, Ordering::Relaxed);
                *values.add(count) = counted as i64;
                counter = counter.add(1);
                count += 1;
            }
            for _ in 0..table.next() {
                let mut sum = 0i64;
                for _ in 0..table.next() {
                    let term = table.next();
                    let value = *values.add(count - (term >> 1) as usize);
                    sum = match term & 1 {
                        0 => sum.wrapping_add(value),
                        _ => sum.wrapping_sub(value),
                    };
                }
                *values.add(count) = sum;
                count += 1;
            }
            let mut word = 0i64;
            for _ in 0..table.next() {
                word += unfolded(table.next());
                let what = table.next();
                let amount = match what & 1 {
                    0 => 1,
                    _ => unfolded(table.next()),
                };
                let value = *values.add(count - (what >> 1) as usize);
                // Below 0 only if control left in a way that is not accounted for.
                if value > 0 {
                    let cell = AtomicU64::from_ptr(summed(totals.data.offset(word as isize)));
                    let added = value.wrapping_mul(amount) as u64;
                    let before = cell.load(Ordering::Relaxed);
                    cell.store(before.wrapping_add(added), Ordering::Relaxed);
                }
            }
        }
    }
}

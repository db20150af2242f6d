//! Totals of calls that were counted by control flow instead of being made.
//!
//! `atom` leaves a table that says how the tool's cells follow from the flow's
//! counters; `atom_abi::Totals` describes its form. `atom` made the table, so it is not
//! checked again here.

use core::sync::atomic::{AtomicU64, Ordering};

use atom_abi::{StartInfo, ThreadInfo};

/// The next number of a table; 0 after its end.
fn next(table: &mut &[u8]) -> u64 {
    leb128::take(table).unwrap_or(0)
}

/// The next number of a table, which has a sign.
fn next_signed(table: &mut &[u8]) -> i64 {
    leb128::unzigzag(next(table))
}

/// The cell with the sum over all threads, for a cell that may belong to each thread.
fn in_totals(threads: &ThreadInfo, cell: *mut u64) -> *mut u64 {
    let offset = (cell as usize).wrapping_sub(threads.main as usize);
    if offset >= threads.size {
        return cell;
    }
    let totals = threads.totals.load(Ordering::Acquire);
    totals.cast::<u64>().wrapping_byte_add(offset)
}

/// Reads a counter and sets it to 0. A counter that is 0 is not written, since its page may not be there yet.
///
/// # Safety
/// The counter is there; other threads may count meanwhile.
unsafe fn take(counter: *mut u64) -> u64 {
    // SAFETY: the caller's promise.
    let counter = unsafe { AtomicU64::from_ptr(counter) };
    match counter.load(Ordering::Relaxed) {
        0 => 0,
        _ => counter.swap(0, Ordering::Relaxed),
    }
}

/// Adds the counts to the tool's cells and sets the flow's counters to 0, so
/// that it may be done again, such as in a child that is forked later.
///
/// # Safety
/// `info` must describe a table that `atom` wrote, with all that it points to;
/// the counts of all threads have been summed.
pub(crate) unsafe fn settle(info: &StartInfo) {
    let totals = &info.totals;
    if totals.table.is_null() {
        return;
    }
    // SAFETY: null, or in the image.
    let threads = unsafe { info.threads.as_ref() };
    let summed = |cell: *mut u64| threads.map_or(cell, |threads| in_totals(threads, cell));
    // SAFETY: `atom` placed the table in the image, which nobody changes.
    let mut table = unsafe { core::slice::from_raw_parts(totals.table, totals.table_size) };
    let mut counter = summed(totals.counters);
    let values = totals.scratch;
    // SAFETY: the table names only counters, values and cells that there are;
    // other threads may count meanwhile, so those are accessed atomically.
    unsafe {
        while !table.is_empty() {
            let mut count = 0usize;
            let mut any = 0;
            for _ in 0..next(&mut table) {
                let counted = take(counter);
                *values.add(count) = counted as i64;
                any |= counted;
                counter = counter.add(1);
                count += 1;
            }
            let rest = next(&mut table) as usize;
            if any == 0 {
                // Most of the code of a process is never executed.
                table = table.get(rest..).unwrap_or_default();
                continue;
            }
            for _ in 0..next(&mut table) {
                let mut sum = 0i64;
                for _ in 0..next(&mut table) {
                    let term = next(&mut table);
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
            for _ in 0..next(&mut table) {
                word += next_signed(&mut table);
                let what = next(&mut table);
                let amount = match what & 1 {
                    0 => 1,
                    _ => next_signed(&mut table),
                };
                let value = *values.add(count - (what >> 1) as usize);
                // A negative count means that control left a procedure in a way that the flow graph lacks.
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

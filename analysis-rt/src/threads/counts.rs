//! Counts of a forked child: they begin at 0, so the reports of all processes add up.
//!
//! `fork` copies the counts with all other memory. Inserted code after each system call that may be a fork calls
//! the runtime in the child, which sets all counts to 0: the tool's cells of all threads, the counters of edges, and
//! what the tool marked. Everything else stays as the parent left it, such as the contents of a simulated cache.
//!
//! No count is lost. A procedure that calls `fork` need not return exactly once, so nothing is derived
//! from the assumption that it does; the counts of procedures that were active at the fork are exact in both
//! processes.

use core::ffi::c_void;
use core::ptr::{NonNull, null_mut};
use core::slice;
use core::sync::atomic::{AtomicPtr, Ordering};

use atom_abi::{StartInfo, ThreadInfo};

use crate::process::{identity, info};
use crate::sys::memory;
use crate::sys::signals::Uninterrupted;
use crate::threads::bursts;

static HOOK: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// Sets what runs in a forked child when its counts have been set to 0. Locks may be held by threads that are not in
/// the child, so the function must not wait for any.
pub fn in_child(hook: fn()) {
    HOOK.store(hook as *mut c_void, Ordering::Release);
}

static NEW_THREAD: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// Sets what runs in a thread when it takes over the data of a thread that has ended.
pub fn in_new_thread(hook: fn()) {
    NEW_THREAD.store(hook as *mut c_void, Ordering::Release);
}

/// Tells the tool that this thread has taken over the data of another one.
pub(super) fn taken_over() {
    let hook = NEW_THREAD.load(Ordering::Acquire);
    if !hook.is_null() {
        // SAFETY: only `in_new_thread` writes it, always with a `fn()`.
        let hook: fn() = unsafe { core::mem::transmute(hook) };
        Uninterrupted::run(|_| hook());
    }
}

/// Sets the counts of a forked child to 0, once. Nothing happens in other processes.
///
/// # Safety
/// Called by inserted code, after an instruction that has answered 0 and may be a fork.
pub(crate) unsafe extern "C" fn forked() {
    if let Some(info) = info::get()
        && identity::takes_over_counts()
    {
        // SAFETY: `atom` wrote the places of all counts, and the parent's threads are not in this process.
        unsafe { clear(info) }
        bursts::forked();
        let hook = HOOK.load(Ordering::Acquire);
        if !hook.is_null() {
            // SAFETY: only `in_child` writes it, always with a `fn()`.
            let hook: fn() = unsafe { core::mem::transmute(hook) };
            Uninterrupted::run(|_| hook());
        }
    }
}

/// Sets all counts to 0.
///
/// # Safety
/// `info` is what `atom` wrote; no other thread runs in this process.
unsafe fn clear(info: &StartInfo) {
    // SAFETY: the caller's promise: each range is memory of the tool's or the flow's, and holds counts alone.
    unsafe {
        if let Some(first) = NonNull::new(info.counts.cast_mut()) {
            for range in slice::from_raw_parts(first.as_ptr(), info.count_ranges) {
                memory::clear(range.start, range.len);
            }
        }
        if let Some(cells) = info.cells.as_ref() {
            clear_cells(cells);
        }
    }
}

/// Sets the cells of all threads to 0.
///
/// # Safety
/// As for [`clear`].
unsafe fn clear_cells(cells: &ThreadInfo) {
    if cells.sum_count == 0 {
        return;
    }
    // SAFETY: blocks live for ever, and `atom` placed the ranges, which are in each block.
    unsafe {
        let ranges = slice::from_raw_parts(cells.sums, cells.sum_count);
        let mut block = cells.main;
        while let Some(header) = block.as_ref() {
            for range in ranges {
                let start = block.cast::<u8>().add(range.offset as usize);
                memory::clear(start, range.len as usize);
            }
            block = header.next.load(Ordering::Acquire);
        }
    }
    // The sums were of the parent's end, if it had one.
    cells.totals.store(cells.main, Ordering::Release);
}

//! Memory from the kernel, at addresses where the application's own mappings never go.

use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::sys::call::{is_error, syscall};
use crate::sys::limit;

/// Size of a page in bytes; x86-64 has no other base size.
pub(crate) const PAGE: usize = 4096;

const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// Address of the runtime's next mapping; it goes upwards. The kernel places the
/// application's mappings downwards from the stack, its image and heap from
/// 0x5555_5555_4000 up, linked-in-place programs at the bottom, Go's heap at
/// 0xc0_0000_0000. Nothing else uses this place, so the application's mappings get the
/// addresses that they would get without the runtime. Programs built with
/// ThreadSanitizer or MemorySanitizer keep most other places for themselves and
/// give up if they find something there; this one belongs to images.
/// Only a hint: an occupied place is no error.
static NEXT_HINT: AtomicUsize = AtomicUsize::new(0x5500_0000_0000);

/// As [`NEXT_HINT`], for what must be above the image: between the heap of a
/// program that the kernel places at 0x5555_5555_4000 to 0x5655_5555_4000 and the mappings
/// below the stack; the sanitizers' place for images ends at 0x5680_0000_0000.
static NEXT_FAR_HINT: AtomicUsize = AtomicUsize::new(0x5660_0000_0000);

/// Rounds a length up to whole pages; saturates.
pub(crate) const fn pages(len: usize) -> usize {
    len.saturating_add(PAGE - 1) & !(PAGE - 1)
}

/// Reserves the next address for `len` bytes, with a free page after them.
fn hint_near(next: &AtomicUsize, len: usize) -> usize {
    next.fetch_add(pages(len).saturating_add(PAGE), Ordering::Relaxed)
}

/// An address for a mapping of `len` bytes that the tool's own code makes.
pub(crate) fn hint(len: usize) -> usize {
    hint_near(&NEXT_HINT, len)
}

fn map_near(next: &AtomicUsize, len: usize, protection: i32) -> *mut u8 {
    let len = pages(len);
    let hint = hint_near(next, len);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping, without MAP_FIXED, replaces nothing.
    let map = || unsafe { syscall!(libc::SYS_mmap, hint, len, protection, flags, -1isize, 0) };
    let r = limit::mapping(len, map);
    if !is_error(r) {
        r as *mut u8
    } else if protection == READ_WRITE {
        from_aside(len)
    } else {
        ptr::null_mut()
    }
}

/// Memory for a process that may not map any more: the address of what is free of it, and its end.
static ASIDE: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// Reserves memory for the time when the application has forbidden itself to map some. Pages that are not used take no
/// memory.
pub(crate) fn set_aside() {
    const FLAGS: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    if ASIDE[1].load(Ordering::Relaxed) != 0 {
        return;
    }
    for len in [1 << 30, 1 << 26] {
        let at = hint(len);
        // SAFETY: a new mapping, without MAP_FIXED, replaces nothing.
        let map = || unsafe { syscall!(libc::SYS_mmap, at, len, READ_WRITE, FLAGS, -1isize, 0) };
        let r = limit::mapping(len, map);
        if !is_error(r) {
            ASIDE[0].store(r as usize, Ordering::Relaxed);
            ASIDE[1].store(r as usize + len, Ordering::Release);
            return;
        }
    }
}

/// Pages of what was set aside, or null.
fn from_aside(len: usize) -> *mut u8 {
    let end = ASIDE[1].load(Ordering::Acquire);
    let taken = ASIDE[0].fetch_update(Ordering::Relaxed, Ordering::Relaxed, |at| {
        at.checked_add(len).filter(|next| *next <= end)
    });
    taken.map_or(ptr::null_mut(), ptr::with_exposed_provenance_mut)
}

/// Fresh zeroed pages for `len` bytes, or null.
pub(crate) fn map(len: usize) -> *mut u8 {
    map_near(&NEXT_HINT, len, READ_WRITE)
}

/// As [`map`], at an address above the image's. The distance from the image is then not negative; the
/// system call that sets a segment base refuses negative ones.
pub(crate) fn map_far(len: usize) -> *mut u8 {
    map_near(&NEXT_FAR_HINT, len, READ_WRITE)
}

/// Has the kernel fill the first `len` bytes of a mapping with zeros in forked children. False if it
/// cannot (before Linux 4.14).
///
/// # Safety
/// `start` and `len` (in whole pages) must be memory of the caller's from [`map`].
pub(crate) unsafe fn wipe_on_fork(start: *mut u8, len: usize) -> bool {
    // SAFETY: the caller's promise; the advice changes nothing in this process.
    unsafe { syscall!(libc::SYS_madvise, start, len, libc::MADV_WIPEONFORK) == 0 }
}

/// Fills memory with zeros. Whole pages are given back to the kernel, which is quicker than copying them for a
/// forked child; they are read again from the file, or from nowhere.
///
/// # Safety
/// `start` and `len` are memory of the caller's that was zeros when it was mapped.
pub(crate) unsafe fn clear(start: *mut u8, len: usize) {
    let end = start as usize + len;
    let (first, last) = (pages(start as usize), end & !(PAGE - 1));
    // SAFETY: the caller's promise; whole pages inside of the range hold nothing else.
    unsafe {
        if first < last
            && syscall!(libc::SYS_madvise, first, last - first, libc::MADV_DONTNEED) == 0
        {
            ptr::write_bytes(start, 0, first - start as usize);
            ptr::write_bytes(last as *mut u8, 0, end - last);
        } else {
            ptr::write_bytes(start, 0, len);
        }
    }
}

/// Fresh zeroed pages for `len` bytes, of which the first `wiped` bytes (whole pages) are zeros again
/// in a forked child. Null if there is no memory, or if the kernel cannot do that.
pub fn map_wiped(wiped: usize, len: usize) -> *mut u8 {
    let memory = map(len);
    if memory.is_null() {
        return memory;
    }
    // SAFETY: the pages were mapped just now; nobody else knows them when they are given back.
    unsafe {
        if !wipe_on_fork(memory, wiped) {
            unmap(memory, pages(len));
            return ptr::null_mut();
        }
    }
    memory
}

/// Returns pages to the kernel.
///
/// # Safety
/// `start` and `len` (in whole pages) must be a mapping from [`map`] that nobody uses any more.
pub(crate) unsafe fn unmap(start: *mut u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe { syscall!(libc::SYS_munmap, start, len) };
    limit::unmapped(len);
}

/// Changes the length of a mapping, in place if possible. Null if the kernel refuses;
/// then nothing has changed.
///
/// # Safety
/// As for [`unmap`]; the old address is invalid if another is returned.
pub(crate) unsafe fn remap(start: *mut u8, old: usize, new: usize) -> *mut u8 {
    const MOVE: i32 = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    let (more, less) = (new.saturating_sub(old), old.saturating_sub(new));
    // SAFETY: the range is the caller's; without flags it can only grow into free space.
    let grow = || unsafe { syscall!(libc::SYS_mremap, start, old, new, 0) };
    let r = limit::mapping(more, grow);
    if !is_error(r) {
        limit::unmapped(less);
        return r as *mut u8;
    }
    let target = map_near(&NEXT_HINT, new, libc::PROT_NONE);
    if target.is_null() {
        return target;
    }
    // SAFETY: the target was reserved just now and holds nothing.
    let r = unsafe { syscall!(libc::SYS_mremap, start, old, new, MOVE, target) };
    if !is_error(r) {
        limit::unmapped(old);
        return r as *mut u8;
    }
    // SAFETY: the target is still the reserved mapping, and nobody else knows it.
    unsafe { unmap(target, pages(new)) };
    ptr::null_mut()
}

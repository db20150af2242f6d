//! C's functions of the heap, with C's way to report errors.

use core::ffi::c_void;
use core::ptr;

use crate::heap::alloc::{alloc, alloc_aligned, resize, usable};
use crate::heap::arena::SMALL_MAX;
use crate::threads::current::set_errno;

/// Sets `errno` if there is no block.
fn or_errno(block: *mut u8) -> *mut u8 {
    if block.is_null() {
        set_errno(libc::ENOMEM);
    }
    block
}

pub(crate) extern "C" fn malloc(size: usize) -> *mut u8 {
    or_errno(alloc(size))
}

/// # Safety
/// As C's `realloc`.
pub(crate) unsafe extern "C" fn realloc(block: *mut u8, size: usize) -> *mut u8 {
    if block.is_null() {
        return malloc(size);
    }
    // SAFETY: C's contract: the block is live, and not used if it moves.
    or_errno(unsafe { resize(block, size) })
}

pub(crate) extern "C" fn calloc(count: usize, size: usize) -> *mut u8 {
    let Some(total) = count.checked_mul(size) else {
        return or_errno(ptr::null_mut());
    };
    let block = or_errno(alloc(total));
    // Pages straight from the kernel are zero already.
    if !block.is_null() && total <= SMALL_MAX {
        // SAFETY: the block has at least `total` bytes.
        unsafe { ptr::write_bytes(block, 0, total) };
    }
    block
}

/// # Safety
/// As C's `posix_memalign`.
pub(crate) unsafe extern "C" fn posix_memalign(
    out: *mut *mut u8,
    align: usize,
    size: usize,
) -> i32 {
    if !align.is_power_of_two() || !align.is_multiple_of(size_of::<*mut c_void>()) {
        return libc::EINVAL;
    }
    let block = alloc_aligned(size, align);
    if block.is_null() {
        return libc::ENOMEM;
    }
    // SAFETY: C's contract.
    unsafe { out.write(block) };
    0
}

pub(crate) extern "C" fn aligned_alloc(align: usize, size: usize) -> *mut u8 {
    if !align.is_power_of_two() {
        set_errno(libc::EINVAL);
        return ptr::null_mut();
    }
    or_errno(alloc_aligned(size, align))
}

/// # Safety
/// `block` is null or a live block of this heap.
pub(crate) unsafe extern "C" fn malloc_usable_size(block: *mut u8) -> usize {
    if block.is_null() {
        0
    } else {
        // SAFETY: the caller's promise.
        unsafe { usable(block) }
    }
}

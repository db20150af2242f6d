//! Allocating and freeing blocks.

use core::ptr;

use crate::heap::arena::{
    ALIGNED, ARENAS, Arena, FREED, HEADER, HEAP, Header, LARGE, SMALL, SMALL_MAX, class_of,
    class_size, header,
};
use crate::sys::fatal::fatal;
use crate::sys::memory::{self, PAGE};
use crate::sys::segments;

/// Largest number of sets of arenas.
const MOST_SETS: usize = 256;

/// The arena that the calling thread tries first. Any number will do; different threads should get
/// different ones.
#[inline]
fn arena_hint() -> usize {
    const FIBONACCI: usize = 0x9E37_79B9;
    if segments::is_quick() {
        (segments::fs_base() >> 12).wrapping_mul(FIBONACCI) >> 16
    } else {
        0
    }
}

/// A block with a mapping of its own, aligned to `align` (at least 16).
fn map_block(size: usize, align: usize) -> *mut u8 {
    let Some(total) = size
        .checked_add(2 * HEADER)
        .and_then(|n| n.checked_add(align))
    else {
        return ptr::null_mut();
    };
    if total > isize::MAX as usize {
        return ptr::null_mut();
    }
    let total = memory::pages(total);
    let base = memory::map(total);
    if base.is_null() {
        return base;
    }
    let block = ((base as usize + 2 * HEADER + align - 1) & !(align - 1)) as *mut u8;
    // SAFETY: `align` bytes were added, so block and header are inside the mapping,
    // and the first word, the length, is before the header.
    unsafe {
        base.cast::<usize>().write(total);
        header(block).write(Header {
            kind: LARGE,
            class: 0,
            _unused: 0,
            base,
        });
    }
    block
}

/// A block of at least `size` bytes, aligned to 16; null if there is no memory.
pub(crate) fn alloc(size: usize) -> *mut u8 {
    if size > SMALL_MAX {
        return map_block(size, 16);
    }
    let class = class_of(size);
    let preferred = arena_hint();
    let mut set = &HEAP;
    for _ in 0..MOST_SETS {
        for i in 0..ARENAS {
            let arena = &set.arenas[(preferred + i) % ARENAS];
            if arena.lock.try_lock() {
                // SAFETY: the lock is held.
                let block = unsafe { arena.take(class) };
                arena.lock.unlock();
                return block;
            }
        }
        match set.grown() {
            Some(next) => set = next,
            None => return ptr::null_mut(),
        }
    }
    map_block(size, 16)
}

/// As [`alloc`], aligned to `align`, a power of two.
pub(crate) fn alloc_aligned(size: usize, align: usize) -> *mut u8 {
    if align <= 16 {
        return alloc(size);
    }
    if size.saturating_add(align) > SMALL_MAX {
        return map_block(size, align);
    }
    let outer = alloc(size + align);
    let block = ((outer as usize + align - 1) & !(align - 1)) as *mut u8;
    if block != outer && !outer.is_null() {
        // SAFETY: both are multiples of 16, so the header is inside the outer block.
        unsafe {
            header(block).write(Header {
                kind: ALIGNED,
                class: 0,
                _unused: 0,
                base: outer,
            })
        };
    }
    block
}

/// Bytes that may be used at `block`.
///
/// # Safety
/// `block` is a live block of this heap.
pub(crate) unsafe fn usable(block: *mut u8) -> usize {
    // SAFETY: a live block has a valid header.
    unsafe {
        let h = &*header(block);
        match h.kind {
            SMALL => class_size(h.class as usize),
            LARGE => h.base as usize + *h.base.cast::<usize>() - block as usize,
            ALIGNED => usable(h.base) - (block as usize - h.base as usize),
            FREED => fatal("an analysis routine used memory after freeing it"),
            _ => fatal("an analysis routine passed the heap a pointer that is not its own"),
        }
    }
}

/// Frees a block; null is allowed.
///
/// # Safety
/// `block` is null or a live block of this heap, not used afterwards.
pub(crate) unsafe extern "C" fn free(block: *mut u8) {
    if block.is_null() {
        return;
    }
    // SAFETY: a live block has a valid header; from here on nobody else uses it.
    unsafe {
        let h = &mut *header(block);
        match h.kind {
            SMALL => {
                h.kind = FREED;
                // SAFETY (also): arenas live for ever.
                (*h.base.cast::<Arena>()).give_back(block);
            }
            LARGE => {
                let base = h.base;
                memory::unmap(base, *base.cast::<usize>());
            }
            ALIGNED => {
                h.kind = FREED;
                free(h.base);
            }
            FREED => fatal("an analysis routine freed a block twice"),
            _ => fatal("an analysis routine freed a pointer that is not the heap's"),
        }
    }
}

/// Changes the size of a block, which may move; null if there is no memory, and then it stays.
///
/// # Safety
/// `block` is a live block of this heap; if another is returned, it is not used afterwards.
pub(crate) unsafe fn resize(block: *mut u8, size: usize) -> *mut u8 {
    // SAFETY: the block is live; its header and, if large, its mapping are ours.
    unsafe {
        let have = usable(block);
        let kind = (*header(block)).kind;
        if size <= have && (size >= have / 2 || size <= 64) {
            return block;
        }
        let base = (*header(block)).base;
        let offset = (block as usize).wrapping_sub(base as usize);
        if kind == LARGE && size > SMALL_MAX && offset < PAGE && size < isize::MAX as usize / 2 {
            let total = memory::pages(size + offset);
            let moved = memory::remap(base, *base.cast::<usize>(), total);
            if !moved.is_null() {
                moved.cast::<usize>().write(total);
                let block = moved.add(offset);
                (*header(block)).base = moved;
                return block;
            }
            // No room, or a sandbox that forbids this system call but not `mmap`.
        }
        let new = alloc(size);
        if !new.is_null() {
            ptr::copy_nonoverlapping(block, new, have.min(size));
            free(block);
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::arena::CLASSES;

    #[test]
    fn classes_cover_all_small_sizes() {
        assert_eq!(class_of(SMALL_MAX), CLASSES - 1);
        for size in 0..=SMALL_MAX {
            let c = class_of(size);
            assert!(
                class_size(c) >= size && (c == 0 || class_size(c - 1) < size),
                "{size}"
            );
            assert_eq!(class_size(c) % 16, 0);
        }
    }

    /// An arena that stays taken, as after a fork or a jump out of a handler,
    /// must neither block nor hand out anything twice.
    #[test]
    fn taken_arenas_are_passed_by() {
        let blocks: Vec<_> = (0..100).map(|_| alloc(100)).collect();
        let held: Vec<_> = HEAP.arenas.iter().filter(|a| a.lock.try_lock()).collect();
        let more: Vec<_> = (0..100).map(|_| alloc(100)).collect();
        for &b in &blocks {
            unsafe { free(b) };
        }
        assert!(more.iter().all(|m| !m.is_null() && !blocks.contains(m)));
        held.iter().for_each(|a| a.lock.unlock());
        let mut again: Vec<_> = (0..100).map(|_| alloc(100)).collect();
        assert!(
            again.iter().any(|b| blocks.contains(b)),
            "the remote list is collected"
        );
        again.extend(&more);
        again.sort();
        again.dedup();
        assert_eq!(again.len(), 200);
        again.iter().for_each(|&b| unsafe { free(b) });
    }
}

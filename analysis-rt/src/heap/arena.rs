//! Arenas of the heap: locks that are only tried, size classes, free lists.

use core::cell::UnsafeCell;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::sys::memory;
use crate::sys::spin::SpinLock;

/// Size of a block's header in bytes.
pub(crate) const HEADER: usize = size_of::<Header>();
/// Number of arenas in a set.
pub(crate) const ARENAS: usize = 16;
/// Number of size classes of small blocks.
pub(crate) const CLASSES: usize = 40;
/// Largest payload of a small block in bytes.
pub(crate) const SMALL_MAX: usize = 32 << 10;
/// Size in bytes of an arena's first chunk; each further one is twice the last.
const CHUNK_MIN: usize = 128 << 10;
/// Largest size of a chunk in bytes.
const CHUNK_MAX: usize = 2 << 20;

// Values of `Header::kind`. They are unlikely to be anywhere by chance, so that a stray pointer is noticed.

/// A live block of a size class.
pub(crate) const SMALL: u32 = 0x5A11_B10C;
/// A small or aligned block that was freed.
pub(crate) const FREED: u32 = 0xF4EE_B10C;
/// A live block with a mapping of its own.
pub(crate) const LARGE: u32 = 0xB166_B10C;
/// A live block inside a larger one, from which its alignment comes.
pub(crate) const ALIGNED: u32 = 0xA116_B10C;

/// Header of a block; it is right before the block's first byte.
#[repr(C)]
pub(crate) struct Header {
    /// [`SMALL`], [`FREED`], [`LARGE`] or [`ALIGNED`].
    pub kind: u32,
    /// Size class of a small block.
    pub class: u16,
    pub _unused: u16,
    /// Large: start of the mapping, whose first word is its length in bytes. Aligned: the enclosing
    /// block. Small: its arena.
    pub base: *mut u8,
}

/// A part of the heap that one thread at a time allocates from.
#[repr(C)]
pub(crate) struct Arena {
    /// Nothing waits for it.
    pub lock: SpinLock,
    /// Blocks given back while the arena was taken, linked through their first word.
    remote: AtomicPtr<u8>,
    inner: UnsafeCell<Inner>,
}

/// What the holder of an arena's lock works with.
struct Inner {
    /// Free blocks by size class, linked through their first words.
    free: [*mut u8; CLASSES],
    /// First unused byte of the current chunk, and the chunk's end.
    next: usize,
    end: usize,
    /// Size of the current chunk in bytes.
    chunk: usize,
}

// SAFETY: `inner` is only touched by the holder of `lock`.
unsafe impl Sync for Arena {}

/// A set of arenas. Further sets are made when all arenas are taken.
pub(crate) struct ArenaSet {
    pub arenas: [Arena; ARENAS],
    next: AtomicPtr<ArenaSet>,
}

impl ArenaSet {
    const fn new() -> Self {
        ArenaSet {
            arenas: [const { Arena::new() }; ARENAS],
            next: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// The next set, made if there is none; `None` if there is no memory.
    pub fn grown(&self) -> Option<&'static ArenaSet> {
        let next = self.next.load(Ordering::Acquire);
        if !next.is_null() {
            // SAFETY: sets live for ever.
            return Some(unsafe { &*next });
        }
        let new = memory::map(size_of::<ArenaSet>()).cast::<ArenaSet>();
        if new.is_null() {
            return None;
        }
        // SAFETY: fresh memory of the right size, and all zeros is a valid set. A thread that loses
        // the race gives its memory back, which nobody else knows.
        unsafe {
            match self.next.compare_exchange(
                ptr::null_mut(),
                new,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => Some(&*new),
                Err(other) => {
                    memory::unmap(new.cast(), memory::pages(size_of::<ArenaSet>()));
                    Some(&*other)
                }
            }
        }
    }
}

/// The heap's first set of arenas.
pub(crate) static HEAP: ArenaSet = ArenaSet::new();

/// The size class of a payload: 8 classes in steps of 16 bytes, then four to each doubling.
pub(crate) const fn class_of(size: usize) -> usize {
    if size <= 128 {
        return (if size == 0 { 1 } else { size }).div_ceil(16) - 1;
    }
    let doubling = (size - 1).ilog2() as usize - 7;
    8 + 4 * doubling + ((size - 1) - (128 << doubling)) / (32 << doubling)
}

/// Payload of a size class in bytes.
pub(crate) const fn class_size(class: usize) -> usize {
    if class < 8 {
        return 16 * (class + 1);
    }
    let (doubling, step) = ((class - 8) / 4, (class - 8) % 4);
    (128 << doubling) + (step + 1) * (32 << doubling)
}

/// The first word of a free block, which links it to the next one of its list.
fn link(block: *mut u8) -> *mut *mut u8 {
    block.cast()
}

/// The header of a block.
pub(crate) fn header(block: *mut u8) -> *mut Header {
    block.wrapping_sub(HEADER).cast()
}

impl Arena {
    const fn new() -> Self {
        Arena {
            lock: SpinLock::new(),
            remote: AtomicPtr::new(ptr::null_mut()),
            inner: UnsafeCell::new(Inner {
                free: [ptr::null_mut(); CLASSES],
                next: 0,
                end: 0,
                chunk: 0,
            }),
        }
    }

    /// A small block, or null if the kernel has no more memory.
    ///
    /// # Safety
    /// The caller holds the lock.
    pub unsafe fn take(&self, class: usize) -> *mut u8 {
        // SAFETY: the lock is held, so `inner` is ours; the lists hold only blocks
        // that were given back, each with a valid header and room for a link.
        unsafe {
            let inner = &mut *self.inner.get();
            if !self.remote.load(Ordering::Relaxed).is_null() {
                let mut block = self.remote.swap(ptr::null_mut(), Ordering::Acquire);
                while !block.is_null() {
                    let next = *link(block);
                    inner.put(block);
                    block = next;
                }
            }
            let block = inner.free[class];
            if !block.is_null() {
                inner.free[class] = *link(block);
                (*header(block)).kind = SMALL;
                return block;
            }
            inner.carve(self, class)
        }
    }

    /// Takes a small block back, from any thread, at any time.
    ///
    /// # Safety
    /// `block` is a small block of this arena that nobody uses any more.
    pub unsafe fn give_back(&self, block: *mut u8) {
        if self.lock.try_lock() {
            // SAFETY: the lock is held.
            unsafe { (*self.inner.get()).put(block) };
            self.lock.unlock();
            return;
        }
        let mut head = self.remote.load(Ordering::Relaxed);
        loop {
            // SAFETY: the block is free, its first word is ours. Blocks leave this
            // list only all at once, so a head seen again is still the head.
            unsafe { *link(block) = head };
            match self.remote.compare_exchange_weak(
                head,
                block,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }
}

impl Inner {
    /// Puts a free block on the list of its class.
    ///
    /// # Safety
    /// As for [`Arena::give_back`], with the lock held.
    unsafe fn put(&mut self, block: *mut u8) {
        // SAFETY: the block's header is intact and its first word free for use.
        unsafe {
            let class = (*header(block)).class as usize;
            *link(block) = self.free[class];
            self.free[class] = block;
        }
    }

    /// Cuts a new block from the current chunk, or from a new chunk.
    fn carve(&mut self, arena: &Arena, class: usize) -> *mut u8 {
        let size = HEADER + class_size(class);
        if self.end - self.next < size {
            let len = (self.chunk * 2).clamp(CHUNK_MIN, CHUNK_MAX);
            let chunk = memory::map(len) as usize;
            if chunk == 0 {
                return ptr::null_mut();
            }
            self.next = chunk;
            self.end = chunk + len;
            self.chunk = len;
        }
        let block = (self.next + HEADER) as *mut u8;
        self.next += size;
        let base = ptr::from_ref(arena).cast_mut().cast();
        let new = Header {
            kind: SMALL,
            class: class as u16,
            _unused: 0,
            base,
        };
        // SAFETY: inside the chunk, which is ours, 16-byte aligned like all sizes.
        unsafe { header(block).write(new) };
        block
    }
}

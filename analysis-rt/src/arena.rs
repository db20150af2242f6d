//! Arenas of the heap: locks that are only tried, size classes, free lists.
//! Why they are as they are is told in [`heap`](crate::heap).

use core::cell::UnsafeCell;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use crate::sys;

pub(crate) const HEADER: usize = size_of::<Header>();
pub(crate) const ARENAS: usize = 16;
pub(crate) const CLASSES: usize = 40;
/// Largest payload of a small block.
pub(crate) const SMALL_MAX: usize = 32 << 10;
const CHUNK_MIN: usize = 128 << 10;
const CHUNK_MAX: usize = 2 << 20;

/// States and kinds of a block; odd-looking so that a stray pointer is noticed.
pub(crate) const SMALL: u32 = 0x5A11_B10C;
pub(crate) const FREED: u32 = 0xF4EE_B10C;
pub(crate) const LARGE: u32 = 0xB166_B10C;
pub(crate) const ALIGNED: u32 = 0xA116_B10C;

/// What lies before each block's first byte.
#[repr(C)]
pub(crate) struct Header {
    pub kind: u32,
    pub class: u16,
    pub _unused: u16,
    /// Large: start of the mapping, where its length stands. Aligned: the block inside
    /// which this one lies. Small: its arena.
    pub base: *mut u8,
}

#[repr(C)]
pub(crate) struct Arena {
    /// 0 free, 1 taken. Only ever tried.
    lock: AtomicU32,
    /// Blocks given back while the arena was taken, linked through their first word.
    remote: AtomicPtr<u8>,
    inner: UnsafeCell<Inner>,
}

struct Inner {
    free: [*mut u8; CLASSES],
    next: usize,
    end: usize,
    /// Size of the last chunk.
    chunk: usize,
}

// SAFETY: `inner` is only touched by the holder of `lock`.
unsafe impl Sync for Arena {}

/// As many arenas as threads may want to allocate at the same moment, usually.
pub(crate) struct Set {
    pub arenas: [Arena; ARENAS],
    next: AtomicPtr<Set>,
}

impl Set {
    const fn new() -> Self {
        Set {
            arenas: [const { Arena::new() }; ARENAS],
            next: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// The next set, made if there is none; `None` if there is no memory.
    pub fn grown(&self) -> Option<&'static Set> {
        let next = self.next.load(Ordering::Acquire);
        if !next.is_null() {
            // SAFETY: sets live for ever.
            return Some(unsafe { &*next });
        }
        let new = sys::map(size_of::<Set>()).cast::<Set>();
        if new.is_null() {
            return None;
        }
        // SAFETY: fresh memory of the right size, and all zeros is a valid set;
        // whoever loses the race gives it back.
        unsafe {
            match self.next.compare_exchange(
                ptr::null_mut(),
                new,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => Some(&*new),
                Err(other) => {
                    sys::unmap(new.cast(), sys::pages(size_of::<Set>()));
                    Some(&*other)
                }
            }
        }
    }
}

pub(crate) static HEAP: Set = Set::new();

pub(crate) const fn class_of(size: usize) -> usize {
    if size <= 128 {
        return (if size == 0 { 1 } else { size }).div_ceil(16) - 1;
    }
    let doubling = (size - 1).ilog2() as usize - 7;
    8 + 4 * doubling + ((size - 1) - (128 << doubling)) / (32 << doubling)
}

pub(crate) const fn class_size(class: usize) -> usize {
    if class < 8 {
        return 16 * (class + 1);
    }
    let (doubling, step) = ((class - 8) / 4, (class - 8) % 4);
    (128 << doubling) + (step + 1) * (32 << doubling)
}

/// The first word of a block that is on a list.
fn link(block: *mut u8) -> *mut *mut u8 {
    block.cast()
}

pub(crate) fn header(block: *mut u8) -> *mut Header {
    block.wrapping_sub(HEADER).cast()
}

impl Arena {
    const fn new() -> Self {
        Arena {
            lock: AtomicU32::new(0),
            remote: AtomicPtr::new(ptr::null_mut()),
            inner: UnsafeCell::new(Inner {
                free: [ptr::null_mut(); CLASSES],
                next: 0,
                end: 0,
                chunk: 0,
            }),
        }
    }

    pub fn try_lock(&self) -> bool {
        self.lock.load(Ordering::Relaxed) == 0
            && self
                .lock
                .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
    }

    pub fn unlock(&self) {
        self.lock.store(0, Ordering::Release);
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
        if self.try_lock() {
            // SAFETY: the lock is held.
            unsafe { (*self.inner.get()).put(block) };
            self.unlock();
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
            let chunk = sys::map(len) as usize;
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

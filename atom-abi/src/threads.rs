//! Data that each thread has a copy of.
//!
//! Each thread has a *block*: a [`ThreadBlock`] with the tool's per-thread data
//! behind it. The first thread's lies in the rewritten file, the *main block*;
//! further ones are made when a thread first runs instrumented code.
//!
//! Inserted code reaches the thread's own block through the gs segment, whose
//! base is *the distance from the main block to the thread's block*. So an
//! operand that would name a cell of the main block, with a gs prefix in front,
//! names the same cell of the running thread's. The kernel starts a process
//! with base 0, which is right for the first thread: nothing has to be set up,
//! and code that runs before the runtime's start finds the main block.
//!
//! `clone` copies the parent's gs base and gives the new thread another thread
//! pointer (FS base). A block therefore names its owner by thread pointer,
//! and code that a new thread may enter first compares the two.

use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};

/// Bytes from a block's start to the tool's data; also the block's alignment.
pub const THREAD_HEADER: usize = 64;

/// Offset in a block of [`ThreadBlock::this`].
pub const THREAD_THIS: usize = 0;
/// Offset in a block of [`ThreadBlock::owner`].
pub const THREAD_OWNER: usize = 8;
/// Offset in a block of [`ThreadBlock::minus_owner`].
pub const THREAD_MINUS_OWNER: usize = 16;

/// The head of a block.
#[repr(C, align(64))]
pub struct ThreadBlock {
    /// Its own address.
    pub this: *mut ThreadBlock,
    /// The owner's thread pointer (FS base); 0 until it is known.
    pub owner: AtomicU64,
    /// The same, negated: can be compared without touching the flags.
    pub minus_owner: AtomicU64,
    /// The next in the list of all blocks, which begins with the main block.
    pub next: AtomicPtr<ThreadBlock>,
    /// The owner's thread number; 0 until it is known.
    pub tid: AtomicU32,
    /// 1 in the block of sums that the calls at ProgramAfter get, 0 in those of threads.
    pub is_total: u32,
    _reserved: [u64; 3],
}

impl ThreadBlock {
    /// The head of the block of sums at `this`, before the list of all blocks.
    pub const fn total(this: *mut Self, main: *mut Self) -> Self {
        Self {
            this,
            owner: AtomicU64::new(0),
            minus_owner: AtomicU64::new(0),
            next: AtomicPtr::new(main),
            tid: AtomicU32::new(0),
            is_total: 1,
            _reserved: [0; 3],
        }
    }
}

const _: () = {
    assert!(size_of::<ThreadBlock>() == THREAD_HEADER);
    assert!(core::mem::offset_of!(ThreadBlock, this) == THREAD_THIS);
    assert!(core::mem::offset_of!(ThreadBlock, owner) == THREAD_OWNER);
    assert!(core::mem::offset_of!(ThreadBlock, minus_owner) == THREAD_MINUS_OWNER);
};

/// A range of a block.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ThreadRange {
    /// Offset from the block's start.
    pub offset: u32,
    /// Length in bytes.
    pub len: u32,
}

/// What `atom` tells the runtime about per-thread data; in the plan's data.
#[repr(C)]
pub struct ThreadInfo {
    /// The main block.
    pub main: *mut ThreadBlock,
    /// Where the calls at ProgramAfter find the data: a block of sums, made at
    /// the end. Until then, and if there was one thread only, the main block.
    pub totals: AtomicPtr<ThreadBlock>,
    /// Size of a block in bytes.
    pub size: usize,
    /// Ranges whose 64-bit cells are to be summed at the end.
    pub sums: *const ThreadRange,
    /// Their number.
    pub sum_count: usize,
    /// Ranges of a fresh block that are not all zeros.
    pub initial: *const ThreadRange,
    /// Their number.
    pub initial_count: usize,
    /// Contents of those ranges, one after the other.
    pub contents: *const u8,
}

// SAFETY: written by `atom`; what changes is atomic.
unsafe impl Sync for ThreadInfo {}

//! Data that each thread has a copy of.
//!
//! Each thread has a *block*: a [`ThreadBlock`] with the tool's per-thread data
//! after it. The first thread's is in the rewritten file, the *main block*;
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

use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64};

/// Bytes from a block's start to the tool's data; also the block's alignment.
pub const THREAD_HEADER: usize = 64;

/// Offset in a block of [`ThreadBlock::this`].
pub const THREAD_THIS: usize = 0;
/// Offset in a block of [`ThreadBlock::owner`].
pub const THREAD_OWNER: usize = 8;
/// Offset in a block of [`ThreadBlock::minus_owner`].
pub const THREAD_MINUS_OWNER: usize = 16;
/// Offset in a block of [`ThreadBlock::stack`].
pub const THREAD_STACK: usize = 40;
/// Offset in a block of [`ThreadBlock::left`].
pub const THREAD_LEFT: usize = 48;

/// Size in bytes of a thread's stack for analysis routines, where they do not run on the program's.
pub const STACK_SIZE: usize = 1 << 20;
/// Bytes of that stack that one call of a routine may use. A signal handler that interrupts the routine calls
/// others further below.
pub const STACK_STEP: usize = STACK_SIZE / 4;

/// The header of a block.
#[repr(C, align(64))]
pub struct ThreadBlock {
    /// The block's own address.
    pub this: *mut ThreadBlock,
    /// The owner's thread pointer (FS base); 0 until it is known.
    pub owner: AtomicU64,
    /// `owner` negated: code that compares by addition (`lea`, `jrcxz`) changes no flags.
    pub minus_owner: AtomicU64,
    /// The next block in the list of all blocks, which begins with the main block.
    pub next: AtomicPtr<ThreadBlock>,
    /// The owner's number in the system (`gettid`); 0 until it is known.
    pub tid: AtomicU32,
    /// 1 in the block of sums that the calls at ProgramAfter get, 0 in blocks of threads.
    pub is_total: u32,
    /// Where the stack of the next call of an analysis routine begins; 0 where routines run on the program's stack.
    pub stack: AtomicU64,
    /// Number of tests after which the thread leaves each version of the text, the full one first, in runs that are sampled
    /// ([`Control::burst`](crate::Control::burst)). Negative: at the next test.
    pub left: [AtomicI32; 2],
    /// What the runtime keeps of the thread's bursts; null at first.
    pub bursts: AtomicPtr<u8>,
}

impl ThreadBlock {
    /// The header of the block of sums, which is at `this`. The list of all blocks follows it.
    pub const fn total(this: *mut Self, main: *mut Self) -> Self {
        Self {
            this,
            owner: AtomicU64::new(0),
            minus_owner: AtomicU64::new(0),
            next: AtomicPtr::new(main),
            tid: AtomicU32::new(0),
            is_total: 1,
            stack: AtomicU64::new(0),
            left: [const { AtomicI32::new(0) }; 2],
            bursts: AtomicPtr::new(core::ptr::null_mut()),
        }
    }
}

const _: () = {
    assert!(size_of::<ThreadBlock>() == THREAD_HEADER);
    assert!(core::mem::offset_of!(ThreadBlock, this) == THREAD_THIS);
    assert!(core::mem::offset_of!(ThreadBlock, owner) == THREAD_OWNER);
    assert!(core::mem::offset_of!(ThreadBlock, minus_owner) == THREAD_MINUS_OWNER);
    assert!(core::mem::offset_of!(ThreadBlock, stack) == THREAD_STACK);
    assert!(core::mem::offset_of!(ThreadBlock, left) == THREAD_LEFT);
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

/// Facts about per-thread data that `atom` writes into the instrumented program for the runtime.
#[repr(C)]
pub struct ThreadInfo {
    /// The main block.
    pub main: *mut ThreadBlock,
    /// The block that the calls at ProgramAfter get: a block of sums, which the runtime makes at
    /// the end. Until then, and if there was one thread only, it is the main block.
    pub totals: AtomicPtr<ThreadBlock>,
    /// Size of a block in bytes.
    pub size: usize,
    /// Ranges whose 64-bit cells are to be summed at the end.
    pub sums: *const ThreadRange,
    /// Number of ranges at `sums`.
    pub sum_count: usize,
    /// Ranges of a fresh block that are not all zeros.
    pub initial: *const ThreadRange,
    /// Number of ranges at `initial`.
    pub initial_count: usize,
    /// Contents of the ranges at `initial`, one after the other.
    pub contents: *const u8,
    /// Size in bytes of each thread's stack for analysis routines; 0 if they run on the program's.
    pub stack: usize,
    /// Ranges of a block that are in use; between them may be room that nothing is written to.
    pub pieces: *const ThreadRange,
    /// Number of ranges at `pieces`.
    pub piece_count: usize,
}

// SAFETY: written by `atom`; what changes is atomic.
unsafe impl Sync for ThreadInfo {}

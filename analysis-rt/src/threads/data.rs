//! Per-thread data of the tool: which block belongs to which thread, and the sums at the end.
//!
//! ABI: `atom_abi` describes the layout beside [`ThreadBlock`], and how inserted code finds a block
//! through the gs base. The application's code and libraries are
//! assumed not to use gs; where `atom` sees that they do, inserted code asks for the block instead.
//!
//! Nothing tells the runtime that a thread has ended. A thread with the thread
//! pointer of one that has ended takes over the block of the latter. So a program that
//! starts threads for ever does not need ever more memory, and sums stay right.
//!
//! A signal handler may interrupt any of this and go through it itself: a block
//! is complete before it is in the list or in a gs base. At worst
//! one thread has filled two blocks, which are both in the list.

use core::ptr::{self, null_mut};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use atom_abi::{ThreadBlock, ThreadInfo};

use crate::process::identity::{self, ProcessKind};
use crate::process::info::{ranges, threads as info};
use crate::sys::call::{exists, getpid, gettid, is_thread_alive};
use crate::sys::fatal::{fatal, warn};
use crate::sys::memory::map_far;
use crate::sys::segments::{fs_base, gs_base, set_gs_base};
use crate::sys::signals::{DEFERRABLE, with_blocked};
use crate::threads::counts::taken_over;
use crate::threads::{current, events};

/// True once a gs base names a block.
static USES_GS: AtomicBool = AtomicBool::new(false);

/// True once a thread could not get its gs base, and shares its parent's block.
static SHARED: AtomicBool = AtomicBool::new(false);

/// The first thread's block.
fn main_block() -> Option<&'static ThreadBlock> {
    // SAFETY: `atom` placed the main block.
    info().map(|info| unsafe { &*info.main })
}

/// The block that the gs base names.
fn named_by_gs(main: &ThreadBlock) -> *mut ThreadBlock {
    main.this.wrapping_byte_add(gs_base())
}

/// Makes the gs base name a block.
fn name_by_gs(main: &ThreadBlock, block: *mut ThreadBlock) {
    USES_GS.store(true, Ordering::Relaxed);
    let base = (block as usize).wrapping_sub(main.this as usize);
    // SAFETY: the block has the main block's layout, which inserted code assumes.
    if !unsafe { set_gs_base(base) } && !SHARED.swap(true, Ordering::Relaxed) {
        warn(
            "per-thread data is shared by threads, counts may be too low: the kernel refuses to set the gs base",
        );
    }
}

/// A fresh block with the initial contents of the main one, in no list.
fn new_block(info: &ThreadInfo) -> *mut ThreadBlock {
    let memory = map_far(info.size);
    if memory.is_null() {
        fatal("no memory for another thread's data");
    }
    let block = memory.cast::<ThreadBlock>();
    // SAFETY: fresh zeroed pages of that size; `atom` gave ranges inside it.
    unsafe {
        (*block).this = block;
        let mut from = info.contents;
        for range in ranges(info.initial, info.initial_count) {
            let len = range.len as usize;
            ptr::copy_nonoverlapping(from, memory.add(range.offset as usize), len);
            from = from.add(len);
        }
    }
    give_stack(info, block);
    block
}

/// Gives a block the stack on which its thread runs analysis routines, if the program's stacks are not used.
fn give_stack(info: &ThreadInfo, block: *mut ThreadBlock) {
    if info.stack == 0 {
        return;
    }
    let memory = map_far(info.stack);
    if memory.is_null() {
        fatal("no memory for another thread's stack");
    }
    // SAFETY: blocks live for ever, and this field is atomic.
    let block = unsafe { &*block };
    let top = memory as u64 + info.stack as u64;
    block.stack.store(top, Ordering::Relaxed);
}

/// Takes the time that passes between two routines that need much of a stack, the program's code left out: the first one's
/// end lets signals come again, the next one's start lets them wait. Tools call it that measure the cost of their routines.
/// Where routines run on stacks of the threads, no such calls are made, and it does nothing.
pub fn between_routines() {
    if info().is_none_or(|info| info.stack == 0) {
        with_blocked(DEFERRABLE, || {});
    }
}

/// Puts a block on the list that starts at the main block.
fn append(main: &ThreadBlock, block: *mut ThreadBlock) {
    let mut next = main.next.load(Ordering::Acquire);
    loop {
        // SAFETY: blocks live for ever.
        unsafe { (*block).next.store(next, Ordering::Relaxed) };
        match main
            .next
            .compare_exchange_weak(next, block, Ordering::AcqRel, Ordering::Acquire)
        {
            Ok(_) => return,
            Err(now) => next = now,
        }
    }
}

/// Notes a thread as the owner of a block: its number and its thread pointer.
fn own(block: *mut ThreadBlock, tid: u32, fs: usize) {
    // SAFETY: blocks live for ever, and these fields are atomic.
    let block = unsafe { &*block };
    block.tid.store(tid, Ordering::Relaxed);
    block.owner.store(fs as u64, Ordering::Relaxed);
    block
        .minus_owner
        .store((fs as u64).wrapping_neg(), Ordering::Relaxed);
}

/// Takes over, for thread `tid`, a block whose owner had this thread pointer and has ended.
fn abandoned(
    main: &ThreadBlock,
    fs: usize,
    tid: u32,
    is_alive: fn(u32) -> bool,
) -> Option<*mut ThreadBlock> {
    let mut next = main.next.load(Ordering::Acquire);
    // SAFETY: blocks live for ever.
    while let Some(block) = unsafe { next.as_ref() } {
        let owner = block.tid.load(Ordering::Relaxed);
        if block.owner.load(Ordering::Relaxed) == fs as u64
            && !is_alive(owner)
            && block
                .tid
                .compare_exchange(owner, tid, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        {
            return Some(next);
        }
        next = block.next.load(Ordering::Acquire);
    }
    None
}

/// Finds or makes the calling thread's block, by its thread pointer. True if the thread had none.
fn find(info: &ThreadInfo, main: &ThreadBlock) -> (*mut ThreadBlock, bool) {
    let thread = current::record();
    let tid = gettid();
    let fs = fs_base();
    // SAFETY: the record is this thread's own, or of another thread with the same thread pointer.
    let (known, has_ended) = unsafe {
        (
            (*thread).data,
            (*thread).ended.swap(false, Ordering::Relaxed),
        )
    };
    if !known.is_null() {
        // SAFETY: blocks live for ever.
        let owner = unsafe { (*known).tid.load(Ordering::Relaxed) };
        // A thread that has ended is there for the kernel some time after its thread pointer is free for the next one.
        if owner == tid || has_ended || !is_thread_alive(owner) {
            own(known, tid, fs);
            if owner != tid {
                taken_over();
            }
            return (known, owner != tid || has_ended);
        }
        // Two threads run with one thread pointer. This one takes the block of a thread with this
        // pointer that has ended, or gets a new block, which the pointer does not lead to.
        if let Some(left) = abandoned(main, fs, tid, is_thread_alive) {
            taken_over();
            return (left, true);
        }
    }
    let block = new_block(info);
    own(block, tid, fs);
    append(main, block);
    if known.is_null() {
        // SAFETY: the record is this thread's own; the word is written as a whole, for a signal handler.
        unsafe { (&raw mut (*thread).data).write_volatile(block) };
    }
    (block, true)
}

/// Gives the calling thread its block by the gs base.
fn enter(info: &ThreadInfo, main: &ThreadBlock) {
    let (block, is_new) = find(info, main);
    name_by_gs(main, block);
    if is_new {
        events::begun(block);
    }
}

/// Before the calling thread's system call `exit`: tells the tool that it ends, if it is known that it has begun.
pub(crate) fn ending() {
    let (Some(_), Some(main)) = (info(), main_block()) else {
        return;
    };
    let tid = gettid();
    let is_first = tid == getpid();
    if is_first && identity::kind() == ProcessKind::Other {
        // It runs in its parent's memory, with its parent's record.
        return;
    }
    // SAFETY: the record is this thread's own.
    let record = unsafe { &*current::record() };
    let block = if USES_GS.load(Ordering::Relaxed) {
        named_by_gs(main)
    } else {
        record.data
    };
    // SAFETY: null, or a block, which lives for ever.
    let owner = unsafe { block.as_ref() }.map(|block| block.tid.load(Ordering::Relaxed));
    // The one thread of a forked child is the thread that forked.
    if owner.is_some_and(|owner| owner == tid || is_first) {
        events::ended(block);
        record.ended.store(true, Ordering::Relaxed);
    }
}

/// Finds or makes the block of a child in its parent's memory. It has its parent's thread pointer, but calls of its
/// own, and may run at the same time.
fn of_child(info: &ThreadInfo, main: &ThreadBlock, tid: u32) -> *mut ThreadBlock {
    let fs = fs_base();
    if let Some(left) = abandoned(main, fs, tid, exists) {
        taken_over();
        return left;
    }
    let block = new_block(info);
    own(block, tid, fs);
    append(main, block);
    block
}

/// At the start: gives the main block to this thread.
pub(crate) fn begin() {
    if let (Some(info), Some(main)) = (info(), main_block()) {
        give_stack(info, main.this);
        own(main.this, gettid(), fs_base());
        // SAFETY: the record is this thread's own.
        unsafe { (*current::record()).data = main.this };
    }
}

/// Gives the gs base to a thread whose thread pointer differs from its block's owner's.
///
/// # Safety
/// Called by inserted code.
pub unsafe extern "C" fn thread_enter() {
    // Before the start there is one thread, whose base is right.
    let (Some(info), Some(main)) = (info(), main_block()) else {
        return;
    };
    enter(info, main);
}

/// Gives a new thread its gs base, after a system call that has answered 0 and may be `clone`.
///
/// # Safety
/// Called by inserted code.
pub unsafe extern "C" fn thread_started() {
    let (Some(info), Some(main)) = (info(), main_block()) else {
        return;
    };
    let tid = gettid();
    // SAFETY: the base names the block of this thread or of its parent.
    let current = unsafe { &*named_by_gs(main) };
    if current.tid.load(Ordering::Relaxed) == tid {
        return;
    }
    if tid == getpid() {
        // A child process, with its own copy of the block, or in its parent's memory.
        match identity::kind() {
            ProcessKind::Other => return name_by_gs(main, of_child(info, main, tid)),
            _ => return current.tid.store(tid, Ordering::Relaxed),
        }
    }
    enter(info, main);
}

/// The calling thread's block, without a look at the gs base.
///
/// # Safety
/// Called by inserted code.
pub unsafe extern "C" fn thread_block() -> *mut ThreadBlock {
    let (Some(info), Some(main)) = (info(), main_block()) else {
        return null_mut();
    };
    // SAFETY: the record is this thread's own.
    let record = unsafe { &*current::record() };
    if !record.data.is_null() && !record.ended.load(Ordering::Relaxed) {
        return record.data;
    }
    let (block, is_new) = find(info, main);
    if is_new {
        events::begun(block);
    }
    block
}

/// Sums the counters of all threads into a block that no thread writes to. To be called before the
/// ProgramAfter calls.
pub(crate) fn gather() {
    let (Some(info), Some(main)) = (info(), main_block()) else {
        return;
    };
    let mut next = main.next.load(Ordering::Acquire);
    if next.is_null() {
        return;
    }
    let memory = map_far(info.size);
    if memory.is_null() {
        warn(
            "no memory to sum what the threads have counted: the counts are those of the first thread",
        );
        return;
    }
    let total = memory.cast::<ThreadBlock>();
    // SAFETY: fresh memory of a block's size; blocks live for ever and have that
    // size; their cells are read as atomics because their threads may still run.
    unsafe {
        for piece in ranges(info.pieces, info.piece_count) {
            let from = main.this.cast::<u8>().add(piece.offset as usize);
            ptr::copy_nonoverlapping(from, memory.add(piece.offset as usize), piece.len as usize);
        }
        total.write(ThreadBlock::total(total, main.this));
        while !next.is_null() {
            for range in ranges(info.sums, info.sum_count) {
                let at = range.offset as usize;
                let sums = memory.add(at).cast::<u64>();
                let cells = next.cast::<u8>().add(at).cast::<AtomicU64>();
                for i in 0..range.len as usize / 8 {
                    let count = (*cells.add(i)).load(Ordering::Relaxed);
                    if count != 0 {
                        *sums.add(i) = (*sums.add(i)).wrapping_add(count);
                    }
                }
            }
            next = (*next).next.load(Ordering::Acquire);
        }
    }
    info.totals.store(total, Ordering::Release);
}

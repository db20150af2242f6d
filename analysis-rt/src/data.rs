//! Per-thread data: which block belongs to which thread, and the sums at the end.
//!
//! The layout, and how inserted code finds a block through the gs base, is told
//! in `atom_abi` beside [`ThreadBlock`]. The application's code and libraries are
//! assumed not to use gs; `atom` does without it where it sees that they do.
//!
//! Nobody tells the runtime that a thread has ended. A thread with the thread
//! pointer of one that has ended takes over that one's block, so a program that
//! starts threads for ever does not need memory for ever, and sums stay right.
//!
//! A signal handler may interrupt any of this and go through it itself: a block
//! is complete before it is in the list or in a gs base, so the worst that can
//! happen is that one thread has filled two blocks, which are both in the list.

use core::arch::asm;
use core::ptr::{self, null_mut};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use atom_abi::{ThreadBlock, ThreadInfo, ThreadRange};

use crate::sys::{self, fatal, nr, syscall};
use crate::{start, tls};

const ARCH_SET_GS: usize = 0x1001;
const ARCH_GET_GS: usize = 0x1004;

/// A thread could not get its gs base, and shares its parent's block.
static SHARED: AtomicBool = AtomicBool::new(false);

fn info() -> Option<&'static ThreadInfo> {
    // SAFETY: null or a structure in the image, which stays for the process's life.
    unsafe { start::info()?.threads.as_ref() }
}

fn main_block() -> Option<&'static ThreadBlock> {
    // SAFETY: `atom` placed the main block.
    info().map(|info| unsafe { &*info.main })
}

/// The block that the gs base names.
fn named_by_gs(main: &ThreadBlock) -> *mut ThreadBlock {
    let mut base = 0usize;
    if tls::FSGSBASE.load(Ordering::Relaxed) {
        // SAFETY: announced by the kernel; reads a register.
        unsafe { asm!("rdgsbase {}", out(reg) base, options(nomem, nostack, preserves_flags)) };
    } else {
        // SAFETY: writes the one word.
        unsafe { syscall!(nr::ARCH_PRCTL, ARCH_GET_GS, &raw mut base) };
    }
    main.this.wrapping_byte_add(base)
}

/// Makes the gs base name a block.
fn name_by_gs(main: &ThreadBlock, block: *mut ThreadBlock) {
    let base = (block as usize).wrapping_sub(main.this as usize);
    if tls::FSGSBASE.load(Ordering::Relaxed) {
        // SAFETY: announced by the kernel; nothing but inserted code uses gs.
        unsafe { asm!("wrgsbase {}", in(reg) base, options(nostack, preserves_flags)) };
        return;
    }
    // SAFETY: as above.
    let answer = unsafe { syscall!(nr::ARCH_PRCTL, ARCH_SET_GS, base) };
    if answer < 0 && !SHARED.swap(true, Ordering::Relaxed) {
        sys::warn(
            "per-thread data is shared by threads, counts may be too low: the kernel refuses to set the gs base",
        );
    }
}

/// The ranges at `first`.
///
/// # Safety
/// `atom` placed `count` ranges there.
unsafe fn ranges(first: *const ThreadRange, count: usize) -> &'static [ThreadRange] {
    if count == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { core::slice::from_raw_parts(first, count) }
}

/// A fresh block, in no list.
fn new_block(info: &ThreadInfo) -> *mut ThreadBlock {
    let memory = sys::map_far(info.size);
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
    block
}

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

fn own(block: *mut ThreadBlock, tid: u32, fs: usize) {
    // SAFETY: blocks live for ever, and these fields are atomic.
    let block = unsafe { &*block };
    block.tid.store(tid, Ordering::Relaxed);
    block.owner.store(fs as u64, Ordering::Relaxed);
    block
        .minus_owner
        .store((fs as u64).wrapping_neg(), Ordering::Relaxed);
}

/// True if a thread of this process has that number.
fn is_alive(tid: u32) -> bool {
    // SAFETY: signal 0 only asks.
    tid != 0 && unsafe { syscall!(nr::TGKILL, sys::getpid(), tid, 0) } == 0
}

/// The calling thread's block, by its thread pointer.
fn find(info: &ThreadInfo, main: &ThreadBlock) -> *mut ThreadBlock {
    let thread = tls::block();
    let tid = sys::gettid();
    let fs = tls::fs_base();
    // SAFETY: the thread's own, or one that a thread of the same thread pointer has.
    let known = unsafe { (*thread).data };
    if !known.is_null() {
        // SAFETY: blocks live for ever.
        let owner = unsafe { (*known).tid.load(Ordering::Relaxed) };
        // Else two threads run with one thread pointer: nobody else shall find this block.
        if owner == tid || !is_alive(owner) {
            own(known, tid, fs);
            return known;
        }
    }
    let block = new_block(info);
    own(block, tid, fs);
    append(main, block);
    if known.is_null() {
        // SAFETY: as above; written as a whole.
        unsafe { (&raw mut (*thread).data).write_volatile(block) };
    }
    block
}

/// At the start: the main block is this thread's.
pub(crate) fn begin() {
    if let Some(main) = main_block() {
        own(main.this, sys::gettid(), tls::fs_base());
        // SAFETY: the thread's own.
        unsafe { (*tls::block()).data = main.this };
    }
}

/// A thread enters whose thread pointer is not that of its block's owner.
///
/// # Safety
/// Called by inserted code.
pub unsafe extern "C" fn thread_enter() {
    // Before the start there is one thread, whose base is right.
    let (Some(info), Some(main)) = (info(), main_block()) else {
        return;
    };
    name_by_gs(main, find(info, main));
}

/// A system call has answered 0 that may be `clone`.
///
/// # Safety
/// Called by inserted code.
pub unsafe extern "C" fn thread_started() {
    let (Some(info), Some(main)) = (info(), main_block()) else {
        return;
    };
    let tid = sys::gettid();
    // SAFETY: the base names the block of this thread or of its parent.
    let current = unsafe { &*named_by_gs(main) };
    if current.tid.load(Ordering::Relaxed) == tid {
        return;
    }
    if tid == sys::getpid() {
        // A child process, with its own copy of the block or in its parent's memory.
        if start::kind() != start::Kind::Other {
            current.tid.store(tid, Ordering::Relaxed);
        }
        return;
    }
    name_by_gs(main, find(info, main));
}

/// The calling thread's block, without a look at the gs base.
///
/// # Safety
/// Called by inserted code.
pub unsafe extern "C" fn thread_block() -> *mut ThreadBlock {
    let (Some(info), Some(main)) = (info(), main_block()) else {
        return null_mut();
    };
    // SAFETY: the thread's own.
    let known = unsafe { (*tls::block()).data };
    if known.is_null() {
        find(info, main)
    } else {
        known
    }
}

/// Before the ProgramAfter calls: sums what all threads have, into a block that
/// no thread writes to.
pub(crate) fn gather() {
    let (Some(info), Some(main)) = (info(), main_block()) else {
        return;
    };
    let mut next = main.next.load(Ordering::Acquire);
    if next.is_null() {
        return;
    }
    let memory = sys::map_far(info.size);
    if memory.is_null() {
        sys::warn(
            "no memory to sum what the threads have counted: the counts are those of the first thread",
        );
        return;
    }
    let total = memory.cast::<ThreadBlock>();
    // SAFETY: fresh memory of a block's size; blocks live for ever and have that
    // size; their cells are read as atomics because their threads may still run.
    unsafe {
        ptr::copy_nonoverlapping(main.this.cast::<u8>(), memory, info.size);
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

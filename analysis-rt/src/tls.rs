//! Thread-local storage, `errno` and `pthread` keys: one block for each thread.
//!
//! A thread is known by its FS base, the application's thread pointer, which
//! is the only per-thread value that any code can read without a system call
//! (`rdfsbase`, where the kernel announces it in AT_HWCAP2) and that clone does
//! not copy from the parent. Before a static program has set it up, it is 0;
//! then the kernel's thread number stands in, and the block moves over to the
//! FS base once there is one.
//!
//! Consequence, by design: a thread that gets the thread pointer of one that
//! has ended also gets its block, thread-local values included. Nobody tells
//! the runtime that a thread has ended, and a destructor would have to run on
//! a thread that is gone.
//!
//! ABI: `__tls_get_addr` gets a pointer to (module, offset); there is a single
//! module. A block starts as a copy of the initial image, then zeros.

use core::arch::asm;
use core::ffi::c_void;
use core::ptr::{self, null_mut};
use core::sync::atomic::{AtomicBool, Ordering};

use crate::keys::KEYS;
use crate::sys::{self, fatal, nr, syscall};
use crate::table::{ROOT, find, find_or_insert};
use crate::{heap, start};

/// Keys with this bit are thread numbers; no FS base has it (it is not canonical).
const BY_NUMBER: usize = 1 << 62;
/// The thread-group leader while its FS base is 0, in forked children too.
const LEADER: usize = BY_NUMBER;

/// Set at start if `rdfsbase` may be executed.
pub(crate) static FSGSBASE: AtomicBool = AtomicBool::new(false);

/// Everything that a thread has of its own.
pub(crate) struct Block {
    /// The thread-local variables; null in a block made before the start.
    tls: *mut u8,
    errno: i32,
    /// Reached by an FS base now, no more by thread number.
    adopted: AtomicBool,
    /// Stack pointer where this thread entered guarded analysis code, or 0; see `entry`.
    pub(crate) entered_at: usize,
    /// Its per-thread data, or null; see `data`.
    pub(crate) data: *mut atom_abi::ThreadBlock,
    /// For each pthread key the generation and the value.
    pub(crate) values: [(usize, *const c_void); KEYS],
}

/// The FS base of the calling thread.
#[inline]
pub(crate) fn fs_base() -> usize {
    let base: usize;
    if FSGSBASE.load(Ordering::Relaxed) {
        // SAFETY: announced by the kernel; reads a register.
        unsafe { asm!("rdfsbase {}", out(reg) base, options(nomem, nostack, preserves_flags)) };
    } else {
        base = fs_base_by_call();
    }
    base
}

#[cold]
fn fs_base_by_call() -> usize {
    const ARCH_GET_FS: usize = 0x1003;
    let mut base = 0usize;
    // SAFETY: writes the one word.
    unsafe { syscall!(nr::ARCH_PRCTL, ARCH_GET_FS, &raw mut base) };
    base
}

/// The key of the calling thread while it has no FS base, or had none.
fn number_key() -> usize {
    let tid = sys::gettid();
    if tid == sys::getpid() {
        LEADER
    } else {
        BY_NUMBER | (tid as usize) << 4
    }
}

/// Fresh thread-local variables, never freed; null before the start, when
/// nobody knows yet what they look like.
fn new_variables() -> *mut u8 {
    let Some(info) = start::info() else {
        return null_mut();
    };
    let memory = heap::alloc_aligned(info.tls_mem_size, info.tls_align.max(16));
    if memory.is_null() {
        fatal("no memory for another thread");
    }
    let file = info.tls_file_size.min(info.tls_mem_size);
    // SAFETY: the memory is fresh and big enough; the image is `file` bytes long.
    unsafe {
        ptr::copy_nonoverlapping(info.tls_image, memory, file);
        ptr::write_bytes(memory.add(file), 0, info.tls_mem_size - file);
    }
    memory
}

/// A new block, never freed.
fn new_block() -> *mut Block {
    let block = heap::alloc(size_of::<Block>()).cast::<Block>();
    if block.is_null() {
        fatal("no memory for another thread");
    }
    // SAFETY: fresh memory, for which all zeros is a valid block.
    unsafe {
        ptr::write_bytes(block, 0, 1);
        (*block).tls = new_variables();
    }
    block
}

/// Finds or makes the block of a thread that is not in the table by this key.
#[cold]
fn missing(fs: usize) -> *mut Block {
    let slot = find_or_insert(if fs == 0 { number_key() } else { fs });
    let had = slot.block.load(Ordering::Acquire);
    if !had.is_null() {
        return had;
    }
    let mut block = null_mut();
    if fs != 0
        && let Some(earlier) = find(number_key())
    {
        let candidate = earlier.block.load(Ordering::Acquire);
        // SAFETY: blocks live for ever.
        if !candidate.is_null() && !unsafe { (*candidate).adopted.swap(true, Ordering::AcqRel) } {
            block = candidate;
        }
    }
    if block.is_null() {
        block = new_block();
    }
    match slot
        .block
        .compare_exchange(null_mut(), block, Ordering::AcqRel, Ordering::Acquire)
    {
        Ok(_) => block,
        // A signal handler on this very thread was faster.
        Err(other) => other,
    }
}

/// The calling thread's block.
#[inline]
pub(crate) fn block() -> *mut Block {
    let fs = fs_base();
    let slot = ROOT.slot(fs, 0);
    if fs != 0 && slot.key.load(Ordering::Acquire) == fs {
        let block = slot.block.load(Ordering::Acquire);
        if !block.is_null() {
            return block;
        }
    }
    block_elsewhere(fs)
}

#[inline(never)]
fn block_elsewhere(fs: usize) -> *mut Block {
    if fs != 0
        && let Some(slot) = find(fs)
    {
        let block = slot.block.load(Ordering::Acquire);
        if !block.is_null() {
            return block;
        }
    }
    missing(fs)
}

/// Which arena of the heap a thread should try first; any number will do.
#[inline]
pub(crate) fn arena_hint() -> usize {
    if FSGSBASE.load(Ordering::Relaxed) {
        (fs_base() >> 12).wrapping_mul(0x9E37_79B9) >> 16
    } else {
        0
    }
}

pub(crate) fn set_errno(e: i32) {
    // SAFETY: the block is this thread's own.
    unsafe { (*block()).errno = e };
}

pub(crate) extern "C" fn errno_location() -> *mut i32 {
    // SAFETY: the block is this thread's own.
    unsafe { &raw mut (*block()).errno }
}

/// # Safety
/// `index` points to a (module, offset) pair of the tool's.
pub(crate) unsafe extern "C" fn tls_get_addr(index: *const [usize; 2]) -> *mut u8 {
    // SAFETY: the block is this thread's own, the pair the caller's promise; the
    // offset lies inside the variables.
    unsafe {
        let mut tls = (*block()).tls;
        if tls.is_null() {
            tls = late_variables();
        }
        tls.add((*index)[1])
    }
}

/// For a thread whose block is older than the start, as in an IFUNC resolver.
#[cold]
fn late_variables() -> *mut u8 {
    let tls = new_variables();
    if tls.is_null() {
        fatal("an analysis routine ran before the start");
    }
    // SAFETY: the block is this thread's own.
    unsafe { (*block()).tls = tls };
    tls
}

/// The thread's identity for `pthread_self`; never 0.
pub(crate) extern "C" fn pthread_self() -> usize {
    block() as usize
}

/// `__cxa_thread_atexit_impl`: accepted, and never called.
pub(crate) extern "C" fn thread_atexit(_dtor: usize, _object: usize, _dso: usize) -> i32 {
    0
}

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
//! The table is open-addressed, grows by further tables, never shrinks and has
//! no lock: an entry's key is written once by compare-and-swap and its block
//! likewise, so a signal handler between the two finds or makes the block.
//!
//! ABI: `__tls_get_addr` gets a pointer to (module, offset); there is a single
//! module. A block starts as a copy of the initial image, then zeros.

use core::arch::asm;
use core::ffi::c_void;
use core::ptr::{self, null_mut};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use crate::sys::{self, errno, fatal, nr, syscall};
use crate::{heap, start};

/// As many keys as POSIX asks for at least.
const KEYS: usize = 128;
const ROOT_SLOTS: usize = 1024;
const PROBES: usize = 16;
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
    /// For each pthread key the generation and the value.
    values: [(usize, *const c_void); KEYS],
}

struct Slot {
    key: AtomicUsize,
    block: AtomicPtr<Block>,
}

struct Table {
    slots: *const Slot,
    mask: usize,
    next: AtomicPtr<Table>,
}

// SAFETY: `slots` points to memory that lives for ever and is only accessed atomically.
unsafe impl Sync for Table {}

static ROOT_MEMORY: [Slot; ROOT_SLOTS] = [const {
    Slot {
        key: AtomicUsize::new(0),
        block: AtomicPtr::new(null_mut()),
    }
}; ROOT_SLOTS];
static ROOT: Table = Table {
    slots: &raw const ROOT_MEMORY as *const Slot,
    mask: ROOT_SLOTS - 1,
    next: AtomicPtr::new(null_mut()),
};

impl Table {
    fn slot(&self, key: usize, probe: usize) -> &Slot {
        let at = (key >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        // SAFETY: the mask keeps the index inside the table.
        unsafe { &*self.slots.add((at + probe) & self.mask) }
    }

    /// The next table, made if there is none.
    fn grown(&self) -> &Table {
        let next = self.next.load(Ordering::Acquire);
        if !next.is_null() {
            // SAFETY: tables live for ever.
            return unsafe { &*next };
        }
        let slots = (self.mask + 1) * 4;
        let bytes = slots * size_of::<Slot>() + size_of::<Table>();
        let memory = sys::map(bytes);
        if memory.is_null() {
            fatal("no memory for another thread");
        }
        // SAFETY: fresh zeroed memory of the right size; all-zero slots are empty slots.
        unsafe {
            let table = memory.add(slots * size_of::<Slot>()).cast::<Table>();
            let next = AtomicPtr::new(null_mut());
            table.write(Table {
                slots: memory.cast(),
                mask: slots - 1,
                next,
            });
            match self
                .next
                .compare_exchange(null_mut(), table, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => &*table,
                Err(other) => {
                    sys::unmap(memory, sys::pages(bytes));
                    &*other
                }
            }
        }
    }
}

/// The slot of a key if it has one. An empty place ends the search for good:
/// keys are never removed, so a key that is in a later table found none here.
fn find(key: usize) -> Option<&'static Slot> {
    let mut table = &ROOT;
    loop {
        for probe in 0..PROBES {
            let slot = table.slot(key, probe);
            match slot.key.load(Ordering::Acquire) {
                0 => return None,
                k if k == key => return Some(slot),
                _ => {}
            }
        }
        let next = table.next.load(Ordering::Acquire);
        if next.is_null() {
            return None;
        }
        // SAFETY: tables live for ever.
        table = unsafe { &*next };
    }
}

/// The slot of a key, made if it has none.
fn find_or_insert(key: usize) -> &'static Slot {
    let mut table = &ROOT;
    loop {
        for probe in 0..PROBES {
            let slot = table.slot(key, probe);
            let had = slot
                .key
                .compare_exchange(0, key, Ordering::AcqRel, Ordering::Acquire);
            if had.is_ok() || had == Err(key) {
                return slot;
            }
        }
        table = table.grown();
    }
}

/// The FS base of the calling thread.
#[inline]
fn fs_base() -> usize {
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

/// Generation of each key; odd while it is in use. Deleting and creating a key
/// again gives it a new generation, which makes old values read as null.
static GENERATIONS: [AtomicUsize; KEYS] = [const { AtomicUsize::new(0) }; KEYS];

/// # Safety
/// As C's `pthread_key_create`. The destructor is never called.
pub(crate) unsafe extern "C" fn key_create(key: *mut u32, _destructor: usize) -> i32 {
    for (i, generation) in GENERATIONS.iter().enumerate() {
        let g = generation.load(Ordering::Relaxed);
        if g % 2 == 0
            && generation
                .compare_exchange(g, g + 1, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        {
            // SAFETY: C's contract.
            unsafe { key.write(i as u32) };
            return 0;
        }
    }
    errno::EAGAIN
}

pub(crate) extern "C" fn key_delete(key: u32) -> i32 {
    match generation(key) {
        Some(g) => {
            GENERATIONS[key as usize].store(g + 1, Ordering::Release);
            0
        }
        None => errno::EINVAL,
    }
}

fn generation(key: u32) -> Option<usize> {
    let g = GENERATIONS.get(key as usize)?.load(Ordering::Acquire);
    (g % 2 == 1).then_some(g)
}

pub(crate) extern "C" fn getspecific(key: u32) -> *const c_void {
    let Some(g) = generation(key) else {
        return ptr::null();
    };
    // SAFETY: the block is this thread's own; `generation` has checked the index.
    let (of, value) = unsafe { (&(*block()).values)[key as usize] };
    if of == g { value } else { ptr::null() }
}

pub(crate) extern "C" fn setspecific(key: u32, value: *const c_void) -> i32 {
    let Some(g) = generation(key) else {
        return errno::EINVAL;
    };
    // SAFETY: the block is this thread's own; `generation` has checked the index.
    unsafe { (&mut (*block()).values)[key as usize] = (g, value) };
    0
}

/// `__cxa_thread_atexit_impl`: accepted, and never called.
pub(crate) extern "C" fn thread_atexit(_dtor: usize, _object: usize, _dso: usize) -> i32 {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_grows_and_keeps_every_key() {
        let keys: Vec<usize> = (1..=20_000).map(|i| BY_NUMBER << 1 | i << 12).collect();
        let slots: Vec<_> = keys
            .iter()
            .map(|&k| ptr::from_ref(find_or_insert(k)))
            .collect();
        for (&k, &s) in keys.iter().zip(&slots) {
            assert!(ptr::eq(find(k).expect("inserted"), s));
            assert!(ptr::eq(find_or_insert(k), s));
        }
        let mut distinct = slots.clone();
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), keys.len());
        assert!(find(BY_NUMBER << 1 | 7).is_none());
    }

    #[test]
    fn values_are_per_thread_and_die_with_the_key() {
        let mut key = 0;
        assert_eq!(unsafe { key_create(&mut key, 0) }, 0);
        assert_eq!(setspecific(key, 8 as *const c_void), 0);
        std::thread::spawn(move || {
            assert!(getspecific(key).is_null());
            assert_eq!(setspecific(key, 16 as *const c_void), 0);
            assert_eq!(getspecific(key) as usize, 16);
        })
        .join()
        .unwrap();
        assert_eq!(getspecific(key) as usize, 8);
        assert_eq!(key_delete(key), 0);
        assert_eq!(setspecific(key, ptr::null()), errno::EINVAL);
        assert_eq!(unsafe { key_create(&mut key, 0) }, 0);
        assert!(getspecific(key).is_null());
    }
}

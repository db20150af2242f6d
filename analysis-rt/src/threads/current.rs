//! The record of the calling thread: its thread-local variables, `errno` and `pthread` keys.
//!
//! The key of a thread is its FS base, the application's thread pointer: the
//! only per-thread value that any code can read without a system call
//! (`rdfsbase`, where the kernel announces it in AT_HWCAP2) and that clone does
//! not copy from the parent. Before a static program has set it up, it is 0. The
//! kernel's thread number then serves as the key, and the record moves over to the
//! FS base once there is one.
//!
//! Tasks may share a thread pointer: `clone` with CLONE_VM and without CLONE_SETTLS, as LeakSanitizer starts its
//! tracer. Once there was such a call, each look at a record asks for the thread number as well, and only the thread for which
//! the record was made gets it; others have records by their numbers.
//!
//! Consequence, by design: a thread that gets the thread pointer of one that
//! has ended also gets its record, thread-local values included. Nothing tells
//! the runtime that a thread has ended, and a destructor would have to run on
//! a thread that is gone.
//!
//! ABI: the thread-local variables of the tool's only module start as a copy of the initial image,
//! followed by zeros.

use core::ptr::{self, null_mut};
use core::sync::atomic::Ordering;

use crate::heap::alloc::{alloc, alloc_aligned};
use crate::process::identity::{self, ProcessKind};
use crate::process::info;
use crate::sys::call::{HAS_TWINS, getpid, gettid, is_thread_alive};
use crate::sys::fatal::fatal;
use crate::sys::segments::fs_base;
use crate::threads::record::ThreadRecord;
use crate::threads::table::{ROOT, Slot, find, find_or_insert};

/// Bit that marks a key as a thread number. No FS base has it: such an address is not canonical.
const BY_NUMBER: usize = 1 << 62;
/// Key of the thread-group leader while its FS base is 0, in forked children too.
const LEADER: usize = BY_NUMBER;

/// The key of the calling thread while it has no FS base, or had none.
fn number_key() -> usize {
    let tid = gettid();
    if tid == getpid() {
        LEADER
    } else {
        by_number(tid)
    }
}

/// The key of a task with a thread number.
fn by_number(tid: u32) -> usize {
    BY_NUMBER | (tid as usize) << 4
}

/// The record that the table has for a key.
fn known(key: usize) -> Option<*mut ThreadRecord> {
    let record = find(key)?.record.load(Ordering::Acquire);
    (!record.is_null()).then_some(record)
}

/// Fresh thread-local variables, never freed; null before the start, when
/// their layout is not known yet.
fn new_variables() -> *mut u8 {
    let Some(info) = info::get() else {
        return null_mut();
    };
    let memory = alloc_aligned(info.tls_mem_size, info.tls_align.max(16));
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

/// A new record, never freed.
fn new_record() -> *mut ThreadRecord {
    let record = alloc(size_of::<ThreadRecord>()).cast::<ThreadRecord>();
    if record.is_null() {
        fatal("no memory for another thread");
    }
    // SAFETY: fresh memory, for which all zeros is a valid record.
    unsafe {
        ptr::write_bytes(record, 0, 1);
        (*record).tls = new_variables();
        (*record).tid.store(gettid(), Ordering::Relaxed);
    }
    record
}

/// Finds or makes the record of a thread that is not in the table by this FS base.
#[cold]
fn missing(fs: usize) -> *mut ThreadRecord {
    let slot = find_or_insert(if fs == 0 { number_key() } else { fs });
    let had = slot.record.load(Ordering::Acquire);
    if !had.is_null() {
        return had;
    }
    let mut record = null_mut();
    if fs != 0
        && let Some(candidate) = known(number_key())
        // SAFETY: records live for ever.
        && !unsafe { (*candidate).adopted.swap(true, Ordering::AcqRel) }
    {
        record = candidate;
    }
    if record.is_null() {
        record = new_record();
    }
    fill(slot, record)
}

/// Puts a record into an entry that has none, and answers the record that is there then.
fn fill(slot: &Slot, record: *mut ThreadRecord) -> *mut ThreadRecord {
    match slot
        .record
        .compare_exchange(null_mut(), record, Ordering::AcqRel, Ordering::Acquire)
    {
        Ok(_) => record,
        // A signal handler on this very thread was faster.
        Err(other) => other,
    }
}

/// The calling thread's record.
#[inline]
pub(crate) fn record() -> *mut ThreadRecord {
    let fs = fs_base();
    if HAS_TWINS.load(Ordering::Relaxed) {
        return record_of_task(fs);
    }
    let slot = ROOT.slot(fs, 0);
    if fs != 0 && slot.key.load(Ordering::Acquire) == fs {
        let record = slot.record.load(Ordering::Acquire);
        if !record.is_null() {
            return record;
        }
    }
    record_elsewhere(fs)
}

/// The record where the first entry of the key is not its own.
#[inline(never)]
fn record_elsewhere(fs: usize) -> *mut ThreadRecord {
    if fs != 0
        && let Some(record) = known(fs)
    {
        return record;
    }
    missing(fs)
}

/// The record of this task, which may share its thread pointer with others.
#[cold]
fn record_of_task(fs: usize) -> *mut ThreadRecord {
    let record = record_elsewhere(fs);
    // SAFETY: records live for ever, and the field is atomic.
    let owner = unsafe { &(*record).tid };
    let (before, tid) = (owner.load(Ordering::Relaxed), gettid());
    if before == tid {
        return record;
    }
    let number = by_number(tid);
    // A task that had a record of its own keeps it; this is asked first since it takes no system call.
    if let Some(own) = known(number) {
        return own;
    }
    // The one thread of a forked child continues with the record of the thread that forked.
    let is_forked = tid == getpid() && identity::kind() != ProcessKind::Other;
    if is_forked || !is_thread_alive(before) {
        let taken = owner.compare_exchange(before, tid, Ordering::AcqRel, Ordering::Relaxed);
        if taken.is_ok() {
            return record;
        }
    }
    fill(find_or_insert(number), new_record())
}

/// Sets the calling thread's `errno`.
pub(crate) fn set_errno(e: i32) {
    // SAFETY: the record is this thread's own.
    unsafe { (*record()).errno = e };
}

/// The calling thread's thread-local variables.
#[inline]
pub(crate) fn variables() -> *mut u8 {
    // SAFETY: the record is this thread's own.
    let tls = unsafe { (*record()).tls };
    if tls.is_null() { late_variables() } else { tls }
}

/// The variables of a thread whose record is older than the start, as in an IFUNC resolver.
#[cold]
fn late_variables() -> *mut u8 {
    let tls = new_variables();
    if tls.is_null() {
        fatal("an analysis routine ran before the start");
    }
    // SAFETY: the record is this thread's own.
    unsafe { (*record()).tls = tls };
    tls
}

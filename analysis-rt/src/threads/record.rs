//! The runtime's record of a thread.

use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicU32};

/// Number of pthread keys that may be in use at a time: the least that POSIX allows.
pub(crate) const KEYS: usize = 128;

/// The value of a pthread key in one thread, with the generation of the key for which it was set.
pub(crate) type KeyValue = (usize, *const c_void);

/// Everything that the runtime keeps for a thread. All zeros are a valid record. It is never freed.
pub(crate) struct ThreadRecord {
    /// The thread-local variables; null in a record made before the start.
    pub tls: *mut u8,
    /// C's `errno`.
    pub errno: i32,
    /// True once the thread is found by its FS base instead of its number.
    pub adopted: AtomicBool,
    /// The thread's number; it matters once two threads have one FS base.
    pub tid: AtomicU32,
    /// Stack pointer where this thread entered guarded analysis code, or 0; see `entry`.
    pub entered_at: usize,
    /// Its block of per-thread data, or null; see `data`.
    pub data: *mut atom_abi::ThreadBlock,
    /// True once the thread ends. The next thread with its thread pointer begins with this record.
    pub ended: AtomicBool,
    /// Value of each pthread key.
    pub values: [KeyValue; KEYS],
}

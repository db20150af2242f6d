//! Noticing that a process is a forked child.
//!
//! A child has a copy of all of a tool's data, and nothing tells the tool of the fork.
//! Data that must not be in the child, such as output that the parent has not written yet, lies in memory that
//! the kernel fills with zeros in the child, or is found by a pointer in such memory. (A child of `vfork`
//! shares its parent's memory, where nothing changes.)

use std::ffi::{c_int, c_long};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Number of bytes at the start of [`memory`] that are zeros in a child.
pub const WIPED: usize = 4096;

unsafe extern "C" {
    fn getpid() -> c_int;
    fn syscall(number: c_long, ...) -> c_long;
}

/// Memory of zeros, [`WIPED`] bytes and `size` further ones, of which the first [`WIPED`] are zeros again in a
/// forked child. It is never given back. `None` if there is no memory, or the kernel (before Linux 4.14) cannot do that.
pub fn memory(size: usize) -> Option<NonNull<u64>> {
    NonNull::new(analysis_rt::map_wiped(WIPED, WIPED + size).cast())
}

/// True if this process has a thread with that number in the system.
pub fn is_alive(thread: u32) -> bool {
    const SYS_TGKILL: c_long = 234;
    // SAFETY: signal 0 is not sent; the kernel only checks that the thread exists.
    thread != 0 && unsafe { syscall(SYS_TGKILL, getpid(), thread, 0) == 0 }
}

/// Analysis side: a value that each process has of its own, kept in a `static`.
///
/// A forked child makes a new one, instead of writing what its parent has not written yet, or waiting for a
/// lock that another thread of the parent held.
pub struct PerProcess<T> {
    /// Address of a word in memory that is zero in a child: the value's address.
    own: AtomicPtr<AtomicPtr<Mutex<T>>>,
}

impl<T: Send> Default for PerProcess<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Send> PerProcess<T> {
    /// No process has a value before [`PerProcess::begin`].
    pub const fn new() -> Self {
        Self {
            own: AtomicPtr::new(null_mut()),
        }
    }

    /// Makes values possible, at the program's start. Without memory for that there will be none.
    pub fn begin(&self) {
        if let Some(memory) = memory(0) {
            self.own.store(memory.as_ptr().cast(), Ordering::Release);
        }
    }

    /// Locks this process's value, which `make` makes if there is none. Signals must wait while it is locked.
    pub fn lock(&'static self, make: impl FnOnce() -> T) -> Option<MutexGuard<'static, T>> {
        // SAFETY: null, or a word that stays, zero or written below.
        let own = unsafe { self.own.load(Ordering::Acquire).as_ref()? };
        let mut at = own.load(Ordering::Acquire);
        if at.is_null() {
            let fresh = Box::into_raw(Box::new(Mutex::new(make())));
            at = match own.compare_exchange(at, fresh, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => fresh,
                // Another thread was first; this thread's value stays unused.
                Err(other) => other,
            };
        }
        // SAFETY: only addresses of values that stay are stored there.
        let value = unsafe { &*at };
        Some(value.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

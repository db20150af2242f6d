//! Noticing that a process is a forked child.
//!
//! A child has a copy of all data of a tool, but for [counters](crate::Counters), which begin at 0. A tool that counts
//! in data of its own sets them to 0 in a function for [`in_child`], so that the reports of all processes add up.
//!
//! That function is called where the instrumented code sees a fork: not if a library that is not instrumented forks.
//! Data that must not be in the child, such as output that the parent has not written yet, is in memory that
//! the kernel fills with zeros in the child, or is found by a pointer in such memory. (A child of `vfork`
//! shares its parent's memory, and nothing is filled with zeros.)

use std::ffi::{c_int, c_long};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// Number of bytes at the start of [`memory`] that the kernel fills with zeros in a child.
pub const WIPED: usize = 4096;

unsafe extern "C" {
    fn getpid() -> c_int;
    fn syscall(number: c_long, ...) -> c_long;
}

/// Returns [`WIPED`] bytes of memory, followed by `size` further bytes, all zeros. The first [`WIPED`] bytes are zeros
/// again in a forked child. The memory is never freed. `None` if there is no memory, or if the kernel is older than
/// Linux 4.14 and cannot wipe memory.
pub fn memory(size: usize) -> Option<NonNull<u64>> {
    NonNull::new(analysis_rt::map_wiped(WIPED, WIPED + size).cast())
}

/// Analysis side: sets the function that runs in each forked child as it begins, before any other code of it. One
/// function for a tool: a second call replaces the first's. Threads of the parent are not in the child, and may have
/// held locks, so the function must not wait for a lock.
pub fn in_child(function: fn()) {
    analysis_rt::in_child(function);
}

/// Analysis side: lets this process, and children that it forks from now on, end without the calls at ProgramAfter. A
/// process that forks a child for each of many short runs need not pay for reports that nobody reads.
pub fn end_without_report() {
    analysis_rt::be_silent();
}

/// True in a process that only reports the state of another one, which continues (`atom run --every`).
pub fn is_snapshot() -> bool {
    analysis_rt::is_snapshot()
}

/// True if this process has a thread with the thread id `thread`.
pub fn is_alive(thread: u32) -> bool {
    const SYS_TGKILL: c_long = 234;
    // SAFETY: the signal number 0 sends no signal; the kernel only checks that the thread exists.
    thread != 0 && unsafe { syscall(SYS_TGKILL, getpid(), thread, 0) == 0 }
}

/// Analysis side: a value that exists once in each process, kept in a `static`.
///
/// A forked child makes a new value. So it neither writes output that its parent has not written yet, nor waits for a
/// lock that another thread of the parent held at the fork.
pub struct PerProcess<T> {
    /// Address of a word that has the address of the value. The kernel sets the word to 0 in a child.
    own: AtomicPtr<AtomicPtr<Mutex<T>>>,
    /// Address of the value, which a child inherits.
    last: AtomicPtr<Mutex<T>>,
}

impl<T: Send> Default for PerProcess<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Send> PerProcess<T> {
    /// No value; there is none in any process before [`PerProcess::begin`].
    pub const fn new() -> Self {
        Self {
            own: AtomicPtr::new(null_mut()),
            last: AtomicPtr::new(null_mut()),
        }
    }

    /// Allocates memory for the address of the value. Call it at the program's start. If the allocation fails,
    /// [`PerProcess::lock`] always returns `None`.
    pub fn begin(&self) {
        if let Some(memory) = memory(0) {
            self.own.store(memory.as_ptr().cast(), Ordering::Release);
        }
    }

    /// Locks this process's value, which `make` creates if there is none. Signals must be blocked while it is locked.
    pub fn lock(&'static self, make: impl FnOnce() -> T) -> Option<MutexGuard<'static, T>> {
        // SAFETY: null, or a word that is never freed, and that is zero or written below.
        let own = unsafe { self.own.load(Ordering::Acquire).as_ref()? };
        let mut at = own.load(Ordering::Acquire);
        if at.is_null() {
            let fresh = Box::into_raw(Box::new(Mutex::new(make())));
            at = match own.compare_exchange(at, fresh, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => fresh,
                // Another thread was first; this thread's value stays unused.
                Err(other) => other,
            };
            self.last.store(at, Ordering::Release);
        }
        // SAFETY: only addresses of values that are never freed are stored there.
        let value = unsafe { &*at };
        Some(value.lock().unwrap_or_else(PoisonError::into_inner))
    }
    /// In a process that only reports the state of another one ([`is_snapshot`]): its copy of that one's value. `None`
    /// if there is none, or if a thread was changing it.
    pub fn copy(&'static self) -> Option<MutexGuard<'static, T>> {
        // SAFETY: null, or the address of a value that is never freed.
        let value = unsafe { self.last.load(Ordering::Acquire).as_ref()? };
        match value.try_lock() {
            Ok(value) => Some(value),
            Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

//! Which process this is: the one that started, a forked child, or a child in its parent's memory.
//!
//! A page that the kernel fills with zeros in forked children tells these apart. Zeros: the process was
//! forked, has memory of its own and ends on its own account. The number of another process: the child
//! still shares its parent's memory (vfork, posix_spawn), and ending is the parent's business.

use core::ptr::{self, null_mut};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use crate::sys::call::{WATCHER, getpid, syscall};
use crate::sys::memory::{self, PAGE};

static START_PID: AtomicU32 = AtomicU32::new(0);
static STATE: AtomicPtr<ProcessState> = AtomicPtr::new(null_mut());
/// True if the kernel fills the page of [`STATE`] with zeros in forked children.
static WIPED_ON_FORK: AtomicBool = AtomicBool::new(false);

/// State of one process; is in the wiped page. All zeros are its state before anything has happened.
pub(crate) struct ProcessState {
    /// Process number; 0 in a child that has not been seen yet.
    pid: AtomicU32,
    /// [`RUNNING`], [`ENDING`] or [`ENDED`].
    pub phase: AtomicU32,
    /// The number of the thread that ends the process.
    pub ender: AtomicU32,
    /// 1 if the counts are those of this process, 0 in a forked child whose counts are its parent's.
    counts_are_own: AtomicU32,
}

/// The process has not begun to end.
pub(crate) const RUNNING: u32 = 0;
/// A thread makes the calls at the process's end.
pub(crate) const ENDING: u32 = 1;
/// The calls at the process's end have been made.
pub(crate) const ENDED: u32 = 2;

/// What kind of process this is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcessKind {
    /// The one that started.
    Original,
    /// A forked child, with memory of its own.
    Forked,
    /// A child in its parent's memory, or the start has not happened.
    Other,
}

/// The number of the process in which the program started.
pub fn start_pid() -> u32 {
    START_PID.load(Ordering::Relaxed)
}

/// The number of this process: differs from [`start_pid`] in a forked child. A child in its parent's memory works for
/// its parent, and has the parent's number here.
pub fn pid() -> u32 {
    // SAFETY: null, or a page that stays mapped.
    let page = unsafe { STATE.load(Ordering::Acquire).as_ref() };
    let is_new = |page: &ProcessState| page.pid.load(Ordering::Acquire) == 0;
    if page.is_some_and(is_new) {
        state();
    }
    match page {
        Some(page) if WIPED_ON_FORK.load(Ordering::Relaxed) => page.pid.load(Ordering::Acquire),
        _ => getpid(),
    }
}

/// The effective user of this process.
pub fn user() -> u32 {
    // SAFETY: a system call without effects.
    unsafe { syscall!(libc::SYS_geteuid) as u32 }
}

/// At the start: this process is the original.
pub(crate) fn begin() {
    static FALLBACK: ProcessState = ProcessState {
        pid: AtomicU32::new(0),
        phase: AtomicU32::new(RUNNING),
        ender: AtomicU32::new(0),
        counts_are_own: AtomicU32::new(1),
    };
    START_PID.store(getpid(), Ordering::Relaxed);
    let page = memory::map(PAGE);
    let mut process = ptr::from_ref(&FALLBACK).cast_mut();
    if !page.is_null() {
        process = page.cast();
        // SAFETY: the page was mapped just now, for this alone.
        WIPED_ON_FORK.store(
            unsafe { memory::wipe_on_fork(page, PAGE) },
            Ordering::Relaxed,
        );
    }
    STATE.store(process, Ordering::Release);
    // SAFETY: zeroed memory is a valid `ProcessState`, and it is never unmapped.
    unsafe {
        (*process).pid.store(getpid(), Ordering::Release);
        (*process).counts_are_own.store(1, Ordering::Relaxed);
    }
}

/// True once in each forked child with memory of its own: its counts are still its parent's. Always false
/// before Linux 4.14.
pub(crate) fn takes_over_counts() -> bool {
    // SAFETY: null, or a page that stays mapped.
    let page = unsafe { STATE.load(Ordering::Acquire).as_ref() };
    // No system call is made here: it might be forbidden. A child in its parent's memory finds a 1.
    page.is_some_and(|s| s.counts_are_own.swap(1, Ordering::Relaxed) == 0)
}

/// True if the counts of this process are a copy of its parent's at the fork, and what was added since.
pub(crate) fn counts_are_inherited() -> bool {
    let is_own = |s: &ProcessState| s.counts_are_own.load(Ordering::Relaxed) == 1;
    let is_known = WIPED_ON_FORK.load(Ordering::Relaxed) && state().is_some_and(is_own);
    kind() == ProcessKind::Forked && !is_known
}

/// The state of this process; `None` before the start and in a child that
/// shares its parent's memory.
pub(crate) fn state() -> Option<&'static ProcessState> {
    // SAFETY: null, or a page that stays mapped.
    let process = unsafe { STATE.load(Ordering::Acquire).as_ref()? };
    let pid = getpid();
    let noted = process.pid.load(Ordering::Acquire);
    if noted == pid {
        return Some(process);
    }
    if noted != 0 {
        if WIPED_ON_FORK.load(Ordering::Relaxed) {
            return None;
        }
        // A kernel before 4.14: any other process is taken for a forked child.
        process.phase.store(RUNNING, Ordering::Release);
    }
    process.pid.store(pid, Ordering::Release);
    Some(process)
}

/// True if the watcher makes the calls at the end just now, so that it may hold locks.
pub(crate) fn watcher_reports() -> bool {
    let watcher = WATCHER.load(Ordering::Acquire);
    watcher != 0 && state().is_some_and(|s| s.ender.load(Ordering::Acquire) == watcher)
}

/// True in a child that shares its parent's memory.
pub fn is_in_parents_memory() -> bool {
    !STATE.load(Ordering::Acquire).is_null() && kind() == ProcessKind::Other
}

/// The kind of this process.
pub(crate) fn kind() -> ProcessKind {
    match state() {
        None => ProcessKind::Other,
        Some(p) if p.pid.load(Ordering::Acquire) == start_pid() => ProcessKind::Original,
        Some(_) => ProcessKind::Forked,
    }
}

//! A process that ran already when it was instrumented, and that is to run on without a trace of that.
//!
//! `atom attach` stops all threads, calls [`start`](super::start::start) in one of them, and lets them continue in the
//! new text. A *helper*, a process that shares the memory, is stopped meanwhile. When `atom attach` leaves, a
//! thread of the process gives back what signals do, and the helper reports. The process itself reports nothing, whatever
//! way it ends, and neither do its forked children.
//!
//! ABI: `atom attach` calls [`attached`] with a command of [`atom_abi::Attached`], on a stack of its own, while the calling thread
//! blocks all signals.

use core::sync::atomic::Ordering;

use atom_abi::Attached;

use crate::lifecycle::{dispositions, end, handlers, watcher};
use crate::sys::call::{WATCHED, WATCHER, system_pid};
use crate::sys::sandbox;

/// Does what `atom attach` wants: `__atom_attached`.
///
/// # Safety
/// As this module says; `process` is the number of the process. When the process is left, the answer is 1 if a handler that runs
/// now may return to code of the runtime.
pub(crate) unsafe extern "C" fn attached(command: usize, process: usize) -> usize {
    if command == Attached::Leave as usize {
        dispositions::give_back();
        return usize::from(handlers::have_own_restorers());
    }
    WATCHED.store(process as u32, Ordering::Release);
    WATCHER.store(system_pid(), Ordering::Release);
    // SAFETY: the caller's promise: this is the helper.
    unsafe {
        if command == Attached::Snapshot as usize {
            watcher::snapshot(false);
        } else if command == Attached::Report as usize {
            sandbox::lift();
            end::report_in_place();
            end::finish_for_the_dead();
        }
    }
    0
}

//! The end of a process: totals, the ProgramAfter calls, flushing.
//!
//! ABI: [`finish`] is called wherever the process may end, also more than once, from any thread, and in
//! forked children, which end on their own account.

use core::ffi::c_void;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use crate::lifecycle::actions::{are_seen, mask_of_faults};
use crate::lifecycle::{totals, windows};
use crate::process::identity::{self, ENDED, ENDING, RUNNING};
use crate::process::{dispatch, info, run};
use crate::sys::broker;
use crate::sys::call::gettid;
use crate::sys::fatal::exit_now;
use crate::sys::sandbox;
use crate::sys::{processor, signals, spin, stacks};
use crate::threads::data;

/// How often a second thread looks whether the ending one is done; each look waits for a millisecond.
const MOST_ROUNDS: usize = 30_000;

/// Size in bytes of the stack on which the calls at the end are made. Pages that are not used take no memory.
const STACK: usize = 8 << 20;

static FLUSH: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// True if this process and its forked children end without the calls at ProgramAfter.
static IS_SILENT: AtomicBool = AtomicBool::new(false);

/// Lets this process, and children that it forks from now on, end without the calls at ProgramAfter and without
/// flushing.
pub fn be_silent() {
    IS_SILENT.store(true, Ordering::Relaxed);
}

/// True once this process, or a copy of it, reports for one that ran already when it was instrumented.
static IS_IN_PLACE: AtomicBool = AtomicBool::new(false);

/// From now on this process reports in the place of one that ran already when it was instrumented.
pub(super) fn report_in_place() {
    IS_IN_PLACE.store(true, Ordering::Relaxed);
}

/// True if another process makes the calls at ProgramAfter. Forked children of such a process make none.
fn is_elsewhere() -> bool {
    run::is_attached() && !IS_IN_PLACE.load(Ordering::Relaxed)
}

/// Sets what runs after the ProgramAfter calls, such as flushing `std`'s stdout.
pub fn set_flush_hook(hook: fn()) {
    FLUSH.store(hook as *mut c_void, Ordering::Release);
}

/// `exit` by an analysis routine: the program ends here, as the tool wishes.
pub(crate) extern "C" fn exit(code: i32) -> ! {
    // SAFETY: analysis code runs only after the start.
    unsafe { finish() };
    let process = identity::state();
    if let Some(process) = process.filter(|p| p.ender.load(Ordering::Acquire) == gettid()) {
        // It is a routine at ProgramAfter: the calls after it are not made.
        flush();
        process.phase.store(ENDED, Ordering::Release);
    }
    exit_now(code)
}

/// Runs what [`set_flush_hook`] has set. As a part of its caller it has a tail call, after whose end of the frame the compiler
/// describes the frame wrongly.
#[inline(never)]
fn flush() {
    let flush = FLUSH.load(Ordering::Acquire);
    if !flush.is_null() {
        // SAFETY: only `set_flush_hook` writes it, always with a `fn()`.
        let flush: fn() = unsafe { core::mem::transmute(flush) };
        flush();
    }
}

/// Runs the ProgramAfter calls and flushes, once for each process.
///
/// A second thread that ends the process meanwhile waits for the first, for
/// up to half a minute; the ending thread itself passes through.
///
/// # Safety
/// Called by the instrumented program after the start, where it may end.
pub unsafe extern "C" fn finish() {
    // The kernel would end the process at the first system call of the report. The watcher, if there is one, is
    // free to make the calls when the process has ended.
    let is_end = !IS_SILENT.load(Ordering::Relaxed) && !dispatch::is_emulated();
    if is_end && sandbox::may_report() {
        // SAFETY: the caller's promise.
        unsafe { end(ENDED) }
    }
    broker::stop();
}

/// As [`finish`], for a process that continues if its `exec` fails. The next end makes the calls again.
///
/// # Safety
/// As for [`finish`].
pub(crate) unsafe fn finish_for_now() {
    if sandbox::may_report() {
        // SAFETY: the caller's promise.
        unsafe { end(RUNNING) }
    }
}

/// As [`finish`], by the watcher after the application's process has ended without it. Locks that a killed
/// thread held are taken over.
///
/// # Safety
/// As for [`finish`]; no thread of the application is there any more.
pub(crate) unsafe fn finish_for_the_dead() {
    if let Some(process) = identity::state() {
        spin::take_over_locks();
        let begun = (ENDING, RUNNING);
        process
            .phase
            .compare_exchange(begun.0, begun.1, Ordering::AcqRel, Ordering::Acquire)
            .unwrap_or_default();
        // SAFETY: the caller's promise.
        unsafe { end(ENDED) }
    }
}

/// Makes the calls at the end, unless that has happened; then the process is in the phase `then`.
///
/// # Safety
/// As for [`finish`].
unsafe fn end(then: u32) {
    if IS_SILENT.load(Ordering::Relaxed) || is_elsewhere() {
        return;
    }
    let Some(process) = identity::state() else {
        return;
    };
    let tid = gettid();
    let first =
        process
            .phase
            .compare_exchange(RUNNING, ENDING, Ordering::AcqRel, Ordering::Acquire);
    match first {
        Ok(_) => process.ender.store(tid, Ordering::Release),
        Err(ENDING) => {
            let mut rounds = 0;
            while process.phase.load(Ordering::Acquire) == ENDING
                && process.ender.load(Ordering::Acquire) != tid
                && rounds < MOST_ROUNDS
            {
                stacks::sleep(1_000_000);
                rounds += 1;
            }
            return;
        }
        Err(_) => return,
    }
    // A fault of a routine is to be told, if its signal does not come to the application.
    let open = if are_seen() { mask_of_faults() } else { 0 };
    signals::with_blocked(!open, || {
        // SAFETY: the work takes no argument. The program may end on any stack, however small.
        unsafe { stacks::call_with(STACK, report, null_mut()) }
    });
    process.ender.store(0, Ordering::Release);
    process.phase.store(then, Ordering::Release);
}

/// Makes the calls at the end.
unsafe extern "C" fn report(_: *mut c_void) {
    processor::with_defaults(|| {
        windows::settle();
        data::gather();
        if let Some(info) = info::get() {
            // SAFETY: `atom` wrote the table, and a function.
            unsafe {
                totals::settle(info);
                (info.program_after)();
            }
        }
        flush();
    });
}

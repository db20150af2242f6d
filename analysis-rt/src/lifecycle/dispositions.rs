//! What signals do.
//!
//! The application's system calls on dispositions pass [`sigaction`]. The kernel gets the runtime's handlers where
//! the application wants a handler ([`handlers`]) or the default action of a deadly signal ([`deaths`]), and the
//! application is shown its own. No state is kept but the kernel's, since a child in its parent's memory (`vfork`,
//! `posix_spawn`) has dispositions of its own.

use crate::lifecycle::actions::{Action, FAULTS, change, present};
use crate::lifecycle::{deaths, handlers};
use crate::process::copy::copy_words;
use crate::process::{boundaries, run, table};
use crate::sys::masks::{KERNEL_SIGSET_SIZE, bit};

/// Number of signals.
const SIGNALS: usize = 64;

/// At the start of a process whose system calls on dispositions are seen: handles the signals that have the default
/// action and [are wanted](is_wanted).
pub(crate) fn begin() {
    let wanted = (1..=SIGNALS).filter(|signal| is_wanted(*signal));
    wanted.for_each(handle_default);
}

/// At the start of a process that runs already: its handlers see the original from now on.
pub(crate) fn take_over() {
    let mut is_any = false;
    for signal in 1..=SIGNALS {
        if let Some(now) = present(signal).filter(Action::is_handled) {
            is_any = true;
            // SAFETY: the structure lives across the call.
            unsafe { change(signal, &for_kernel(signal, now), core::ptr::null_mut()) };
        }
    }
    if is_any {
        handle_default(libc::SIGTRAP as usize);
    }
}

/// Gives the kernel the application's own actions back.
pub(crate) fn give_back() {
    for signal in 1..=SIGNALS {
        if let Some(now) = present(signal).filter(Action::is_handled) {
            // SAFETY: the structure lives across the call.
            unsafe { change(signal, &for_application(now), core::ptr::null_mut()) };
        }
    }
}

/// Handles a signal if it has the default action.
fn handle_default(signal: usize) {
    if let Some(now) = present(signal).filter(|now| now.handler == libc::SIG_DFL) {
        // SAFETY: the structure lives across the call.
        unsafe {
            change(
                signal,
                &deaths::standing_for(signal, now),
                core::ptr::null_mut(),
            )
        };
    }
}

/// True if the runtime handles a signal with the default action: in a process whose objects are all instrumented, each
/// that is deadly, unless the process ran already when it was instrumented. A program alone dies of signals as ever, but its
/// faults are looked at.
fn is_wanted(signal: usize) -> bool {
    match table::process() {
        // Single steps alone.
        Some(_) if run::is_attached() => signal == libc::SIGTRAP as usize,
        Some(_) => deaths::DEADLY & bit(signal as i32) != 0,
        None => FAULTS.contains(&(signal as i32)),
    }
}

/// The kernel's action for what the application wants.
fn for_kernel(signal: usize, wanted: Action) -> Action {
    match wanted.handler {
        libc::SIG_IGN => wanted,
        libc::SIG_DFL if is_wanted(signal) => deaths::standing_for(signal, wanted),
        libc::SIG_DFL => wanted,
        _ if !boundaries::are_known() && !FAULTS.contains(&(signal as i32)) => wanted,
        _ => handlers::in_front_of(wanted).unwrap_or(wanted),
    }
}

/// What the application is shown of the kernel's action.
fn for_application(action: Action) -> Action {
    let shown = deaths::default_of(action).or_else(|| handlers::behind(action));
    shown.unwrap_or_else(|| match action.handler {
        // The kernel has taken away the handler (`SA_RESETHAND`).
        libc::SIG_DFL => action.uninformed(libc::SIG_DFL),
        _ => action,
    })
}

/// Copies the application's structure; `None` if it cannot be read.
fn read(action: usize) -> Option<Action> {
    const WORDS: usize = size_of::<Action>() / size_of::<u64>();
    let mut words = [0; WORDS];
    // SAFETY: the structure consists of words, of which any value is valid.
    copy_words(action, &mut words).then(|| unsafe { core::mem::transmute(words) })
}

/// Makes the application's system call on a disposition in its place. Returns true if that is done, and
/// nothing but an answer of 0 is left to be given.
///
/// # Safety
/// The arguments are those of an `rt_sigaction` that the application makes next.
pub(crate) unsafe fn sigaction(signal: usize, action: usize, old: usize, size: usize) -> bool {
    if !(1..=SIGNALS).contains(&signal) || size != KERNEL_SIGSET_SIZE {
        return false;
    }
    let copy;
    let mut wanted = core::ptr::null();
    if action != 0 {
        let Some(action) = read(action) else {
            return false;
        };
        if action.is_handled() {
            handle_default(libc::SIGTRAP as usize);
        }
        copy = for_kernel(signal, action);
        wanted = &raw const copy;
    }
    let old = old as *mut Action;
    // SAFETY: the copy lives across the call; the kernel checks the application's pointer.
    unsafe {
        if change(signal, wanted, old) != 0 {
            return false;
        }
        if !old.is_null() {
            old.write_unaligned(for_application(old.read_unaligned()));
        }
    }
    true
}

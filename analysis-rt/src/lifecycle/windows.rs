//! Windows: from when to when calls are made, in a program of which each procedure has two versions.
//!
//! Inserted code compares a word and goes to the other version by it (`Control::is_on`). Either the program itself changes
//! it: code at the borders of windows calls [`window`]. Or `atom run` does, by a file that all processes of the run map
//! in the place of the word's page. In both cases the windows and the time in them are added up in that file, if there is one.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

use atom_abi::{CONTROL_SUFFIX, Control};

use crate::c::time::clock_gettime;
use crate::process::{identity, info, note, run};
use crate::sys::call::{is_error, syscall};
use crate::sys::memory::{self, PAGE};
use crate::threads::bursts;

/// The file of the run where it only adds up; null if there is none.
static SUMS: AtomicPtr<Control> = AtomicPtr::new(null_mut());

/// The word's page; `None` if there is one version.
fn control() -> Option<&'static Control> {
    // SAFETY: null or a page in the image, which stays for the process's life.
    unsafe { info::get()?.control.as_ref() }
}

/// At the start: maps the file of the run.
pub(super) fn begin() {
    let Some(control) = control() else { return };
    let Some(file) = note::open_beside(CONTROL_SUFFIX, libc::O_RDWR) else {
        return;
    };
    let map = |address: *const Control, fixed: i32| {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | fixed;
        // SAFETY: a new mapping, or one in the place of the page of the image, which has nothing else in it.
        unsafe { syscall!(libc::SYS_mmap, address, PAGE, protection, flags, file, 0) }
    };
    let at = map(memory::hint(PAGE) as *const Control, 0);
    if !is_error(at) {
        let sums = at as *mut Control;
        // SAFETY: the file has a page, which `atom run` has filled.
        let is_shared = unsafe { (*sums).is_shared.load(Ordering::Relaxed) != 0 };
        if !is_shared {
            SUMS.store(sums, Ordering::Release);
            // SAFETY: as above.
            bursts::choose(control, unsafe { &*sums });
        } else {
            map(control, libc::MAP_FIXED);
            // SAFETY: nothing uses the mapping any more.
            unsafe { syscall!(libc::SYS_munmap, sums, PAGE) };
        }
    }
    // SAFETY: a descriptor of ours.
    unsafe { syscall!(libc::SYS_close, file) };
    if control.is_on.load(Ordering::Relaxed) != 0 && control.windows.load(Ordering::Relaxed) == 0 {
        // The run begins in a window.
        control.is_on.store(0, Ordering::Relaxed);
        set(control, true);
    }
}

/// Begins a window, or ends it: `__atom_window`, which inserted code calls.
pub(crate) extern "C" fn window(begins: usize) {
    if let Some(control) = control() {
        set(control, begins != 0);
    }
}

fn set(control: &Control, is_on: bool) {
    let now = now();
    if !control.set(is_on, now) {
        return;
    }
    // A child that reports nothing adds nothing.
    let is_silent = run::is_attached() && identity::pid() != identity::start_pid();
    let Some(sums) = sums().filter(|_| !is_silent) else {
        return;
    };
    if is_on {
        sums.windows.fetch_add(1, Ordering::Relaxed);
    } else {
        add_time(control, sums, now);
    }
}

/// Adds the time since the window's begin.
fn add_time(control: &Control, sums: &Control, now: u64) {
    let since = control.since.swap(now, Ordering::Relaxed);
    let time = now.saturating_sub(since);
    sums.measured.fetch_add(time, Ordering::Relaxed);
}

fn sums() -> Option<&'static Control> {
    // SAFETY: null or a page that stays mapped.
    unsafe { SUMS.load(Ordering::Acquire).as_ref() }
}

/// In a copy of the process: what it has measured is not added up, as the process does so itself.
pub(super) fn leave_sums() {
    SUMS.store(null_mut(), Ordering::Release);
}

/// At the end of the process: the window that is open ends.
pub(super) fn settle() {
    bursts::settle(sums());
    if let (Some(control), Some(sums)) = (control(), sums())
        && control.is_on.load(Ordering::Relaxed) != 0
    {
        add_time(control, sums, now());
    }
}

/// Nanoseconds of CLOCK_MONOTONIC.
fn now() -> u64 {
    let mut time = [0; 2];
    // SAFETY: the kernel writes seconds and nanoseconds.
    unsafe { clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time[0] as u64 * 1_000_000_000 + time[1] as u64
}

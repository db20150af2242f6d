//! Threads: analysis routines run on the application's and cannot start any.
//!
//! Locks of `std` are futexes and need only `syscall`. The functions here let
//! code that mentions `std::thread` link, and fail in an orderly way.

use core::ffi::c_void;
use core::ptr;

use crate::c::errno::check;
use crate::sys::call::{self, syscall};

pub(crate) extern "C" fn create(_t: usize, _attr: usize, _f: usize, _arg: usize) -> i32 {
    libc::EAGAIN
}

pub(crate) extern "C" fn join(_thread: usize, _value: usize) -> i32 {
    libc::EINVAL
}

/// Accepts attributes of threads, which are never made.
pub(crate) extern "C" fn accepted() -> i32 {
    0
}

/// Refuses to describe a thread's stack, which is the application's.
pub(crate) extern "C" fn unknown() -> i32 {
    libc::ENOSYS
}

pub(crate) extern "C" fn gettid() -> i32 {
    call::gettid() as i32
}

pub(crate) extern "C" fn sched_yield() -> i32 {
    call::yield_now();
    0
}

pub(crate) extern "C" fn pause() -> i32 {
    // SAFETY: no effect on memory.
    unsafe { check(syscall!(libc::SYS_pause)) as i32 }
}

/// # Safety
/// As C's `pthread_once`: `control` is an `int` that starts as 0.
pub(crate) unsafe extern "C" fn once(control: *const c_void, init: extern "C" fn()) -> i32 {
    use core::sync::atomic::{AtomicU32, Ordering};
    const RUNNING: u32 = 1;
    const DONE: u32 = 2;
    // SAFETY: the caller's promise.
    let control = unsafe { &*control.cast::<AtomicU32>() };
    match control.compare_exchange(0, RUNNING, Ordering::Acquire, Ordering::Acquire) {
        Ok(_) => {
            init();
            control.store(DONE, Ordering::Release);
            // SAFETY: wakes waiters on a word that lives.
            unsafe {
                syscall!(
                    libc::SYS_futex,
                    ptr::from_ref(control),
                    libc::FUTEX_WAKE,
                    i32::MAX
                )
            };
        }
        Err(mut now) => {
            while now != DONE {
                // SAFETY: waits while the word has that value.
                unsafe {
                    syscall!(
                        libc::SYS_futex,
                        ptr::from_ref(control),
                        libc::FUTEX_WAIT,
                        now,
                        0
                    )
                };
                now = control.load(Ordering::Acquire);
            }
        }
    }
    0
}

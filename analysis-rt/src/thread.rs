//! Threads: analysis routines run on the application's and cannot start any.
//!
//! Locks of `std` are futexes and need only `syscall`; what stands here lets
//! code that mentions `std::thread` link, and fail in an orderly way.

use core::ffi::c_void;
use core::ptr;

use crate::sys::{self, errno, nr, syscall};

pub(crate) extern "C" fn create(_t: usize, _attr: usize, _f: usize, _arg: usize) -> i32 {
    errno::EAGAIN
}

pub(crate) extern "C" fn join(_thread: usize, _value: usize) -> i32 {
    errno::EINVAL
}

/// Attributes of threads that will not be made.
pub(crate) extern "C" fn accepted() -> i32 {
    0
}

/// "Not known": the stacks are the application's.
pub(crate) extern "C" fn unknown() -> i32 {
    errno::ENOSYS
}

pub(crate) extern "C" fn gettid() -> i32 {
    sys::gettid() as i32
}

pub(crate) extern "C" fn sched_yield() -> i32 {
    // SAFETY: no effect on memory.
    unsafe { syscall!(nr::SCHED_YIELD) };
    0
}

pub(crate) extern "C" fn pause() -> i32 {
    // SAFETY: no effect on memory.
    unsafe { sys::check(syscall!(nr::PAUSE)) as i32 }
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
            unsafe { syscall!(nr::FUTEX, ptr::from_ref(control), 1, i32::MAX) };
        }
        Err(mut now) => {
            while now != DONE {
                // SAFETY: waits while the word has that value.
                unsafe { syscall!(nr::FUTEX, ptr::from_ref(control), 0, now, 0) };
                now = control.load(Ordering::Acquire);
            }
        }
    }
    0
}

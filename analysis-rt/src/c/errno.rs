//! C's way to report errors.

use crate::sys::call::is_error;
use crate::threads::current::{record, set_errno};

/// Turns a kernel's answer into C's: -1 and `errno` for an error.
#[inline]
pub(crate) fn check(answer: isize) -> isize {
    if is_error(answer) {
        set_errno(-answer as i32);
        -1
    } else {
        answer
    }
}

/// Address of the calling thread's `errno`.
pub(crate) extern "C" fn errno_location() -> *mut i32 {
    // SAFETY: the record is this thread's own.
    unsafe { &raw mut (*record()).errno }
}

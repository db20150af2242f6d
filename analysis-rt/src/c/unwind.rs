//! The unwinder's interface, without an unwinder.
//!
//! Analysis routines run below frames of an application, which their panics must not
//! unwind. So a panic ends the process after its message,
//! whichever panic strategy the tool was built with. A backtrace is empty.

use crate::sys::fatal::abort;

/// `_URC_END_OF_STACK`.
const END_OF_STACK: i32 = 5;

pub(crate) extern "C" fn raise_exception(_exception: usize) -> i32 {
    abort()
}

pub(crate) extern "C" fn resume(_exception: usize) -> ! {
    abort()
}

pub(crate) extern "C" fn delete_exception(_exception: usize) {}

pub(crate) extern "C" fn backtrace(_callback: usize, _data: usize) -> i32 {
    END_OF_STACK
}

/// Accessors of a context that is never handed out.
pub(crate) extern "C" fn no_context(_context: usize, _a: usize, _b: usize) -> usize {
    0
}

pub(crate) extern "C" fn dl_iterate_phdr(_callback: usize, _data: usize) -> i32 {
    0
}

pub(crate) extern "C" fn dlsym(_handle: usize, _name: usize) -> usize {
    0
}

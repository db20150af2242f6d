//! Thread-local variables and the identity of threads.
//!
//! ABI: `__tls_get_addr` gets a pointer to (module, offset); there is a single module.

use crate::threads::current::{record, variables};

/// # Safety
/// `index` points to a (module, offset) pair of the tool's.
pub(crate) unsafe extern "C" fn tls_get_addr(index: *const [usize; 2]) -> *mut u8 {
    // SAFETY: the pair is the caller's promise; the offset is inside the variables.
    unsafe { variables().add((*index)[1]) }
}

/// The thread's identity for `pthread_self`; never 0.
pub(crate) extern "C" fn pthread_self() -> usize {
    record() as usize
}

/// `__cxa_thread_atexit_impl`: accepts a destructor and never calls it.
pub(crate) extern "C" fn thread_atexit(_destructor: usize, _object: usize, _dso: usize) -> i32 {
    0
}

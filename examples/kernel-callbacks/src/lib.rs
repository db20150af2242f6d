//! The tool `kernel` with its own callbacks, which count page faults: the pages that the program
//! touches for the first time in a kernel.
//!
//! `--arp-enter-callback=faults_begin --arp-leave-callback=faults_end --arp-data-type=ulong`

use std::ffi::c_void;

/// Number of page faults of this thread so far.
fn faults() -> u64 {
    const RUSAGE_THREAD: i32 = 1;
    // `struct rusage` has 18 words; word 8 counts faults without input (minor faults).
    let mut usage = [0u64; 18];
    // SAFETY: the buffer has the size of `struct rusage`.
    unsafe { getrusage(RUSAGE_THREAD, usage.as_mut_ptr()) };
    usage[8]
}

unsafe extern "C" {
    fn getrusage(who: i32, usage: *mut u64) -> i32;
}

/// Called when a kernel begins: stores the number in the data of the execution.
///
/// # Safety
/// Called by the tool; `data` has space for a value of the data type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn faults_begin(_sid: u16, data: *mut u64, _context: *mut c_void) {
    // SAFETY: the tool's promise, see the function's safety section.
    unsafe { *data = faults() };
}

/// Called when the kernel ends: stores the difference, which is recorded.
///
/// # Safety
/// Called by the tool; `data` has space for a value of the data type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn faults_end(_sid: u16, data: *mut u64, _context: *mut c_void) {
    // SAFETY: the tool's promise, see the function's safety section.
    unsafe { *data = faults() - *data };
}

atom_tool::tool!(atom_kernel::instrument);

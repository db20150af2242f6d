//! The tool `kernel` with callbacks of its own: how many pages the program touched for
//! the first time in a kernel, which the operating system counts as page faults.
//!
//! `--arp-enter-callback=faults_begin --arp-leave-callback=faults_end --arp-data-type=ulong`

use std::ffi::c_void;

/// Page faults of this thread so far.
fn faults() -> u64 {
    const RUSAGE_THREAD: i32 = 1;
    // `struct rusage` has 18 words, of which number 8 are the faults without input.
    let mut usage = [0u64; 18];
    // SAFETY: room for the answer.
    unsafe { getrusage(RUSAGE_THREAD, usage.as_mut_ptr()) };
    usage[8]
}

unsafe extern "C" {
    fn getrusage(who: i32, usage: *mut u64) -> i32;
}

/// A kernel begins: keeps the number where the execution's data are.
///
/// # Safety
/// Called by the tool, with room for a value of the data type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn faults_begin(_sid: u16, data: *mut u64, _context: *mut c_void) {
    // SAFETY: see above.
    unsafe { *data = faults() };
}

/// It ends: leaves the difference there, which is recorded.
///
/// # Safety
/// As before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn faults_end(_sid: u16, data: *mut u64, _context: *mut c_void) {
    // SAFETY: see above.
    unsafe { *data = faults() - *data };
}

atom_tool::tool!(atom_kernel::instrument);

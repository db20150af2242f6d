//! Copying memory of the application that may not be readable, with the kernel's help.

use crate::process::sandbox;
use crate::sys::call::{getpid, syscall};

/// Copies the words at an address of the application, which passes the address to the kernel in its next system
/// call; false if they cannot be read.
pub(crate) fn copy_words(from: usize, words: &mut [u64]) -> bool {
    let size = size_of_val(words);
    if sandbox::is_allowed(libc::SYS_process_vm_readv) {
        let (to, source) = ([words.as_mut_ptr() as usize, size], [from, size]);
        // SAFETY: the kernel writes to the words, and answers EFAULT if it cannot read.
        let copied = unsafe {
            syscall!(
                libc::SYS_process_vm_readv,
                getpid(),
                to.as_ptr(),
                1,
                source.as_ptr(),
                1,
                0
            )
        };
        if copied != -(libc::ENOSYS as isize) && copied != -(libc::EPERM as isize) {
            return copied == size as isize;
        }
    }
    for (i, word) in words.iter_mut().enumerate() {
        // SAFETY: the kernel does not help here; the application's pointer is as good as its own call.
        *word = unsafe { (from as *const u64).add(i).read_unaligned() };
    }
    true
}

//! Copying memory of the application that may not be readable, with the kernel's help.

use crate::sys::call::{getpid, syscall};
use crate::sys::masks::KERNEL_SIGSET_SIZE;
use crate::sys::sandbox;

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
        let at = from.wrapping_add(i * size_of::<u64>());
        if !is_readable(at) {
            return false;
        }
        // SAFETY: the word can be read, or nothing but the application's own call can tell.
        *word = unsafe { (at as *const u64).read_unaligned() };
    }
    true
}

/// True if the word at an address can be read, by a system call that reads it and does nothing else: it
/// sets the signal mask in a way that there is not. Without that call the answer is true.
fn is_readable(at: usize) -> bool {
    const NO_SUCH_WAY: isize = -1;
    if at == 0 {
        // The kernel would read nothing.
        return false;
    }
    if !sandbox::is_allowed(libc::SYS_rt_sigprocmask) {
        return true;
    }
    // SAFETY: the kernel reads the word, or answers EFAULT, before it looks at the way.
    let answer = unsafe {
        syscall!(
            libc::SYS_rt_sigprocmask,
            NO_SUCH_WAY,
            at,
            0,
            KERNEL_SIGSET_SIZE
        )
    };
    answer != -(libc::EFAULT as isize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_memory_is_readable() {
        let words = [7u64, 8];
        let at = words.as_ptr() as usize;
        assert!(is_readable(at) && !is_readable(0) && !is_readable(usize::MAX - 7));
        let mut copy = [0; 2];
        assert!(copy_words(at, &mut copy) && copy == words);
        assert!(!copy_words(8, &mut copy));
    }
}

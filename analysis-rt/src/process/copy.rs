//! Copying memory of the application that may not be readable, with the kernel's help.

use core::ptr;

use crate::sys::call::{getpid, syscall};
use crate::sys::masks::KERNEL_SIGSET_SIZE;
use crate::sys::memory::PAGE;
use crate::sys::sandbox;

/// Copies the bytes at an address of the process to `to`, as far as they can be read, and returns their number. Nothing faults,
/// whatever the address is.
///
/// Where the process forbids itself the call `process_vm_readv`, the kernel is asked for each page whether it can be read, and where that is
/// forbidden, too, nothing is read. In the first of these cases another thread must not unmap the memory meanwhile.
pub fn read_memory(address: u64, to: &mut [u8]) -> usize {
    let mut done = 0;
    while done < to.len() {
        let at = (address as usize).wrapping_add(done);
        let rest = &mut to[done..];
        match copy_by_kernel(at, rest.as_mut_ptr() as usize, rest.len()) {
            Some(copied @ 1..) => done += copied as usize,
            Some(_) => break,
            None if !sandbox::is_allowed(libc::SYS_rt_sigprocmask) => break,
            None if !is_readable(at & !(size_of::<u64>() - 1)) => break,
            None => {
                let size = rest.len().min(PAGE - at % PAGE);
                // SAFETY: a word of the page can be read, so all of the page can.
                unsafe { ptr::copy(at as *const u8, rest.as_mut_ptr(), size) };
                done += size;
            }
        }
    }
    done
}

/// Has the kernel copy bytes. Returns their number, or an error; `None` if the kernel does not make this call.
fn copy_by_kernel(from: usize, to: usize, size: usize) -> Option<isize> {
    if !sandbox::is_allowed(libc::SYS_process_vm_readv) {
        return None;
    }
    let (to, source) = ([to, size], [from, size]);
    // SAFETY: the callers own what is written to. The kernel answers EFAULT if it cannot read.
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
    // Filters answer errors that the call does not have.
    let is_made = copied >= 0 || copied == -(libc::EFAULT as isize);
    is_made.then_some(copied)
}

/// Copies the words at an address of the application, which passes the address to the kernel in its next system
/// call; false if they cannot be read.
pub(crate) fn copy_words(from: usize, words: &mut [u64]) -> bool {
    let size = size_of_val(words);
    if let Some(copied) = copy_by_kernel(from, words.as_mut_ptr() as usize, size) {
        return copied == size as isize;
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

    #[test]
    fn bytes_are_copied_up_to_what_cannot_be_read() {
        // SAFETY: new memory of three pages, of which the last is given back.
        let pages = unsafe {
            let how = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let pages = libc::mmap(
                ptr::null_mut(),
                3 * PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                how,
                -1,
                0,
            );
            ptr::write_bytes(pages.cast::<u8>(), 7, 2 * PAGE);
            libc::munmap(pages.byte_add(2 * PAGE), PAGE);
            pages as u64
        };
        let mut bytes = [0; PAGE + 9];
        let end = pages + 2 * PAGE as u64;
        assert_eq!(read_memory(end - 5, &mut bytes), 5);
        assert_eq!(bytes[..6], [7, 7, 7, 7, 7, 0]);
        assert_eq!(read_memory(end - PAGE as u64 - 9, &mut bytes), PAGE + 9);
        assert_eq!(bytes, [7; PAGE + 9]);
        for nowhere in [0, 8, end, 1 << 47, 1 << 63, u64::MAX - 3] {
            assert_eq!(read_memory(nowhere, &mut bytes), 0, "{nowhere:#x}");
        }
        assert_eq!(read_memory(pages, &mut []), 0);
    }
}

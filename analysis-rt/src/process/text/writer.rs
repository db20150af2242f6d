//! Writes to code that other threads may execute.

use core::arch::asm;

use crate::sys::call::syscall;
use crate::sys::memory::PAGE;
use crate::sys::sandbox;

/// Size in bytes of a displacement.
pub(super) const FIELD: usize = 4;

/// Writes to code, pages of which it makes writable.
#[derive(Default)]
pub(super) struct Writer {
    /// The pages that are writable now.
    pages: (u64, u64),
}

impl Writer {
    /// Writes a few bytes of code; false if the kernel does not permit it.
    pub(super) fn put(&mut self, address: u64, code: &[u8]) -> bool {
        let (start, end) = (address, address + code.len() as u64);
        if start < self.pages.0 || self.pages.1 < end {
            self.close();
            let page = PAGE as u64;
            let pages = (start & !(page - 1), (end + page - 1) & !(page - 1));
            if !protect(pages, libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC) {
                return false;
            }
            self.pages = pages;
        }
        let to = core::ptr::with_exposed_provenance_mut::<u8>(address as usize);
        // SAFETY: the pages are writable; other threads execute the code, so it changes by few stores.
        unsafe {
            if let Ok(field) = <[u8; FIELD]>::try_from(code) {
                let field = u32::from_le_bytes(field);
                asm!("mov [{to}], {field:e}", to = in(reg) to, field = in(reg) field,
                    options(nostack, preserves_flags));
                return true;
            }
            if code.len() > WAIT.len() {
                // A thread that comes here waits until the rest is written.
                store_pair(to, WAIT);
            }
            for (i, byte) in code.iter().enumerate().skip(WAIT.len()) {
                to.add(i).write_volatile(*byte);
            }
            match code {
                [a, b, ..] => store_pair(to, [*a, *b]),
                [a] => to.write_volatile(*a),
                [] => {}
            }
        }
        true
    }

    /// Makes the pages read-only again.
    pub(super) fn close(&mut self) {
        if self.pages.0 != self.pages.1 {
            protect(self.pages, libc::PROT_READ | libc::PROT_EXEC);
        }
        self.pages = (0, 0);
    }
}

/// Stores two bytes at once.
///
/// # Safety
/// They may be written.
unsafe fn store_pair(to: *mut u8, pair: [u8; 2]) {
    let pair = u16::from_le_bytes(pair);
    // SAFETY: the caller's promise.
    unsafe {
        asm!("mov word ptr [{to}], {pair:x}", to = in(reg) to, pair = in(reg) pair,
            options(nostack, preserves_flags));
    }
}

/// `jmp` to itself.
const WAIT: [u8; 2] = [0xeb, 0xfe];

/// Sets the protection of pages; false if the kernel does not permit it.
fn protect((from, to): (u64, u64), protection: i32) -> bool {
    if !sandbox::is_allowed(libc::SYS_mprotect) {
        return false;
    }
    // SAFETY: the pages are those of code, which stays readable and executable.
    unsafe { syscall!(libc::SYS_mprotect, from, to - from, protection) == 0 }
}

//! The bases of the segments fs and gs.
//!
//! The base of fs is the application's thread pointer, which tells threads apart. The base of gs belongs
//! to the inserted code and names the running thread's data (see `threads::data`).

use core::arch::asm;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::sys::call::syscall;

/// Codes of `arch_prctl`, which libc does not name.
const ARCH_SET_GS: usize = 0x1001;
const ARCH_GET_FS: usize = 0x1003;
const ARCH_GET_GS: usize = 0x1004;

/// The bit of AT_HWCAP2 by which the kernel allows `rdfsbase` and its kin (`HWCAP2_FSGSBASE`).
const HWCAP2_FSGSBASE: usize = 2;

/// True if the instructions that read and write the bases may be executed. Set at the start.
static HAS_INSTRUCTIONS: AtomicBool = AtomicBool::new(false);

/// Notes what the kernel allows, by the entry AT_HWCAP2 of the auxiliary vector.
pub(crate) fn begin(hwcap2: usize) {
    HAS_INSTRUCTIONS.store(hwcap2 & HWCAP2_FSGSBASE != 0, Ordering::Relaxed);
}

/// True if [`fs_base`] needs no system call.
#[inline]
pub(crate) fn is_quick() -> bool {
    HAS_INSTRUCTIONS.load(Ordering::Relaxed)
}

/// The FS base of the calling thread.
#[inline]
pub(crate) fn fs_base() -> usize {
    let base: usize;
    if is_quick() {
        // SAFETY: the kernel announced the instruction; it reads a register.
        unsafe { asm!("rdfsbase {}", out(reg) base, options(nomem, nostack, preserves_flags)) };
    } else {
        base = base_by_call(ARCH_GET_FS);
    }
    base
}

/// The GS base of the calling thread.
pub(crate) fn gs_base() -> usize {
    let base: usize;
    if is_quick() {
        // SAFETY: the kernel announced the instruction; it reads a register.
        unsafe { asm!("rdgsbase {}", out(reg) base, options(nomem, nostack, preserves_flags)) };
    } else {
        base = base_by_call(ARCH_GET_GS);
    }
    base
}

#[cold]
fn base_by_call(code: usize) -> usize {
    let mut base = 0usize;
    // SAFETY: the kernel writes the one word.
    unsafe { syscall!(libc::SYS_arch_prctl, code, &raw mut base) };
    base
}

/// Sets the GS base of the calling thread. False if the kernel refuses.
///
/// # Safety
/// Operands that inserted code addresses through gs must be valid with this base.
pub(crate) unsafe fn set_gs_base(base: usize) -> bool {
    if is_quick() {
        // SAFETY: the kernel announced the instruction; only inserted code uses gs, as the caller promises.
        unsafe { asm!("wrgsbase {}", in(reg) base, options(nostack, preserves_flags)) };
        return true;
    }
    // SAFETY: the caller's promise.
    unsafe { syscall!(libc::SYS_arch_prctl, ARCH_SET_GS, base) >= 0 }
}

//! The processor's modes in which analysis routines run, and those of the program.

use core::arch::{asm, naked_asm};

/// The SSE control word by the ABI: no exception is raised, results are rounded to the nearest.
const DEFAULT_MXCSR: u32 = 0x1F80;
/// The bit of the flags that makes the processor check alignment.
const ALIGNMENT_CHECK: u64 = 1 << 18;

/// Does work in the modes that compiled code expects, and restores the program's.
#[inline]
pub(crate) fn with_defaults<R>(work: impl FnOnce() -> R) -> R {
    let mut before = 0u32;
    let flags: u64;
    // SAFETY: reads and sets modes; the default ones are what all compiled code expects.
    unsafe {
        asm!("stmxcsr [{}]", "ldmxcsr [{}]", in(reg) &raw mut before, in(reg) &DEFAULT_MXCSR, options(nostack, preserves_flags));
        flags = present_flags();
        if flags & ALIGNMENT_CHECK != 0 {
            set_flags(flags & !ALIGNMENT_CHECK);
        }
    }
    let result = work();
    // SAFETY: as above, the program's modes.
    unsafe {
        if flags & ALIGNMENT_CHECK != 0 {
            set_flags(flags);
        }
        asm!("ldmxcsr [{}]", in(reg) &before, options(nostack, readonly, preserves_flags));
    }
    result
}

/// The flags. Asynchronous unwinding is possible at each instruction.
#[unsafe(naked)]
extern "C" fn present_flags() -> u64 {
    naked_asm!(
        ".cfi_startproc",
        "pushfq",
        ".cfi_adjust_cfa_offset 8",
        "pop rax",
        ".cfi_adjust_cfa_offset -8",
        "ret",
        ".cfi_endproc",
    )
}

/// Sets the flags.
///
/// # Safety
/// The direction flag must be clear, and the modes must be such that code can continue.
#[unsafe(naked)]
unsafe extern "C" fn set_flags(flags: u64) {
    naked_asm!(
        ".cfi_startproc",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "popfq",
        ".cfi_adjust_cfa_offset -8",
        "ret",
        ".cfi_endproc",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_defaults_and_come_back() {
        let mxcsr = || {
            let mut now = 0u32;
            // SAFETY: stores a register.
            unsafe {
                asm!("stmxcsr [{}]", in(reg) &raw mut now, options(nostack, preserves_flags))
            };
            now
        };
        let toward_zero = DEFAULT_MXCSR | 3 << 13;
        // SAFETY: the mode of rounding changes nothing here.
        unsafe { asm!("ldmxcsr [{}]", in(reg) &toward_zero, options(nostack, preserves_flags)) };
        assert_eq!(with_defaults(mxcsr) & 0xFFC0, DEFAULT_MXCSR);
        assert_eq!(mxcsr() & 0xFFC0, toward_zero);
    }
}

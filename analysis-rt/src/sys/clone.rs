//! Starts a process that shares the memory of this one, on a stack of its own.
//!
//! ABI: `clone` with CLONE_VM starts the child on the given stack with the registers of the parent. The base of gs is
//! copied, so it names the parent thread's data.

use core::arch::asm;

/// Starts a process that calls `run` with an argument. Returns its number, or a negated error number.
///
/// `flags` are those of `clone`, CLONE_VM among them; `top` is the end of the child's stack, and `thread_pointer` its
/// base of fs if the flags have CLONE_SETTLS.
///
/// # Safety
/// The memory below `top` is the child's alone. All signals are blocked.
pub(crate) unsafe fn start(
    flags: i32,
    top: *mut u8,
    thread_pointer: *mut u8,
    run: extern "C" fn(usize) -> !,
    argument: usize,
) -> isize {
    let answer: isize;
    // SAFETY: in the parent the call changes rax, rcx and r11. The child never comes back from the function.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r12",
            "call r13",
            "ud2",
            "2:",
            inlateout("rax") libc::SYS_clone => answer,
            in("rdi") flags,
            in("rsi") top,
            in("rdx") 0,
            in("r10") 0,
            in("r8") thread_pointer,
            in("r12") argument,
            in("r13") run,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    answer
}

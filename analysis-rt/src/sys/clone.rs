//! Starts a process that shares the memory of this one, on a stack of its own.
//!
//! ABI: `clone` with CLONE_VM starts the child on the given stack with the registers of the parent. The base of gs is
//! copied, so it names the parent thread's data.

use core::arch::asm;
use core::ffi::CStr;

use crate::sys::call::{syscall, system_pid};

/// Bytes at the top of a stack to which the thread pointer leads. C code reads the stack protector's value there.
pub(crate) const THREAD_POINTER: usize = 256;

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

/// The first thing that a process of the runtime does which shares the application's memory: it has no descriptors, is
/// in a process group and under a name of its own, and ends with its parent.
///
/// # Safety
/// Called by a process that [`start`] has started, with a copy of the parent's descriptors.
pub(crate) unsafe fn detach(name: &CStr) {
    // SAFETY: system calls on this process.
    unsafe {
        syscall!(libc::SYS_close_range, 0, u32::MAX, 0);
        syscall!(libc::SYS_setpgid, 0, 0);
        syscall!(libc::SYS_prctl, libc::PR_SET_NAME, name.as_ptr());
        syscall!(libc::SYS_prctl, libc::PR_SET_PDEATHSIG, libc::SIGKILL);
    }
}

/// The kernel's comparison of this process's memory with another one's: 0 if they share it, an order above 0 if the other
/// one has executed a program, a negated error number if the kernel does not tell.
pub(crate) fn compare_memory(other: usize) -> isize {
    const KCMP_VM: usize = 1;
    // SAFETY: the kernel compares two processes.
    unsafe { syscall!(libc::SYS_kcmp, other, system_pid(), KCMP_VM, 0, 0) }
}

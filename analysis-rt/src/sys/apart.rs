//! Calling an analysis routine on a stack of the runtime's own.

use core::arch::naked_asm;

use crate::sys::signals::Uninterrupted;

/// Calls a routine that needs much of a stack, or whose need `atom` cannot compute. `words` leads to the six argument
/// registers, after which `count` arguments on the stack follow.
///
/// # Safety
/// Called by inserted code in the place of the routine, with its arguments.
pub(crate) unsafe extern "C" fn apart(routine: usize, words: *const usize, count: usize) {
    // SAFETY: the caller's promise.
    Uninterrupted::run(|_| unsafe { call(routine, words, count) });
}

/// True for the start of the function that has a routine's arguments on its stack.
pub(crate) fn is_call(function: u64) -> bool {
    function == call as *const () as u64
}

/// Calls the routine.
///
/// # Safety
/// As for [`apart`].
#[unsafe(naked)]
unsafe extern "C" fn call(routine: usize, words: *const usize, count: usize) {
    naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "mov rax, rdi",
        "mov r10, rsi",
        // An even number of words keeps the stack aligned.
        "lea rcx, [rdx + 1]",
        "and rcx, -2",
        "shl rcx, 3",
        "sub rsp, rcx",
        "2:",
        "sub rdx, 1",
        "jb 3f",
        "mov rcx, [r10 + 8 * rdx + 48]",
        "mov [rsp + 8 * rdx], rcx",
        "jmp 2b",
        "3:",
        "mov rdi, [r10]",
        "mov rsi, [r10 + 8]",
        "mov rdx, [r10 + 16]",
        "mov rcx, [r10 + 24]",
        "mov r8, [r10 + 32]",
        "mov r9, [r10 + 40]",
        "call rax",
        "mov rsp, rbp",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicUsize, Ordering};

    static SEEN: AtomicUsize = AtomicUsize::new(0);

    /// The fifth and the sixth argument: a structure of two words takes the next two registers.
    #[repr(C)]
    struct Pair(usize, usize);
    /// The arguments on the stack, where a larger structure is.
    #[repr(C)]
    struct Rest([usize; 3]);

    extern "C" fn routine(a: usize, b: usize, c: usize, d: usize, pair: Pair, rest: Rest) {
        let registers = [a, b, c, d, pair.0, pair.1];
        let all = registers.into_iter().chain(rest.0);
        SEEN.store(all.fold(0, |n, x| n * 10 + x), Ordering::Relaxed);
    }

    #[test]
    fn all_arguments_arrive() {
        let words: [usize; 9] = [1, 2, 3, 4, 5, 6, 7, 8, 9];
        // SAFETY: the words are the arguments of the routine.
        unsafe { apart(routine as *const () as usize, words.as_ptr(), 3) };
        assert_eq!(SEEN.load(Ordering::Relaxed), 123_456_789);
    }
}

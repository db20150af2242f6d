//! Threads that unmap the stack on which they run, and end.
//!
//! A detached thread of musl gives its stack back by `munmap` and ends itself by `exit`, with instructions in between
//! that touch no stack. Inserted code at these instructions may need one. So the runtime makes the thread's `munmap`
//! wait for its `exit`, and makes both there.

use core::arch::asm;
use core::sync::atomic::{AtomicUsize, Ordering};

use atom_abi::SystemCall;

use crate::sys::sandbox;

/// Addresses that a thread has given back. `start` is 0 in a free entry.
struct Stack {
    start: AtomicUsize,
    length: AtomicUsize,
}

/// Threads that are between both calls at once. If there are more, the `munmap` of the others is made at once.
static STACKS: [Stack; 64] = [const {
    Stack {
        start: AtomicUsize::new(0),
        length: AtomicUsize::new(0),
    }
}; 64];

/// `start` of an entry that is being written.
const CLAIMED: usize = 1;

/// Looks at a `munmap` or an `exit` before it is made.
pub(crate) fn look(call: &mut SystemCall) {
    match call.number as i64 {
        libc::SYS_munmap => unmap_later(call),
        libc::SYS_exit => unmap_now(call),
        _ => {}
    }
}

/// Replaces a `munmap` of the thread's own stack by a call that answers 0, too.
fn unmap_later(call: &mut SystemCall) {
    let [start, length, ..] = call.arguments;
    if call.stack.wrapping_sub(start) >= length || !sandbox::is_allowed(libc::SYS_sched_yield) {
        return;
    }
    let claims = |stack: &&Stack| {
        let relaxed = Ordering::Relaxed;
        let claim = stack.start.compare_exchange(0, CLAIMED, relaxed, relaxed);
        claim.is_ok()
    };
    if let Some(stack) = STACKS.iter().find(claims) {
        stack.length.store(length, Ordering::Relaxed);
        stack.start.store(start, Ordering::Release);
        call.number = libc::SYS_sched_yield as usize;
    }
}

/// Ends the thread if it has given its stack back.
fn unmap_now(call: &SystemCall) {
    for stack in &STACKS {
        let start = stack.start.load(Ordering::Acquire);
        let length = stack.length.load(Ordering::Relaxed);
        if start > CLAIMED && call.stack.wrapping_sub(start) < length {
            stack.start.store(0, Ordering::Relaxed);
            // SAFETY: the thread asked for both calls, and the code between them uses no stack.
            unsafe {
                asm!(
                    "syscall",
                    "mov edi, r8d",
                    "mov eax, {exit}",
                    "syscall",
                    exit = const libc::SYS_exit,
                    in("rax") libc::SYS_munmap,
                    in("rdi") start,
                    in("rsi") length,
                    in("r8") call.arguments[0],
                    options(noreturn)
                );
            }
        }
    }
}

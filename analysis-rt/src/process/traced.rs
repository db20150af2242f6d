//! Tasks that the process stops by `ptrace`: its own, as LeakSanitizer does to look for pointers.
//!
//! A task stops wherever it is, so it may hold a lock of the runtime's, for which the task that stopped it would wait for
//! ever. On a stack of the runtime's its rsp is not the program's either, and who looks for pointers finds no stack. Locks
//! are held on such a stack only. So a task that stops there continues and is stopped again, until it has left that stack.
//!
//! A process that asks to be traced (PTRACE_TRACEME) is about to execute the program that its parent, a debugger, looks at.

use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, Ordering};

use atom_abi::SystemCall;

use crate::sys::call::{getpid, is_error, syscall};
use crate::sys::sandbox;
use crate::sys::stacks::{self, MOST_PAUSES};

/// Where the kernel writes registers that nobody reads.
static mut UNUSED: MaybeUninit<libc::user_regs_struct> = MaybeUninit::uninit();

/// Number of the last process that has asked to be traced. A child in its parent's memory leaves its own there, too.
static TRACED: AtomicU32 = AtomicU32::new(0);

/// True if the process has asked its parent to trace it.
pub(crate) fn is_traced() -> bool {
    TRACED.load(Ordering::Relaxed) == getpid()
}

/// Looks at a system call before it is made. If it stops a task, makes it and leaves one with the same answer.
pub(crate) fn look(call: &mut SystemCall) {
    let [request, pid, ..] = call.arguments;
    if call.number as i64 == libc::SYS_ptrace && request as u32 == libc::PTRACE_TRACEME {
        return TRACED.store(getpid(), Ordering::Relaxed);
    }
    let needed = [libc::SYS_ptrace, libc::SYS_waitid, libc::SYS_wait4];
    if call.number as i64 != libc::SYS_ptrace
        || request as u32 != libc::PTRACE_ATTACH
        || !needed.into_iter().all(sandbox::is_allowed)
    {
        return;
    }
    for _ in 0..MOST_PAUSES {
        // An error is the application's, which gets it from its own call.
        if is_error(ptrace(libc::PTRACE_ATTACH, pid, 0)) {
            return stacks::await_leaving(false);
        }
        if !is_elsewhere(pid) {
            call.arguments[0] = libc::PTRACE_GETREGS as usize;
            call.arguments[3] = (&raw mut UNUSED).expose_provenance();
            break;
        }
        // The stop is taken, and the task continues without the signal.
        // SAFETY: nothing is written.
        unsafe { syscall!(libc::SYS_wait4, pid, 0, libc::__WALL, 0) };
        ptrace(libc::PTRACE_DETACH, pid, 0);
        stacks::await_leaving(true);
        stacks::pause();
    }
    stacks::await_leaving(false);
}

/// Waits until a task has stopped, and leaves the stop to be waited for. True if the task is on a stack of the runtime's.
fn is_elsewhere(pid: usize) -> bool {
    const STOPPED: i32 = libc::WSTOPPED | libc::WEXITED | libc::WNOWAIT | libc::__WALL;
    let mut info = MaybeUninit::<libc::siginfo_t>::uninit();
    let mut registers = MaybeUninit::<libc::user_regs_struct>::uninit();
    // SAFETY: the kernel writes the two structures if it answers 0, and the first says of a stop by which signal it is.
    unsafe {
        let waited = syscall!(
            libc::SYS_waitid,
            libc::P_PID,
            pid,
            info.as_mut_ptr(),
            STOPPED,
            0
        );
        // Other signals are the application's, which sends them on before it waits again.
        if waited != 0 || info.assume_init().si_status() != libc::SIGSTOP {
            return false;
        }
        let read = ptrace(
            libc::PTRACE_GETREGS,
            pid,
            registers.as_mut_ptr().expose_provenance(),
        );
        read == 0 && stacks::is_own_at(registers.assume_init().rsp)
    }
}

/// Makes a request about a task, which writes to `data` at most.
fn ptrace(request: u32, pid: usize, data: usize) -> isize {
    // SAFETY: the callers' data has room for what the request writes.
    unsafe { syscall!(libc::SYS_ptrace, request, pid, 0, data) }
}

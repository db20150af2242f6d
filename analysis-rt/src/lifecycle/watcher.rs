//! The watcher: reports while the process runs, and after it was killed.
//!
//! Where `atom run` waits for the program, the runtime starts one further process at the start: the
//! watcher. It shares the memory of the application's process and nothing else, so it can make the calls
//! at the program's end when the application cannot: after SIGKILL or a stack overflow. For a report of a
//! program that continues it forks a child, which has a copy of the memory at one moment. The watcher sleeps until
//! `atom run`, its parent, sends it a command.
//!
//! The application does not meet it: it is no child of the application, has a copy of the descriptors that
//! it closes at once, blocks all signals, and is in a process group of its own.
//!
//! To the tool's code the watcher is a further thread of the process: it has a thread pointer of its own, by
//! which the runtime finds a record for it (see `threads::current`), and [`getpid`] answers the application's
//! number.
//!
//! ABI: CLONE_PARENT makes the child of `clone` a child of the parent's parent.

use core::ffi::c_void;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use atom_abi::{PROCESS_GONE, REPORT_ASKED, REPORT_NOW};

use crate::lifecycle::{end, windows};
use crate::process::identity;
use crate::sys::call::{self, WATCHED, WATCHER, syscall};
use crate::sys::clone;
use crate::sys::masks::{KERNEL_SIGSET_SIZE, bit};
use crate::sys::memory;
use crate::sys::sandbox;
use crate::sys::signals::with_all_blocked;

/// Size of the watcher's stack in bytes. Pages that are not used take no memory.
const STACK: usize = 2 << 20;

/// The flags of `clone`; the signal at the end is the application's.
const FLAGS: i32 = libc::CLONE_VM | libc::CLONE_PARENT | libc::CLONE_SETTLS | libc::CLONE_UNTRACED;

/// True from an `exec` that may succeed on: then its report is, and the memory is of no use.
static MAY_BE_REPLACED: AtomicBool = AtomicBool::new(false);
/// True in a child of the watcher.
static IS_SNAPSHOT: AtomicBool = AtomicBool::new(false);
/// True there if somebody has asked for the report.
static IS_ASKED: AtomicBool = AtomicBool::new(false);
/// Number of the process that waits for the application.
static PARENT: AtomicU32 = AtomicU32::new(0);

/// True in a process that only reports the state of another one, which continues.
pub fn is_snapshot() -> bool {
    IS_SNAPSHOT.load(Ordering::Relaxed)
}

/// True in such a process whose report must not replace the one before.
pub fn keeps_snapshots() -> bool {
    IS_ASKED.load(Ordering::Relaxed)
}

/// True in a forked process whose counts contain what its parent did before the fork: nothing told the runtime
/// of the fork.
pub fn counts_are_inherited() -> bool {
    identity::counts_are_inherited() && !is_snapshot()
}

/// Starts the watcher for a process whose parent is `parent`. Returns its process number; `None` if it cannot
/// be started.
pub fn watch(parent: u32) -> Option<u32> {
    let stack = memory::map(STACK);
    if stack.is_null() || WATCHER.load(Ordering::Relaxed) != 0 {
        return None;
    }
    PARENT.store(parent, Ordering::Release);
    sandbox::free(stack.addr()..stack.addr() + STACK);
    WATCHED.store(call::system_pid(), Ordering::Release);
    let top = stack.wrapping_add(STACK - clone::THREAD_POINTER);
    // SAFETY: the stack is fresh and stays mapped; the memory above `top` is the watcher's, too.
    let answer =
        with_all_blocked(|| unsafe { clone::start(FLAGS, top, top, wait_for_commands, 0) });
    if call::is_error(answer) {
        return None;
    }
    WATCHER.store(answer as u32, Ordering::Release);
    Some(answer as u32)
}

/// What the watcher does.
extern "C" fn wait_for_commands(_: usize) -> ! {
    // SAFETY: system calls on this process; the structures live across the calls.
    unsafe {
        WATCHER.store(call::system_pid(), Ordering::Release);
        clone::detach(c"atom-watcher");
        let parent = PARENT.load(Ordering::Acquire);
        while syscall!(libc::SYS_getppid) as u32 == parent {
            match next_command(parent) {
                Some((REPORT_NOW, value)) if !may_be_replaced() => snapshot(value == REPORT_ASKED),
                Some((PROCESS_GONE, _)) => {
                    if !may_be_replaced() {
                        sandbox::lift();
                        end::finish_for_the_dead();
                    }
                    break;
                }
                _ => {}
            }
        }
        exit()
    }
}

/// Makes the calls at the end in a forked child, which has a copy of the memory as it is now. Nothing changes for
/// the application, whose threads continue counting. The report before is kept if this one was asked for.
///
/// # Safety
/// Called by the watcher alone, or by the helper of [`attached`].
pub(super) unsafe fn snapshot(is_asked: bool) {
    // SAFETY: the child has a copy of this stack; it ends here.
    unsafe {
        let child = syscall!(libc::SYS_fork);
        if child == 0 {
            syscall!(libc::SYS_prctl, libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            IS_SNAPSHOT.store(true, Ordering::Relaxed);
            IS_ASKED.store(is_asked, Ordering::Relaxed);
            windows::leave_sums();
            end::report_in_place();
            end::finish();
            exit();
        }
        if child > 0 {
            syscall!(libc::SYS_wait4, child, 0, libc::__WALL, 0);
        }
    }
}

/// Ends the watcher or its child.
fn exit() -> ! {
    loop {
        // SAFETY: no effect on memory.
        unsafe { syscall!(libc::SYS_exit_group, 0) };
    }
}

/// Waits for a command of the parent, and answers it with its value. Signals of others are no commands.
fn next_command(parent: u32) -> Option<(i32, usize)> {
    let commands = bit(REPORT_NOW) | bit(PROCESS_GONE);
    // SAFETY: all zeros are a valid structure, into which the kernel writes.
    unsafe {
        let mut from: libc::siginfo_t = core::mem::zeroed();
        let no_limit: *mut c_void = null_mut();
        let signal = syscall!(
            libc::SYS_rt_sigtimedwait,
            &raw const commands,
            &raw mut from,
            no_limit,
            KERNEL_SIGSET_SIZE
        );
        let is_command = from.si_code == libc::SI_QUEUE && from.si_pid() as u32 == parent;
        (signal > 0 && is_command).then(|| (signal as i32, from.si_value().sival_ptr.addr()))
    }
}

/// An `exec` that may succeed has been reported.
pub(crate) fn expect_replacement() {
    MAY_BE_REPLACED.store(true, Ordering::Release);
}

/// True if the application's process may execute another program by now. A process that is there and
/// shares the watcher's memory does not.
fn may_be_replaced() -> bool {
    if !MAY_BE_REPLACED.load(Ordering::Acquire) {
        return false;
    }
    let watched = WATCHED.load(Ordering::Acquire);
    let differs = clone::compare_memory(watched as usize) != 0;
    MAY_BE_REPLACED.store(differs, Ordering::Release);
    differs
}

//! The broker: makes system calls on files for a process that cannot open any.
//!
//! A process that restricts itself by Landlock cannot write reports any more, nor can one that has as many descriptors as it
//! may. Just before the one, and when a file cannot be opened for the other reason, the runtime starts one further process,
//! the broker, which shares the memory and nothing else: neither the restriction nor the descriptors. A call of the runtime
//! on a path that the kernel refuses is made once more by the broker. Descriptors of files that the broker has opened are the
//! broker's; their numbers here are higher by [`FIRST`], and calls on them go to the broker.
//!
//! The application does not meet it: the broker ends without a signal to its parent, closes its copy of the descriptors
//! at once, blocks all signals, and is in a process group of its own. It ends before the application's process, or within
//! a second after a process that was killed or executes another program. It makes system calls only, and never runs a
//! tool's code.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicIsize, AtomicU32, AtomicUsize, Ordering};

use crate::sys::call::{call6, is_error, set_on_error, syscall, system_pid};
use crate::sys::clone;
use crate::sys::memory;
use crate::sys::sandbox;
use crate::sys::signals::with_all_blocked;
use crate::sys::spin::SpinLock;

/// Size of the broker's stack in bytes.
const STACK: usize = 64 << 10;
/// The number of the broker's descriptor 0 here. No process has that many descriptors.
const FIRST: usize = 1 << 30;
/// Above the broker's last descriptor.
const END: usize = FIRST + (1 << 24);

/// The flags of `clone`; there is no signal at the end.
const FLAGS: i32 = libc::CLONE_VM | libc::CLONE_SETTLS | libc::CLONE_UNTRACED;

/// System calls that take a path.
const ON_PATHS: [i64; 10] = [
    libc::SYS_open,
    libc::SYS_openat,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_mkdir,
    libc::SYS_mkdirat,
    libc::SYS_unlink,
    libc::SYS_unlinkat,
    libc::SYS_truncate,
];
/// Those among [`ON_PATHS`] that answer a descriptor.
const OPENING: [i64; 2] = [libc::SYS_open, libc::SYS_openat];
/// Errors by which the kernel refuses a call on a path.
const REFUSED: [i32; 3] = [libc::EACCES, libc::EPERM, libc::EXDEV];

/// Process number of the application that the broker serves. A forked child has another one, and no broker.
static SERVED: AtomicU32 = AtomicU32::new(0);
/// Process number of the broker.
static BROKER: AtomicU32 = AtomicU32::new(0);

/// Held by the thread that asks.
static TURN: SpinLock = SpinLock::new();
/// What the broker waits for, and the thread that asks.
static STATE: AtomicU32 = AtomicU32::new(IDLE);
const IDLE: u32 = 0;
const ASKED: u32 = 1;
const ANSWERED: u32 = 2;
const STOPPED: u32 = 3;
/// The number of the call, and its arguments.
static CALL: [AtomicUsize; 7] = [const { AtomicUsize::new(0) }; 7];
static ANSWER: AtomicIsize = AtomicIsize::new(0);

/// From now on the broker is asked where it can help.
pub(crate) fn begin() {
    set_on_error(once_more);
}

/// Looks at a system call `landlock_restrict_self`, which the application makes next.
pub(crate) fn start() {
    let served = system_pid();
    if SERVED.load(Ordering::Relaxed) == served {
        return;
    }
    let stack = memory::map(STACK);
    if stack.is_null() {
        return;
    }
    let top = stack.wrapping_add(STACK - clone::THREAD_POINTER);
    // A thread of the parent may have held the lock at a fork.
    TURN.unlock();
    STATE.store(IDLE, Ordering::Relaxed);
    SERVED.store(served, Ordering::Release);
    let argument = served as usize;
    // SAFETY: the stack is fresh and stays mapped as long as the broker runs.
    let broker = with_all_blocked(|| unsafe { clone::start(FLAGS, top, top, serve, argument) });
    if is_error(broker) {
        SERVED.store(0, Ordering::Release);
        // SAFETY: mapped above, and nobody uses it.
        unsafe { memory::unmap(stack, STACK) };
        return;
    }
    BROKER.store(broker as u32, Ordering::Release);
}

/// Ends this process's broker, if there is one, and waits for its end: it would be left to a process that reaps orphans.
pub(crate) fn stop() {
    let served = SERVED.load(Ordering::Acquire);
    if served == 0 || served != system_pid() {
        return;
    }
    SERVED.store(0, Ordering::Release);
    STATE.store(STOPPED, Ordering::Release);
    wake();
    wait_for_end(0);
}

/// What the broker does.
extern "C" fn serve(served: usize) -> ! {
    // SAFETY: system calls on this process.
    unsafe {
        clone::detach(c"atom-broker");
        while is_served(served) {
            match STATE.load(Ordering::Acquire) {
                STOPPED => break,
                ASKED => {}
                state => {
                    wait(state);
                    continue;
                }
            }
            let [number, arguments @ ..] = CALL.each_ref().map(|w| w.load(Ordering::Relaxed));
            ANSWER.store(call6(number, arguments), Ordering::Relaxed);
            STATE.store(ANSWERED, Ordering::Release);
            wake();
        }
        loop {
            syscall!(libc::SYS_exit_group, 0);
        }
    }
}

/// True as long as the process is there and has the broker's memory: it may have executed another program.
fn is_served(served: usize) -> bool {
    // SAFETY: no effect on memory.
    let parent = unsafe { syscall!(libc::SYS_getppid) };
    // Where the kernel does not tell, the memory counts as shared.
    parent as usize == served && clone::compare_memory(served) <= 0
}

/// Waits at most a second while [`STATE`] is `seen`.
fn wait(seen: u32) {
    let second = libc::timespec {
        tv_sec: 1,
        tv_nsec: 0,
    };
    // SAFETY: the kernel reads a word and a time, which live across the call.
    unsafe {
        syscall!(
            libc::SYS_futex,
            STATE.as_ptr(),
            libc::FUTEX_WAIT,
            seen,
            &raw const second
        );
    }
}

/// Wakes whoever waits for [`STATE`].
fn wake() {
    // SAFETY: the kernel only looks at the word's address.
    unsafe { syscall!(libc::SYS_futex, STATE.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}

/// Has the broker make a system call that has failed here, if it concerns a file of the broker's or one that the process
/// may not open. Returns the answer.
fn once_more(number: usize, arguments: [usize; 6], answer: isize) -> isize {
    let on_path = ON_PATHS.contains(&(number as i64));
    let is_full = is_opening(number) && answer == -(libc::EMFILE as isize);
    if is_full && sandbox::is_allowed(libc::SYS_clone) {
        start();
    }
    let is_refused = is_full || on_path && REFUSED.contains(&(-answer as i32));
    // The argument with a descriptor: the first, or the fifth of a call that maps a file.
    let at = if number as i64 == libc::SYS_mmap {
        4
    } else {
        0
    };
    let is_own =
        !on_path && answer == -(libc::EBADF as isize) && (FIRST..END).contains(&arguments[at]);
    if !(is_refused || is_own) || SERVED.load(Ordering::Acquire) != system_pid() {
        return answer;
    }
    let mut theirs = arguments;
    if is_own {
        theirs[at] -= FIRST;
    }
    let Some(answer) = with_all_blocked(|| ask(number, theirs)) else {
        return answer;
    };
    if is_opening(number) && !is_error(answer) {
        answer + FIRST as isize
    } else {
        answer
    }
}

/// True for a system call that answers a descriptor.
fn is_opening(number: usize) -> bool {
    OPENING.contains(&(number as i64))
}

/// Has the broker make a system call. `None` if the broker has ended.
fn ask(number: usize, arguments: [usize; 6]) -> Option<isize> {
    TURN.lock();
    CALL[0].store(number, Ordering::Relaxed);
    for (word, argument) in CALL[1..].iter().zip(arguments) {
        word.store(argument, Ordering::Relaxed);
    }
    STATE.store(ASKED, Ordering::Release);
    wake();
    let answer = loop {
        match STATE.load(Ordering::Acquire) {
            ANSWERED => break Some(ANSWER.load(Ordering::Relaxed)),
            _ if has_ended() => break None,
            state => wait(state),
        }
    };
    STATE.store(IDLE, Ordering::Relaxed);
    TURN.unlock();
    answer
}

/// True if the broker has ended, of which nobody else is told.
fn has_ended() -> bool {
    wait_for_end(libc::WNOHANG) != 0
}

/// Asks for the end of the broker, which is a child without a signal at its end.
fn wait_for_end(flags: i32) -> isize {
    let broker = BROKER.load(Ordering::Acquire);
    let no_status: *mut i32 = null_mut();
    // SAFETY: the kernel writes nothing.
    unsafe { syscall!(libc::SYS_wait4, broker, no_status, flags | libc::__WALL, 0) }
}

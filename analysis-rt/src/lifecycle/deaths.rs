//! The end of a process by a signal.
//!
//! Where all objects of a process are instrumented, the runtime handles the signals whose default action
//! ends the process, as long as the application leaves them at that: the handler makes the calls at the
//! process's end and lets the signal end the process after all. The application sees none of this: its
//! system calls on dispositions pass [`sigaction`], which shows the runtime's handler as the default action,
//! and sets it where the application wants the default action. No state is kept but the kernel's, since a
//! child in its parent's memory (`vfork`, `posix_spawn`) has dispositions of its own.
//!
//! A signal that finds no room on the stack (an overflow of the stack) ends the process at once.
//!
//! ABI: the kernel's `struct sigaction` has four words: handler, flags, restorer, mask. The kernel returns
//! from a handler to the restorer.

use core::arch::global_asm;
use core::ffi::{c_int, c_void};

use crate::lifecycle::end;
use crate::process::copy::copy_words;
use crate::sys::call::{getpid, gettid, syscall};
use crate::sys::signals::{KERNEL_SIGSET_SIZE, bit};

/// Signals whose default action ends the process and which may be handled.
const DEADLY: u64 = bit(libc::SIGHUP)
    | bit(libc::SIGINT)
    | bit(libc::SIGQUIT)
    | bit(libc::SIGILL)
    | bit(libc::SIGTRAP)
    | bit(libc::SIGABRT)
    | bit(libc::SIGBUS)
    | bit(libc::SIGFPE)
    | bit(libc::SIGUSR1)
    | bit(libc::SIGSEGV)
    | bit(libc::SIGUSR2)
    | bit(libc::SIGPIPE)
    | bit(libc::SIGALRM)
    | bit(libc::SIGTERM)
    | bit(libc::SIGSTKFLT)
    | bit(libc::SIGXCPU)
    | bit(libc::SIGXFSZ)
    | bit(libc::SIGVTALRM)
    | bit(libc::SIGPROF)
    | bit(libc::SIGIO)
    | bit(libc::SIGPWR)
    | bit(libc::SIGSYS)
    | REAL_TIME;

/// The real-time signals that libraries leave to the application: 34 to 64.
const REAL_TIME: u64 = u64::MAX << 33;

/// The flag by which the kernel takes the restorer from the structure.
const SA_RESTORER: usize = 0x0400_0000;

/// The flag `SA_EXPOSE_TAGBITS`, which the kernel keeps and which has no meaning on x86-64. It marks an
/// action whose `SA_SIGINFO` is the runtime's and not the application's.
const INFORMED_FOR_US: usize = 0x800;

/// Number of signals.
const SIGNALS: usize = 64;

/// The kernel's `struct sigaction`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Action {
    handler: usize,
    flags: usize,
    restorer: usize,
    mask: u64,
}

global_asm!(
    ".pushsection .text.__atom_restorer,\"ax\",@progbits",
    "__atom_restorer:",
    "mov eax, {number}",
    "syscall",
    ".popsection",
    number = const libc::SYS_rt_sigreturn,
);

unsafe extern "C" {
    fn __atom_restorer();
}

fn handler() -> usize {
    let handler: extern "C" fn(c_int, *const libc::siginfo_t, *mut c_void) = on_death;
    handler as usize
}

/// The action that stands for a default one, whose flags, restorer and mask it keeps.
fn standing_for(default: Action) -> Action {
    let mut ours = default;
    ours.handler = handler();
    if ours.flags & SA_RESTORER == 0 {
        ours.flags |= SA_RESTORER;
        ours.restorer = __atom_restorer as *const () as usize;
    }
    if ours.flags & libc::SA_SIGINFO as usize == 0 {
        ours.flags |= libc::SA_SIGINFO as usize | INFORMED_FOR_US;
    }
    ours
}

/// The default action for which an action of [`standing_for`] stands.
fn default_of(ours: Action) -> Action {
    let mut default = ours;
    default.handler = libc::SIG_DFL;
    if ours.restorer == __atom_restorer as *const () as usize {
        default.flags &= !SA_RESTORER;
        default.restorer = 0;
    }
    if ours.flags & INFORMED_FOR_US != 0 {
        default.flags &= !(libc::SA_SIGINFO as usize | INFORMED_FOR_US);
    }
    default
}

/// Makes the system call; null for what is not wanted.
///
/// # Safety
/// The pointers are null, or lead to structures that the kernel may read and write.
unsafe fn change(signal: usize, action: *const Action, old: *mut Action) -> isize {
    // SAFETY: the caller's promise.
    unsafe {
        syscall!(
            libc::SYS_rt_sigaction,
            signal,
            action,
            old,
            KERNEL_SIGSET_SIZE
        )
    }
}

/// At the start: handles the deadly signals that have the default action.
pub(crate) fn begin() {
    for signal in 1..=SIGNALS {
        if DEADLY & bit(signal as i32) == 0 {
            continue;
        }
        let mut now = Action::default();
        // SAFETY: both structures live across the calls.
        unsafe {
            if change(signal, core::ptr::null(), &mut now) == 0 && now.handler == libc::SIG_DFL {
                change(signal, &standing_for(now), core::ptr::null_mut());
            }
        }
    }
}

/// A signal mask with all signals.
static ALL_SIGNALS: u64 = u64::MAX;

extern "C" fn on_death(signal: c_int, information: *const libc::siginfo_t, _: *mut c_void) {
    // All signals wait. The mask before comes back when the handler returns.
    // SAFETY: the kernel reads a mask; the runtime has started before it handles signals.
    unsafe {
        syscall!(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const ALL_SIGNALS,
            0,
            KERNEL_SIGSET_SIZE
        );
        end::finish();
    }
    let default = Action::default();
    // SAFETY: the structure lives across the call; the kernel gave the information.
    unsafe {
        change(signal as usize, &default, core::ptr::null_mut());
        // The kernel's own signals (a fault) come again when the instruction is executed again.
        const SENT_BY_KERNEL: c_int = 0x80;
        let code = (*information).si_code;
        let was_sent = code <= 0 || code == SENT_BY_KERNEL;
        if was_sent || !FAULTS.contains(&signal) {
            syscall!(libc::SYS_tgkill, getpid(), gettid(), signal);
        }
    }
}

/// Signals of instructions that raise them again when they are executed again.
const FAULTS: [c_int; 4] = [libc::SIGILL, libc::SIGBUS, libc::SIGFPE, libc::SIGSEGV];

/// Copies the application's structure; `None` if it cannot be read.
fn read(action: usize) -> Option<Action> {
    const WORDS: usize = size_of::<Action>() / size_of::<u64>();
    let mut words = [0; WORDS];
    // SAFETY: the structure consists of words, of which any value is valid.
    copy_words(action, &mut words).then(|| unsafe { core::mem::transmute(words) })
}

/// Makes the application's system call on a disposition in its place. Returns true if that is done, and
/// nothing but an answer of 0 is left to be given.
///
/// # Safety
/// The arguments are those of an `rt_sigaction` that the application makes next.
pub(crate) unsafe fn sigaction(signal: usize, action: usize, old: usize, size: usize) -> bool {
    let is_deadly = (1..=SIGNALS).contains(&signal) && DEADLY & bit(signal as i32) != 0;
    if !is_deadly || size != KERNEL_SIGSET_SIZE {
        return false;
    }
    let copy;
    let mut wanted = core::ptr::null();
    if action != 0 {
        copy = match read(action) {
            None => return false,
            Some(action) if action.handler == libc::SIG_DFL => standing_for(action),
            Some(action) => action,
        };
        wanted = &raw const copy;
    }
    let old = old as *mut Action;
    // SAFETY: the copy lives across the call; the kernel checks the application's pointer.
    unsafe {
        if change(signal, wanted, old) != 0 {
            return false;
        }
        if !old.is_null() && old.read_unaligned().handler == handler() {
            old.write_unaligned(default_of(old.read_unaligned()));
        }
    }
    true
}

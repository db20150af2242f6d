//! The end of a process by a signal.
//!
//! Where all objects of a process are instrumented, the runtime handles the signals whose default action
//! ends the process, as long as the application leaves them at that: the handler makes the calls at the
//! process's end and lets the signal end the process after all. The application sees none of this (see
//! [`super::dispositions`]).
//!
//! In a static program that is instrumented alone the signals of faults are handled in this way, only for a message about faults of
//! [the tool](super::faults); other faults end the process as ever.
//!
//! A signal that finds no room on the stack (an overflow of the stack) ends the process at once.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::lifecycle::actions::{Action, Context, FAULTS, SA_RESTORER, change};
use crate::lifecycle::deferred;
use crate::lifecycle::end;
use crate::lifecycle::faults;
use crate::lifecycle::handlers::__atom_restorer;
use crate::process::boundaries::{Place, place_of, point_of};
use crate::process::table;
use crate::sys::call::{getpid, gettid, syscall};
use crate::sys::masks::{KERNEL_SIGSET_SIZE, bit};

/// Signals whose default action ends the process and which may be handled.
pub(super) const DEADLY: u64 = bit(libc::SIGHUP)
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

fn handler() -> usize {
    let handler: extern "C" fn(c_int, *const libc::siginfo_t, *mut Context) = on_death;
    handler as usize
}

fn restorer() -> usize {
    __atom_restorer as *const () as usize
}

/// The flag that an action of the runtime for SIGTRAP has in addition: single steps find room where the
/// application's handlers do.
fn added(signal: usize) -> usize {
    match signal as c_int {
        libc::SIGTRAP => libc::SA_ONSTACK as usize,
        _ => 0,
    }
}

/// The action that stands for a default one, whose flags, restorer and mask it keeps.
pub(super) fn standing_for(signal: usize, default: Action) -> Action {
    let mut ours = default.informed(handler());
    if ours.flags & SA_RESTORER == 0 {
        ours.flags |= SA_RESTORER | added(signal);
        ours.restorer = restorer();
    }
    ours
}

/// The default action, if an action of [`standing_for`] stands for it.
pub(super) fn default_of(ours: Action) -> Option<Action> {
    if ours.handler != handler() {
        return None;
    }
    let mut default = ours.uninformed(libc::SIG_DFL);
    if ours.restorer == restorer() {
        default.flags &= !(SA_RESTORER | libc::SA_ONSTACK as usize);
        default.restorer = 0;
    }
    Some(default)
}

/// The signal by which a process ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Death {
    /// Its number.
    pub signal: i32,
    /// Its code, `si_code`: above 0 if the processor or the kernel raised it.
    pub code: i32,
    /// The address that a fault is about, `si_addr`; of other signals any number.
    pub address: u64,
    /// Run-time address of the program's instruction at which the thread was, in the original text; 0 if it is not known.
    pub pc: u64,
    /// Value of rsp there.
    pub sp: u64,
    /// Value of rbp there.
    pub rbp: u64,
}

/// The words of the death, the signal last; 0 if the process does not end by a signal.
static DEATH: [AtomicU64; 6] = [const { AtomicU64::new(0) }; 6];

/// The signal by which the process ends, in the calls at its end. `None` if it ends otherwise, or by a signal that nobody sees
/// (SIGKILL, a fault of a static program).
pub fn death() -> Option<Death> {
    let [code, address, pc, sp, rbp, signal] = DEATH.each_ref().map(|w| w.load(Ordering::Acquire));
    (signal != 0).then_some(Death {
        signal: signal as i32,
        code: code as i32,
        address,
        pc,
        sp,
        rbp,
    })
}

/// Notes the death of the thread that makes the calls at the end.
fn note(signal: c_int, information: &libc::siginfo_t, context: &Context) {
    let pc = match place_of(context.address) {
        Place::Foreign => context.address,
        Place::Boundary(original) => original,
        Place::Inserted => point_of(context.address).unwrap_or(0),
    };
    // SAFETY: the word is there for all signals.
    let address = unsafe { information.si_addr() } as u64;
    let words = [
        information.si_code as u64,
        address,
        pc,
        context.stack_pointer,
        context.base_pointer(),
        signal as u64,
    ];
    for (place, word) in DEATH.iter().zip(words) {
        place.store(word, Ordering::Release);
    }
}

/// A signal mask with all signals.
static ALL_SIGNALS: u64 = u64::MAX;

extern "C" fn on_death(signal: c_int, information: *const libc::siginfo_t, context: *mut Context) {
    // SAFETY: the kernel gave both.
    if unsafe { deferred::step(signal, information, context) } {
        return;
    }
    // SAFETY: as above.
    if unsafe { faults::is_of_tool(signal, information, context, false) } {
        return;
    }
    // The kernel's own signals (a fault) come again when the instruction is executed again.
    const SENT_BY_KERNEL: c_int = 0x80;
    // SAFETY: the kernel gave the information.
    let code = unsafe { (*information).si_code };
    let was_sent = code <= 0 || code == SENT_BY_KERNEL;
    let is_fault = FAULTS.contains(&signal);
    // A program alone dies of faults as ever.
    if table::process().is_some() || !is_fault {
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
            note(signal, &*information, &*context);
            end::finish();
        }
    } else if code > 0 {
        // The kernel ends the process when a signal comes again that is blocked. A filter of system calls permits that.
        // SAFETY: the kernel gave the context.
        unsafe { (*context).mask |= bit(signal) };
        return;
    }
    let default = Action::default();
    // SAFETY: the structure lives across the call.
    unsafe {
        change(signal as usize, &default, core::ptr::null_mut());
        if was_sent || !is_fault {
            syscall!(libc::SYS_tgkill, getpid(), gettid(), signal);
        }
    }
}

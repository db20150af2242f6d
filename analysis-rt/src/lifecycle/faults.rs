//! Faults of the tool: which routine it was, and at which point of the program.
//!
//! A synchronous signal whose instruction belongs to the tool is no matter of the application: its handlers do not run. The
//! process says what happened, with the names of the functions on the stack, and ends by the signal. So it does before it ends by
//! `abort`, to which a panic leads.
//!
//! Two kinds of faults in the tool's code remain the application's. When its stack is full, inserted code is often the
//! first to notice, and a handler on another stack may deal with that. A page that the application has protected is
//! made accessible by its handler, after which the routine continues.

use core::arch::asm;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU32, Ordering};

use crate::lifecycle::actions::{Context, FAULTS};
use crate::lifecycle::trail::{Fault, Trail};
use crate::lifecycle::{end, lookups};
use crate::process::boundaries::{Place, place_of, routine_at};
use crate::process::copy::copy_words;
use crate::process::frames::{Frame, is_tool};
use crate::process::identity::{self, ENDING, RUNNING};
use crate::process::info;
use crate::sys::call::{WATCHER, gettid};
use crate::sys::fatal::set_last_words;
use crate::sys::sandbox;
use crate::sys::signals::with_all_blocked;
use crate::sys::stacks;

/// Distance in bytes from rsp within which an access is one of the stack.
const NEAR: u64 = 64 << 10;

/// Code of a SIGSEGV at a page that does not permit the access.
const SEGV_ACCERR: c_int = 2;

/// Size in bytes of the stack on which a fault is told.
const STACK: usize = 1 << 20;

/// The first thread that tells of a fault, after which the process ends; 0 if there is none.
static TELLER: AtomicU32 = AtomicU32::new(0);

/// How often a second thread looks whether the first has told everything; each look waits for a tenth of a second.
const MOST_ROUNDS: usize = 100;

/// At the start: an `abort` tells of itself.
pub(crate) fn begin() {
    set_last_words(tell_of_abort);
}

/// Looks at a signal. Returns true if it is a fault of the tool: all is told then, and the process ends by the signal when the
/// handler returns. A clock that must not be read, and a look-up that may fault, answer 0 instead, and the thread continues. `is_handled` says that the application has a handler.
///
/// # Safety
/// Called in the handler, with what the kernel gave.
pub(super) unsafe fn is_of_tool(
    signal: c_int,
    information: *const libc::siginfo_t,
    context: *mut Context,
    is_handled: bool,
) -> bool {
    // SAFETY: the caller's promise.
    let (information, context) = unsafe { (&*information, &mut *context) };
    if !FAULTS.contains(&signal) || information.si_code <= 0 {
        return false;
    }
    // SAFETY: a fault's information has an address.
    let at = unsafe { information.si_addr() } as u64;
    let Some((frame, routine)) = blamed(signal, at, context) else {
        return false;
    };
    let is_segv = signal == libc::SIGSEGV;
    let is_jump = frame.address != context.address;
    // SAFETY: an instruction of the tool's that has just run, or of inserted code.
    if is_segv && !is_jump && unsafe { is_clock(frame.address) } {
        context.answer_clock();
        return true;
    }
    let is_nowhere = is_segv && information.si_code == libc::SI_KERNEL;
    // SAFETY: as above.
    if is_nowhere && routine.is_some() && unsafe { lookups::answer(context) } {
        return true;
    }
    let is_far = at.wrapping_sub(frame.stack_pointer).wrapping_add(NEAR) > 2 * NEAR;
    let is_on_own_stack = stacks::is_own_at(frame.stack_pointer) || is_ending();
    if is_segv && !is_jump && !is_far && !is_on_own_stack {
        return false;
    }
    if is_segv && information.si_code == SEGV_ACCERR && is_handled && !is_jump && !is_tool(at) {
        return false;
    }
    let has_address = matches!(signal, libc::SIGSEGV | libc::SIGBUS);
    let is_known = has_address && information.si_code != libc::SI_KERNEL;
    tell(&Fault {
        signal,
        at: is_known.then_some(at),
        frame,
        is_interrupted: !is_jump,
        routine,
    });
    // The kernel ends the process when a signal comes again that is blocked.
    context.mask = u64::MAX;
    true
}

/// True for the instruction `rdtsc`. It faults where the application forbids itself to read the clock, as the strict mode of
/// seccomp does.
///
/// # Safety
/// Code is at the address.
unsafe fn is_clock(address: u64) -> bool {
    const RDTSC: [u8; 2] = [0x0f, 0x31];
    let code = core::ptr::with_exposed_provenance::<[u8; 2]>(address as usize);
    // SAFETY: the caller's promise; each instruction that faults here has two bytes at least, or more code is after it.
    unsafe { code.read() == RDTSC }
}

/// The frame of the tool's code that caused a fault, or of inserted code with the routine in whose place it runs.
fn blamed(signal: c_int, at: u64, context: &Context) -> Option<(Frame, Option<u64>)> {
    let frame = Frame {
        address: context.address,
        stack_pointer: context.stack_pointer,
        base_pointer: context.base_pointer(),
    };
    if is_tool(frame.address) {
        return Some((frame, None));
    }
    if let Some(routine) = routine_at(frame.address) {
        return Some((frame, Some(routine)));
    }
    // A jump to where no code is: who called has left a return address.
    let is_jump = signal == libc::SIGSEGV && at == frame.address;
    let mut back = [0];
    if is_jump
        && place_of(at) == Place::Foreign
        && copy_words(frame.stack_pointer as usize, &mut back)
        && is_tool(back[0])
    {
        let caller = Frame {
            address: back[0],
            stack_pointer: frame.stack_pointer + 8,
            ..frame
        };
        return Some((caller, None));
    }
    None
}

/// Tells of an `abort` in the tool's code, before the process ends by it.
fn tell_of_abort() {
    let mut frame = Frame {
        address: 0,
        stack_pointer: 0,
        base_pointer: 0,
    };
    // SAFETY: the three instructions read registers and change nothing but their results. `lea` gives the address of the
    // instruction after it.
    unsafe {
        asm!(
            "lea {}, [rip]",
            "mov {}, rsp",
            "mov {}, rbp",
            out(reg) frame.address,
            out(reg) frame.stack_pointer,
            out(reg) frame.base_pointer,
            options(nomem, nostack, preserves_flags),
        );
    }
    if info::get().is_some() {
        with_all_blocked(|| {
            tell(&Fault {
                signal: libc::SIGABRT,
                at: None,
                frame,
                is_interrupted: true,
                routine: None,
            });
        });
    }
}

/// Tells of a fault, and makes the calls at the process's end if that is safe. Signals are blocked.
fn tell(fault: &Fault) {
    unsafe extern "C" fn work(fault: *mut c_void) {
        // SAFETY: `tell` passes this structure.
        unsafe { tell_here(&*fault.cast::<Fault>()) }
    }
    let me = gettid();
    let first = TELLER.compare_exchange(0, me, Ordering::AcqRel, Ordering::Acquire);
    match first {
        Ok(_) => {
            let fault = core::ptr::from_ref(fault).cast_mut().cast();
            // SAFETY: the work takes the fault.
            unsafe { stacks::call_with(STACK, work, fault) }
        }
        Err(teller) if teller == me => {}
        // The process ends when the first has told everything.
        Err(_) => {
            for _ in 0..MOST_ROUNDS {
                stacks::sleep(100_000_000);
            }
        }
    }
}

/// True if this thread makes the calls at the end.
fn is_ending() -> bool {
    identity::state().is_some_and(|s| {
        s.phase.load(Ordering::Acquire) == ENDING && s.ender.load(Ordering::Acquire) == gettid()
    })
}

fn tell_here(fault: &Fault) {
    let phase = identity::state().map_or(ENDING, |s| s.phase.load(Ordering::Acquire));
    let trail = Trail::of(fault);
    trail.tell(fault, is_ending());
    // Locks are held, and lists are changed, only by code that nothing interrupts.
    let is_safe = phase == RUNNING && trail.holds_nothing() && sandbox::may_report();
    if is_safe {
        // SAFETY: the runtime has started.
        unsafe { end::finish() };
    }
    let outcome = match (is_safe, WATCHER.load(Ordering::Relaxed)) {
        (true, _) => {
            "the calls at the program's end were made, so a report has what was counted before"
        }
        (false, 0) => {
            "the calls at the program's end are not made, as the tool may be in the middle of a change"
        }
        (false, _) => "the process that watches makes the calls at the program's end",
    };
    trail.tell_end(fault, outcome);
}

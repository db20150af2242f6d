//! Signals that interrupt inserted code wait until it ends.
//!
//! A handler is to see the state of the application between two instructions. Inserted code has saved
//! registers, and moved the stack pointer; routines hold locks. So the signal is put back into the
//! thread's queue with all signals blocked, and the thread continues by single steps (the trap flag of the
//! processor) until it comes to a boundary. There its signal mask comes back, and the kernel delivers what
//! waits. A routine of the tool runs at full speed: its return address leads to code of the runtime that begins
//! the steps.
//!
//! If that is not possible, because a filter forbids the system calls, or the application ignores SIGTRAP, the
//! handler runs at once.

use core::arch::global_asm;
use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::lifecycle::actions::{Context, change, present};
use crate::process::boundaries::{Place, place_of, starts_inserted};
use crate::process::frames::{Frame, is_tool, return_slot};
use crate::sys::call::{gettid, syscall, system_pid};
use crate::sys::masks::bit;
use crate::sys::registers::keeping_registers;
use crate::sys::sandbox;
use crate::sys::signals::{DEFERRABLE, replace_mask};

/// A thread whose signals wait.
struct Waiting {
    /// The thread, as [`this_thread`] names it; 0 for none.
    thread: AtomicU64,
    /// The application's signal mask.
    mask: AtomicU64,
    /// The word on the stack that holds the changed return address of a routine; 0 if there is none.
    slot: AtomicUsize,
    /// The routine's own return address.
    end: AtomicU64,
}

/// Largest number of threads whose signals wait at the same time.
const MOST: usize = 256;

static WAITING: [Waiting; MOST] = [const {
    Waiting {
        thread: AtomicU64::new(0),
        mask: AtomicU64::new(0),
        slot: AtomicUsize::new(0),
        end: AtomicU64::new(0),
    }
}; MOST];

/// The thread that executes a program now, at whose signals nothing is changed any more; 0 if there is none.
static EXECUTING: AtomicU64 = AtomicU64::new(0);

/// The trap flag.
const TRAP: u64 = 1 << 8;

/// Code of a SIGTRAP after a single step.
pub(super) const TRAP_TRACE: c_int = 2;

/// System calls without which nothing waits.
const CALLS: [i64; 5] = [
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_tgsigqueueinfo,
];

global_asm!(
    ".pushsection .text.__atom_routine_end,\"ax\",@progbits",
    ".globl __atom_routine_end",
    ".hidden __atom_routine_end",
    "__atom_routine_end:",
    // The place of the return address. All registers are kept.
    "push rax",
    "pushfq",
    "push rax",
    keeping_registers!("lea rdi, [rbp + {words}]", "call {routine_end}"),
    "pop rax",
    // The first step ends after the next instruction.
    "or qword ptr [rsp], {trap}",
    "popfq",
    "ret",
    ".popsection",
    words = const 8 * 11,
    trap = const TRAP,
    routine_end = sym routine_end,
);

unsafe extern "C" {
    fn __atom_routine_end();
}

/// The numbers of the calling thread's process and of the thread. A forked child has its parent's entries, which are of
/// none of its threads.
fn this_thread() -> u64 {
    u64::from(system_pid()) << 32 | u64::from(gettid())
}

/// The entry of a thread.
fn entry_of(thread: u64) -> Option<&'static Waiting> {
    let mut all = WAITING.iter();
    all.find(|w| w.thread.load(Ordering::Relaxed) == thread)
}

/// Takes an entry for a thread.
fn take(thread: u64) -> Option<&'static Waiting> {
    WAITING.iter().find(|w| {
        let taken = w
            .thread
            .compare_exchange(0, thread, Ordering::Relaxed, Ordering::Relaxed);
        taken.is_ok()
    })
}

impl Waiting {
    /// The thread's signals do not wait any more. Returns the application's mask.
    fn give_back(&self) -> u64 {
        let mask = self.mask.load(Ordering::Relaxed);
        self.slot.store(0, Ordering::Relaxed);
        self.thread.store(0, Ordering::Release);
        mask
    }
}

/// True if single steps of this thread come to [`step`].
fn traps_come() -> bool {
    let trap = present(libc::SIGTRAP as usize);
    // Only handlers of the runtime are there.
    trap.is_some_and(|action| is_tool(action.handler as u64))
}

/// Signals that stay unblocked while others wait, unless they wait themselves.
const FAULTS: u64 = !DEFERRABLE;

/// Lets a signal wait that interrupted inserted code. `front` is its handler. Returns false if it cannot wait.
///
/// # Safety
/// Called in the handler, with what the kernel gave.
pub(super) unsafe fn defer(
    signal: c_int,
    information: &libc::siginfo_t,
    context: &mut Context,
    front: usize,
) -> bool {
    if signal == libc::SIGTRAP || CALLS.iter().any(|n| !sandbox::is_allowed(*n)) || !traps_come() {
        return false;
    }
    let thread = this_thread();
    if EXECUTING.load(Ordering::Relaxed) == thread {
        return false;
    }
    let known = entry_of(thread);
    // An entry may be of steps that ended otherwise, as by a jump out of a handler for a fault.
    let goes_on = known.is_some() && context.mask | FAULTS == u64::MAX;
    let Some(entry) = known.or_else(|| take(thread)) else {
        return false;
    };
    if !goes_on {
        entry.mask.store(context.mask, Ordering::Relaxed);
        entry.slot.store(0, Ordering::Relaxed);
    }
    // Single steps stay possible: this code may have interrupted itself.
    let before = replace_mask(DEFERRABLE | bit(signal));
    // SAFETY: the kernel reads the information.
    let queued = unsafe {
        let information = core::ptr::from_ref(information);
        syscall!(
            libc::SYS_rt_tgsigqueueinfo,
            system_pid(),
            gettid(),
            signal,
            information
        )
    };
    if queued != 0 {
        replace_mask(before);
        if !goes_on {
            entry.give_back();
        }
        return false;
    }
    arm_again(signal, front);
    let blocked = if goes_on { context.mask } else { DEFERRABLE };
    context.mask = blocked | bit(signal);
    // SAFETY: it is the context of inserted code.
    unsafe { go_on(entry, context) };
    true
}

/// Gives a signal back its handler, which the kernel has taken away if it is for one signal only
/// (`SA_RESETHAND`).
fn arm_again(signal: c_int, front: usize) {
    if let Some(mut now) = present(signal as usize)
        && now.handler == libc::SIG_DFL
        && now.flags & libc::SA_RESETHAND as usize != 0
    {
        now.handler = front;
        // SAFETY: the structure lives across the call.
        unsafe { change(signal as usize, &now, core::ptr::null_mut()) };
    }
}

/// Lets the thread continue in inserted code: by one step, or to the end of a routine.
///
/// # Safety
/// The context is one of inserted code.
unsafe fn go_on(entry: &Waiting, context: &mut Context) {
    let is_free = entry.slot.load(Ordering::Relaxed) == 0;
    let frame = Frame {
        address: context.address,
        stack_pointer: context.stack_pointer,
        base_pointer: context.base_pointer(),
    };
    if is_free
        && is_tool(context.address)
        && let Some(slot) = return_slot(frame)
    {
        // SAFETY: the word holds the return address of a routine that runs.
        unsafe {
            if place_of(*slot) == Place::Inserted {
                entry.end.store(*slot, Ordering::Relaxed);
                entry.slot.store(slot.addr(), Ordering::Relaxed);
                *slot = __atom_routine_end as *const () as u64;
                context.processor_flags &= !TRAP;
                return;
            }
        }
    }
    // SAFETY: the caller's promise.
    unsafe { trace(context) };
}

/// A routine has returned whose return address was changed: gives the address to where `end` leads.
///
/// # Safety
/// Called by `__atom_routine_end`.
unsafe extern "C" fn routine_end(end: *mut u64) {
    if let Some(entry) = entry_of(this_thread()) {
        entry.slot.store(0, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { *end = entry.end.load(Ordering::Relaxed) };
    }
}

/// Lets the thread execute one more instruction of inserted code.
///
/// # Safety
/// The context is one of inserted code.
unsafe fn trace(context: &mut Context) {
    const POPF: u8 = 0x9d;
    context.processor_flags |= TRAP;
    let next = core::ptr::with_exposed_provenance::<u8>(context.address as usize);
    // SAFETY: the instruction that is executed next, and the top of the stack that it reads. Inserted code
    // pops flags only that it has pushed.
    unsafe {
        if *next == POPF {
            let top = context.stack_pointer as usize;
            *core::ptr::with_exposed_provenance_mut::<u64>(top) |= TRAP;
        }
    }
}

/// Looks at a signal that may be a single step in inserted code, and prepares the next step, or the end of
/// the steps. Returns false if the signal is for the application.
///
/// # Safety
/// Called in the handler, with what the kernel gave.
pub(super) unsafe fn step(
    signal: c_int,
    information: *const libc::siginfo_t,
    context: *mut Context,
) -> bool {
    // SAFETY: the caller's promise.
    let (information, context) = unsafe { (&*information, &mut *context) };
    if signal != libc::SIGTRAP || information.si_code != TRAP_TRACE {
        return false;
    }
    let entry = entry_of(this_thread());
    let is_inserted = place_of(context.address) == Place::Inserted;
    match (is_inserted, entry) {
        // SAFETY: the place is one of inserted code.
        (true, Some(entry)) => unsafe { go_on(entry, context) },
        // A program that single-steps itself sees its own instructions only.
        // SAFETY: as above.
        (true, None) => unsafe { trace(context) },
        (false, None) if starts_inserted(context.address) => unsafe { trace(context) },
        (false, Some(entry)) => {
            context.processor_flags &= !TRAP;
            context.mask = entry.give_back();
        }
        (false, None) => return false,
    }
    true
}

/// The calling thread executes another program, which inherits its signal mask: no signal of it waits any more, or
/// will wait.
pub(super) fn leave() {
    if WAITING
        .iter()
        .all(|w| w.thread.load(Ordering::Relaxed) == 0)
    {
        return;
    }
    let thread = this_thread();
    if let Some(entry) = entry_of(thread) {
        EXECUTING.store(thread, Ordering::Relaxed);
        let slot = entry.slot.load(Ordering::Relaxed);
        if slot != 0 {
            // SAFETY: the routine that runs now returns there.
            unsafe {
                let slot = core::ptr::with_exposed_provenance_mut::<u64>(slot);
                *slot = entry.end.load(Ordering::Relaxed);
            }
        }
        replace_mask(entry.give_back());
    }
}

/// The program was not executed.
pub(super) fn stay() {
    EXECUTING.store(0, Ordering::Relaxed);
}

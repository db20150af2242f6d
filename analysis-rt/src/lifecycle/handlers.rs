//! Handlers of the application: they see the original program.
//!
//! The kernel starts code of the runtime in front of the application's handler, on the same stack and with the same
//! frame. This code replaces two addresses in the frame by those of the original program: the address of the
//! interrupted instruction, and the address of a fault. A Go program, whose own tables describe the new text, sees the new ones. Then the handler runs as if the kernel had started it. A signal that interrupts inserted code is [deferred] to the next
//! boundary of the application's instructions. When the handler returns, inserted code before the system call
//! `rt_sigreturn`, or code in front of an unusual restorer, gives control back to the new text ([`returning`]): to the interrupted place, or to the
//! address at which the handler wants to continue. All that has to be known then is in the frame, so a handler
//! may as well never return.
//!
//! The kernel's action names a *front*, a piece of code for each different handler of the application. It
//! says which handler it is, so nothing is kept for each signal.
//!
//! ABI: at a handler's start rdi, rsi and rdx have the number, the information and the context of the signal, rax is 0, and
//! rsp names the return address, the restorer. The context is above it, and rsp names the context when
//! `rt_sigreturn` is called.

use core::arch::global_asm;
use core::ffi::c_int;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::lifecycle::actions::{Action, Context, SA_RESTORER};
use crate::lifecycle::{deferred, faults};

use crate::process::boundaries::{
    Place, are_known, copy_of, is_kept, is_overwritten, new_address, place_of,
};
use crate::sys::registers::keeping_registers;

/// Number of fronts. A program with more different handlers has some without a front.
const FRONTS: usize = 256;
/// Size of a front in bytes.
const FRONT_SIZE: usize = 16;

global_asm!(
    ".pushsection .text.__atom_fronts,\"ax\",@progbits",
    ".globl __atom_fronts, __atom_restorer, __atom_returns",
    ".hidden __atom_fronts, __atom_restorer, __atom_returns",
    ".balign 16",
    "__atom_fronts:",
    "2:",
    ".set __atom_front_number, 0",
    ".rept {count}",
    ".balign {size}",
    "mov eax, __atom_front_number",
    "jmp 3f",
    ".set __atom_front_number, __atom_front_number + 1",
    ".endr",
    ".balign 16",
    "3:",
    "push rdi",
    "push rsi",
    "push rdx",
    "mov ecx, eax",
    "call {arrive}",
    "pop rdx",
    "pop rsi",
    "pop rdi",
    "test rax, rax",
    "je 4f",
    "mov rcx, rax",
    "xor eax, eax",
    "jmp rcx",
    "4:",
    "add rsp, 8",
    "mov eax, {number}",
    "syscall",
    // The restorer of the runtime's own handlers.
    "__atom_restorer:",
    "mov eax, {number}",
    "syscall",
    // Restorers in front of those of the application, by the numbers of the fronts. All registers are kept.
    ".balign 16",
    "__atom_returns:",
    ".set __atom_front_number, 0",
    ".rept {count}",
    ".balign {size}",
    "push __atom_front_number",
    "jmp 5f",
    ".set __atom_front_number, __atom_front_number + 1",
    ".endr",
    ".balign 16",
    "5:",
    "push rax",
    "pushfq",
    keeping_registers!("lea rdi, [rbp + {words}]", "cld", "call {returned}"),
    "popfq",
    "pop rax",
    "ret",
    ".popsection",
    count = const FRONTS,
    size = const FRONT_SIZE,
    number = const libc::SYS_rt_sigreturn,
    arrive = sym arrive,
    words = const 8 * 11,
    returned = sym returned,
);

unsafe extern "C" {
    fn __atom_fronts();
    pub(super) fn __atom_restorer();
    fn __atom_returns();
}

/// A handler of the application with its restorer.
struct Known {
    /// 0 for none, 1 while the entry is filled.
    handler: AtomicUsize,
    restorer: AtomicUsize,
}

/// The handlers of the fronts. Entries are only added.
static KNOWN: [Known; FRONTS] = [const {
    Known {
        handler: AtomicUsize::new(NONE),
        restorer: AtomicUsize::new(0),
    }
}; FRONTS];
const NONE: usize = libc::SIG_DFL;
const BUSY: usize = libc::SIG_IGN;

/// The number of the front of a handler; `None` if all are taken.
fn number_of(handler: usize, restorer: usize) -> Option<usize> {
    KNOWN.iter().position(|known| {
        let taken =
            known
                .handler
                .compare_exchange(NONE, BUSY, Ordering::Acquire, Ordering::Acquire);
        match taken {
            Ok(_) => {
                known.restorer.store(restorer, Ordering::Relaxed);
                known.handler.store(handler, Ordering::Release);
                true
            }
            Err(other) => other == handler && known.restorer.load(Ordering::Relaxed) == restorer,
        }
    })
}

/// True if a handler of the application may return to one of the restorers here instead of its own.
pub(super) fn have_own_restorers() -> bool {
    KNOWN.iter().any(|known| {
        let handler = known.handler.load(Ordering::Relaxed);
        let restorer = known.restorer.load(Ordering::Relaxed);
        ![NONE, BUSY].contains(&handler) && are_known() && !is_hooked(restorer as u64)
    })
}

fn front(number: usize) -> usize {
    __atom_fronts as *const () as usize + number * FRONT_SIZE
}

/// The number of the front at an address.
fn number_at(address: usize) -> Option<usize> {
    let distance = address.checked_sub(front(0))?;
    (distance < FRONTS * FRONT_SIZE).then_some(distance / FRONT_SIZE)
}

/// The action with which the kernel starts a front instead of the application's handler; `None` if there is no
/// front.
pub(super) fn in_front_of(wanted: Action) -> Option<Action> {
    // Without a restorer the kernel starts no handler.
    if wanted.flags & SA_RESTORER == 0 {
        return None;
    }
    let number = number_of(wanted.handler, wanted.restorer)?;
    let mut ours = wanted.informed(front(number));
    if are_known() && !is_hooked(wanted.restorer as u64) {
        ours.restorer = __atom_returns as *const () as usize + number * FRONT_SIZE;
    }
    Some(ours)
}

/// The action of the application, if a front stands for it.
pub(super) fn behind(ours: Action) -> Option<Action> {
    let known = &KNOWN[number_at(ours.handler)?];
    let mut action = ours.uninformed(known.handler.load(Ordering::Relaxed));
    action.restorer = known.restorer.load(Ordering::Relaxed);
    Some(action)
}

/// True if inserted code calls [`returning`] before the system call of a restorer: if it moved, and has the
/// usual form, in which the number of the system call is certain.
fn is_hooked(restorer: u64) -> bool {
    const NUMBER: [u8; 4] = (libc::SYS_rt_sigreturn as u32).to_le_bytes();
    const MOV_EAX: &[u8] = &[0xb8];
    const MOV_RAX: &[u8] = &[0x48, 0xc7, 0xc0];
    let Some(copy) = copy_of(restorer) else {
        return false;
    };
    [MOV_EAX, MOV_RAX].iter().any(|opcode| {
        let expected = opcode.iter().chain(&NUMBER);
        let mut at = core::ptr::with_exposed_provenance::<u8>(copy as usize);
        expected.into_iter().all(|byte| {
            // SAFETY: code of an object; a byte is read only if those before it are of the instruction.
            let is_same = unsafe { *at } == *byte;
            at = at.wrapping_add(1);
            is_same
        })
    })
}

/// Signals that the processor raises; those with a positive code come from the interrupted instruction.
const FAULTS: [c_int; 6] = [
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGSEGV,
    libc::SIGSYS,
];

/// A signal arrives. Returns the address of the application's handler, which runs next; 0 to return from the
/// signal at once.
///
/// # Safety
/// The kernel gave the first three.
unsafe extern "C" fn arrive(
    signal: c_int,
    information: *mut libc::siginfo_t,
    context: *mut Context,
    number: usize,
) -> usize {
    // SAFETY: the caller's promise.
    unsafe {
        if deferred::step(signal, information, context) {
            return 0;
        }
        if faults::is_of_tool(signal, information, context, true) {
            return 0;
        }
        if !are_known() {
            return KNOWN[number].handler.load(Ordering::Relaxed);
        }
        let (information, context) = (&mut *information, &mut *context);
        let is_fault = FAULTS.contains(&signal) && information.si_code > 0;
        let is_step = signal == libc::SIGTRAP && information.si_code == deferred::TRAP_TRACE;
        context.interrupted = context.address;
        // The address is after the system call, where inserted code may be. That is for a call that was made.
        let call = context.address.wrapping_sub(SYSCALL_SIZE);
        if is_fault
            && signal == libc::SIGSYS
            && let Place::Boundary(original) = place_of(call)
        {
            if !is_kept(call) && !is_overwritten(original, call) {
                show(information, context, original + SYSCALL_SIZE);
            }
            return KNOWN[number].handler.load(Ordering::Relaxed);
        }
        match place_of(context.address) {
            Place::Foreign => {}
            Place::Inserted => {
                if !is_fault && deferred::defer(signal, information, context, front(number)) {
                    return 0;
                }
            }
            Place::Boundary(_) if is_kept(context.address) => {}
            // The handler may decode the instruction. After a step of its own it rather compares the address.
            Place::Boundary(original)
                if is_fault && !is_step && is_overwritten(original, context.address) => {}
            Place::Boundary(original) if is_fault => show(information, context, original),
            Place::Boundary(original) => context.address = original,
        }
    }
    KNOWN[number].handler.load(Ordering::Relaxed)
}

/// Size in bytes of the instruction `syscall`.
const SYSCALL_SIZE: u64 = 2;

/// Shows a handler the original address of what the processor has interrupted.
fn show(information: &mut libc::siginfo_t, context: &mut Context, original: u64) {
    // The address of a fault, or of the instruction after a system call, is the third word.
    // SAFETY: the structure has 128 bytes.
    let fault = unsafe { &mut *(&raw mut *information).cast::<u64>().add(2) };
    if *fault == context.address {
        *fault = original;
    }
    context.address = original;
}

/// A handler returns whose restorer may make its system call unseen, or does more than that. The word has the number of
/// the front, and gets the address of the restorer, to which control goes next. The context is above it.
///
/// # Safety
/// Called by `__atom_returns`.
unsafe extern "C" fn returned(word: *mut usize) {
    // SAFETY: the caller's promise.
    unsafe {
        returning(word.add(1).cast());
        *word = KNOWN[*word].restorer.load(Ordering::Relaxed);
    }
}

/// A handler returns: the original address at which to continue becomes one of the new text.
///
/// # Safety
/// The context is one with which the application calls `rt_sigreturn` next.
pub(crate) unsafe extern "C" fn returning(context: *mut Context) {
    // SAFETY: the caller's promise.
    let context = unsafe { &mut *context };
    let (wanted, interrupted) = (context.address, context.interrupted);
    if wanted == interrupted {
        return;
    }
    if place_of(interrupted) == Place::Boundary(wanted) {
        context.address = interrupted;
    } else if let Some(new) = new_address(wanted) {
        context.address = new;
    }
}

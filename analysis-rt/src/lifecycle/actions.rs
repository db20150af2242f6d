//! The kernel's structures for signals: what a signal does, and what a handler is shown.
//!
//! ABI: the kernel's `struct sigaction` has four words: handler, flags, restorer, mask. The kernel returns
//! from a handler to the restorer.

use core::ffi::c_int;

use crate::process::info;
use crate::sys::call::syscall;
use crate::sys::masks::{KERNEL_SIGSET_SIZE, bit};

/// The flag by which the kernel takes the restorer from the structure.
pub(super) const SA_RESTORER: usize = 0x0400_0000;

/// The flag `SA_EXPOSE_TAGBITS`, which the kernel keeps and which has no meaning on x86-64. It marks an
/// action whose `SA_SIGINFO` is the runtime's and not the application's.
const INFORMED_FOR_US: usize = 0x800;

/// The kernel's `struct sigaction`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Action {
    pub handler: usize,
    pub flags: usize,
    pub restorer: usize,
    pub mask: u64,
}

impl Action {
    /// The same action for a handler of the runtime, which wants to know everything of the signal.
    pub(super) fn informed(mut self, handler: usize) -> Self {
        self.handler = handler;
        if self.flags & libc::SA_SIGINFO as usize == 0 {
            self.flags |= libc::SA_SIGINFO as usize | INFORMED_FOR_US;
        }
        self
    }

    /// Takes back what [`Self::informed`] did.
    pub(super) fn uninformed(mut self, handler: usize) -> Self {
        self.handler = handler;
        if self.flags & INFORMED_FOR_US != 0 {
            self.flags &= !(libc::SA_SIGINFO as usize | INFORMED_FOR_US);
        }
        self
    }

    /// True if a handler of the application is wanted.
    pub(super) fn is_handled(&self) -> bool {
        ![libc::SIG_DFL, libc::SIG_IGN].contains(&self.handler)
    }
}

/// Makes the system call; null for what is not wanted.
///
/// # Safety
/// The pointers are null, or lead to structures that the kernel may read and write.
pub(super) unsafe fn change(signal: usize, action: *const Action, old: *mut Action) -> isize {
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

/// The kernel's action of a signal.
pub(super) fn present(signal: usize) -> Option<Action> {
    let mut now = Action::default();
    // SAFETY: the structure lives across the call.
    let answer = unsafe { change(signal, core::ptr::null(), &mut now) };
    (answer == 0).then_some(now)
}

/// Signals of instructions that raise them again when they are executed again.
pub(super) const FAULTS: [c_int; 4] = [libc::SIGILL, libc::SIGBUS, libc::SIGFPE, libc::SIGSEGV];

/// The mask of [`FAULTS`].
pub(super) fn mask_of_faults() -> u64 {
    FAULTS.iter().fold(0, |mask, signal| mask | bit(*signal))
}

/// True if the runtime sees the application's system calls on what signals do, so that signals come to it first.
pub(super) fn are_seen() -> bool {
    info::get().is_some_and(|info| !info.process.is_null() || !info.boundaries.is_null())
}

/// The kernel's `struct ucontext`.
#[repr(C)]
pub(crate) struct Context {
    flags: usize,
    link: usize,
    stack: [usize; 3],
    /// r8 to r15, rdi, rsi, rbp, rbx, rdx, rax, rcx.
    registers: [u64; 15],
    pub stack_pointer: u64,
    pub address: u64,
    pub processor_flags: u64,
    /// Segments, error, trap number, mask, fault address, state of floating point.
    others: [u64; 6],
    /// Words that neither the kernel nor the C libraries use.
    unused: [u64; 7],
    /// The last of these words. The runtime notes the interrupted address here.
    pub interrupted: u64,
    pub mask: u64,
}

const _: () = assert!(core::mem::offset_of!(Context, address) == 168);
const _: () = assert!(core::mem::offset_of!(Context, mask) == 296);

/// What an instruction that loads 0 leaves in a register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Answer {
    /// The register's number in instructions.
    pub number: u8,
    /// Mask of the bits that stay.
    pub kept: u64,
    /// True if flags are those of the register's low byte.
    pub sets_flags: bool,
}

impl Context {
    /// Goes to the instruction after `rdtsc`, which answers 0.
    pub(super) fn answer_clock(&mut self) {
        const RDX: usize = 12;
        const RAX: usize = 13;
        const SIZE: u64 = 2;
        self.registers[RDX] = 0;
        self.registers[RAX] = 0;
        self.address += SIZE;
    }

    /// Goes to the instruction `size` bytes farther. A register keeps the bits of a mask; flags are those of a result that is
    /// 0, or the register's low byte.
    pub(super) fn answer_byte(&mut self, size: u64, register: Option<Answer>) {
        /// CF, PF, AF, ZF, SF and OF.
        const ARITHMETIC: u64 = 0x8d5;
        const PF: u64 = 1 << 2;
        const ZF: u64 = 1 << 6;
        const SF: u64 = 1 << 7;
        let mut result = Some(0u8);
        if let Some(answer) = register {
            let register = self.general(answer.number);
            *register &= answer.kept;
            result = answer.sets_flags.then_some(*register as u8);
        }
        if let Some(result) = result {
            let is_even = result.count_ones().is_multiple_of(2);
            let flags = [(PF, is_even), (ZF, result == 0), (SF, result >> 7 != 0)];
            let set = flags.iter().filter(|flag| flag.1).map(|flag| flag.0);
            self.processor_flags = self.processor_flags & !ARITHMETIC | set.sum::<u64>();
        }
        self.address += size;
    }

    /// A general register by its number in instructions.
    fn general(&mut self, number: u8) -> &mut u64 {
        const RSP: u8 = 4;
        /// Places of rax, rcx, rdx, rbx, rsp, rbp, rsi and rdi.
        const PLACES: [usize; 8] = [13, 14, 12, 11, 0, 10, 9, 8];
        match number {
            RSP => &mut self.stack_pointer,
            0..8 => &mut self.registers[PLACES[usize::from(number)]],
            _ => &mut self.registers[usize::from(number & 7)],
        }
    }

    /// rbp.
    pub(super) fn base_pointer(&self) -> u64 {
        const RBP: usize = 10;
        self.registers[RBP]
    }
}

//! What an instruction is about to access, from its registers: for models of caches.
//!
//! Rules, which the tools state too: an operand that is read and written is one
//! reference; a conditional move reads its operand in any case; a masked vector
//! operand counts as a whole; a `rep` instruction makes the references of one
//! element in each of its steps, none if rcx is 0. Gathers and scatters are not
//! followed.

use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};
use libc::user_regs_struct;

/// One access to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reference {
    /// Address of its first byte at run time.
    pub address: u64,
    /// Its size in bytes; 1 where only the processor knows.
    pub size: u32,
    /// Whether memory is written.
    pub writes: bool,
    /// Whether it is read.
    pub reads: bool,
}

/// An instruction that was executed, or one element of a repeated one.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// The thread.
    pub thread: i32,
    /// Its address in the file.
    pub pc: u64,
    /// Its length in bytes.
    pub len: usize,
    /// A further element of the repeated instruction of this thread's last step.
    pub repeated: bool,
    /// What it accessed, reads before writes.
    pub references: &'a [Reference],
    /// Where control went next, in the file.
    pub next: u64,
}

/// The references of an instruction that has not run yet.
pub(super) fn references(
    factory: &mut InstructionInfoFactory,
    insn: &Instruction,
    rep: bool,
    regs: &user_regs_struct,
    bias: u64,
    to: &mut Vec<Reference>,
) {
    to.clear();
    if rep && regs.rcx == 0 {
        return;
    }
    for memory in factory.info(insn).used_memory() {
        let (reads, writes) = match memory.access() {
            OpAccess::Read | OpAccess::CondRead => (true, false),
            OpAccess::Write | OpAccess::CondWrite => (false, true),
            OpAccess::ReadWrite | OpAccess::ReadCondWrite => (true, true),
            OpAccess::None | OpAccess::NoMemAccess => continue,
        };
        let Some(address) = memory.virtual_address(0, |r, _, _| register(r, regs)) else {
            continue;
        };
        // rip-relative addresses are link-time addresses.
        let relative = insn.is_ip_rel_memory_operand()
            && memory.base() == Register::None
            && memory.index() == Register::None;
        let address = if relative {
            address.wrapping_add(bias)
        } else {
            address
        };
        // Of a repeated instruction the size is not told here, as the count is not known.
        let size = match memory.memory_size().size() {
            0 => insn.memory_size().size(),
            size => size,
        };
        to.push(Reference {
            address: address.wrapping_add(bit_offset(insn, regs)),
            size: (size as u32).max(1),
            writes,
            reads,
        });
    }
    to.sort_by_key(|r| r.writes);
}

/// `bt`, `bts`, `btr` and `btc` with a register reach beyond their operand.
fn bit_offset(insn: &Instruction, regs: &user_regs_struct) -> u64 {
    let bits = matches!(
        insn.mnemonic(),
        Mnemonic::Bt | Mnemonic::Btc | Mnemonic::Btr | Mnemonic::Bts
    );
    if !bits || insn.op0_kind() != OpKind::Memory || insn.op1_kind() != OpKind::Register {
        return 0;
    }
    let value = register(insn.op1_register(), regs).unwrap_or(0);
    (match insn.op1_register().size() {
        2 => i64::from(value as i16) >> 4 << 1,
        4 => i64::from(value as i32) >> 5 << 2,
        _ => value as i64 >> 6 << 3,
    }) as u64
}

/// The value of a register, or a segment's base.
fn register(register: Register, regs: &user_regs_struct) -> Option<u64> {
    let whole = match register.full_register() {
        Register::RAX => regs.rax,
        Register::RCX => regs.rcx,
        Register::RDX => regs.rdx,
        Register::RBX => regs.rbx,
        Register::RSP => regs.rsp,
        Register::RBP => regs.rbp,
        Register::RSI => regs.rsi,
        Register::RDI => regs.rdi,
        Register::R8 => regs.r8,
        Register::R9 => regs.r9,
        Register::R10 => regs.r10,
        Register::R11 => regs.r11,
        Register::R12 => regs.r12,
        Register::R13 => regs.r13,
        Register::R14 => regs.r14,
        Register::R15 => regs.r15,
        Register::FS => regs.fs_base,
        Register::GS => regs.gs_base,
        Register::ES | Register::CS | Register::SS | Register::DS => 0,
        _ => return None,
    };
    Some(match register.size() {
        1 if matches!(
            register,
            Register::AH | Register::BH | Register::CH | Register::DH
        ) =>
        {
            whole >> 8 & 0xff
        }
        1 => whole & 0xff,
        2 if register.is_gpr() => whole & 0xffff,
        4 if register.is_gpr() => whole & 0xffff_ffff,
        _ => whole,
    })
}

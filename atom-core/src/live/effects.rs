//! What one instruction reads, overwrites for certain, and may write.
//!
//! Deadness must hold on every path, so the rule is one-sided: a register is
//! *killed* only by a write that always happens and leaves nothing of the old
//! value. Writes of 8 and 16 bits, conditional moves, shifts by a count that
//! may be zero, repeated string instructions (rcx may be 0) and legacy SSE
//! writes to a part of a register do not kill.

use super::RegSet;
use crate::x86::{
    Code, Inst, Instruction, InstructionInfoFactory, InstructionInfoOptions, Memo, Mnemonic,
    OpAccess, OpKind, Register, RflagsBits, decode_again,
};

/// Effects of an instruction or of a run of instructions.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Effects {
    /// Read before being killed.
    pub uses: RegSet,
    /// Overwritten in whole on every execution.
    pub kills: RegSet,
    /// Possibly written.
    pub writes: RegSet,
}

/// What a run of instructions does to liveness.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Transfer {
    uses: RegSet,
    kills: RegSet,
}

impl Transfer {
    /// The transfer of no instructions.
    pub const fn new() -> Self {
        Self {
            uses: RegSet::EMPTY,
            kills: RegSet::EMPTY,
        }
    }

    /// Registers and flags that are read before being overwritten.
    pub fn uses(&self) -> RegSet {
        self.uses
    }

    /// What is live before, from what is live after.
    pub fn before(&self, after: RegSet) -> RegSet {
        self.uses | after.without(self.kills)
    }

    /// The same transfer, with a note that instructions read `read` before it is overwritten.
    pub fn noting(self, read: RegSet) -> Self {
        Self {
            uses: self.uses | read.with_read(),
            kills: self.kills.with_read(),
        }
    }
}

impl From<Effects> for Transfer {
    fn from(effects: Effects) -> Self {
        let Effects { uses, kills, .. } = effects;
        Self { uses, kills }
    }
}

impl Effects {
    /// What is live before, from what is live after.
    pub fn before(&self, after: RegSet) -> RegSet {
        self.uses | after.without(self.kills)
    }

    /// The effects of `self` followed by `next`.
    pub fn then(&self, next: &Self) -> Self {
        Self {
            uses: self.uses | next.uses.without(self.kills),
            kills: self.kills | next.kills,
            writes: self.writes | next.writes,
        }
    }
}

/// The bit of a register; `None` for registers that liveness does not follow.
pub fn reg_bit(register: Register) -> Option<RegSet> {
    if register.is_gpr() {
        Some(RegSet::gpr(register.full_register().number()))
    } else if register.is_vector_register() && register.number() < 16 {
        Some(RegSet::xmm(register.number()))
    } else {
        None
    }
}

/// What an instruction is there to compute: the register that it names first and writes, or the flags if it
/// computes nothing else. What it changes besides, such as the halves of a product, is left out.
pub fn purpose(instruction: &Instruction, effects: &Effects) -> RegSet {
    use Mnemonic::*;
    match instruction.mnemonic() {
        Cmp | Test | Bt | Stc | Clc | Cmc | Sahf | Comiss | Comisd | Ucomiss | Ucomisd => {
            effects.kills & RegSet::FLAGS
        }
        _ if instruction.op_count() == 0 || instruction.op0_kind() != OpKind::Register => {
            RegSet::EMPTY
        }
        _ => reg_bit(instruction.op0_register()).unwrap_or_default() & effects.writes,
    }
}

/// True for an instruction that only stores a register to the stack.
pub fn is_stack_store(instruction: &Instruction) -> bool {
    use Mnemonic::*;
    let by_stack = || {
        instruction.op0_kind() == OpKind::Memory
            && matches!(instruction.memory_base(), Register::RSP | Register::RBP)
    };
    match instruction.mnemonic() {
        Push => true,
        Mov | Movaps | Movups | Movapd | Movupd | Movdqa | Movdqu | Movq | Movsd | Movss
        | Vmovaps | Vmovups | Vmovdqa | Vmovdqu => by_stack(),
        _ => false,
    }
}

fn flag_bits(bits: u32) -> RegSet {
    let pairs = [
        (RflagsBits::CF, RegSet::CF),
        (RflagsBits::PF, RegSet::PF),
        (RflagsBits::AF, RegSet::AF),
        (RflagsBits::ZF, RegSet::ZF),
        (RflagsBits::SF, RegSet::SF),
        (RflagsBits::OF, RegSet::OF),
    ];
    let mut set = RegSet::EMPTY;
    for (bit, flag) in pairs {
        if bits & bit != 0 {
            set |= flag;
        }
    }
    set
}

/// True for legacy SSE instructions that leave a part of their destination unchanged.
fn keeps_part_of_xmm(instruction: &Instruction) -> bool {
    use Mnemonic::*;
    let register_form = instruction.op1_kind() == OpKind::Register;
    match instruction.mnemonic() {
        Movss | Movsd => register_form,
        Sqrtss | Sqrtsd | Rcpss | Rsqrtss | Roundss | Roundsd | Cvtsi2ss | Cvtsi2sd | Cvtss2sd
        | Cvtsd2ss | Movlps | Movhps | Movlpd | Movhpd | Movhlps | Movlhps | Pinsrb | Pinsrw
        | Pinsrd | Pinsrq | Insertps => true,
        _ => false,
    }
}

/// True for logical operations, which compute no carry out of the lowest four bits.
fn clears_auxiliary_carry(instruction: &Instruction) -> bool {
    use Mnemonic::*;
    matches!(instruction.mnemonic(), And | Or | Xor | Test)
}

/// True for instructions that, on some processors or for some operands, leave their
/// destination unchanged: `rdssp` does nothing without shadow stacks; the bit scans do nothing
/// for a source of 0 (`tzcnt` and `lzcnt` run as bit scans on old processors); `lar` and `lsl`
/// do nothing for a bad selector.
fn may_keep_destination(instruction: &Instruction) -> bool {
    use Mnemonic::*;
    matches!(
        instruction.mnemonic(),
        Rdsspd | Rdsspq | Bsf | Bsr | Tzcnt | Lzcnt | Lar | Lsl
    )
}

/// True if the flags stay unchanged for some values of operands, such as a shift count of 0.
fn may_leave_flags(instruction: &Instruction) -> bool {
    use Mnemonic::*;
    let may_be_zero = |operand: u32| match instruction.op_kind(operand) {
        OpKind::Immediate8 => instruction.immediate8() & 0x1f == 0,
        _ => true,
    };
    match instruction.mnemonic() {
        Shl | Sal | Shr | Sar | Rol | Ror | Rcl | Rcr => may_be_zero(1),
        Shld | Shrd => may_be_zero(2),
        _ => instruction.has_rep_prefix() || instruction.has_repne_prefix(),
    }
}

/// Registers that the kernel or the state-saving instructions read and the decoder's tables do not name.
fn hidden_uses(instruction: &Instruction) -> RegSet {
    use Mnemonic::*;
    match instruction.mnemonic() {
        // The number of the system call and six arguments.
        Syscall => RegSet(0x07c5),
        Int | Sysenter | Vmcall | Into => RegSet::ALL,
        Fxsave | Fxsave64 | Xsave | Xsave64 | Xsavec | Xsavec64 | Xsaveopt | Xsaveopt64
        | Xsaves | Xsaves64 | Vzeroupper => RegSet::XMMS,
        _ => RegSet::EMPTY,
    }
}

/// Computes effects; keeps the decoder's working storage between calls.
pub struct EffectsOf {
    factory: InstructionInfoFactory,
    known: Memo<Effects>,
}

impl EffectsOf {
    /// Empty working storage.
    pub fn new() -> Self {
        Self {
            factory: InstructionInfoFactory::new(),
            known: Memo::new(),
        }
    }

    /// The effects of the instruction at the start of `bytes`, which is at `address`.
    pub fn of_bytes(&mut self, inst: &Inst, bytes: &[u8], address: u64) -> Effects {
        let mut known = std::mem::take(&mut self.known);
        let effects = known.of(inst, bytes, || self.of(&decode_again(inst, bytes, address)));
        self.known = known;
        effects
    }

    /// The effects of one instruction, without the effects of a callee.
    pub fn of(&mut self, instruction: &Instruction) -> Effects {
        let mut effects = Effects::default();
        let info = self
            .factory
            .info_options(instruction, InstructionInfoOptions::NO_MEMORY_USAGE);
        let restores = matches!(
            instruction.mnemonic(),
            Mnemonic::Fxrstor
                | Mnemonic::Fxrstor64
                | Mnemonic::Xrstor
                | Mnemonic::Xrstor64
                | Mnemonic::Xrstors
                | Mnemonic::Xrstors64
        );
        for used in info.used_registers() {
            let register = used.register();
            let Some(bit) = reg_bit(register) else {
                continue;
            };
            let whole = if register.is_gpr() {
                register.size() >= 4 && !may_keep_destination(instruction)
            } else {
                !keeps_part_of_xmm(instruction)
            };
            match used.access() {
                OpAccess::None | OpAccess::NoMemAccess => {}
                OpAccess::Read | OpAccess::CondRead => effects.uses |= bit,
                OpAccess::Write => {
                    effects.writes |= bit;
                    if whole {
                        effects.kills |= bit;
                    }
                }
                OpAccess::CondWrite => effects.writes |= bit,
                OpAccess::ReadWrite | OpAccess::ReadCondWrite => {
                    effects.uses |= bit;
                    effects.writes |= bit;
                }
            }
        }
        // The kernel returns the flags in r11, but by its ABI r11 is undefined after a system call.
        if instruction.mnemonic() != Mnemonic::Syscall {
            effects.uses |= flag_bits(instruction.rflags_read());
        }
        effects.uses |= hidden_uses(instruction);
        effects.writes |= flag_bits(instruction.rflags_modified());
        if restores {
            effects.writes |= RegSet::XMMS;
        }
        if instruction.code() == Code::VEX_Vzeroupper {
            // Only the low halves are followed here, and they stay.
            effects.kills = effects.kills.without(RegSet::XMMS);
            effects.writes = effects.writes.without(RegSet::XMMS);
        }
        if !may_leave_flags(instruction) {
            effects.kills |= flag_bits(
                instruction.rflags_written()
                    | instruction.rflags_cleared()
                    | instruction.rflags_set(),
            );
            // The manuals leave this flag undefined, but no processor keeps the old value.
            if clears_auxiliary_carry(instruction) {
                effects.kills |= RegSet::AF;
            }
        }
        effects
    }
}

impl Default for EffectsOf {
    fn default() -> Self {
        Self::new()
    }
}

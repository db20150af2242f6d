//! Idioms of compilers around jumps through tables: single instructions by what they may be for.

use super::{Instruction, Mnemonic, OpKind, Register};

/// True if the instruction changes the register, which is a whole one of 64 bits.
pub fn writes(instruction: &Instruction, register: Register) -> bool {
    instruction.op_count() > 0
        && instruction.op0_kind() == OpKind::Register
        && instruction.op0_register().full_register() == register
        && !matches!(
            instruction.mnemonic(),
            Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Push
        )
}

/// True for an operand `[table + index*8]`, as in a program that is not
/// position independent.
pub fn is_absolute_entry(i: &Instruction) -> bool {
    let op = i.op_count().saturating_sub(1);
    i.op_count() > 0
        && i.op_kind(op) == OpKind::Memory
        && i.memory_base() == Register::None
        && i.memory_index() != Register::None
        && i.memory_index_scale() == 8
        && i.segment_prefix() == Register::None
}

/// True for `mov r64,[base + index]`, which may load an entry of 64 bits of a relative table.
pub fn loads_wide_entry(i: &Instruction) -> bool {
    i.mnemonic() == Mnemonic::Mov
        && i.op1_kind() == OpKind::Memory
        && matches!(i.memory_index_scale(), 1 | 8)
        && is_wide_entry(i)
}

/// True for `add r64,[base + index*8]`, which may add an entry of 64 bits of a relative table to the table's address,
/// as code of GHC does.
pub fn adds_wide_entry(i: &Instruction) -> bool {
    i.mnemonic() == Mnemonic::Add
        && i.op1_kind() == OpKind::Memory
        && i.memory_index_scale() == 8
        && is_wide_entry(i)
}

fn is_wide_entry(i: &Instruction) -> bool {
    i.op0_register().size() == 8
        && i.memory_base() != Register::None
        && i.memory_index() != Register::None
        && i.memory_displacement64() == 0
        && i.segment_prefix() == Register::None
}

/// True for a load of an entry of 32 bits.
pub fn loads_narrow_entry(i: &Instruction) -> bool {
    let narrow = match i.mnemonic() {
        Mnemonic::Movsxd => true,
        Mnemonic::Mov => i.op_count() == 2 && i.op0_register().size() == 4,
        _ => false,
    };
    narrow && i.op1_kind() == OpKind::Memory
}

/// True for `lea register, [rip + displacement]`, which may load a table's address.
pub fn is_address(i: &Instruction) -> bool {
    i.mnemonic() == Mnemonic::Lea && i.memory_base() == Register::RIP
}

/// The constant that is the second operand, as of `cmp`, `sub` and `and`.
pub fn constant(i: &Instruction) -> Option<u64> {
    (!matches!(i.op1_kind(), OpKind::Register | OpKind::Memory)).then(|| i.immediate(1))
}

/// The two registers that an instruction adds: `add a, b` or `lea r, [a+b]`.
pub fn sum_terms(i: &Instruction) -> Option<[Register; 2]> {
    match i.mnemonic() {
        Mnemonic::Add if i.op1_kind() == OpKind::Register => Some([
            i.op0_register().full_register(),
            i.op1_register().full_register(),
        ]),
        Mnemonic::Lea
            if i.memory_displacement64() == 0
                && i.memory_index_scale() == 1
                && i.memory_base() != Register::None
                && i.memory_index() != Register::None =>
        {
            Some([i.memory_base(), i.memory_index()])
        }
        _ => None,
    }
}

//! Comparison of a moved instruction with the original one.

use crate::x86::{ConditionCode, Instruction, Mnemonic, OpKind, Register};

fn same_operand(a: &Instruction, b: &Instruction, operand: u32) -> bool {
    let kind = a.op_kind(operand);
    if kind != b.op_kind(operand) {
        return false;
    }
    match kind {
        OpKind::Register => a.op_register(operand) == b.op_register(operand),
        OpKind::Memory => {
            a.memory_base() == b.memory_base()
                && a.memory_index() == b.memory_index()
                && a.memory_index_scale() == b.memory_index_scale()
                && a.memory_segment() == b.memory_segment()
        }
        OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64 => true,
        OpKind::MemorySegSI
        | OpKind::MemorySegESI
        | OpKind::MemorySegRSI
        | OpKind::MemorySegDI
        | OpKind::MemorySegEDI
        | OpKind::MemorySegRDI
        | OpKind::MemoryESDI
        | OpKind::MemoryESEDI
        | OpKind::MemoryESRDI => a.memory_segment() == b.memory_segment(),
        _ => a.try_immediate(operand).ok() == b.try_immediate(operand).ok(),
    }
}

/// True if all but the displacement of the memory operand is the same.
fn same_but_displacement(a: &Instruction, b: &Instruction) -> bool {
    a.code() == b.code()
        && a.op_count() == b.op_count()
        && (0..a.op_count()).all(|operand| same_operand(a, b, operand))
        && a.has_lock_prefix() == b.has_lock_prefix()
        && a.has_rep_prefix() == b.has_rep_prefix()
        && a.has_repne_prefix() == b.has_repne_prefix()
        && a.op_mask() == b.op_mask()
        && a.zeroing_masking() == b.zeroing_masking()
        && a.rounding_control() == b.rounding_control()
        && a.suppress_all_exceptions() == b.suppress_all_exceptions()
        && a.is_broadcast() == b.is_broadcast()
}

/// True if both do the same; a displacement relative to the instruction
/// pointer is compared as the address that it names.
pub fn is_same(a: &Instruction, b: &Instruction) -> bool {
    same_but_displacement(a, b) && a.memory_displacement64() == b.memory_displacement64()
}

/// The difference of the displacements, if that is the only difference.
pub fn differs_in_displacement(a: &Instruction, b: &Instruction) -> Option<u64> {
    (same_but_displacement(a, b) && !a.is_ip_rel_memory_operand()).then(|| {
        b.memory_displacement64()
            .wrapping_sub(a.memory_displacement64())
    })
}

fn is_counted(i: &Instruction) -> bool {
    i.is_jcx_short() || i.is_loop() || i.is_loopcc()
}

/// True if both are the same branch or call, apart from the target and the size of the
/// displacement.
pub fn is_same_branch(a: &Instruction, b: &Instruction) -> bool {
    if is_counted(a) || is_counted(b) {
        return a.code() == b.code();
    }
    a.mnemonic() == b.mnemonic() && a.op0_kind() == b.op0_kind()
}

/// True if one is taken exactly where the other is not.
pub fn is_opposite_branch(a: &Instruction, b: &Instruction) -> bool {
    a.is_jcc_short_or_near()
        && b.is_jcc_short_or_near()
        && a.condition_code() != ConditionCode::None
        && {
            let mut negated = *a;
            negated.negate_condition_code();
            negated.condition_code() == b.condition_code()
        }
}

/// `xchg [rsp], rax`.
pub fn is_exchange_of_rax_with_top(i: &Instruction) -> bool {
    i.mnemonic() == Mnemonic::Xchg
        && i.op0_kind() == OpKind::Memory
        && i.op1_kind() == OpKind::Register
        && i.op1_register() == Register::RAX
        && i.memory_base() == Register::RSP
        && i.memory_index() == Register::None
        && i.memory_displacement64() == 0
}

//! Comparison of a moved instruction with the original one.

use crate::x86::opcode::{CALL, ESCAPE, JCC, JCC_LAST, JCC_SHORT, JCC_SHORT_LAST, JMP, JMP_SHORT};
use crate::x86::{ConditionCode, Instruction, Mnemonic, OpKind, Register};

/// The address that the displacement at the offset `field` names, in the bytes of an instruction at `address`.
pub fn named_by(field: usize, bytes: &[u8], address: u64) -> Option<u64> {
    let displacement = i32::from_le_bytes(*bytes.get(field..)?.first_chunk()?);
    let next = address.wrapping_add(bytes.len() as u64);
    Some(next.wrapping_add_signed(displacement.into()))
}

/// True if an instruction and the one that other bytes begin with have the same bytes, but for the displacement at the
/// offset `field`, which names the same address in both.
pub fn is_same_but_for(field: usize, (then, old): (&[u8], u64), (now, new): (&[u8], u64)) -> bool {
    let Some(now) = now.get(..then.len()) else {
        return false;
    };
    let rest = field + size_of::<i32>();
    then[..field] == now[..field]
        && then[rest..] == now[rest..]
        && named_by(field, then, old) == named_by(field, now, new)
}

/// A direct branch or call without prefixes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Branch {
    /// The opcode of its short form; of a call the only one.
    pub kind: u8,
    /// Where it leads.
    pub target: u64,
    /// The address after it.
    pub next: u64,
}

impl Branch {
    /// Reads the branch with which bytes at an address begin. `None` for other instructions and for branches that look
    /// at rcx.
    pub fn read(bytes: &[u8], address: u64) -> Option<Self> {
        let (kind, field) = match bytes {
            [kind @ (JCC_SHORT..=JCC_SHORT_LAST | JMP_SHORT), d, ..] => {
                let next = address.wrapping_add(2);
                return Some(Self {
                    kind: *kind,
                    target: next.wrapping_add_signed((*d as i8).into()),
                    next,
                });
            }
            [JMP, ..] => (JMP_SHORT, 1),
            [CALL, ..] => (CALL, 1),
            [ESCAPE, opcode @ JCC..=JCC_LAST, ..] => (opcode - JCC + JCC_SHORT, 2),
            _ => return None,
        };
        let bytes = bytes.get(..field + size_of::<i32>())?;
        Some(Self {
            kind,
            target: named_by(field, bytes, address)?,
            next: address.wrapping_add(bytes.len() as u64),
        })
    }

    /// True if one of two branches is taken exactly where the other is not.
    pub fn is_opposite(&self, other: &Self) -> bool {
        (JCC_SHORT..=JCC_SHORT_LAST).contains(&self.kind) && self.kind ^ 1 == other.kind
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::x86::{decode_at, rip_field};

    /// Branches by their bytes are those that the decoder reads, for every opcode with and without prefixes.
    #[test]
    fn branches_are_what_the_decoder_reads() {
        let mut found = Vec::new();
        for prefix in [&[][..], &[0x0f], &[0x66], &[0xf2], &[0x48], &[0x67]] {
            for opcode in 0..=255 {
                let bytes = [prefix, &[opcode, 0xf0, 0x12, 0x34, 0x05, 0x90]].concat();
                let Some(branch) = Branch::read(&bytes, 0x1000) else {
                    continue;
                };
                let decoded = decode_at(&bytes, 0x1000).unwrap();
                let expected = (decoded.near_branch_target(), decoded.next_ip());
                assert_eq!((branch.target, branch.next), expected, "{bytes:x?}");
                found.push((branch, decoded));
            }
        }
        // 16 conditions and the jump in two sizes, and the call.
        assert_eq!(found.len(), 2 * 17 + 1);
        for (a, decoded_a) in &found {
            for (b, decoded_b) in &found {
                let is_same = is_same_branch(decoded_a, decoded_b);
                assert_eq!(a.kind == b.kind, is_same, "{decoded_a}, {decoded_b}");
                let is_opposite = is_opposite_branch(decoded_a, decoded_b);
                assert_eq!(a.is_opposite(b), is_opposite, "{decoded_a}, {decoded_b}");
            }
        }
    }

    #[test]
    fn displacements_must_name_the_same_address() {
        // cmp dword [rip + displacement], 7
        let compare = |displacement: i32, with: u8| {
            [&[0x83, 0x3d][..], &displacement.to_le_bytes(), &[with]].concat()
        };
        let then = compare(0x500, 7);
        let field = rip_field(&then).unwrap();
        let is_same = |now: &[u8], at| is_same_but_for(field, (&then, 0x1000), (now, at));
        assert!(is_same(&compare(0x300, 7), 0x1200));
        assert!(!is_same(&compare(0x500, 7), 0x1200));
        assert!(!is_same(&compare(0x301, 7), 0x1200));
        assert!(!is_same(&compare(0x300, 8), 0x1200));
        assert!(!is_same(&compare(0x300, 7)[..6], 0x1200));
        assert!(!is_same(
            &[&[0x66][..], &compare(0x2ff, 7)].concat(),
            0x1200
        ));
    }
}

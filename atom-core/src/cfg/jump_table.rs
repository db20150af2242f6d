//! Jump tables, recognised by their contents.
//!
//! A position-independent switch adds a 32-bit entry to the table's address.
//! The code names the table by `lea`, and the entries lead into the procedure,
//! which other data does not do by chance. So for a procedure with indirect
//! jumps each address that it computes is tried as a table: entries are taken
//! while they lead to plausible code of the procedure and until the next place
//! that any code refers to. The result may have more entries than the table
//! (an extra leader does no harm), never fewer.

use super::traverse::{Body, Ref, mark};
use crate::decode::decode_at;
use crate::image::Image;

/// A table found: its address and its entries' targets, in table order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Address of the first entry.
    pub table: u64,
    /// Targets in order.
    pub targets: Vec<u64>,
}

/// Tables of 32-bit entries relative to the table, for one procedure.
///
/// `data_refs` is the sorted list of all data addresses that the program's
/// code refers to; `is_fragment` tells whether an address lies in a part of a
/// procedure that the compiler put elsewhere.
pub fn find(
    image: &Image,
    body: &Body,
    data_refs: &[u64],
    is_fragment: &dyn Fn(u64) -> bool,
) -> Vec<Found> {
    let mut bases: Vec<u64> = body
        .refs
        .iter()
        .filter_map(|r| match r {
            Ref::Address(a) | Ref::Memory(a) if a % 4 == 0 => Some(*a),
            _ => None,
        })
        .collect();
    bases.sort_unstable();
    bases.dedup();
    let mut found = Vec::new();
    for table in bases {
        let next = data_refs.partition_point(|r| *r <= table);
        let limit = data_refs.get(next).copied().unwrap_or(u64::MAX);
        let Some(bytes) = image.rest_at(table) else {
            continue;
        };
        let mut targets = Vec::new();
        for (i, entry) in bytes.chunks_exact(4).enumerate() {
            if table + 4 * i as u64 + 4 > limit {
                break;
            }
            let offset = i32::from_le_bytes(entry.try_into().expect("four bytes"));
            let target = table.wrapping_add_signed(i64::from(offset));
            let plausible = if body.contains(target) {
                is_plausible(image, body, target)
            } else {
                // A case may lie in the cold part; the first decides whose table it is.
                !targets.is_empty() && is_fragment(target)
            };
            if !plausible {
                break;
            }
            targets.push(target);
        }
        if !targets.is_empty() {
            found.push(Found { table, targets });
        }
    }
    found
}

/// True if code could start at an address of the procedure: either it does,
/// or the bytes there decode until control ends or meets known code.
pub fn is_plausible(image: &Image, body: &Body, address: u64) -> bool {
    let marks = body.mark_at(address);
    if marks & mark::START != 0 {
        return true;
    }
    if marks & mark::INSIDE != 0 {
        return false;
    }
    let mut pc = address;
    for _ in 0..200 {
        if !body.contains(pc) {
            return pc == body.end;
        }
        let marks = body.mark_at(pc);
        if marks & mark::START != 0 {
            return true;
        }
        if marks & mark::INSIDE != 0 {
            return false;
        }
        let bytes = image
            .bytes_at(pc, (body.end - pc).min(15) as usize)
            .unwrap_or(&[]);
        let Some(instruction) = decode_at(bytes, pc) else {
            return false;
        };
        if crate::decode::flow_of(&instruction).ends_flow() {
            return true;
        }
        pc = instruction.next_ip();
    }
    true
}

/// How an indirect jump gets its target, as far as the code just before it tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JumpForm {
    /// Adds a loaded 32-bit entry to an address: a relative table.
    RelativeTable,
    /// Computes the target without loading it.
    Computed,
    /// Anything else: a pointer from memory or a register.
    Pointer,
}

/// Looks back from an indirect jump over the instructions before it.
pub fn form_of(image: &Image, body: &Body, jump: u64) -> JumpForm {
    use iced_x86::{Mnemonic, OpKind, Register};
    let Ok(at) = body
        .insts
        .binary_search_by_key(&((jump - image.base) as u32), |i| i.offset)
    else {
        return JumpForm::Pointer;
    };
    let decode = |i: usize| {
        let inst = body.insts[i];
        let pc = image.base + u64::from(inst.offset);
        decode_at(image.bytes_at(pc, usize::from(inst.len)).unwrap_or(&[]), pc)
    };
    let Some(jump) = decode(at) else {
        return JumpForm::Pointer;
    };
    if jump.op0_kind() != OpKind::Register {
        return JumpForm::Pointer;
    }
    let mut register = jump.op0_register().full_register();
    let mut added = false;
    for i in (at.saturating_sub(12)..at).rev() {
        let Some(instruction) = decode(i) else { break };
        if crate::decode::flow_of(&instruction).ends_block() {
            break;
        }
        if instruction.op_count() == 0
            || instruction.op0_kind() != OpKind::Register
            || instruction.op0_register().full_register() != register
        {
            // `add rax, rdx` where rdx was loaded: follow the load too.
            continue;
        }
        match instruction.mnemonic() {
            Mnemonic::Add => {
                added = true;
                if instruction.op1_kind() == OpKind::Memory {
                    return JumpForm::RelativeTable;
                }
                // Either operand may be the loaded entry; the other is the base.
                if instruction.op1_kind() == OpKind::Register {
                    let other = instruction.op1_register().full_register();
                    if loads_entry(&decode, i, at, other) {
                        return JumpForm::RelativeTable;
                    }
                }
            }
            Mnemonic::Movsxd | Mnemonic::Cdqe => {
                if instruction.op_count() > 1 && instruction.op1_kind() == OpKind::Register {
                    register = instruction.op1_register().full_register();
                    continue;
                }
                return if added {
                    JumpForm::RelativeTable
                } else {
                    JumpForm::Pointer
                };
            }
            Mnemonic::Mov => {
                if instruction.op1_kind() == OpKind::Memory {
                    let narrow = instruction.op0_register().size() == 4;
                    return if added && narrow {
                        JumpForm::RelativeTable
                    } else {
                        JumpForm::Pointer
                    };
                }
                if instruction.op1_kind() == OpKind::Register {
                    register = instruction.op1_register().full_register();
                    continue;
                }
                return JumpForm::Pointer;
            }
            Mnemonic::Lea => {
                let plain = instruction.memory_base() == Register::RIP;
                return if added || !plain {
                    JumpForm::Computed
                } else {
                    JumpForm::Pointer
                };
            }
            Mnemonic::Pop => return JumpForm::Pointer,
            _ => {}
        }
    }
    if added {
        JumpForm::RelativeTable
    } else {
        JumpForm::Pointer
    }
}

fn loads_entry(
    decode: &dyn Fn(usize) -> Option<iced_x86::Instruction>,
    before: usize,
    at: usize,
    register: iced_x86::Register,
) -> bool {
    use iced_x86::{Mnemonic, OpKind};
    (at.saturating_sub(14)..before).rev().any(|i| {
        decode(i).is_some_and(|d| {
            d.op_count() > 1
                && d.op0_kind() == OpKind::Register
                && d.op0_register().full_register() == register
                && d.op1_kind() == OpKind::Memory
                && matches!(d.mnemonic(), Mnemonic::Movsxd | Mnemonic::Mov)
        })
    })
}

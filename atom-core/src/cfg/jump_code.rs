//! Interprets the code before an indirect jump: from which table it takes the target, and how many
//! entries the table has.

use super::examined::{Bound, TableUse};
use super::jump_base;
use super::reaching::Reaching;
use super::traverse::Body;
use crate::image::{Image, decoded};
use crate::x86::jump_table::{
    adds_wide_entry, constant, is_absolute_entry, is_address, loads_narrow_entry, loads_wide_entry,
    sum_terms, writes,
};
use crate::x86::{Instruction, Mnemonic, OpKind, Register, decode_at, flow_of};

/// The instructions before `at`, nearest first, with their addresses.
fn before<'a>(
    image: &'a Image,
    body: &'a Body,
    at: usize,
) -> impl Iterator<Item = Instruction> + 'a {
    decoded(image, body.insts[..at].iter().rev())
}

fn index_of(image: &Image, body: &Body, pc: u64) -> Option<usize> {
    body.insts
        .binary_search_by_key(&((pc - image.base) as u32), |i| i.offset)
        .ok()
}

/// How a jump uses a table, if it uses one. `reaching` is the body's.
pub(super) fn dissect(
    image: &Image,
    body: &Body,
    jump: u64,
    reaching: &Reaching<'_>,
) -> Option<TableUse> {
    let at = index_of(image, body, jump)?;
    let instruction = decode_at(image.bytes_at(jump, usize::from(body.insts[at].len))?, jump)?;
    if is_absolute_entry(&instruction) {
        return Some(of_addresses(image, body, at, &instruction));
    }
    if instruction.op0_kind() != OpKind::Register {
        return None;
    }
    // The sum: add target, other.
    let target = instruction.op0_register().full_register();
    let mut terms = None;
    let mut load = None;
    for i in before(image, body, at).take(16) {
        if flow_of(&i).ends_flow() {
            break;
        }
        match terms {
            None => {
                if writes(&i, target) {
                    if i.mnemonic() == Mnemonic::Mov && is_absolute_entry(&i) {
                        let load_at = index_of(image, body, i.ip())?;
                        return Some(of_addresses(image, body, load_at, &i));
                    }
                    if adds_wide_entry(&i) {
                        load = Some(i);
                        break;
                    }
                    terms = Some(sum_terms(&i)?);
                }
            }
            Some(pair) => {
                if !pair.iter().any(|r| writes(&i, *r)) {
                    continue;
                }
                if loads_narrow_entry(&i) || loads_wide_entry(&i) {
                    load = Some(i);
                    break;
                }
                // The table's address, or an extension of the entry in place.
                let is_base = is_address(&i);
                if !is_base && i.mnemonic() != Mnemonic::Cdqe {
                    return None;
                }
            }
        }
    }
    let load = load?;
    let load_at = index_of(image, body, load.ip())?;
    let registers = [load.memory_base(), load.memory_index()];
    // With a scaled index the base is the table; else either may be.
    let adds = adds_wide_entry(&load);
    let is_wide = adds || loads_wide_entry(&load);
    let entry_size = if is_wide { 8 } else { 4 };
    let scaled = load.memory_index_scale() == u32::from(entry_size);
    let candidates = &registers[..if scaled { 1 } else { 2 }];
    let table = candidates
        .iter()
        .filter(|r| **r != Register::None)
        .find_map(|r| reaching.address_at(load_at, r.full_register()));
    // What is added must be the table's address too, or certainly a label's.
    let by_label = jump_base::find(image, body, at, target).filter(|t| t.load == load.ip());
    if let Some(found) = by_label {
        return Some(TableUse {
            load: load.ip(),
            table: Some(found.table),
            entry_size,
            relative_to: Some(found.label),
            bytes: found.bytes,
            bound: bound_before(image, body, load_at, &load),
        });
    }
    let loaded = load.op0_register().full_register();
    let (base, added_at) = if adds {
        (target, load_at)
    } else {
        (terms?.into_iter().find(|r| *r != loaded)?, at)
    };
    let table = table.filter(|table| {
        base == load.memory_base() || reaching.address_at(added_at, base) == Some(*table)
    });
    Some(TableUse {
        load: load.ip(),
        table,
        entry_size,
        relative_to: table,
        bytes: None,
        bound: bound_before(image, body, load_at, &load),
    })
}

/// A table of addresses, from which the instruction with the number `at` loads.
fn of_addresses(image: &Image, body: &Body, at: usize, load: &Instruction) -> TableUse {
    TableUse {
        load: load.ip(),
        table: Some(load.memory_displacement64()),
        entry_size: 8,
        relative_to: None,
        bytes: None,
        bound: bound_before(image, body, at, load),
    }
}

/// The number of entries by the comparison that guards the jump:
/// `cmp index, n; ja default` means n + 1 entries.
///
/// Only a comparison of the index itself counts, or of the same extension of the same register
/// (`movzx eax,di; cmp eax,n; ja default; movzx eax,di`). Going back from the load, the
/// index is followed through copies, extensions and loads.
fn bound_before(image: &Image, body: &Body, at: usize, load: &Instruction) -> Option<Bound> {
    let exact = |count: u64| {
        let count = u32::try_from(count).ok().filter(|n| *n <= 1 << 20)?;
        Some(Bound::Exact(count))
    };
    let mut index = load.memory_index().full_register();
    let mut memory = None;
    let mut above = None;
    let mut compared = None;
    // The last instruction that made the index from a register; what was compared if that was another register.
    let mut copy: Option<Instruction> = None;
    let mut twin: Option<(Register, u64)> = None;
    for i in before(image, body, at).take(16) {
        match i.mnemonic() {
            _ if twin.is_some_and(|(register, _)| writes(&i, register)) => {
                let is_same = copy.is_some_and(|c| makes_the_same(&c, &i));
                return is_same.then(|| exact(twin?.1)).flatten();
            }
            Mnemonic::Ja => above = Some(1),
            Mnemonic::Jae => above = Some(0),
            Mnemonic::Cmp if above.is_some() => {
                let is_index = match i.op0_kind() {
                    OpKind::Register => i.op0_register().full_register() == index,
                    OpKind::Memory => memory == Some(memory_operand(&i)),
                    _ => false,
                };
                let count = constant(&i)?.checked_add(above?)?;
                if is_index {
                    return exact(count);
                }
                if i.op0_kind() != OpKind::Register || copy.is_none() {
                    return None;
                }
                twin = Some((i.op0_register().full_register(), count));
            }
            // A copy of the index is stored, then what is left of it compared.
            Mnemonic::Sub if above.is_some() && compared.is_none() => {
                if let (OpKind::Register, Some(n)) = (i.op0_kind(), constant(&i)) {
                    compared = Some((i.op0_register().full_register(), n));
                }
            }
            Mnemonic::Mov if i.op0_kind() == OpKind::Memory && compared.is_some() => {
                let (register, n) = compared?;
                if memory == Some(memory_operand(&i))
                    && i.op1_register().full_register() == register
                {
                    let count = n.checked_add(above?)?;
                    return exact(count);
                }
            }
            _ if flow_of(&i).ends_block() => return None,
            // and index, 2^k - 1
            Mnemonic::And if writes(&i, index) => {
                let mask = constant(&i)?;
                let count = u32::try_from(mask.checked_add(1)?).ok()?;
                return (count.is_power_of_two() && count <= 256).then_some(Bound::AtMost(count));
            }
            _ if writes(&i, index) && twin.is_some() => return None,
            _ if writes(&i, index) => match (i.mnemonic(), i.op_count()) {
                (Mnemonic::Mov | Mnemonic::Movzx | Mnemonic::Movsxd, 2) => match i.op1_kind() {
                    OpKind::Register => {
                        index = i.op1_register().full_register();
                        copy = Some(i);
                    }
                    OpKind::Memory => {
                        memory = Some(memory_operand(&i));
                        index = Register::None;
                    }
                    _ => return None,
                },
                // lea rdx,[rax*4] before an unscaled load
                (Mnemonic::Lea, 2) if i.memory_base() == Register::None => {
                    index = i.memory_index().full_register();
                }
                _ => return None,
            },
            _ => {}
        }
    }
    None
}

/// True if two instructions make the same value from the same register.
fn makes_the_same(a: &Instruction, b: &Instruction) -> bool {
    a.code() == b.code()
        && a.op1_kind() == OpKind::Register
        && b.op1_kind() == OpKind::Register
        && a.op1_register() == b.op1_register()
}

/// A memory operand, but for its size.
#[derive(PartialEq)]
struct MemoryOperand {
    base: Register,
    index: Register,
    displacement: u64,
}

fn memory_operand(i: &Instruction) -> MemoryOperand {
    MemoryOperand {
        base: i.memory_base(),
        index: i.memory_index(),
        displacement: i.memory_displacement64(),
    }
}

/// Origin of an indirect jump's target, as far as the code before the jump tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JumpForm {
    /// Adds a loaded entry to an address: a relative table.
    RelativeTable,
    /// Computes the target without loading it.
    Computed,
    /// Anything else: a pointer from memory or a register.
    Pointer,
}

/// Finds the origin of an indirect jump's target in the instructions before the jump.
pub fn form_of(image: &Image, body: &Body, jump: u64) -> JumpForm {
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
        if flow_of(&instruction).ends_block() {
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
                if adds_wide_entry(&instruction) {
                    return JumpForm::RelativeTable;
                }
                if instruction.op1_kind() == OpKind::Memory {
                    // The load bias added to a stored offset: a pointer in two parts.
                    return JumpForm::Pointer;
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
                    let is_entry =
                        instruction.op0_register().size() == 4 || loads_wide_entry(&instruction);
                    return if added && is_entry {
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
                let is_sum = sum_terms(&instruction)
                    .is_some_and(|terms| terms.iter().any(|r| loads_entry(&decode, i, at, *r)));
                if is_sum {
                    return JumpForm::RelativeTable;
                }
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
    decode: &dyn Fn(usize) -> Option<crate::x86::Instruction>,
    before: usize,
    at: usize,
    register: crate::x86::Register,
) -> bool {
    (at.saturating_sub(14)..before).rev().any(|i| {
        decode(i).is_some_and(|d| {
            d.op_count() > 1
                && d.op0_kind() == OpKind::Register
                && d.op0_register().full_register() == register
                && d.op1_kind() == OpKind::Memory
                && (d.mnemonic() == Mnemonic::Movsxd
                    || d.mnemonic() == Mnemonic::Mov && d.op0_register().size() == 4)
        })
    })
}

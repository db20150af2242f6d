//! Groups of references that one look-up answers.
//!
//! Consecutive references whose addresses are computed from the same registers are often close
//! together: pushes at a procedure's start, fields of a structure. If all bytes from the lowest to
//! the highest of them are in the line (or page) that was used last, none of them changes the state
//! of the simulation, so one comparison is enough. Otherwise the references are made one by one, in order.
//!
//! The look-up is made at the instruction with the lowest reference. Instructions with other references of
//! the group may run before or after it. The result is the same, because no other instruction in
//! between refers to memory.

use atom_abi::host::Reg;

use crate::calls::params::Array;
use crate::data::counters::Counter;
use crate::navigation::handle::{Block, Inst};
use crate::navigation::operands::{MemoryAccess, Operand};
use crate::navigation::references::{References, Times};

crate::plain_data! {
    /// One reference of a group.
    #[derive(PartialEq, Eq, Debug)]
    pub struct Member {
        /// Offset in bytes from the lowest reference of the group.
        pub offset: u16,
        /// In bytes.
        pub size: u8,
        /// Number of rows by which its counter follows the counter of the first reference.
        pub row: u8,
    }
}

/// Largest number of references in a group.
const MOST_MEMBERS: usize = 32;
/// Largest extent of a group in bytes; an offset in it fits a [`Member`].
const MOST_BYTES: u64 = 1 << 12;
/// Largest size of a reference of a group in bytes.
const MOST_SIZE: u32 = 64;
/// Number of consecutive counters that a group may use; an offset among them fits a [`Member`].
const MOST_ROWS: usize = 1 << 8;

/// Registers from which an address is computed, base and index, and the scale of the index.
type Key = (Option<Reg>, Option<Reg>, u32);

/// A reference whose address is a constant plus the values of registers.
#[derive(Clone, Copy)]
struct Relative {
    key: Key,
    /// The constant. For rsp it counts from the value at the block's start.
    at: i64,
    /// In bytes.
    size: u32,
}

/// References that are looked up together, or a single one.
pub struct Group {
    /// The lowest reference: number of its instruction in the list, and operand.
    pub lowest: (usize, u8),
    /// Number of the first reference's instruction in the list.
    pub first: usize,
    /// Number of bytes from the start of the lowest reference to the end of the highest.
    pub extent: u64,
    /// All references in order; empty if there is only one.
    pub members: Vec<Member>,
}

impl Group {
    fn alone(inst: usize, operand: u8) -> Self {
        Self {
            lowest: (inst, operand),
            first: inst,
            extent: 0,
            members: Vec::new(),
        }
    }
}

/// A group to which references are still added.
#[derive(Default)]
struct Open {
    /// Number of the instruction, operand and address of each reference.
    references: Vec<(usize, u8, Relative)>,
}

impl Open {
    /// Start of the lowest and end of the highest reference.
    fn bounds(&self) -> (i64, i64) {
        let all = || self.references.iter().map(|r| r.2);
        let low = all().map(|r| r.at).min().unwrap_or(0);
        let high = all().map(|r| r.at + i64::from(r.size)).max();
        (low, high.unwrap_or(0))
    }

    /// Whether a reference of an instruction fits the group. `alignment` is the procedure's
    /// [`stack_alignment`](crate::navigation::handle::Proc::stack_alignment).
    fn takes(&self, inst: usize, reference: Relative, (unit, alignment): (u64, u64)) -> bool {
        let Some((first, _, other)) = self.references.first() else {
            return true;
        };
        let (low, high) = self.bounds();
        let low = low.min(reference.at);
        let high = high.max(reference.at + i64::from(reference.size));
        // Structures of at most 64 bytes are usually aligned to their size. So a small unit that starts at a
        // multiple of its size seldom crosses the border of a line. A large unit seldom does anywhere.
        let is_close = match unit {
            0..=64 => {
                let unit = match reference.key.0 {
                    Some(Reg::Rsp) => unit.min(alignment) as i64,
                    _ => unit as i64,
                };
                // Half a line of one byte is nothing.
                let unit = unit.max(1);
                low.div_euclid(unit) == (high - 1).div_euclid(unit)
            }
            _ => high - low <= unit as i64,
        };
        other.key == reference.key
            && is_close
            && self.references.len() < MOST_MEMBERS
            && inst - first < MOST_ROWS
    }

    fn close(&mut self, groups: &mut Vec<Group>) {
        let Some(&(first, ..)) = self.references.first() else {
            return;
        };
        let (low, high) = self.bounds();
        let references = std::mem::take(&mut self.references);
        let member = |(inst, _, reference): &(usize, u8, Relative)| Member {
            offset: (reference.at - low) as u16,
            size: reference.size as u8,
            row: (inst - first) as u8,
        };
        let lowest = references.iter().find(|r| r.2.at == low);
        groups.push(Group {
            lowest: lowest.map_or((first, 0), |r| (r.0, r.1)),
            first,
            extent: (high - low) as u64,
            members: match references.len() {
                1 => Vec::new(),
                _ => references.iter().map(member).collect(),
            },
        });
    }
}

/// Groups of the references of one block, which are given by instruction, in order. A group has at most
/// `unit` bytes. Repeated references of one instruction are in no group.
pub fn groups(block: &Block<'_>, insts: &[(Inst<'_>, References)], unit: u64) -> Vec<Group> {
    let unit = unit.min(MOST_BYTES);
    let mut found = Vec::new();
    let mut open = Open::default();
    let alignment = block.proc().stack_alignment();
    // By the System V ABI rsp is a multiple of 16 before a call, so at a procedure's start it is 8 below one.
    let is_start = block.pc() == block.proc().pc();
    let mut rsp: i64 = if is_start { -8 } else { 0 };
    let mut list = insts.iter().enumerate().peekable();
    for inst in block.insts() {
        if let Some((number, (_, references))) =
            list.next_if(|(_, (next, _))| next.index() == inst.index())
        {
            let accesses = inst.memory();
            let is_once = references.times == Times::Once;
            if !is_once {
                open.close(&mut found);
            }
            for &operand in references.operands.iter().filter(|_| is_once) {
                let access = accesses.get(usize::from(operand));
                let relative = access.and_then(|a| relative(a, rsp));
                if relative
                    .is_none_or(|reference| !open.takes(number, reference, (unit, alignment)))
                {
                    open.close(&mut found);
                }
                match relative {
                    Some(reference) => open.references.push((number, operand, reference)),
                    None => found.push(Group::alone(number, operand)),
                }
            }
        }
        let updated = inst.reg_usage().updated;
        let moved = if updated.contains(Reg::Rsp) {
            stack_change(&inst)
        } else {
            Some(0)
        };
        rsp += moved.unwrap_or(0);
        let changed = |reg: Option<Reg>| match reg {
            Some(Reg::Rsp) => moved.is_none(),
            reg => reg.is_some_and(|r| updated.contains(r)),
        };
        if let Some((.., reference)) = open.references.first()
            && (changed(reference.key.0) || changed(reference.key.1))
        {
            open.close(&mut found);
        }
    }
    open.close(&mut found);
    found
}

/// An access as a reference of a group; `None` for elements of vectors, bit strings and unusual addressing.
/// `rsp` is the current value of rsp, counted from the value at the block's start.
fn relative(access: &MemoryAccess, rsp: i64) -> Option<Relative> {
    let is_plain = access.segment.is_none()
        && access.count == 1
        && access.bit_offset.is_none()
        && !access.has_8_bit_index()
        && !access.has_32_bit_address()
        && (1..=MOST_SIZE).contains(&access.size);
    let (key, mut at) = match access.address {
        Some(address) => ((None, None, 1), address as i64),
        None => (
            (access.base, access.index, access.scale),
            access.displacement,
        ),
    };
    if access.base == Some(Reg::Rsp) {
        at += rsp;
    }
    is_plain.then_some(Relative {
        key,
        at,
        size: access.size,
    })
}

/// Number of bytes that an instruction adds to rsp, if it is certain.
pub(super) fn stack_change(inst: &Inst<'_>) -> Option<i64> {
    let operands = inst.operands();
    let is_rsp = |o: &Operand| {
        matches!(
            o,
            Operand::Register {
                reg: Some(Reg::Rsp),
                size: 8,
                ..
            }
        )
    };
    match (inst.mnemonic(), &operands[..]) {
        ("push", [_]) | ("pushfq", _) => Some(-8).filter(|_| is_word(inst)),
        ("pop", [to]) if !is_rsp(to) => Some(8).filter(|_| is_word(inst)),
        ("sub", [to, Operand::Constant(n)]) if is_rsp(to) => Some((*n as i64).wrapping_neg()),
        ("add", [to, Operand::Constant(n)]) if is_rsp(to) => Some(*n as i64),
        _ => None,
    }
}

/// Whether an instruction pushes or pops 8 bytes.
fn is_word(inst: &Inst<'_>) -> bool {
    let accesses = inst.memory();
    let mut stack = accesses.iter().filter(|a| a.is_implicit());
    stack.next().is_some_and(|a| a.size == 8) && stack.next().is_none()
}

/// Analysis side: makes the references of a group in order. `address` is the lowest reference's, `count`
/// the counter of the first. `access` gets address, size and counter of each.
pub fn each<const N: usize>(
    address: u64,
    members: Array<Member>,
    count: Counter<N>,
    mut access: impl FnMut(u64, u64, Counter<N>),
) {
    for member in members.iter() {
        let count = count.row_after(member.row.into());
        let address = address.wrapping_add(member.offset.into());
        access(address, member.size.into(), count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STACK: Key = (Some(Reg::Rsp), None, 1);

    /// Groups of references with these keys, constants and sizes, each of another instruction.
    fn of(references: &[(Key, i64, u32)], unit: u64, alignment: u64) -> Vec<Group> {
        let (mut open, mut found) = (Open::default(), Vec::new());
        for (number, &(key, at, size)) in references.iter().enumerate() {
            let reference = Relative { key, at, size };
            if !open.takes(number, reference, (unit, alignment)) {
                open.close(&mut found);
            }
            open.references.push((number, 0, reference));
        }
        open.close(&mut found);
        found
    }

    #[test]
    fn pushes_are_one_group_from_the_lowest_on() {
        let pushes = [(STACK, -8, 8), (STACK, -16, 8), (STACK, -24, 8)];
        let [group] = &of(&pushes, 512, 16)[..] else {
            panic!("more than one group");
        };
        assert_eq!((group.first, group.lowest), (0, (2, 0)));
        assert_eq!(group.extent, 24);
        let member = |offset, row| Member {
            offset,
            size: 8,
            row,
        };
        assert_eq!(group.members, [member(16, 0), member(8, 1), member(0, 2)]);
    }

    #[test]
    fn a_small_unit_does_not_cross_its_border() {
        let pushes = [(STACK, -16, 8), (STACK, -24, 8), (STACK, -32, 8)];
        let sizes = |alignment| -> Vec<_> {
            let groups = of(&pushes, 16, alignment);
            groups.iter().map(|g| g.members.len().max(1)).collect()
        };
        assert_eq!(sizes(16), [1, 2]);
        assert_eq!(sizes(8), [1, 1, 1]);
    }

    #[test]
    fn other_registers_and_far_ones_are_others() {
        let heap = (Some(Reg::Rdi), None, 1);
        assert_eq!(
            of(&[(STACK, 0, 8), (heap, 8, 8), (STACK, 8, 8)], 512, 16).len(),
            3
        );
        let far = of(&[(heap, 0, 8), (heap, 600, 8)], 512, 16);
        assert!(far.len() == 2 && far.iter().all(|g| g.members.is_empty()));
    }
}

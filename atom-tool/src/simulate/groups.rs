//! References that one look-up answers.
//!
//! References that follow each other, with no other in between, and whose addresses have the
//! same registers in them, lie close together: what a procedure pushes, the fields of a
//! structure. If all that lies between the lowest and the highest of them is in the line (or
//! page) that was used last, none of them changes anything, so that one comparison is enough.
//! Where it is not, the references are made one by one, in order.
//!
//! The look-up is made at the instruction whose reference is the lowest. Another may have run
//! before it or run later; as nothing else refers to memory meanwhile, that is the same.

use atom_abi::host::Reg;

use crate::counters::Counter;
use crate::handle::{Block, Inst};
use crate::operands::{MemoryAccess, Operand};
use crate::params::Array;
use crate::references::{References, Times};

/// One reference of a group, packed: offset from the lowest, size, and by how many rows its
/// counter follows the first reference's.
pub type Part = u32;

/// References of a group; so many rows and bytes fit a [`Part`].
const MOST_PARTS: usize = 32;
/// The largest extent.
const MOST_BYTES: u64 = 1 << 12;

/// Registers that an address is made of, and the scale of the second.
type Key = (Option<Reg>, Option<Reg>, u32);

/// A reference whose address is known but for registers.
#[derive(Clone, Copy)]
struct Place {
    key: Key,
    /// What is added to the registers as they were at the block's start, for rsp.
    at: i64,
    size: u32,
}

/// References that belong together, or one.
pub struct Group {
    /// Where the lowest is: instruction by number in the list, and operand.
    pub lowest: (usize, u8),
    /// The instruction of the first.
    pub first: usize,
    /// Bytes from the lowest to the end of the highest.
    pub extent: u64,
    /// All, in order; empty if there is only one.
    pub parts: Vec<Part>,
}

impl Group {
    fn alone(inst: usize, operand: u8) -> Self {
        Self {
            lowest: (inst, operand),
            first: inst,
            extent: 0,
            parts: Vec::new(),
        }
    }
}

/// A group that is being made.
#[derive(Default)]
struct Open {
    members: Vec<(usize, u8, Place)>,
}

impl Open {
    fn bounds(&self) -> (i64, i64) {
        let places = || self.members.iter().map(|m| m.2);
        let low = places().map(|p| p.at).min().unwrap_or(0);
        let high = places().map(|p| p.at + i64::from(p.size)).max();
        (low, high.unwrap_or(0))
    }

    fn takes(&self, inst: usize, place: Place, unit: u64) -> bool {
        let Some((first, _, other)) = self.members.first() else {
            return true;
        };
        let (low, high) = self.bounds();
        let low = low.min(place.at);
        let high = high.max(place.at + i64::from(place.size));
        // What is used as a small unit is aligned to it, as a rule, so that it has no
        // lines' border in it; large ones seldom have.
        let is_close = match unit {
            0..=64 => low.div_euclid(unit as i64) == (high - 1).div_euclid(unit as i64),
            _ => high - low <= unit as i64,
        };
        other.key == place.key
            && is_close
            && self.members.len() < MOST_PARTS
            && inst - first < 1 << 8
    }

    fn close(&mut self, groups: &mut Vec<Group>) {
        let members = std::mem::take(&mut self.members);
        let Some(&(first, ..)) = members.first() else {
            return;
        };
        let (low, high) = Self::bounds(&Self {
            members: members.clone(),
        });
        let part = |m: &(usize, u8, Place)| {
            (m.2.at - low) as u32 | m.2.size << 12 | ((m.0 - first) as u32) << 24
        };
        let lowest = members.iter().find(|m| m.2.at == low);
        groups.push(Group {
            lowest: lowest.map_or((first, 0), |m| (m.0, m.1)),
            first,
            extent: (high - low) as u64,
            parts: match members.len() {
                1 => Vec::new(),
                _ => members.iter().map(part).collect(),
            },
        });
    }
}

/// Groups of the references of one block, which are given by instruction, in order; `unit`
/// bytes may be one group. References of instructions that repeat theirs are in none.
pub fn groups(block: &Block<'_>, insts: &[(Inst<'_>, References)], unit: u64) -> Vec<Group> {
    let unit = unit.min(MOST_BYTES);
    let mut found = Vec::new();
    let mut open = Open::default();
    // By the ABI rsp is a multiple of 16 at calls.
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
                let place = access.and_then(|a| place(a, rsp));
                if place.is_none_or(|place| !open.takes(number, place, unit)) {
                    open.close(&mut found);
                }
                match place {
                    Some(place) => open.members.push((number, operand, place)),
                    None => found.push(Group::alone(number, operand)),
                }
            }
        }
        let updated = inst.reg_usage().updated;
        let moved = match updated.contains(Reg::Rsp) {
            true => stack_change(&inst),
            false => Some(0),
        };
        rsp += moved.unwrap_or(0);
        let changed = |reg: Option<Reg>| match reg {
            Some(Reg::Rsp) => moved.is_none(),
            reg => reg.is_some_and(|r| updated.contains(r)),
        };
        if let Some((.., place)) = open.members.first()
            && (changed(place.key.0) || changed(place.key.1))
        {
            open.close(&mut found);
        }
    }
    open.close(&mut found);
    found
}

/// A reference as a place, if it is a plain one.
fn place(access: &MemoryAccess, rsp: i64) -> Option<Place> {
    let is_plain = access.segment.is_none()
        && access.count == 1
        && access.bit_offset.is_none()
        && !access.has_8_bit_index()
        && !access.has_32_bit_address()
        && (1..=64).contains(&access.size);
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
    is_plain.then_some(Place {
        key,
        at,
        size: access.size,
    })
}

/// By how much an instruction moves rsp, if that is certain.
fn stack_change(inst: &Inst<'_>) -> Option<i64> {
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

/// Whether what an instruction pushes or pops has 8 bytes.
fn is_word(inst: &Inst<'_>) -> bool {
    let accesses = inst.memory();
    let mut stack = accesses.iter().filter(|a| a.is_implicit());
    stack.next().is_some_and(|a| a.size == 8) && stack.next().is_none()
}

/// Analysis side: makes the references of a group in order. `access` gets an address, the
/// size and the counter.
pub fn each(
    address: u64,
    parts: Array<Part>,
    count: Counter<2>,
    mut access: impl FnMut(u64, u64, Counter<2>),
) {
    for part in parts.iter() {
        let (offset, size) = (part & 0xfff, part >> 12 & 0xfff);
        let count = count.row_after((part >> 24) as usize);
        access(address.wrapping_add(offset.into()), size.into(), count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STACK: Key = (Some(Reg::Rsp), None, 1);

    /// Groups of references with these keys and places, each of another instruction.
    fn of(places: &[(Key, i64, u32)], unit: u64) -> Vec<Group> {
        let (mut open, mut found) = (Open::default(), Vec::new());
        for (number, &(key, at, size)) in places.iter().enumerate() {
            let place = Place { key, at, size };
            if !open.takes(number, place, unit) {
                open.close(&mut found);
            }
            open.members.push((number, 0, place));
        }
        open.close(&mut found);
        found
    }

    #[test]
    fn pushes_are_one_group_from_the_lowest_on() {
        let pushes = [(STACK, -8, 8), (STACK, -16, 8), (STACK, -24, 8)];
        let [group] = &of(&pushes, 512)[..] else {
            panic!("more than one group");
        };
        assert_eq!((group.first, group.lowest), (0, (2, 0)));
        assert_eq!(group.extent, 24);
        // Offset, size and row of each, in order.
        let part = |offset: u32, row: u32| offset | 8 << 12 | row << 24;
        assert_eq!(group.parts, [part(16, 0), part(8, 1), part(0, 2)]);
    }

    #[test]
    fn a_small_unit_does_not_cross_its_border() {
        let pushes = [(STACK, -16, 8), (STACK, -24, 8), (STACK, -32, 8)];
        let sizes: Vec<_> = of(&pushes, 16).iter().map(|g| g.extent).collect();
        assert_eq!(sizes, [8, 16]);
    }

    #[test]
    fn other_registers_and_far_ones_are_others() {
        let heap = (Some(Reg::Rdi), None, 1);
        assert_eq!(
            of(&[(STACK, 0, 8), (heap, 8, 8), (STACK, 8, 8)], 512).len(),
            3
        );
        let far = of(&[(heap, 0, 8), (heap, 600, 8)], 512);
        assert!(far.len() == 2 && far.iter().all(|g| g.parts.is_empty()));
    }
}

//! The address that a register holds at an instruction, by all ways that lead there.
//!
//! Compilers put the address of a jump table into a register once, far before the jump: in front of a loop, say. Where a
//! procedure has several tables, the nearest such instruction in front of the jump may be another table's, since code that
//! is near need not come before.

use std::collections::BTreeSet;

use rustc_hash::{FxHashMap, FxHashSet};

use super::jump_base::may_change;
use super::traverse::Body;
use crate::image::{Image, decoded};
use crate::x86::abi::CALLEE_SAVED;
use crate::x86::jump_table::{is_address, writes};
use crate::x86::{ControlFlow, Instruction, Register, decode_at, direct_target};

/// The address that `lea register, [rip + ...]` has put into a register before instruction number `at`; `None` if there is no
/// such instruction, or if ways with several addresses lead there.
pub(super) fn address_at(image: &Image, body: &Body, at: usize, register: Register) -> Option<u64> {
    let computes = |i: &Instruction| is_address(i) && writes(i, register);
    let relative = body.insts.iter().filter(|i| i.rip_relative);
    let all = decoded(image, relative).filter(computes);
    let all: Vec<(u64, u64)> = all.map(|i| (i.ip(), i.memory_displacement64())).collect();
    let limit = image.base + u64::from(body.insts[at].offset);
    let nearest = all.iter().rev().find(|(pc, _)| *pc < limit);
    let nearest = nearest.map(|(_, address)| *address);
    let first = all.first()?.1;
    if all.iter().all(|(_, address)| *address == first) {
        return nearest;
    }
    let ways = Ways::new(image, body);
    for through_tables in [false, true] {
        let found = ways.addresses(at, register, through_tables);
        match found.len() {
            0 => {}
            1 => return found.first().copied(),
            _ => return None,
        }
    }
    nearest
}

/// How control comes to the instructions of a procedure.
struct Ways<'a> {
    image: &'a Image,
    body: &'a Body,
    /// Numbers of the jumps that lead to an address.
    jumps: FxHashMap<u64, Vec<usize>>,
}

impl<'a> Ways<'a> {
    fn new(image: &'a Image, body: &'a Body) -> Self {
        let mut jumps: FxHashMap<u64, Vec<usize>> = FxHashMap::default();
        let is_jump = |flow| matches!(flow, ControlFlow::Jump | ControlFlow::CondJump);
        for (number, inst) in body
            .insts
            .iter()
            .enumerate()
            .filter(|(_, i)| is_jump(i.flow))
        {
            let pc = image.base + u64::from(inst.offset);
            let instruction = image.rest_at(pc).and_then(|bytes| decode_at(bytes, pc));
            if let Some(target) = instruction.and_then(|i| direct_target(&i)) {
                jumps.entry(target).or_default().push(number);
            }
        }
        Self { image, body, jumps }
    }

    /// Numbers of the instructions that run right before number `at`. With `through_tables` each indirect jump may lead to an
    /// instruction to which nothing else does.
    fn before(&self, at: usize, through_tables: bool) -> Vec<usize> {
        let insts = &self.body.insts;
        let inst = &insts[at];
        let mut found = Vec::new();
        if let Some(number) = at.checked_sub(1) {
            let previous = &insts[number];
            let adjoins = previous.offset + u32::from(previous.len) == inst.offset;
            if adjoins && !previous.flow.ends_flow() {
                found.push(number);
            }
        }
        let pc = self.image.base + u64::from(inst.offset);
        found.extend(self.jumps.get(&pc).into_iter().flatten());
        if found.is_empty() && through_tables {
            let base = self.image.base;
            let number = |pc: &u64| {
                let offset = (pc - base) as u32;
                insts.binary_search_by_key(&offset, |i| i.offset).ok()
            };
            found.extend(self.body.indirect_jumps.iter().filter_map(number));
        }
        found
    }

    /// The addresses that the register may hold before instruction number `at`, as far as they were computed in the procedure.
    fn addresses(&self, at: usize, register: Register, through_tables: bool) -> BTreeSet<u64> {
        let is_kept = CALLEE_SAVED & 1 << register.number() != 0;
        let (mut found, mut seen, mut work) = (BTreeSet::new(), FxHashSet::default(), vec![at]);
        while let Some(at) = work.pop() {
            for number in self.before(at, through_tables) {
                if !seen.insert(number) {
                    continue;
                }
                let inst = &self.body.insts[number];
                let pc = self.image.base + u64::from(inst.offset);
                let decoded = self
                    .image
                    .rest_at(pc)
                    .and_then(|bytes| decode_at(bytes, pc));
                let Some(i) = decoded else { continue };
                let is_call = matches!(inst.flow, ControlFlow::Call | ControlFlow::IndirectCall);
                if is_address(&i) && writes(&i, register) {
                    found.insert(i.memory_displacement64());
                } else if !may_change(&i, register) && (is_kept || !is_call) {
                    work.push(number);
                }
            }
        }
        found
    }
}

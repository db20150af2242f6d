//! The address that a register holds at an instruction, by all ways that lead there.
//!
//! Compilers put the address of a jump table into a register once, far before the jump: in front of a loop, say. Where a
//! procedure has several tables, the nearest such instruction in front of the jump may be another table's, since code that
//! is near need not come before.

use std::cell::OnceCell;
use std::collections::BTreeSet;

use rustc_hash::FxHashSet;

use super::jump_base::{address_in_block, may_change};
use super::traverse::Body;
use crate::image::{Image, ImageDecoder, decoded};
use crate::x86::abi::CALLEE_SAVED;
use crate::x86::jump_table::{is_address, writes};
use crate::x86::{ControlFlow, Instruction, InstructionInfoFactory, Register, direct_target};

/// An instruction `lea register, [rip + ...]`.
struct Computed {
    pc: u64,
    register: Register,
    address: u64,
}

/// How control and addresses come to the instructions of a procedure. What all jumps of the procedure need is found once,
/// at the first question.
pub(super) struct Reaching<'a> {
    image: &'a Image,
    body: &'a Body,
    /// The addresses that are computed, in the order of the instructions.
    computed: OnceCell<Vec<Computed>>,
    /// Targets of direct jumps, with the numbers of the jumps, in order.
    jumps: OnceCell<Vec<(u64, usize)>>,
}

impl<'a> Reaching<'a> {
    pub(super) fn new(image: &'a Image, body: &'a Body) -> Self {
        Self {
            image,
            body,
            computed: OnceCell::new(),
            jumps: OnceCell::new(),
        }
    }

    /// The address that `lea register, [rip + ...]` has put into a register before instruction number `at`; `None` if there is
    /// no such instruction, or if ways with several addresses lead there.
    pub(super) fn address_at(&self, at: usize, register: Register) -> Option<u64> {
        // Nearly always the instruction is in the same basic block, and nothing else of the procedure matters.
        if let Some(address) = address_in_block(self.image, self.body, at, register) {
            return Some(address);
        }
        let all = self.computed.get_or_init(|| self.find_computed());
        let mut all = all.iter().filter(|c| c.register == register);
        let first = all.next()?;
        let limit = self.image.base + u64::from(self.body.insts[at].offset);
        let (mut nearest, mut is_only) = ((first.pc < limit).then_some(first.address), true);
        for computed in all {
            is_only &= computed.address == first.address;
            if computed.pc < limit {
                nearest = Some(computed.address);
            }
        }
        if is_only {
            return nearest;
        }
        for through_tables in [false, true] {
            let found = self.addresses(at, register, through_tables);
            match found.len() {
                0 => {}
                1 => return found.first().copied(),
                _ => return None,
            }
        }
        nearest
    }

    fn find_computed(&self) -> Vec<Computed> {
        let relative = self.body.insts.iter().filter(|i| i.rip_relative);
        let all = decoded(self.image, relative).filter(is_address);
        all.map(|i| Computed {
            pc: i.ip(),
            register: i.op0_register().full_register(),
            address: i.memory_displacement64(),
        })
        .collect()
    }

    fn find_jumps(&self) -> Vec<(u64, usize)> {
        let is_jump = |flow| matches!(flow, ControlFlow::Jump | ControlFlow::CondJump);
        let mut decoder = ImageDecoder::new(self.image);
        let mut instruction = Instruction::default();
        let mut jumps = Vec::new();
        for (number, inst) in self.body.insts.iter().enumerate() {
            if is_jump(inst.flow)
                && decoder.decode_into(self.address_of(number), &mut instruction)
                && let Some(target) = direct_target(&instruction)
            {
                jumps.push((target, number));
            }
        }
        jumps.sort_unstable();
        jumps
    }

    /// Address of instruction number `number`.
    fn address_of(&self, number: usize) -> u64 {
        self.image.base + u64::from(self.body.insts[number].offset)
    }

    /// Adds the numbers of the instructions that run right before number `at`. Yields false if there are none.
    fn before(&self, at: usize, found: &mut Vec<usize>) -> bool {
        let (insts, count) = (&self.body.insts, found.len());
        if let Some(number) = at.checked_sub(1) {
            let previous = &insts[number];
            let adjoins = previous.offset + u32::from(previous.len) == insts[at].offset;
            if adjoins && !previous.flow.ends_flow() {
                found.push(number);
            }
        }
        let pc = self.address_of(at);
        let jumps = self.jumps.get_or_init(|| self.find_jumps());
        let first = jumps.partition_point(|jump| jump.0 < pc);
        let here = jumps[first..].iter().take_while(|jump| jump.0 == pc);
        found.extend(here.map(|jump| jump.1));
        found.len() != count
    }

    /// Numbers of the indirect jumps.
    fn indirect_jumps(&self) -> impl Iterator<Item = usize> {
        let number = |pc: &u64| {
            let offset = (pc - self.image.base) as u32;
            let found = self.body.insts.binary_search_by_key(&offset, |i| i.offset);
            found.ok()
        };
        self.body.indirect_jumps.iter().filter_map(number)
    }

    /// The addresses that the register may hold before instruction number `at`, as far as they were computed in the procedure.
    /// With `through_tables` each indirect jump may lead to an instruction to which nothing else does.
    fn addresses(&self, at: usize, register: Register, through_tables: bool) -> BTreeSet<u64> {
        let is_kept = CALLEE_SAVED & 1 << register.number() != 0;
        let mut factory = InstructionInfoFactory::new();
        let mut decoder = ImageDecoder::new(self.image);
        let mut instruction = Instruction::default();
        let (mut found, mut seen, mut work) = (BTreeSet::new(), FxHashSet::default(), vec![at]);
        let (mut before, mut has_tables) = (Vec::new(), !through_tables);
        while let Some(at) = work.pop() {
            before.clear();
            if !self.before(at, &mut before) && !has_tables {
                has_tables = true;
                before.extend(self.indirect_jumps());
            }
            for number in before.drain(..) {
                if !seen.insert(number)
                    || !decoder.decode_into(self.address_of(number), &mut instruction)
                {
                    continue;
                }
                let flow = self.body.insts[number].flow;
                let is_call = matches!(flow, ControlFlow::Call | ControlFlow::IndirectCall);
                if is_address(&instruction) && writes(&instruction, register) {
                    found.insert(instruction.memory_displacement64());
                } else if (is_kept || !is_call) && !may_change(&mut factory, &instruction, register)
                {
                    work.push(number);
                }
            }
        }
        found
    }
}

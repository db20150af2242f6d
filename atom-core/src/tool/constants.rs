//! Which constants a register may hold at an instruction.
//!
//! Constants are followed within one procedure: moved into registers and
//! between registers, along all paths. An argument, a load or a result of a
//! call is unknown. This is enough to find the numbers of nearly all system
//! calls, also where a loop keeps the number in another register.

use std::collections::{HashMap, HashSet};

use crate::cfg::{Cfg, Proc, Succ};
use crate::ids::{BlockId, InstId};
use crate::image::Image;
use crate::x86::{
    ControlFlow, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};

/// Finds constants in registers of one procedure.
pub(crate) struct Constants<'a> {
    image: &'a Image,
    cfg: &'a Cfg,
    preds: HashMap<BlockId, Vec<BlockId>>,
    factory: InstructionInfoFactory,
}

/// What an instruction does to a register.
enum Effect {
    /// The register keeps its value.
    Keeps,
    /// The register gets a constant.
    Sets(u64),
    /// The register gets the value of another register.
    Copies(Register),
    /// The register gets an unknown value.
    Unknown,
}

impl<'a> Constants<'a> {
    pub(crate) fn new(image: &'a Image, cfg: &'a Cfg, proc: &Proc) -> Self {
        let mut preds: HashMap<BlockId, Vec<BlockId>> = HashMap::new();
        for block in proc.blocks() {
            for succ in cfg.succs(block) {
                if let Succ::Fall(to) | Succ::Branch(to) = *succ {
                    preds.entry(to).or_default().push(block);
                }
            }
        }
        Self {
            image,
            cfg,
            preds,
            factory: InstructionInfoFactory::new(),
        }
    }

    /// False if `register` is known to hold none of `values` before `inst`.
    pub(crate) fn may_be(&mut self, inst: InstId, register: Register, values: &[u64]) -> bool {
        let mut seen = HashSet::new();
        // Searches to be done: block, the instruction before which the search upwards starts, register.
        let mut work = vec![(self.cfg.block_of(inst), inst, register)];
        while let Some((block, before, register)) = work.pop() {
            let mut register = register;
            let mut decided = false;
            for id in (self.cfg.block(block).first.0..before.0).rev().map(InstId) {
                match self.effect(id, register) {
                    Effect::Keeps => {}
                    Effect::Copies(from) => register = from,
                    Effect::Unknown => return true,
                    Effect::Sets(value) if values.contains(&value) => return true,
                    Effect::Sets(_) => {
                        decided = true;
                        break;
                    }
                }
            }
            if decided || !seen.insert((block, register)) {
                continue;
            }
            let facts = self.cfg.block(block);
            let Some(preds) = self.preds.get(&block) else {
                return true;
            };
            if facts.is_entry || facts.is_indirect_target {
                return true;
            }
            work.extend(preds.iter().map(|&pred| {
                let end = InstId(self.cfg.block(pred).last().0 + 1);
                (pred, end, register)
            }));
        }
        false
    }

    fn effect(&mut self, id: InstId, register: Register) -> Effect {
        use Register::*;
        match self.cfg.inst(id).flow {
            ControlFlow::Call | ControlFlow::IndirectCall => {
                // A caller-saved register that is read after a call without being
                // set again is a register that the compiler knew the callee to keep.
                return match register {
                    RAX | RDX => Effect::Unknown,
                    _ => Effect::Keeps,
                };
            }
            ControlFlow::Syscall if matches!(register, RAX | RCX | R11) => return Effect::Unknown,
            ControlFlow::FallThrough => {}
            _ => return Effect::Keeps,
        }
        let instruction = self.cfg.decode(self.image, id);
        let writes = self
            .factory
            .info(&instruction)
            .used_registers()
            .iter()
            .any(|used| {
                used.register().full_register() == register
                    && !matches!(used.access(), OpAccess::Read | OpAccess::CondRead)
            });
        if writes {
            written(&instruction)
        } else {
            Effect::Keeps
        }
    }
}

/// The effect of an instruction that writes the register in question.
fn written(instruction: &Instruction) -> Effect {
    // A write of less than 32 bits keeps the rest of the register.
    if instruction.op_count() != 2
        || instruction.op0_kind() != OpKind::Register
        || instruction.op0_register().size() < 4
    {
        return Effect::Unknown;
    }
    match (instruction.mnemonic(), instruction.op1_kind()) {
        (Mnemonic::Mov, OpKind::Register) if instruction.op1_register().is_gpr() => {
            Effect::Copies(instruction.op1_register().full_register())
        }
        (Mnemonic::Mov, OpKind::Memory | OpKind::Register) => Effect::Unknown,
        (Mnemonic::Mov, _) => Effect::Sets(instruction.immediate(1)),
        (Mnemonic::Xor, OpKind::Register)
            if instruction.op0_register() == instruction.op1_register() =>
        {
            Effect::Sets(0)
        }
        _ => Effect::Unknown,
    }
}

//! Decoding a function of the analysis image into its flow graph.
//!
//! The code is compiler output for a known ABI, so simple rules suffice. A function is the code that
//! jumps reach inside its own range; a jump out of the range is a tail call. A jump through a register
//! that was just computed by an addition uses a jump table. Its targets are in the same function, so
//! all of the function's range counts as reached. Any other indirect branch is a call of an unknown
//! function.

use std::collections::BTreeMap;

use rustc_hash::FxHashSet;
use std::ops::Range;

use super::image::{AnalysisImage, Value};
use crate::x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register, is_padding,
};

/// The function that a call or a jump leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Callee {
    /// The function at this address of the image.
    Known(u64),
    /// An import that the runtime lacks.
    Missing(String),
    /// A function that is known only at run time.
    Unknown,
}

/// How control leaves an instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Goes to its successors only.
    Flow,
    /// Calls a function, then goes to its successors if the function returns.
    Call(Callee),
    /// Tail call: jumps to another function and does not come back.
    Tail(Callee),
    /// Goes to a successor that a jump table names.
    Table,
    /// Returns to the caller.
    Return,
    /// Goes nowhere: a trap, or bytes that are no code.
    Dead,
}

/// An instruction in its function.
#[derive(Clone, Debug)]
pub struct Inst {
    /// The instruction, decoded.
    pub raw: Instruction,
    /// Addresses of successors in the same function.
    pub next: Vec<u64>,
    /// How control leaves it.
    pub exit: Exit,
}

/// A function's reachable instructions by address.
#[derive(Clone, Debug)]
pub struct Function {
    /// Address of the first instruction executed.
    pub entry: u64,
    /// Instructions by address.
    pub insts: BTreeMap<u64, Inst>,
}

/// Size in bytes up to which a function is decoded; the rest is unknown.
const MAX_INSTS: usize = 200_000;

impl Function {
    /// Decodes the function at `entry`.
    pub fn decode(image: &AnalysisImage, entry: u64) -> Self {
        let range = image.function_at(entry).unwrap_or(entry..u64::MAX);
        let mut function = Function {
            entry,
            insts: BTreeMap::new(),
        };
        let mut work = vec![entry];
        let mut swept = false;
        while let Some(at) = work.pop() {
            if function.insts.contains_key(&at) {
                continue;
            }
            let inst = if function.insts.len() < MAX_INSTS {
                Self::inst(image, &function, &range, at)
            } else {
                Inst {
                    raw: Instruction::default(),
                    next: Vec::new(),
                    exit: Exit::Tail(Callee::Unknown),
                }
            };
            work.extend(&inst.next);
            let table = inst.exit == Exit::Table;
            function.insts.insert(at, inst);
            if table && !swept && range.end != u64::MAX {
                swept = true;
                work.extend(Self::sweep(image, &range));
            }
        }
        function.link_tables();
        function.resolve_registers(image);
        function
    }

    /// Start addresses of all instructions of a range, decoded one after the other.
    fn sweep(image: &AnalysisImage, range: &Range<u64>) -> Vec<u64> {
        let len = (range.end - range.start) as usize;
        let bytes = image.bytes_at(range.start, len).unwrap_or_default();
        let decoder = Decoder::with_ip(64, bytes, range.start, DecoderOptions::NONE);
        decoder
            .into_iter()
            .filter(|i| !i.is_invalid() && !is_padding(i))
            .map(|i| i.ip())
            .collect()
    }

    fn inst(image: &AnalysisImage, so_far: &Function, range: &Range<u64>, at: u64) -> Inst {
        const LONGEST: u64 = 15;
        let end = image
            .code
            .iter()
            .find(|c| c.contains(&at))
            .map_or(at, |c| c.end);
        let len = LONGEST.min(end - at) as usize;
        let bytes = image.bytes_at(at, len).unwrap_or_default();
        let raw = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE).decode();
        let mut inst = Inst {
            raw,
            next: Vec::new(),
            exit: Exit::Flow,
        };
        if raw.is_invalid() {
            inst.exit = Exit::Dead;
            return inst;
        }
        let inside = |a: u64| {
            range.contains(&a)
                && (a == range.start || range.end != u64::MAX || image.function_at(a).is_none())
        };
        let target = raw.near_branch_target();
        let goes_on = matches!(
            raw.flow_control(),
            FlowControl::Next
                | FlowControl::ConditionalBranch
                | FlowControl::Call
                | FlowControl::IndirectCall
                | FlowControl::XbeginXabortXend
        );
        if goes_on && inside(raw.next_ip()) {
            inst.next.push(raw.next_ip());
        }
        inst.exit = match raw.flow_control() {
            FlowControl::Next | FlowControl::XbeginXabortXend => Exit::Flow,
            // Control comes back from `syscall` and `int n`; `int3` and other interrupts do not matter here.
            FlowControl::Call if raw.mnemonic() != Mnemonic::Call => Exit::Flow,
            FlowControl::Call => Exit::Call(Callee::Known(target)),
            FlowControl::IndirectCall => Exit::Call(Self::indirect(image, &raw)),
            FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch => {
                if inside(target) {
                    inst.next.push(target);
                    Exit::Flow
                } else {
                    Exit::Tail(Callee::Known(target))
                }
            }
            FlowControl::IndirectBranch => {
                if raw.op0_kind() == OpKind::Register && so_far.adds_before(at, raw.op0_register())
                {
                    Exit::Table
                } else {
                    Exit::Tail(Self::indirect(image, &raw))
                }
            }
            FlowControl::Return => Exit::Return,
            FlowControl::Interrupt | FlowControl::Exception => Exit::Dead,
        };
        if let Exit::Call(Callee::Known(a)) | Exit::Tail(Callee::Known(a)) = inst.exit
            && !image.is_code(a)
        {
            inst.exit = Exit::Dead;
        }
        inst
    }

    /// The function that an indirect call or jump through memory leads to.
    fn indirect(image: &AnalysisImage, raw: &Instruction) -> Callee {
        if !raw.is_ip_rel_memory_operand() {
            return Callee::Unknown;
        }
        let slot = raw.ip_rel_memory_address();
        if let Some(name) = image.missing.get(&slot) {
            return Callee::Missing(name.clone());
        }
        match image.constant_slot(slot) {
            Some(Value::Relative(a)) if image.is_code(a) => Callee::Known(a),
            _ => Callee::Unknown,
        }
    }

    /// True if the instruction before `at` adds to the register.
    fn adds_before(&self, at: u64, register: Register) -> bool {
        self.insts.range(..at).next_back().is_some_and(|(_, i)| {
            i.raw.next_ip() == at
                && i.raw.mnemonic() == Mnemonic::Add
                && i.raw.op0_kind() == OpKind::Register
                && i.raw.op0_register() == register
        })
    }

    /// Resolves calls through a callee-saved register that this function loads only from one relocated
    /// slot. Compilers keep the address of a function there that is called more than once.
    fn resolve_registers(&mut self, image: &AnalysisImage) {
        const KEPT: [Register; 6] = [
            Register::RBX,
            Register::RBP,
            Register::R12,
            Register::R13,
            Register::R14,
            Register::R15,
        ];
        let through = |i: &Inst| {
            let indirect = matches!(i.exit, Exit::Call(Callee::Unknown));
            (indirect && i.raw.op0_kind() == OpKind::Register).then(|| i.raw.op0_register())
        };
        for register in KEPT {
            if !self.insts.values().any(|i| through(i) == Some(register)) {
                continue;
            }
            let mut loads = Vec::new();
            for inst in self.insts.values() {
                let raw = &inst.raw;
                let names = (0..raw.op_count()).any(|o| {
                    raw.op_kind(o) == OpKind::Register
                        && raw.op_register(o).full_register() == register
                });
                let saves = matches!(raw.mnemonic(), Mnemonic::Push | Mnemonic::Pop);
                if names && !saves && through(inst) != Some(register) {
                    let slot = raw.mnemonic() == Mnemonic::Mov
                        && raw.op0_register() == register
                        && raw.is_ip_rel_memory_operand();
                    loads.push(slot.then(|| Self::indirect(image, raw)));
                }
            }
            let Some(Some(callee)) = loads.first().cloned() else {
                continue;
            };
            if callee == Callee::Unknown || loads.iter().any(|l| l.as_ref() != Some(&callee)) {
                continue;
            }
            for inst in self
                .insts
                .values_mut()
                .filter(|i| through(i) == Some(register))
            {
                inst.exit = Exit::Call(callee.clone());
            }
        }
    }

    /// Adds the successors of jumps through tables: the code to which nothing else in the function leads.
    fn link_tables(&mut self) {
        let tables: Vec<u64> = self
            .insts
            .iter()
            .filter(|(_, i)| i.exit == Exit::Table)
            .map(|(a, _)| *a)
            .collect();
        if tables.is_empty() {
            return;
        }
        let mut reached: FxHashSet<u64> = self
            .insts
            .values()
            .flat_map(|i| i.next.iter().copied())
            .collect();
        reached.insert(self.entry);
        let heads: Vec<u64> = self
            .insts
            .keys()
            .filter(|a| !reached.contains(a))
            .copied()
            .collect();
        for t in tables {
            if let Some(i) = self.insts.get_mut(&t) {
                i.next.clone_from(&heads);
            }
        }
    }

    /// The functions that the instruction refers to without calling them, and the name of a missing
    /// import that it uses.
    pub(super) fn reference(image: &AnalysisImage, raw: &Instruction) -> Option<Callee> {
        if !raw.is_ip_rel_memory_operand() {
            return None;
        }
        let address = raw.ip_rel_memory_address();
        if let Some(name) = image.missing.get(&address) {
            return Some(Callee::Missing(name.clone()));
        }
        if raw.mnemonic() == Mnemonic::Lea {
            let starts = image
                .function_at(address)
                .is_some_and(|f| f.start == address);
            return starts.then_some(Callee::Known(address));
        }
        match image.constant_slot(address) {
            Some(Value::Relative(a)) if image.is_code(a) => Some(Callee::Known(a)),
            _ => None,
        }
    }
}

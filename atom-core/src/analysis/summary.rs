//! What a routine, with all that it calls, may change in the processor.
//!
//! A call from instrumented code saves only what the routine may change. Paths
//! that never come back (a failed index check that panics, an exit) change
//! nothing for the application, so only instructions on a path from the entry
//! to a return count. Where the code is decided at run time, the ABI's promise
//! stands in: every caller-saved register and the flags.

use std::collections::{HashMap, HashSet};

use iced_x86::{
    EncodingKind, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};

use super::code::{Callee, Exit, Function};
use super::image::AnalysisImage;

/// rax, rcx, rdx, rsi, rdi, r8 to r11: what the ABI lets a function change.
pub const CALLER_SAVED: u16 = 0x0FC7;
const RSP: u16 = 1 << 4;

/// The effect of a routine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// General registers that may differ afterwards; bit n is hardware register n; never rsp.
    pub gprs: u16,
    /// Vector registers 0 to 15 that may differ afterwards.
    pub xmms: u16,
    /// The arithmetic flags may differ.
    pub flags: bool,
    /// Computes in floating point: reads MXCSR's modes, sets its exception flags.
    pub fp: bool,
    /// Uses the x87 or MMX registers.
    pub x87: bool,
    /// Uses AVX encodings, which change what legacy state does not cover.
    pub avx: bool,
    /// Calls nothing, not even on paths that never return.
    pub leaf: bool,
    /// Calls something on a path that returns.
    pub calls: bool,
    /// Needs rsp to be 16-byte aligned before the call, as the ABI promises.
    pub aligned_stack: bool,
    /// Bytes of stack below its return address on paths that return; `None` if not known.
    pub stack: Option<u32>,
    /// Can return at all.
    pub returns: bool,
}

impl Summary {
    /// A function of which only the ABI is known.
    pub const UNKNOWN: Summary = Summary {
        gprs: CALLER_SAVED,
        xmms: 0xFFFF,
        flags: true,
        fp: true,
        x87: false,
        avx: false,
        leaf: false,
        calls: true,
        aligned_stack: true,
        stack: None,
        returns: true,
    };

    const NOTHING: Summary = Summary {
        gprs: 0,
        xmms: 0,
        flags: false,
        fp: false,
        x87: false,
        avx: false,
        leaf: true,
        calls: false,
        aligned_stack: false,
        stack: Some(0),
        returns: false,
    };

    /// Adds changes to registers and flags.
    fn add(&mut self, other: &Summary) {
        self.gprs |= other.gprs;
        self.xmms |= other.xmms;
        self.flags |= other.flags;
        self.fp |= other.fp;
        self.x87 |= other.x87;
        self.avx |= other.avx;
    }
}

/// Summaries of an image's routines and of all functions that they reach.
#[derive(Debug)]
pub struct Summaries {
    of: HashMap<u64, Summary>,
}

/// A function with what does not depend on its callees. Instructions are
/// numbered in address order.
struct Facts {
    entry: usize,
    effects: Vec<Summary>,
    exits: Vec<Exit>,
    /// Predecessors of each instruction.
    before: Vec<Vec<u32>>,
    depths: Vec<Option<u32>>,
    below: Vec<u32>,
    /// Callee-saved registers that it pushes, and so restores.
    saved: u16,
    /// Numbers of the functions that it calls or jumps to.
    callees: Vec<usize>,
    /// Instructions on a path to a return.
    live: Vec<bool>,
    sum: Summary,
}

impl Summaries {
    /// Summaries of the routines that the tool's header names, and of `extra` ones.
    pub fn new(image: &AnalysisImage, extra: &[u64]) -> Self {
        let roots = image
            .facts
            .routines
            .iter()
            .map(|r| r.1)
            .chain(extra.iter().copied());
        let mut graph = Graph::default();
        let mut info = InstructionInfoFactory::new();
        for root in roots.filter(|a| image.is_code(*a)) {
            graph.number(root);
        }
        while graph.all.len() < graph.entries.len() {
            let function = Function::decode(image, graph.entries[graph.all.len()]);
            let facts = Facts::new(&function, &mut info, &mut graph);
            graph.all.push(facts);
        }
        graph.solve();
        let mut stacks = vec![None; graph.all.len()];
        let sums = 0..graph.all.len();
        let sums = sums.map(|i| Summary {
            stack: graph.stack(i, &mut stacks, 0),
            ..graph.all[i].sum
        });
        Self {
            of: graph.entries.iter().copied().zip(sums).collect(),
        }
    }

    /// The summary of the function at an address.
    pub fn of(&self, address: u64) -> Summary {
        self.of.get(&address).copied().unwrap_or(Summary::UNKNOWN)
    }
}

/// All functions reached, numbered in the order of their discovery.
#[derive(Default)]
struct Graph {
    entries: Vec<u64>,
    numbers: HashMap<u64, usize>,
    all: Vec<Facts>,
}

impl Graph {
    fn number(&mut self, entry: u64) -> usize {
        *self.numbers.entry(entry).or_insert_with(|| {
            self.entries.push(entry);
            self.entries.len() - 1
        })
    }

    /// The callee's summary as known so far.
    fn callee(&self, c: &Callee) -> Summary {
        match c {
            Callee::Known(a) => self
                .numbers
                .get(a)
                .map_or(Summary::UNKNOWN, |i| self.all[*i].sum),
            // Bound to a function that ends the program.
            Callee::Missing(_) => Summary::NOTHING,
            Callee::Unknown => Summary::UNKNOWN,
        }
    }

    /// Least solution of both questions, first who returns and then what
    /// changes: all start from nothing, and a function is looked at again when
    /// a callee's answer has grown.
    fn solve(&mut self) {
        let mut callers = vec![Vec::new(); self.all.len()];
        for (i, facts) in self.all.iter().enumerate() {
            facts.callees.iter().for_each(|c| callers[*c].push(i));
        }
        let rounds: [fn(&Graph, usize) -> (Vec<bool>, Summary); 2] = [
            |graph, i| {
                let live = graph.live(i);
                let returns = live[graph.all[i].entry];
                (
                    live,
                    Summary {
                        returns,
                        ..Summary::NOTHING
                    },
                )
            },
            |graph, i| (Vec::new(), graph.summary(i)),
        ];
        for (round, step) in rounds.into_iter().enumerate() {
            // From the end, for callees tend to be found later than callers.
            let mut work: Vec<usize> = (0..self.all.len()).collect();
            let mut queued = vec![true; self.all.len()];
            while let Some(i) = work.pop() {
                queued[i] = false;
                let (live, sum) = step(self, i);
                let facts = &mut self.all[i];
                if round == 0 {
                    facts.live = live;
                }
                if std::mem::replace(&mut facts.sum, sum) != sum {
                    for &c in &callers[i] {
                        if !std::mem::replace(&mut queued[c], true) {
                            work.push(c);
                        }
                    }
                }
            }
        }
    }

    /// Instructions from which a return can be reached; all are reachable from the entry.
    fn live(&self, i: usize) -> Vec<bool> {
        let facts = &self.all[i];
        let passes = |at: usize| match &facts.exits[at] {
            Exit::Call(c) => self.callee(c).returns,
            _ => true,
        };
        let ends = |exit: &Exit| match exit {
            Exit::Return | Exit::Table => true,
            Exit::Tail(c) => self.callee(c).returns,
            _ => false,
        };
        let mut live = vec![false; facts.exits.len()];
        let mut work: Vec<u32> = Vec::new();
        for (at, exit) in facts.exits.iter().enumerate() {
            if ends(exit) {
                live[at] = true;
                work.push(at as u32);
            }
        }
        while let Some(at) = work.pop() {
            for &b in &facts.before[at as usize] {
                if !live[b as usize] && passes(b as usize) {
                    live[b as usize] = true;
                    work.push(b);
                }
            }
        }
        live
    }

    fn summary(&self, i: usize) -> Summary {
        let facts = &self.all[i];
        let mut sum = Summary {
            returns: facts.live[facts.entry],
            ..Summary::NOTHING
        };
        for (at, exit) in facts.exits.iter().enumerate() {
            let effect = &facts.effects[at];
            sum.aligned_stack |= effect.aligned_stack;
            if facts.live[at] {
                sum.add(effect);
            }
            if let Exit::Call(c) | Exit::Tail(c) = exit {
                let callee = self.callee(c);
                sum.leaf = false;
                // A tail call hands the caller's alignment on; a call needs it by the ABI.
                sum.aligned_stack |= callee.aligned_stack || matches!(exit, Exit::Call(_));
                if facts.live[at] {
                    sum.calls = true;
                    sum.add(&callee);
                }
            }
        }
        // What callees leave changed counts too unless this function restores it.
        sum.gprs &= !facts.saved & !RSP;
        sum.stack = None;
        sum
    }

    /// The stack need of a function, callees first; recursion has no bound.
    fn stack(&self, i: usize, done: &mut [Option<Option<u32>>], depth: usize) -> Option<u32> {
        const DEEPEST: usize = 200;
        if let Some(known) = done[i] {
            return known;
        }
        // Met again below means recursion: no bound.
        done[i] = Some(None);
        let facts = &self.all[i];
        let mut most = (depth < DEEPEST).then_some(0);
        for (at, exit) in facts
            .exits
            .iter()
            .enumerate()
            .filter(|(at, _)| facts.live[*at])
        {
            let below = match exit {
                Exit::Call(Callee::Known(c)) | Exit::Tail(Callee::Known(c)) => {
                    let pushed = if matches!(exit, Exit::Call(_)) { 8 } else { 0 };
                    let number = self.numbers.get(c);
                    number
                        .and_then(|c| self.stack(*c, done, depth + 1))
                        .map(|s| s + pushed)
                }
                Exit::Call(_) | Exit::Tail(_) => None,
                _ => Some(facts.below[at]),
            };
            most = match (most, facts.depths[at], below) {
                (Some(m), Some(d), Some(b)) => Some(m.max(d.saturating_add(b))),
                _ => None,
            };
            if most.is_none() {
                break;
            }
        }
        done[i] = Some(most);
        most
    }
}

impl Facts {
    fn new(function: &Function, info: &mut InstructionInfoFactory, graph: &mut Graph) -> Self {
        let addresses: Vec<u64> = function.insts.keys().copied().collect();
        let number = |a: u64| addresses.binary_search(&a).ok();
        let n = addresses.len();
        let mut facts = Facts {
            entry: number(function.entry).unwrap_or(0),
            effects: Vec::with_capacity(n),
            exits: Vec::with_capacity(n),
            before: vec![Vec::new(); n],
            depths: Vec::new(),
            below: Vec::with_capacity(n),
            saved: 0,
            callees: Vec::new(),
            live: vec![false; n],
            sum: Summary::NOTHING,
        };
        for (i, inst) in function.insts.values().enumerate() {
            let raw = &inst.raw;
            if raw.mnemonic() == Mnemonic::Push && raw.op0_kind() == OpKind::Register {
                facts.saved |= gpr_bit(raw.op0_register()) & !CALLER_SAVED;
            }
            facts.effects.push(effect(raw, info));
            facts.exits.push(inst.exit.clone());
            facts.below.push(below_rsp(raw));
            for next in inst.next.iter().filter_map(|a| number(*a)) {
                facts.before[next].push(i as u32);
            }
            if let Exit::Call(Callee::Known(to)) | Exit::Tail(Callee::Known(to)) = inst.exit {
                facts.callees.push(graph.number(to));
            }
        }
        let depths = depths(function);
        facts.depths = addresses.iter().map(|a| depths.get(a).copied()).collect();
        facts.callees.sort_unstable();
        facts.callees.dedup();
        facts
    }
}

/// How far below rsp the instruction reaches: pushes, and the red zone.
fn below_rsp(i: &Instruction) -> u32 {
    if i.memory_base() == Register::RSP && (i.memory_displacement64() as i64) < 0 {
        return (i.memory_displacement64() as i64).unsigned_abs().min(4096) as u32;
    }
    i.stack_pointer_increment().min(0).unsigned_abs()
}

/// How far rsp is below its value at the entry, before each instruction where that is known.
fn depths(function: &Function) -> HashMap<u64, u32> {
    let mut known = HashMap::new();
    let mut conflict = HashSet::new();
    let mut frame = None;
    let mut work = vec![(function.entry, 0i64)];
    while let Some((at, depth)) = work.pop() {
        match known.get(&at) {
            Some(d) if *d == depth => continue,
            Some(_) => {
                conflict.insert(at);
                continue;
            }
            None => known.insert(at, depth),
        };
        let Some(inst) = function.insts.get(&at) else {
            continue;
        };
        let raw = &inst.raw;
        if raw.mnemonic() == Mnemonic::Mov
            && raw.op0_register() == Register::RBP
            && raw.op1_register() == Register::RSP
        {
            frame = Some(depth);
        }
        if let Some(after) = depth_after(raw, depth, frame) {
            work.extend(inst.next.iter().map(|n| (*n, after)));
        }
    }
    known
        .into_iter()
        .filter(|(at, _)| !conflict.contains(at))
        .filter_map(|(at, d)| Some((at, u32::try_from(d).ok()?)))
        .collect()
}

fn depth_after(raw: &Instruction, depth: i64, frame: Option<i64>) -> Option<i64> {
    let to_rsp = raw.op_count() > 0
        && raw.op0_kind() == OpKind::Register
        && raw.op0_register() == Register::RSP;
    let immediate = || match raw.op1_kind() {
        OpKind::Immediate8to64 | OpKind::Immediate32to64 => Some(raw.immediate(1) as i64),
        _ => None,
    };
    match raw.mnemonic() {
        Mnemonic::Call => Some(depth),
        Mnemonic::Leave => Some(frame? - 8),
        Mnemonic::Sub if to_rsp => Some(depth + immediate()?),
        Mnemonic::Add if to_rsp => Some(depth - immediate()?),
        // Rounds down by less than the alignment.
        Mnemonic::And if to_rsp => Some(depth + immediate()?.checked_neg()?),
        Mnemonic::Lea if to_rsp && raw.memory_index() == Register::None => {
            let displacement = raw.memory_displacement64() as i64;
            match raw.memory_base() {
                Register::RSP => Some(depth - displacement),
                Register::RBP => Some(frame? - displacement),
                _ => None,
            }
        }
        Mnemonic::Mov if to_rsp => (raw.op1_register() == Register::RBP).then_some(frame?),
        Mnemonic::Cmp | Mnemonic::Test => Some(depth),
        _ if to_rsp && !raw.is_stack_instruction() => None,
        _ => Some(depth - i64::from(raw.stack_pointer_increment())),
    }
}

fn gpr_bit(register: Register) -> u16 {
    let full = register.full_register();
    if full.is_gpr64() {
        1 << full.number()
    } else {
        0
    }
}

/// The effect of one instruction.
fn effect(raw: &Instruction, info: &mut InstructionInfoFactory) -> Summary {
    let mut sum = Summary::NOTHING;
    if raw.is_invalid() {
        return sum;
    }
    let used = info.info(raw);
    for r in used.used_registers() {
        let register = r.register();
        sum.avx |= register.is_ymm() || register.is_zmm() || register.is_k();
        sum.x87 |= register.is_st() || register.is_mm();
        let writes = matches!(
            r.access(),
            OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
        );
        if writes {
            sum.gprs |= gpr_bit(register);
            if register.is_vector_register() && register.number() < 16 {
                sum.xmms |= 1 << register.number();
            }
        }
    }
    if raw.mnemonic() == Mnemonic::Syscall {
        sum.gprs |= 1; // the kernel's answer
    }
    sum.flags = raw.rflags_modified() != 0;
    sum.avx |= !matches!(raw.encoding(), EncodingKind::Legacy);
    sum.x87 |= raw.fpu_stack_increment_info().writes_top();
    sum.fp = is_floating_point(raw.mnemonic());
    let on_stack = matches!(raw.memory_base(), Register::RSP | Register::RBP);
    let vector = used.used_registers().iter().any(|r| r.register().is_xmm());
    sum.aligned_stack = on_stack && vector && !is_unaligned_access(raw);
    sum
}

/// Memory accesses by vector instructions that need no alignment: the moves
/// that say so, and those of less than 16 bytes.
fn is_unaligned_access(raw: &Instruction) -> bool {
    raw.memory_size().size() < 16
        || matches!(
            raw.mnemonic(),
            Mnemonic::Movups | Mnemonic::Movupd | Mnemonic::Movdqu | Mnemonic::Lddqu
        )
}

/// Instructions that round, or can raise a floating-point exception flag, or set MXCSR.
fn is_floating_point(m: Mnemonic) -> bool {
    use Mnemonic::*;
    matches!(
        m,
        Addss
            | Addsd
            | Addps
            | Addpd
            | Subss
            | Subsd
            | Subps
            | Subpd
            | Mulss
            | Mulsd
            | Mulps
            | Mulpd
            | Divss
            | Divsd
            | Divps
            | Divpd
            | Sqrtss
            | Sqrtsd
            | Sqrtps
            | Sqrtpd
            | Minss
            | Minsd
            | Minps
            | Minpd
            | Maxss
            | Maxsd
            | Maxps
            | Maxpd
            | Cmpss
            | Cmpsd
            | Cmpps
            | Cmppd
            | Comiss
            | Comisd
            | Ucomiss
            | Ucomisd
            | Cvtsi2ss
            | Cvtsi2sd
            | Cvtss2si
            | Cvtsd2si
            | Cvttss2si
            | Cvttsd2si
            | Cvtss2sd
            | Cvtsd2ss
            | Cvtps2pd
            | Cvtpd2ps
            | Cvtdq2ps
            | Cvtdq2pd
            | Cvtps2dq
            | Cvtpd2dq
            | Cvttps2dq
            | Cvttpd2dq
            | Cvtpi2ps
            | Cvtpi2pd
            | Cvtps2pi
            | Cvtpd2pi
            | Cvttps2pi
            | Cvttpd2pi
            | Addsubps
            | Addsubpd
            | Haddps
            | Haddpd
            | Hsubps
            | Hsubpd
            | Roundss
            | Roundsd
            | Roundps
            | Roundpd
            | Dpps
            | Dppd
            | Rcpss
            | Rcpps
            | Rsqrtss
            | Rsqrtps
            | Ldmxcsr
            | Fxrstor
            | Fxrstor64
    )
}

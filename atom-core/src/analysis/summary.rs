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
}

/// Summaries of an image's routines and of all functions that they reach.
#[derive(Debug)]
pub struct Summaries {
    of: HashMap<u64, Summary>,
}

/// A function with what does not depend on its callees.
struct Facts {
    function: Function,
    effects: HashMap<u64, Summary>,
    depths: HashMap<u64, u32>,
    saved: u16,
}

impl Summaries {
    /// Summaries of the routines that the tool's header names, and of `extra` ones.
    pub fn new(image: &AnalysisImage, extra: &[u64]) -> Self {
        let facts = &image.facts;
        let mut work: Vec<u64> = facts
            .routines
            .iter()
            .map(|r| r.1)
            .chain(extra.iter().copied())
            .collect();
        let mut info = InstructionInfoFactory::new();
        let mut all = HashMap::new();
        let mut order = Vec::new();
        while let Some(at) = work.pop() {
            if all.contains_key(&at) || !image.is_code(at) {
                continue;
            }
            let facts = Facts::new(Function::decode(image, at), &mut info);
            for inst in facts.function.insts.values() {
                if let Exit::Call(Callee::Known(to)) | Exit::Tail(Callee::Known(to)) = inst.exit {
                    work.push(to);
                }
            }
            all.insert(at, facts);
            order.push(at);
        }
        // Callees tend to come later; from the end, few rounds are needed.
        order.reverse();
        let mut of: HashMap<u64, Summary> = order.iter().map(|a| (*a, Summary::NOTHING)).collect();
        let mut live: HashMap<u64, HashSet<u64>> = HashMap::new();
        let mut changed = true;
        while changed {
            changed = false;
            for at in &order {
                let now = all[at].live(&of);
                let returns = now.contains(at);
                if let Some(s) = of.get_mut(at)
                    && s.returns != returns
                {
                    s.returns = returns;
                    changed = true;
                }
                live.insert(*at, now);
            }
        }
        let mut changed = true;
        while changed {
            changed = false;
            for at in &order {
                let new = all[at].summary(&live[at], &of);
                changed |= of.insert(*at, new) != Some(new);
            }
        }
        let mut stacks = HashMap::new();
        for at in &order {
            let stack = stack_of(*at, &all, &live, &mut stacks, 0);
            of.entry(*at).and_modify(|s| s.stack = stack);
        }
        Self { of }
    }

    /// The summary of the function at an address.
    pub fn of(&self, address: u64) -> Summary {
        self.of.get(&address).copied().unwrap_or(Summary::UNKNOWN)
    }
}

/// The callee's summary as known so far.
fn callee(c: &Callee, of: &HashMap<u64, Summary>) -> Summary {
    match c {
        Callee::Known(a) => of.get(a).copied().unwrap_or(Summary::UNKNOWN),
        // Bound to a function that ends the program.
        Callee::Missing(_) => Summary::NOTHING,
        Callee::Unknown => Summary::UNKNOWN,
    }
}

impl Facts {
    fn new(function: Function, info: &mut InstructionInfoFactory) -> Self {
        let mut saved = 0;
        let mut effects = HashMap::new();
        for (at, inst) in &function.insts {
            if inst.raw.mnemonic() == Mnemonic::Push && inst.raw.op0_kind() == OpKind::Register {
                saved |= gpr_bit(inst.raw.op0_register()) & !CALLER_SAVED;
            }
            effects.insert(*at, effect(&inst.raw, info));
        }
        let depths = depths(&function);
        Self {
            function,
            effects,
            depths,
            saved,
        }
    }

    /// Instructions from which a return can be reached; all are reachable from the entry.
    fn live(&self, of: &HashMap<u64, Summary>) -> HashSet<u64> {
        let insts = &self.function.insts;
        let mut before: HashMap<u64, Vec<u64>> = HashMap::new();
        let mut work = Vec::new();
        for (at, inst) in insts {
            let passes = match &inst.exit {
                Exit::Call(c) => callee(c, of).returns,
                _ => true,
            };
            if passes {
                inst.next
                    .iter()
                    .for_each(|n| before.entry(*n).or_default().push(*at));
            }
            let ends = match &inst.exit {
                Exit::Return | Exit::Table => true,
                Exit::Tail(c) => callee(c, of).returns,
                _ => false,
            };
            if ends {
                work.push(*at);
            }
        }
        let mut live = HashSet::new();
        while let Some(at) = work.pop() {
            if live.insert(at) {
                work.extend(before.get(&at).into_iter().flatten());
            }
        }
        live
    }

    fn summary(&self, live: &HashSet<u64>, of: &HashMap<u64, Summary>) -> Summary {
        let mut sum = Summary {
            returns: live.contains(&self.function.entry),
            ..Summary::NOTHING
        };
        let mut own = 0;
        for (at, inst) in &self.function.insts {
            let effect = &self.effects[at];
            sum.aligned_stack |= effect.aligned_stack;
            let is_live = live.contains(at);
            if is_live {
                own |= effect.gprs;
                sum.xmms |= effect.xmms;
                sum.flags |= effect.flags;
                sum.fp |= effect.fp;
                sum.x87 |= effect.x87;
                sum.avx |= effect.avx;
            }
            if let Exit::Call(c) | Exit::Tail(c) = &inst.exit {
                let of_callee = callee(c, of);
                sum.leaf = false;
                // A tail call hands the caller's alignment on; a call needs it by the ABI.
                sum.aligned_stack |= of_callee.aligned_stack || matches!(inst.exit, Exit::Call(_));
                if is_live {
                    sum.calls = true;
                    sum.gprs |= of_callee.gprs;
                    sum.xmms |= of_callee.xmms;
                    sum.flags |= of_callee.flags;
                    sum.fp |= of_callee.fp;
                    sum.x87 |= of_callee.x87;
                    sum.avx |= of_callee.avx;
                }
            }
        }
        // What callees leave changed counts too unless this function restores it.
        sum.gprs = (sum.gprs | own) & !self.saved & !RSP;
        sum.stack = None;
        sum
    }
}

/// Computes the stack need of a function, callees first; recursion has no bound.
fn stack_of(
    at: u64,
    all: &HashMap<u64, Facts>,
    live: &HashMap<u64, HashSet<u64>>,
    done: &mut HashMap<u64, Option<u32>>,
    depth: usize,
) -> Option<u32> {
    const DEEPEST: usize = 200;
    if let Some(known) = done.get(&at) {
        return *known;
    }
    let facts = all.get(&at).filter(|_| depth < DEEPEST)?;
    // Met again below means recursion: no bound.
    done.insert(at, None);
    let mut most = Some(0);
    for (i, inst) in facts
        .function
        .insts
        .iter()
        .filter(|(i, _)| live[&at].contains(i))
    {
        let below = match &inst.exit {
            Exit::Call(Callee::Known(c)) => stack_of(*c, all, live, done, depth + 1).map(|s| s + 8),
            Exit::Tail(Callee::Known(c)) => stack_of(*c, all, live, done, depth + 1),
            Exit::Call(_) | Exit::Tail(_) => None,
            _ => Some(below_rsp(&inst.raw)),
        };
        most = match (most, facts.depths.get(i), below) {
            (Some(m), Some(d), Some(b)) => Some(m.max(d.saturating_add(b))),
            _ => None,
        };
        if most.is_none() {
            break;
        }
    }
    done.insert(at, most);
    most
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

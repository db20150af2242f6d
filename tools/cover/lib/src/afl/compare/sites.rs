//! Where the program compares.
//!
//! Numbers are compared by `cmp`, by `sub` and `xor` whose result is looked at for zero only, by comparisons of floating
//! point, and of vectors whose result goes to a general register. A number of one byte is left to the fuzzer's own
//! changes, and so is zero. Memory is compared by string instructions and by calls: by the name of what is called, and
//! otherwise wherever the caller looks at the result as a small integer and two pointers may have been passed.

use atom_tool::prelude::*;
use atom_tool::{MarkTable, Operand, Repeat};

use super::log::SITES;
use super::{Kind, Part, WORD, What};

/// Compares for equality, as AFL++'s attribute.
const EQUAL: u8 = 1;
/// Compares floating point.
const FLOAT: u8 = 8;

/// A comparison.
pub struct Site<'a> {
    inst: Inst<'a>,
    what: What,
    how: How,
}

/// An operand of a comparison of numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Number {
    Reg(Reg),
    Constant(u64),
    Loaded,
}

/// What is compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum How {
    Numbers(Number, Number),
    Vectors(Reg, Reg),
    VectorAndMemory(Reg),
    /// A string instruction.
    Repeated,
    Call,
}

impl Site<'_> {
    /// Adds the call that logs it.
    pub fn add_call(&self, done: MarkTable) {
        let (inst, is_done) = (self.inst, done.at(self.what.site));
        let what = self.what.pack();
        match self.how {
            How::Numbers(first, second) => {
                use Number::{Constant, Loaded};
                match (first, second) {
                    (Number::Reg(a), Number::Reg(b)) => {
                        inst.add_call(Before, super::numbers, (is_done, what, a, b));
                    }
                    (Number::Reg(a), Constant(b)) => {
                        inst.add_call(Before, super::numbers, (is_done, what, a, b));
                    }
                    (Number::Reg(a), Loaded) => {
                        inst.add_call(Before, super::numbers, (is_done, what, a, LoadedValue));
                    }
                    (Loaded, Number::Reg(b)) => {
                        inst.add_call(Before, super::numbers, (is_done, what, LoadedValue, b));
                    }
                    (Loaded, Constant(b)) => {
                        inst.add_call(Before, super::numbers, (is_done, what, LoadedValue, b));
                    }
                    (Constant(_) | Loaded, _) => {}
                }
            }
            How::Vectors(a, b) => {
                let args = (is_done, what, a, HighHalf(a), b, HighHalf(b));
                inst.add_call(Before, super::vectors, args);
            }
            How::VectorAndMemory(a) => {
                let args = (is_done, what, a, HighHalf(a), EffAddrValue);
                inst.add_call(Before, super::vector_and_memory, args);
            }
            How::Repeated => {
                let args = (is_done, what, Reg::Rsi, Reg::Rdi, Reg::Rcx);
                inst.add_call(Before, super::memory, args);
            }
            How::Call => {
                let args = (is_done, what, Reg::Rdi, Reg::Rsi, Reg::Rdx);
                inst.add_call(Before, super::memory, args);
            }
        }
    }
}

/// Finds the comparisons of the selected procedures. Returns their number, too: a comparison that two instructions make
/// is one.
pub fn find<'a>(program: &Program<'a>) -> (Vec<Site<'a>>, usize) {
    let is_wanted = |proc: &Proc<'_>| proc.is_selected() && !proc.is_stub();
    let procs = program.procs().filter(is_wanted);
    let (mut all, mut count) = (Vec::new(), 0);
    for block in procs.flat_map(|proc| proc.blocks()) {
        let insts: Vec<Inst<'a>> = block.insts().collect();
        let mut sites: Vec<Site<'a>> = (0..insts.len())
            .filter_map(|at| of_inst(&insts, at))
            .chain(of_call(block))
            .collect();
        let pairs = join(&mut sites);
        for i in 0..sites.len() {
            match pairs.iter().find(|(_, second)| *second == i) {
                Some((first, _)) => sites[i].what.site = sites[*first].what.site,
                None => {
                    sites[i].what.site = count % SITES;
                    count += 1;
                }
            }
        }
        all.extend(sites);
    }
    (all, count)
}

/// Joins comparisons of a block that are two parts of one: their operands in memory follow each other. Returns the places
/// of the parts.
fn join(sites: &mut [Site<'_>]) -> Vec<(usize, usize)> {
    let mut pairs: Vec<(usize, usize)> = Vec::new();
    for second in 0..sites.len() {
        let Some(at) = difference_at(&sites[second]) else {
            continue;
        };
        let other = (0..second).find_map(|first| {
            let is_free = pairs.iter().all(|(_, joined)| *joined != first);
            let before = difference_at(&sites[first]).filter(|_| is_free)?;
            let distance = at.1.wrapping_sub(before.1);
            (at.0 == before.0 && distance.unsigned_abs() == WORD as u64)
                .then_some((first, distance))
        });
        let Some((first, distance)) = other else {
            continue;
        };
        let (low, high, parts) = if distance > 0 {
            (first, second, [Part::LowFirst, Part::HighSecond])
        } else {
            (second, first, [Part::HighFirst, Part::LowSecond])
        };
        let is_taken = pairs.iter().any(|(joined, _)| *joined == first);
        if sites[low].what.size != WORD || is_taken {
            continue;
        }
        let size = WORD + sites[high].what.size;
        for (site, part) in [first, second].into_iter().zip(parts) {
            (sites[site].what.size, sites[site].what.part) = (size, part);
        }
        pairs.push((first, second));
    }
    pairs
}

/// Base and displacement of the memory whose difference from a register an `xor` computes.
fn difference_at(site: &Site<'_>) -> Option<(Option<Reg>, i64)> {
    let is_difference = site.inst.mnemonic() == "xor" && site.what.part == Part::Whole;
    let memory = *site.inst.memory().first().filter(|_| is_difference)?;
    let is_simple = memory.index.is_none();
    // An address relative to the program counter depends on the instruction's own.
    let next = site.inst.pc() as i64 + site.inst.size() as i64;
    let base = match memory.base {
        Some(Reg::Pc) => next,
        _ => 0,
    };
    is_simple.then_some((memory.base, base + memory.displacement))
}

/// The comparison that an instruction of a block makes.
fn of_inst<'a>(insts: &[Inst<'a>], at: usize) -> Option<Site<'a>> {
    let inst = insts[at];
    let name = inst.mnemonic();
    let is_string = name.starts_with("cmps") && inst.repeat().is_some();
    let (how, size, attribute) = match name {
        _ if is_string => {
            let size = inst.memory().first()?.size as usize;
            let is_repeated = inst.repeat()? != Repeat::Once;
            return is_repeated.then_some(site(inst, How::Repeated, size, 0, Kind::Bytes));
        }
        "cmp" => {
            let (how, size) = numbers(inst)?;
            (how, size, condition(&insts[at + 1..]))
        }
        "sub" if condition(&insts[at + 1..]) == EQUAL => {
            let (how, size) = numbers(inst)?;
            (how, size, EQUAL)
        }
        "xor" if is_difference(insts, at) => {
            let (how, size) = numbers(inst)?;
            (how, size, EQUAL)
        }
        "ucomiss" | "comiss" | "vucomiss" | "vcomiss" => floats(insts, at, 4)?,
        "ucomisd" | "comisd" | "vucomisd" | "vcomisd" => floats(insts, at, 8)?,
        _ => {
            let plain = name.strip_prefix('v').unwrap_or(name);
            let is_wanted = plain.starts_with("pcmpeq") && leaves_vectors(&insts[at + 1..]);
            let how = is_wanted.then(|| vectors(inst)).flatten()?;
            (how, 16, EQUAL)
        }
    };
    let offers = match how {
        How::Numbers(a, b) => {
            [a, b].iter().all(|n| *n != Number::Loaded) || inst.offers(Before, LoadedValue)
        }
        How::VectorAndMemory(_) => inst.offers(Before, EffAddrValue),
        _ => true,
    };
    offers.then_some(site(inst, how, size, attribute, Kind::Any))
}

fn site(inst: Inst<'_>, how: How, size: usize, attribute: u8, kind: Kind) -> Site<'_> {
    let what = What {
        site: 0,
        size,
        attribute,
        kind,
        part: Part::Whole,
    };
    Site { inst, what, how }
}

/// The two operands of an instruction, and their size in bytes, if they may be a part of the input.
fn numbers(inst: Inst<'_>) -> Option<(How, usize)> {
    let operands = inst.operands();
    let [first, second] = operands[..] else {
        return None;
    };
    let size = match first {
        Operand::Register { size, .. } | Operand::Memory { size, .. } => size as usize,
        _ => return None,
    };
    // A segment's base: the word that guards the stack.
    let is_guard = || inst.memory().iter().any(|memory| memory.segment.is_some());
    let [first, second] = [number(first)?, number(second)?];
    let is_plain = match second {
        Number::Constant(value) => value != 0,
        other => other != first,
    };
    let is_wanted = [2, 4, 8].contains(&size) && is_plain && !is_guard();
    is_wanted.then_some((How::Numbers(first, second), size))
}

fn number(operand: Operand) -> Option<Number> {
    match operand {
        Operand::Register { reg, .. } => {
            let is_general = |reg: &Reg| reg.number() <= Reg::R15.number() && *reg != Reg::Rsp;
            reg.filter(is_general).map(Number::Reg)
        }
        Operand::Memory { .. } => Some(Number::Loaded),
        Operand::Constant(value) => Some(Number::Constant(value)),
        Operand::Target(_) => None,
    }
}

/// A comparison of floating point.
fn floats(insts: &[Inst<'_>], at: usize, size: usize) -> Option<(How, usize, u8)> {
    let operands = insts[at].operands();
    let number = |operand: &Operand| match operand {
        Operand::Register { reg, .. } => reg.map(Number::Reg),
        Operand::Memory { .. } => Some(Number::Loaded),
        _ => None,
    };
    let how = How::Numbers(number(operands.first()?)?, number(operands.get(1)?)?);
    Some((how, size, FLOAT | condition(&insts[at + 1..])))
}

/// The operands of a comparison of vectors of 16 bytes.
fn vectors(inst: Inst<'_>) -> Option<How> {
    let operands = inst.operands();
    let is_narrow = |operand: &Operand| match operand {
        Operand::Register { size, .. } | Operand::Memory { size, .. } => *size == 16,
        _ => false,
    };
    if !operands.iter().all(is_narrow) {
        return None;
    }
    let [.., first, second] = operands[..] else {
        return None;
    };
    let reg = |operand: Operand| match operand {
        Operand::Register { reg, .. } => reg.filter(|reg| reg.number() < Reg::Xmm16.number()),
        _ => None,
    };
    match (reg(first)?, second) {
        (first, Operand::Memory { .. }) => Some(How::VectorAndMemory(first)),
        (first, second) => {
            let second = reg(second)?;
            (first != second).then_some(How::Vectors(first, second))
        }
    }
}

/// True if a mask of a vector's elements goes to a general register or to the flags.
fn leaves_vectors(insts: &[Inst<'_>]) -> bool {
    const LEAVING: [&str; 4] = ["pmovmskb", "movmskps", "movmskpd", "ptest"];
    insts.iter().any(|inst| {
        let name = inst.mnemonic();
        LEAVING.contains(&name.strip_prefix('v').unwrap_or(name))
    })
}

/// True if the result of an `xor` is looked at for zero: by itself, or together with others by `or`.
fn is_difference(insts: &[Inst<'_>], at: usize) -> bool {
    if condition(&insts[at + 1..]) == EQUAL {
        return true;
    }
    let Some(result) = insts[at].operand_reg(0) else {
        return false;
    };
    let rest = &insts[at + 1..];
    let joins = |inst: &Inst<'_>| {
        let is_operand = |n| inst.operand_reg(n) == Some(result);
        inst.mnemonic() == "or" && (is_operand(0) || is_operand(1))
    };
    let joined = rest.iter().position(joins);
    joined.is_some_and(|at| ends_in_equality(&rest[at..]))
}

/// True if the last of a row of `or` is looked at for zero.
fn ends_in_equality(insts: &[Inst<'_>]) -> bool {
    let last = insts.iter().rposition(|inst| inst.mnemonic() == "or");
    last.is_some_and(|last| condition(&insts[last + 1..]) == EQUAL)
}

/// What the flags that an instruction sets are looked at for by the instructions after it, as AFL++'s attribute; 0 if
/// that is not known.
fn condition(behind: &[Inst<'_>]) -> u8 {
    for inst in behind {
        let usage = inst.reg_usage();
        if usage.flags_read != 0 {
            return attribute(inst.mnemonic());
        }
        if usage.flags_written != 0 {
            return 0;
        }
    }
    0
}

/// The attribute of a condition, by the name of an instruction that looks at it.
fn attribute(name: &str) -> u8 {
    const GREATER: u8 = 2;
    const LESS: u8 = 4;
    let mut ends = ["cmov", "set", "j"].into_iter();
    match ends.find_map(|start| name.strip_prefix(start)) {
        Some("e" | "z" | "ne" | "nz") => EQUAL,
        Some("a" | "nbe" | "g" | "nle") => GREATER,
        Some("ae" | "nb" | "nc" | "ge" | "nl") => GREATER | EQUAL,
        Some("b" | "c" | "nae" | "l" | "nge") => LESS,
        Some("be" | "na" | "le" | "ng") => LESS | EQUAL,
        _ => 0,
    }
}

/// The call at a block's end, if it may compare memory.
fn of_call<'a>(block: Block<'a>) -> Option<Site<'a>> {
    let inst = block.last_inst();
    let import = inst.entered_import();
    let name = import.or_else(|| inst.called_name().ok().flatten());
    // A static program calls what it chooses at its start through entries without a name.
    let is_unknown =
        || import.is_none() && inst.is_type(InstType::Call) && gives_small_integer(block);
    let kind = name.and_then(named);
    let kind = kind.or_else(|| is_unknown().then_some(Kind::Any))?;
    Some(site(inst, How::Call, 1, 0, kind))
}

/// What a function of this name compares.
fn named(name: &str) -> Option<Kind> {
    let name = name.to_ascii_lowercase();
    let has = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
    if has(&["memcmp", "bcmp"]) {
        Some(Kind::Bytes)
    } else if has(&["strncmp", "strncasecmp", "strnicmp"]) {
        Some(Kind::Beginnings)
    } else if has(&["strcmp", "strcasecmp", "stricmp", "strcoll"]) {
        Some(Kind::Texts)
    } else {
        let others = ["cmp", "equal", "compare", "strstr", "strcasestr", "memmem"];
        has(&others).then_some(Kind::Any)
    }
}

/// True if the code after a call looks at the result as an integer of 32 bits or less: it tests it, or compares it with
/// a constant.
fn gives_small_integer(block: Block<'_>) -> bool {
    const LOOKS: usize = 3;
    let mut behind = block.successors().into_iter();
    let next = behind.find_map(|edge| edge.block.filter(|_| edge.kind == EdgeKind::CallReturn));
    let Some(next) = next else { return false };
    next.insts().take(LOOKS).any(|inst| {
        let operands = inst.operands();
        let is_result = |operand: &Operand| {
            matches!(operand, Operand::Register { reg: Some(Reg::Rax), size, .. } if *size <= 4)
        };
        match (inst.mnemonic(), &operands[..]) {
            ("test", [first, second]) => is_result(first) && is_result(second),
            ("cmp", [first, Operand::Constant(_)]) => is_result(first),
            _ => false,
        }
    })
}

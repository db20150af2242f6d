//! The procedures that may lead to some others.
//!
//! A tool that needs call paths at few procedures only need not follow those that never lead there. Most calls of most
//! programs are calls of such: they call nothing, or only each other.

use std::collections::{HashMap, HashSet};

use crate::navigation::handle::{Inst, Proc};
use crate::navigation::program::Program;
use crate::{EdgeKind, InstType};

/// Beginnings of the names of C's string functions. They have several implementations, one of which is chosen when the
/// process starts, so where a call of them leads is not known; but they call nothing.
const STRINGS: [&str; 8] = [
    "mem", "str", "stp", "wmem", "wcs", "__mem", "__str", "rawmem",
];

/// Numbers of the procedures that may call or enter one of `targets`, directly or by others, and of the targets. A call or a jump
/// to a place that is not known may lead to any procedure. Procedures that switch to another stack are among those that are
/// found: what runs there was called by them.
pub fn leading_to(program: &Program<'_>, targets: &[Proc<'_>]) -> HashSet<usize> {
    let mut found: HashSet<usize> = targets.iter().map(Proc::index).collect();
    // For each procedure those that enter it, and those that continue in its blocks, as the part that a compiler split off
    // does.
    let mut from: HashMap<usize, Vec<usize>> = HashMap::new();
    let mut parts: HashMap<usize, Vec<usize>> = HashMap::new();
    for proc in program.procs() {
        let this = proc.index();
        if proc.first_block().is_none() || switches_stack(proc) {
            found.insert(this);
        }
        for block in proc.blocks() {
            let last = block.last_inst();
            let is_call = last.is_type(InstType::Call);
            let next = block.successors();
            for other in next.iter().filter_map(|edge| edge.block) {
                let other = other.proc().index();
                if other != this && !is_call {
                    from.entry(other).or_default().push(this);
                    parts.entry(this).or_default().push(other);
                }
            }
            let out = |kind| matches!(kind, EdgeKind::Tail | EdgeKind::Unknown);
            if !is_call && !next.iter().any(|edge| out(edge.kind)) {
                continue;
            }
            match entered(program, last) {
                Entered::Nothing => {}
                Entered::Proc(to) => from.entry(to.index()).or_default().push(this),
                Entered::Any => _ = found.insert(this),
            }
        }
    }
    let mut new: Vec<usize> = found.iter().copied().collect();
    while let Some(proc) = new.pop() {
        let around = from.get(&proc).into_iter().chain(parts.get(&proc));
        new.extend(around.flatten().filter(|other| found.insert(**other)));
    }
    found
}

/// Where a call or a jump leads.
pub(crate) enum Entered<'a> {
    Proc(Proc<'a>),
    /// To a procedure that calls nothing.
    Nothing,
    /// It is not known.
    Any,
}

pub(crate) fn entered<'a>(program: &Program<'a>, inst: Inst<'a>) -> Entered<'a> {
    let to = inst
        .entered_proc()
        .or_else(|| program.proc_at(inst.target_pc()?));
    let to = to.map(|to| to.stub_target().filter(|_| to.is_stub()).unwrap_or(to));
    let is_string = |name: &str| {
        let is_one = STRINGS.iter().any(|string| name.starts_with(string));
        is_one && !name.contains("dup") && name != "memalign"
    };
    match to {
        Some(to) if !to.is_stub() => Entered::Proc(to),
        _ if inst.entered_import().is_some_and(is_string) => Entered::Nothing,
        Some(to) => Entered::Proc(to),
        None => Entered::Any,
    }
}

/// True if a procedure may continue with another stack: it loads rsp, other than from rbp.
pub(super) fn switches_stack(proc: Proc<'_>) -> bool {
    proc.blocks()
        .flat_map(|block| block.insts())
        .any(|inst| loads_rsp(inst.bytes()))
}

/// True for a `mov` to rsp, but for one from rbp, and for `xchg` with rsp.
fn loads_rsp(bytes: &[u8]) -> bool {
    const RSP: u8 = 4;
    const RBP: u8 = 5;
    let [rex @ 0x48..=0x4f, opcode, rest @ ..] = bytes else {
        return false;
    };
    if *opcode == 0x94 && rex & 1 == 0 {
        return true;
    }
    let Some(modrm) = rest.first() else {
        return false;
    };
    let (is_register, reg, rm) = (modrm >> 6 == 3, modrm >> 3 & 7, modrm & 7);
    let reg_is = |n: u8| reg == n && rex & 4 == 0;
    let rm_is = |n: u8| rm == n && rex & 1 == 0;
    match opcode {
        0x8b if reg_is(RSP) => !(is_register && (rm_is(RBP) || rm_is(RSP))),
        0x89 if is_register && rm_is(RSP) => !(reg_is(RBP) || reg_is(RSP)),
        0x87 => reg_is(RSP) || is_register && rm_is(RSP),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::loads_rsp;

    #[test]
    fn loads_of_rsp_are_told_from_frames() {
        let loads: [&[u8]; 5] = [
            &[0x48, 0x8b, 0xa2, 0xa0, 0, 0, 0],
            &[0x48, 0x89, 0xd4],
            &[0x4c, 0x89, 0xc4],
            &[0x48, 0x94],
            &[0x48, 0x87, 0x23],
        ];
        assert!(loads.iter().all(|bytes| loads_rsp(bytes)));
        let others: [&[u8]; 8] = [
            &[0x48, 0x89, 0xec],
            &[0x48, 0x8b, 0xe5],
            &[0x48, 0x8d, 0x65, 0xd8],
            &[0x48, 0x8d, 0x64, 0x24, 8],
            &[0x49, 0x8d, 0x62, 0xf8],
            &[0x48, 0x89, 0xe5],
            &[0x49, 0x89, 0xe4],
            &[0x48, 0x81, 0xec, 0, 1, 0, 0],
        ];
        assert!(!others.iter().any(|bytes| loads_rsp(bytes)));
    }
}

//! The table of return addresses: from the new text's to the original's.

use crate::cfg::Cfg;
use crate::ids::ProcId;
use crate::plan::returns::{ENTRY, HEAD};
use crate::plan::{Plan, Position};
use crate::x86::{ControlFlow, Inst};

use super::layout::{insertions_of, snippets_size, take_at};
use super::{Layout, MovedSet};

/// True if it pushes a return address of the new text.
fn is_call(inst: &Inst) -> bool {
    matches!(inst.flow, ControlFlow::Call | ControlFlow::IndirectCall) && !inst.special
}

/// Bytes of the table.
pub(super) fn size(cfg: &Cfg, moved: &MovedSet) -> u64 {
    let moved = (0..cfg.procs.len())
        .map(ProcId::from_index)
        .filter(|p| moved.contains(*p));
    let calls: usize = moved
        .map(|p| {
            cfg.insts[cfg.proc_insts(p)]
                .iter()
                .filter(|i| is_call(i))
                .count()
        })
        .sum();
    HEAD + ENTRY * calls as u64
}

/// The table. Procedures lie in order, and so do the calls of each, so the
/// entries are sorted as they come.
pub(super) fn table(cfg: &Cfg, plan: &Plan, layout: &Layout) -> Vec<u8> {
    let map = layout.return_map.unwrap_or(layout.end);
    let mut bytes = vec![0; HEAD as usize];
    let mut count = 0u32;
    for (p, proc) in layout.procs.iter().enumerate() {
        let start = layout.starts[p];
        if start == 0 {
            continue;
        }
        let insts = cfg.proc_insts(ProcId::from_index(p));
        let mut rest = insertions_of(plan, &insts);
        for index in insts.clone() {
            let inst = &cfg.insts[index];
            if !is_call(inst) {
                continue;
            }
            let i = index - insts.start;
            let id = crate::ids::InstId::from_index(index);
            rest = &rest[rest.partition_point(|x| x.inst < id)..];
            take_at(&mut rest, id, Position::Entry);
            let before = snippets_size(plan, take_at(&mut rest, id, Position::Before));
            let end = proc.labels[i] + before + proc.forms[i].size(inst);
            let new = start.wrapping_add(u64::from(end)).wrapping_sub(map) as u32;
            let old = inst.offset + u32::from(inst.len);
            bytes.extend(new.to_le_bytes());
            bytes.extend(old.to_le_bytes());
            count += 1;
        }
    }
    bytes[..4].copy_from_slice(&count.to_le_bytes());
    bytes
}

//! The table that maps return addresses of the new text to original ones.

use crate::cfg::Cfg;
use crate::ids::{InstId, ProcId};
use crate::layout::Layout;
use crate::layout::procedure::{snippets_size, take_at};
use crate::layout::return_map::pushes_new;
use crate::layout::text::insertions_of;
use crate::plan::return_address::HEAD;
use crate::plan::{Plan, Position};

/// The bytes of the table. Procedures are in ascending order, and so do the calls of each, so the
/// entries are sorted.
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
            let id = InstId::from_index(index);
            if !pushes_new(cfg, &layout.sites, id) {
                continue;
            }
            let i = index - insts.start;
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

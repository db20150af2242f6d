//! The table that maps return addresses of the new text to original ones.

use crate::cfg::Cfg;
use crate::ids::{InstId, ProcId};
use crate::layout::Layout;
use crate::layout::procedure::{snippets_size, take_at};
use crate::layout::return_map::pushes_new;
use crate::plan::return_address::HEAD;
use crate::plan::{Plan, Position};

/// The bytes of the table, which is at the address `map`. Versions and their procedures are in ascending order, and so are the calls
/// of each, so the entries are sorted.
pub(super) fn table<'a>(
    cfg: &Cfg,
    plan: &Plan,
    versions: impl Iterator<Item = &'a Layout>,
    map: u64,
) -> Vec<u8> {
    let mut bytes = vec![0; HEAD as usize];
    let mut count = 0u32;
    let procs =
        versions.flat_map(|layout| layout.procs.iter().enumerate().map(move |p| (layout, p)));
    for (layout, (p, proc)) in procs {
        let Some(start) = layout.entry(ProcId::from_index(p)) else {
            continue;
        };
        let insts = cfg.proc_insts(ProcId::from_index(p));
        let mut rest = layout.insertions(plan, ProcId::from_index(p));
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

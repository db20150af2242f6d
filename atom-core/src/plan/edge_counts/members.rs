//! Procedures with their parts elsewhere, and the numbering of their blocks.

use crate::cfg::{Cfg, ProcKind};
use crate::ids::{BlockId, ProcId};

/// Procedures grouped with their parts; the procedure itself comes first. The groups are in order.
pub fn groups(cfg: &Cfg) -> Vec<Vec<ProcId>> {
    let mut members: Vec<(ProcId, bool, ProcId)> = (0..cfg.procs.len())
        .map(ProcId::from_index)
        .map(|id| match cfg.proc(id).kind {
            ProcKind::Fragment(Some(parent)) => (parent, true, id),
            _ => (id, false, id),
        })
        .collect();
    members.sort_unstable();
    members
        .chunk_by(|a, b| a.0 == b.0)
        .map(|g| g.iter().map(|m| m.2).collect())
        .collect()
}

/// Index of a block among the blocks of these procedures.
pub fn index_of(cfg: &Cfg, procs: &[ProcId], b: BlockId) -> Option<usize> {
    let owner = cfg.block(b).proc;
    let mut before = 0;
    for &p in procs {
        let proc = cfg.proc(p);
        if p == owner {
            return Some(before + b.index() - proc.first_block.index());
        }
        before += proc.block_count as usize;
    }
    None
}

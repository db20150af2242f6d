//! The size of the table that maps return addresses of the new text to original ones.

use crate::cfg::Cfg;
use crate::ids::{InstId, ProcId};
use crate::plan::return_address::{ENTRY, HEAD};
use crate::x86::ControlFlow;

use super::{MovedSet, Sites};

/// True for an instruction that pushes a return address of the new text.
pub(crate) fn pushes_new(cfg: &Cfg, sites: &Sites, id: InstId) -> bool {
    let inst = cfg.inst(id);
    matches!(inst.flow, ControlFlow::Call | ControlFlow::IndirectCall)
        && !inst.special
        && sites.homes.of(id).is_none()
}

/// Size of the table in bytes, if procedures have this number of versions.
pub(crate) fn size(cfg: &Cfg, moved: &MovedSet, sites: &Sites, versions: u64) -> u64 {
    let moved = (0..cfg.procs.len())
        .map(ProcId::from_index)
        .filter(|p| moved.contains(*p));
    let calls: usize = moved
        .map(|p| {
            cfg.proc_insts(p)
                .map(InstId::from_index)
                .filter(|i| pushes_new(cfg, sites, *i))
                .count()
        })
        .sum();
    HEAD + ENTRY * calls as u64 * versions
}

//! The size of the table that maps return addresses of the new text to original ones.

use crate::cfg::Cfg;
use crate::ids::ProcId;
use crate::plan::return_address::{ENTRY, HEAD};
use crate::x86::{ControlFlow, Inst};

use super::MovedSet;

/// True for an instruction that pushes a return address of the new text.
pub(crate) fn is_call(inst: &Inst) -> bool {
    matches!(inst.flow, ControlFlow::Call | ControlFlow::IndirectCall) && !inst.special
}

/// Size of the table in bytes.
pub(crate) fn size(cfg: &Cfg, moved: &MovedSet) -> u64 {
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

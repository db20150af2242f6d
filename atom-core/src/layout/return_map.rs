//! The size of the table of return addresses, which leads from the new text's to the original's.

use crate::cfg::Cfg;
use crate::ids::ProcId;
use crate::plan::return_address::{ENTRY, HEAD};
use crate::x86::{ControlFlow, Inst};

use super::MovedSet;

/// True if it pushes a return address of the new text.
pub(crate) fn is_call(inst: &Inst) -> bool {
    matches!(inst.flow, ControlFlow::Call | ControlFlow::IndirectCall) && !inst.special
}

/// Bytes of the table.
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

//! Instructions that stay in the old text although their procedure moves.
//!
//! Where there is no space for a pad, the original instruction runs in place and flows into the
//! next pad. That is right only if its bytes stay as they are and if all that it leads to does: an
//! instruction that reaches into the next pad, or branches to code that is overwritten, would
//! run as something else. Procedures with such a one stay where they are.

use super::sites::{KEPT, Sites};
use crate::cfg::{Cfg, Succ};
use crate::ids::ProcId;
use crate::image::Image;
use crate::x86::{FlowControl, OpKind, decode_at};

/// The procedures with an instruction that cannot run in place, and its address.
pub(crate) fn unsound(image: &Image, cfg: &Cfg, sites: &Sites) -> Vec<(ProcId, u64)> {
    let runs = |&(proc, address): &(ProcId, u64)| {
        let next = sites.next_after(address);
        runs_in_place(image, cfg, sites, proc, address, next)
    };
    sites.left().iter().copied().filter(|l| !runs(l)).collect()
}

fn runs_in_place(
    image: &Image,
    cfg: &Cfg,
    sites: &Sites,
    proc: ProcId,
    start: u64,
    next: u64,
) -> bool {
    // A transfer works as before if it leads to a pad, or to code that does not move.
    let leads_on = |target: u64| {
        let moves = |proc| cfg.proc(proc).is_movable();
        sites.is_landing(target) || !cfg.proc_at(target).is_some_and(moves)
    };
    let limit = next.min(start + KEPT);
    let mut at = start;
    while at != next {
        let Some(inst) = image.rest_at(at).and_then(|bytes| decode_at(bytes, at)) else {
            return false;
        };
        if inst.next_ip() > limit {
            return false;
        }
        if inst.op0_kind() == OpKind::NearBranch64 && !leads_on(inst.near_branch_target()) {
            return false;
        }
        match inst.flow_control() {
            FlowControl::Return | FlowControl::UnconditionalBranch | FlowControl::Exception => {
                return true;
            }
            FlowControl::IndirectBranch => {
                let Some(jump) = cfg.inst_in(proc, at) else {
                    return false;
                };
                return cfg.succs(cfg.block_of(jump)).iter().all(|s| match s {
                    Succ::Fall(b) | Succ::Branch(b) => sites.is_landing(cfg.block_pc(*b)),
                    _ => true,
                });
            }
            _ => at = inst.next_ip(),
        }
    }
    true
}

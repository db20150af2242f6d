//! Direct branches and calls of the original text that lead to procedures that move: their displacements change.

use rayon::prelude::*;

use crate::cfg::Cfg;
use crate::ids::{BlockId, InstId, ProcId};
use crate::image::Image;
use crate::x86::ControlFlow;
use crate::x86::branch::near_field;

use super::{Layout, MovedSet};

/// A direct call or jump that stays in the original text.
pub(crate) struct Branch {
    /// Address of the displacement, which has 32 bits.
    pub field: u64,
    /// Where it leads from now on.
    pub new: u64,
}

/// All of them: those of procedures that stay, and the calls at home of procedures that move. `front` has the version to
/// which control comes that enters a block from outside.
pub(crate) fn find<'a>(
    image: &Image,
    cfg: &Cfg,
    layout: &'a Layout,
    front: impl Fn(BlockId) -> &'a Layout + Sync,
) -> Vec<Branch> {
    let mut all = of_procedures_in_place(image, cfg, &layout.moved, &front);
    all.extend(of_calls_at_home(image, cfg, layout, &front));
    all
}

/// The direct calls and jumps of procedures that stay, to the starts of procedures that move.
fn of_procedures_in_place<'a>(
    image: &Image,
    cfg: &Cfg,
    moved: &MovedSet,
    front: &(impl Fn(BlockId) -> &'a Layout + Sync),
) -> Vec<Branch> {
    let branch = |b: BlockId| {
        let (field, target) = displacement(image, cfg, cfg.block(b).last())?;
        let to = cfg.proc_at(target)?;
        if cfg.proc(to).start != target || !moved.contains(to) {
            return None;
        }
        // A thread that comes from here may not have its own data yet.
        let block = cfg.block_at(target)?;
        let new = front(block).landing(cfg, block);
        Some(Branch { field, new })
    };
    let procs = (0..cfg.procs.len()).into_par_iter().map(ProcId::from_index);
    procs
        .filter(|p| cfg.proc(*p).is_movable() && !moved.contains(*p))
        .flat_map_iter(|p| cfg.proc(p).blocks().filter_map(branch))
        .collect()
}

/// The direct calls of procedures that move which stay in the original text.
fn of_calls_at_home<'a>(
    image: &Image,
    cfg: &Cfg,
    layout: &'a Layout,
    front: &impl Fn(BlockId) -> &'a Layout,
) -> Vec<Branch> {
    let branch = |(proc, call)| {
        let is_direct = cfg.inst(call).flow == ControlFlow::Call;
        let target = is_direct.then(|| cfg.direct_target(image, call))??;
        // It is reached from both versions.
        let version = cfg.block_at(target).map_or(layout, front);
        let new = version.target(cfg, proc, true, target)?;
        // The displacement is at the end of the instruction.
        let field = cfg.inst_end(call) - 4;
        Some(Branch { field, new })
    };
    layout.sites.homes.in_place().filter_map(branch).collect()
}

/// Where the 32-bit displacement of a direct call or jump is, if no other
/// instruction has a part in its bytes, and the target.
fn displacement(image: &Image, cfg: &Cfg, id: InstId) -> Option<(u64, u64)> {
    let inst = cfg.inst(id);
    let (pc, end) = (cfg.inst_pc(id), cfg.inst_end(id));
    let len = usize::from(inst.len);
    let is_plain = inst.flow.is_direct()
        && near_field(image.bytes_at(pc, len)?).is_some_and(|field| field + 4 == len);
    let overlaps = |a: usize, b: usize| match (cfg.insts.get(a), cfg.insts.get(b)) {
        (Some(a), Some(b)) => a.offset + u32::from(a.len) > b.offset,
        _ => false,
    };
    let at = id.index();
    if !is_plain || overlaps(at, at + 1) || at > 0 && overlaps(at - 1, at) {
        return None;
    }
    let field = end - 4;
    let bytes = image.bytes_at(field, 4)?.try_into().ok()?;
    let target = end.wrapping_add_signed(i64::from(i32::from_le_bytes(bytes)));
    Some((field, target))
}

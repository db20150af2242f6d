//! New displacements of direct branches from procedures that stay to procedures that move.

use crate::cfg::Cfg;
use crate::error::Result;
use crate::ids::{InstId, ProcId};
use crate::image::Image;
use crate::layout::Layout;
use crate::x86::branch::near_field;

/// The direct calls and jumps of procedures that stay, to the starts of
/// procedures that move: the address of each displacement, and its new value.
pub(super) fn branches(image: &Image, cfg: &Cfg, layout: &Layout) -> Result<Vec<(u64, [u8; 4])>> {
    let mut patches = Vec::new();
    for (i, proc) in cfg.procs.iter().enumerate() {
        let id = ProcId::from_index(i);
        if !proc.is_movable() || layout.moved.contains(id) {
            continue;
        }
        for b in proc.blocks() {
            let last = cfg.block(b).last();
            let Some((field, target)) = displacement(image, cfg, last) else {
                continue;
            };
            let to = cfg.proc_at(target).filter(|p| cfg.proc(*p).start == target);
            let moved = to.filter(|p| layout.moved.contains(*p));
            let Some(block) = moved.and_then(|_| cfg.block_at(target)) else {
                continue;
            };
            // A thread that comes from here may not have its own data yet.
            let new = layout.landing(cfg, block);
            patches.push((field, super::rel32(new, field + 4)?));
        }
    }
    Ok(patches)
}

/// Where the 32-bit displacement of a direct call or jump stands, if no other
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

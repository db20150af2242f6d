//! Direct calls that may hide in executable bytes outside all known instructions.

use rayon::prelude::*;

use crate::cfg::{Block, Cfg};
use crate::image::Image;
use crate::x86::branch::near_field;

/// Addresses to which calls and jumps in executable bytes outside all known
/// instructions may lead. Every byte that could start such an instruction counts.
pub fn targets(image: &Image, cfg: &Cfg) -> Vec<u64> {
    gaps(image, cfg)
        .into_par_iter()
        .with_min_len(256)
        .flat_map_iter(|(start, end)| {
            // Where code overlaps, the displacement may reach over the gap's end.
            let bytes = image.rest_at(start).unwrap_or(&[]);
            let size = ((end - start) as usize).min(bytes.len());
            (0..size).filter_map(move |i| target_at(&bytes[i..], start + i as u64))
        })
        .collect()
}

/// The target of the call or jump with a 32-bit displacement at the start of `bytes`.
fn target_at(bytes: &[u8], address: u64) -> Option<u64> {
    let field = near_field(bytes)?;
    let offset = i32::from_le_bytes(bytes.get(field..field + 4)?.try_into().ok()?);
    Some((address + field as u64 + 4).wrapping_add_signed(offset.into()))
}

/// Ranges of executable bytes that no instruction of the cfg covers.
fn gaps(image: &Image, cfg: &Cfg) -> Vec<(u64, u64)> {
    let mut gaps = Vec::new();
    for segment in image.segments.iter().filter(|s| s.is_executable()) {
        let end = segment.address + segment.file_size;
        let mut at = segment.address;
        let offset = at.saturating_sub(cfg.base);
        let start = |b: &Block| u64::from(cfg.inst(b.first).offset);
        let first = cfg.blocks.partition_point(|b| start(b) < offset);
        for block in &cfg.blocks[first..] {
            let pc = cfg.base + start(block);
            if pc >= end {
                break;
            }
            if pc > at {
                gaps.push((at, pc));
            }
            at = at.max(cfg.inst_end(block.last()));
        }
        if at < end {
            gaps.push((at, end));
        }
    }
    gaps
}

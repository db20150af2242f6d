//! Pads: what remains in the original text.
//!
//! Where they stand is decided by [`Sites`](crate::layout::Sites).

use crate::error::Result;
use crate::layout::Placed;
use crate::layout::sites::{Jump, Landing};

use super::branches::branches;

/// Changes of the original text.
#[derive(Debug, Default)]
pub struct OldText {
    /// Bytes to write: address, bytes, how many of them.
    pub patches: Vec<(u64, [u8; 5], u8)>,
    /// New displacements of branches in procedures that stay, by address.
    pub branches: Vec<(u64, [u8; 4])>,
    /// Ranges to fill with `int3` before the patches are written.
    pub dead: Vec<(u64, u64)>,
}

/// The pads of the procedures that move, and patched branches in those that stay.
pub(super) fn place(placed: &Placed<'_>) -> Result<OldText> {
    let (image, cfg, layout) = (placed.object.image, &placed.object.cfg, &placed.layout);
    let sites = &layout.sites;
    let new_address = |landing: &Landing| layout.landing(cfg, landing.block);
    let patches = sites
        .jumps
        .iter()
        .map(|(at, to)| match to {
            Jump::New(i) => (*at, jump(*at, new_address(&sites.landings[*i])), 5),
            Jump::Short(target) => {
                let distance = target.wrapping_sub(at + 2) as u8;
                (*at, [0xeb, distance, 0, 0, 0], 2)
            }
            Jump::Opcode => (*at, [0xeb, 0, 0, 0, 0], 1),
        })
        .collect();
    Ok(OldText {
        patches,
        branches: branches(image, cfg, layout)?,
        dead: if placed.strict {
            sites.free.ranges()
        } else {
            Vec::new()
        },
    })
}

fn jump(from: u64, to: u64) -> [u8; 5] {
    let distance = (to.wrapping_sub(from + 5) as i32).to_le_bytes();
    [0xe9, distance[0], distance[1], distance[2], distance[3]]
}

//! Pads: the jumps in the original text, and other changes of it.
//!
//! [`Sites`](crate::layout::Sites) decides where they are.

use crate::error::Result;
use crate::layout::home::Landing;
use crate::layout::sites::Jump;
use crate::layout::{Placed, branches};
use crate::x86::branch::{self, JMP_LEN, JMP_SHORT_LEN};
use crate::x86::opcode;

/// Changes of the original text.
#[derive(Debug, Default)]
pub struct OldText {
    /// Bytes to write: address, bytes, number of bytes.
    pub patches: Vec<(u64, [u8; JMP_LEN], u8)>,
    /// New displacements of branches and calls that stay, by address.
    pub branches: Vec<(u64, [u8; 4])>,
    /// Ranges to fill with `int3` before the patches are written.
    pub dead: Vec<(u64, u64)>,
}

/// The pads of the procedures that move, and patched branches in those that stay.
pub(super) fn place(placed: &Placed<'_>) -> Result<OldText> {
    let (image, cfg, layout) = (placed.object.image, &placed.object.cfg, placed.front());
    let sites = &layout.sites;
    let new_address = |landing: &Landing| match landing.call {
        Some(call) => layout
            .end_of(cfg, placed.plan, landing.proc, call)
            .unwrap_or(0),
        None => placed.front_at(landing.block).landing(cfg, landing.block),
    };
    let patches = sites
        .jumps
        .iter()
        .map(|(at, to)| match to {
            Jump::New(i) => {
                let jump = branch::jump(*at, new_address(&sites.landings[*i]));
                (*at, jump, JMP_LEN as u8)
            }
            Jump::Short(target) => {
                let [opcode, distance] = branch::short_jump(*at, *target);
                (*at, [opcode, distance, 0, 0, 0], JMP_SHORT_LEN as u8)
            }
            Jump::Opcode => (*at, [opcode::JMP_SHORT, 0, 0, 0, 0], 1),
        })
        .collect();
    let branches = branches::find(image, cfg, layout, |block| placed.front_at(block))
        .into_iter()
        .map(|branch| Ok((branch.field, super::rel32(branch.new, branch.field + 4)?)));
    Ok(OldText {
        patches,
        branches: branches.collect::<Result<_>>()?,
        dead: if layout.strict {
            sites.free.ranges()
        } else {
            Vec::new()
        },
    })
}

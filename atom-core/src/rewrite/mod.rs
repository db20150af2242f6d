//! Moving the text: where everything goes, and the moved code itself.
//!
//! A procedure that gets no inserted code stays in place ([`MovedSet`]); the
//! others are written again at another address.
//!
//! Two steps, with a freeze point between them. [`Layout::new`] fixes the size
//! and the address of every moved instruction; the exception tables and the
//! analysis image are placed behind the new text with that knowledge, and
//! [`encode`] writes the bytes. Each part has exactly the size that the layout
//! reserved for it, which is checked.
//!
//! An original address that control can reach indirectly keeps a *pad*, a jump
//! to the new text ([`pads`]), so that code pointers keep their values.

use crate::cfg::seeds::FrameFacts;
use crate::cfg::{Cfg, Kept};
use crate::error::{Error, Result};
use crate::image::Image;

mod encode;
mod frames;
mod free;
mod guards;
mod layout;
mod left;
mod moved;
pub mod pads;
mod proc_layout;
mod region;
mod returns;
mod tables;

pub(crate) use encode::overlay;
pub use encode::{Anchors, NewText, encode};
pub use frames::Frames;
pub use layout::Layout;
pub use moved::MovedSet;
pub use region::{Region, Wishes};

/// Distance between the image and the new segments: room for the randomised
/// heap start (up to 1 GiB above the image) inside the 2 GiB that a relative
/// operand reaches. Below an image, it is the distance between the starts.
pub const GAP: u64 = 0x6000_0000;

/// The program as procedures, blocks and instructions, and places for the pads of everything
/// that can move. The graph says which procedures will have a gap: some instruction of
/// theirs has to stay where it is, and runs there without its calls. Where that would not run
/// right, the whole procedure stays.
pub fn understand(image: &Image, frames: &FrameFacts) -> Result<(Cfg, pads::Sites)> {
    let mut kept = Kept::new();
    loop {
        let mut cfg = Cfg::build_keeping(image, frames, &kept)?;
        let sites = pads::Sites::new(image, &cfg, &MovedSet::all(&cfg));
        let unsound = left::unsound(image, &cfg, &sites);
        if unsound.is_empty() {
            for &(proc, address) in sites.left() {
                cfg.set_partial(
                    proc,
                    format!("there is no room for a jump at {address:#x}; reached by a pointer, that instruction runs in place"),
                );
            }
            return Ok((cfg, sites));
        }
        // Each of them moved in this round, so there is an end to it.
        kept.extend(unsound.into_iter().map(|(proc, address)| {
            let reason = format!("there is no room for a jump at {address:#x}, and what stays there would not run right");
            (cfg.proc(proc).start, reason)
        }));
    }
}

const DOING: &str = "writing the new text";

fn rel32(target: u64, next: u64) -> Result<[u8; 4]> {
    let distance = target.wrapping_sub(next) as i64;
    i32::try_from(distance).map(i32::to_le_bytes).map_err(|_| {
        Error::new(DOING, format!("{target:#x} is more than 2 GiB away")).address(next)
    })
}

/// Procedures that move although they get no inserted code.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Extra {
    /// None.
    #[default]
    None,
    /// About half of them, chosen by a seed: tests that code works wherever
    /// its neighbours are.
    Half(u64),
    /// All that can.
    All,
}

/// How the rewriter is to work.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Fill dead original text with `int3`, so that a missed pad fails loudly.
    pub strict: bool,
    /// What moves beside the procedures that get inserted code.
    pub extra: Extra,
    /// Where the new segments go, if not where they usually do.
    pub region: Option<Region>,
}

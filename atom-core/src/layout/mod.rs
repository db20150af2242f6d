//! Where everything goes: which procedures move, and every new address.
//!
//! A procedure that gets no inserted code stays in place ([`MovedSet`]); the
//! others are written again at another address.
//!
//! [`Region`] says which addresses the new segments get, [`Sites`] which bytes of the
//! original text become jumps to the new text. [`Layout`] fixes the size and the address of
//! every moved instruction, and [`Placement`] those of what is after the new text: exception
//! tables, the tool's code and data. No address changes from then on.

use crate::cfg::seeds::FrameFacts;
use crate::cfg::{Discovered, Kept, Object, Returns};
use crate::error::Result;
use crate::image::{Image, ObjectKind};
use crate::unwind::UnwindTable;

mod accesses;
mod area;
mod boundaries;
pub(crate) mod branches;
mod frames;
mod free;
mod go;
pub(crate) mod guards;
pub(crate) mod home;
mod left;
mod moved;
mod placed;
pub(crate) mod placement;
pub(crate) mod procedure;
mod region;
pub(crate) mod return_map;
pub(crate) mod sites;
pub(crate) mod tables;
pub(crate) mod text;
mod text_table;

pub use area::{Area, AreaSizes, Spaces, spaces};
pub use frames::Frames;
pub use moved::MovedSet;
pub use placed::Placed;
pub use placement::{BaseAddresses, Placement};
pub use region::{Region, RequestedAddresses};
pub use sites::Sites;
pub use text::Layout;

/// Size in bytes of the space for the start-up code at the head of the new text. A program interpreter
/// that starts a whole process has a path in it.
pub fn start_size(kind: ObjectKind) -> u64 {
    match kind {
        ObjectKind::Interpreter => 0x2000,
        _ => 1024,
    }
}

/// Distance between the image and the new segments: space for the randomised
/// heap start (up to 1 GiB above the image) inside the 2 GiB that a relative
/// operand reaches. Below an image, it is the distance between the starts.
pub const GAP: u64 = 0x6000_0000;

/// Finds procedures, blocks and instructions, and the places of pads for everything that can move.
/// The graph says which procedures will have a gap: an instruction of such a procedure has to stay
/// in place, and runs there without its calls. Where that would go wrong, the whole procedure
/// stays. `returns` are the return addresses of procedures that need no particular ones.
pub fn understand<'a>(
    image: &'a Image,
    unwind: UnwindTable<'a>,
    returns: Returns,
) -> Result<(Object<'a>, Sites)> {
    let frames = FrameFacts::new(&unwind);
    let mut discovered = Discovered::new(image, &frames, returns);
    let mut kept = Kept::new();
    loop {
        let mut cfg = discovered.graph(&frames, &kept);
        let sites = Sites::new(image, &cfg, &MovedSet::all(&cfg));
        let unsound = left::unsound(image, &cfg, &sites);
        let homeless = &sites.homes.homeless;
        if unsound.is_empty() && homeless.is_empty() {
            for &(proc, address) in sites.left() {
                cfg.set_partial(
                    proc,
                    format!("there is no space for a jump at {address:#x}; reached by a pointer, that instruction runs in place"),
                );
            }
            discovered.release();
            return Ok((Object { image, unwind, cfg }, sites));
        }
        // Each of these procedures moved in this round, so the loop ends.
        kept.extend(unsound.into_iter().map(|(proc, address)| {
            let reason = format!("there is no space for a jump at {address:#x}, and what stays there would not run right");
            (cfg.proc(proc).start, reason)
        }));
        kept.extend(homeless.iter().map(|&(proc, address)| {
            let request = match returns {
                Returns::Always => "its calls are to push the original return addresses",
                _ => "the program looks its return addresses up in a table",
            };
            let reason = format!("{request}, and the call at {address:#x} cannot stay in place");
            (cfg.proc(proc).start, reason)
        }));
        discovered.take_back(cfg);
    }
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
    /// All procedures that can move.
    All,
}

/// Settings of the rewriter.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<'a> {
    /// Fill dead original text with `int3`, so that a missed pad fails loudly.
    pub strict: bool,
    /// Procedures that move beside those with inserted code.
    pub extra: Extra,
    /// The region for the new segments, if it is not the usual one.
    pub region: Option<Region>,
    /// The area of the process, if the tool is there.
    pub area: Option<&'a Area>,
}

impl Options<'_> {
    /// The region for the new segments of an object.
    fn region_of(&self, image: &Image) -> Region {
        self.region.unwrap_or_else(|| Region::of(image))
    }
}

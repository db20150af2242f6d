//! Moving the text: where everything goes, and the moved code itself.
//!
//! Two steps, with a freeze point between them. [`Layout::new`] fixes the size
//! and the address of every moved instruction; the exception tables and the
//! analysis image are placed behind the new text with that knowledge, and
//! [`encode`] writes the bytes. Each part has exactly the size that the layout
//! reserved for it, which is checked.
//!
//! An original address that control can reach indirectly keeps a *pad*, a jump
//! to the new text ([`pads`]), so that code pointers keep their values.

use crate::cfg::Cfg;
use crate::image::Image;

mod encode;
mod layout;
pub mod pads;
mod region;
mod returns;
mod tables;

pub use encode::{Anchors, encode};
pub use layout::Layout;
pub use region::Region;

/// Distance between the image and the new segments: room for the randomised
/// heap start (up to 1 GiB above the image) inside the 2 GiB that a relative
/// operand reaches. Below an image, it is the distance between the starts.
pub const GAP: u64 = 0x6000_0000;

/// Notes in the graph which procedures will have a gap: some instruction of
/// theirs has to stay where it is, and runs there without its calls.
pub fn note_gaps(image: &Image, cfg: &mut Cfg) {
    for (proc, address) in pads::without_room(image, cfg) {
        cfg.set_partial(
            proc,
            format!("there is no room for a jump at {address:#x}; reached by a pointer, that instruction runs in place"),
        );
    }
}

/// How the rewriter is to work.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Fill dead original text with `int3`, so that a missed pad fails loudly.
    pub strict: bool,
}

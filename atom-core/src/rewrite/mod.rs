//! Writing the code: the moved code itself, and the pads in the original text.
//!
//! The layout has fixed the size and the address of every moved instruction. [`code`] writes
//! the bytes; each part has exactly the size that the layout reserved for it, which is checked.
//!
//! An original address that control can reach indirectly keeps a *pad*, a jump
//! to the new text ([`OldText`]), so that code pointers keep their values.

use crate::error::{Error, Result};
use crate::layout::Placed;

mod encode;
mod guards;
mod pads;
mod return_map;
mod tables;

pub use encode::NewText;
pub(crate) use encode::overlay;
pub use pads::OldText;

/// The code of the output.
pub struct Code<'a> {
    /// The new text.
    pub text: NewText<'a>,
    /// Changes of the original text.
    pub old: OldText,
}

/// Prepares the new text, and writes the pads that lead there.
pub fn code<'a>(placed: &'a Placed<'a>) -> Result<Code<'a>> {
    Ok(Code {
        text: encode::encode(placed)?,
        old: pads::place(placed)?,
    })
}

const DOING: &str = "writing the new text";

fn rel32(target: u64, next: u64) -> Result<[u8; 4]> {
    let distance = target.wrapping_sub(next) as i64;
    i32::try_from(distance).map(i32::to_le_bytes).map_err(|_| {
        Error::new(DOING, format!("{target:#x} is more than 2 GiB away")).address(next)
    })
}

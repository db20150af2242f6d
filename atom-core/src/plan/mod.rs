//! Planning: from the calls that a tool added to machine code with symbolic targets.
//!
//! Only this stage knows what a tool wants. `points` tells which calls are made where. A point's code
//! depends on the registers and flags that are live there and on those that the routines may change.
//! Code that several points share is emitted once.
//!
//! Files use each other in one direction. At the bottom are `code` (the plan), `data`, `wrapper` and
//! `stub`; on these `threads` and `site` (the code of one point), then `shared`, `exits` and
//! `edge_counts`; `build` puts all together.

mod build;
pub mod code;
mod data;
mod edge_counts;
mod exits;
mod inline;
mod keeping;
pub mod kept;
mod options;
mod outcome;
mod part;
pub(crate) mod points;
mod prepare;
mod private_stack;
pub(crate) mod return_address;
mod shared;
mod site;
mod spare_stack;
mod sparse;
mod stub;
mod switch;
#[cfg(test)]
mod tests;
mod threads;
mod whole;
mod wrapper;

pub use crate::x86::asm::{Access, Frame, FrameChange};
pub use code::{
    Changes, Fixup, Guard, Guards, Home, Insertion, Plan, Position, Snippet, Target, Told, Totals,
    Version,
};
pub use options::{CALLED, Options};
pub use sparse::Sparse;
pub use switch::{Bursts, Switch};
pub use threads::{ThreadAccess, ThreadOptions};
pub use whole::{Unit, Whole};

/// Registers and flags that an analysis routine, with all that it calls, may change.
///
/// Analysis code keeps to the System V ABI and is compiled for baseline x86-64. So callee-saved registers
/// keep their values, and the upper halves of vector registers stay as they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Clobbers {
    /// Mask of general registers, by their numbers in encodings.
    pub gprs: u16,
    /// Mask of vector registers 0 to 15.
    pub xmms: u16,
    /// True if it may change arithmetic flags.
    pub flags: bool,
    /// True if it computes in floating point, and so depends on and changes MXCSR.
    pub mxcsr: bool,
    /// True if it calls nothing.
    pub is_leaf: bool,
    /// True if it needs the stack aligned as the ABI demands.
    pub needs_alignment: bool,
    /// True if it needs much of the stack, or nobody knows how much: then it runs on a stack of the runtime's.
    pub is_apart: bool,
}

impl Clobbers {
    /// All registers and flags that the ABI lets a function change.
    pub const EVERYTHING: Self = Self {
        gprs: crate::live::RegSet::CALLER_SAVED.gpr_mask(),
        xmms: u16::MAX,
        flags: true,
        mxcsr: true,
        is_leaf: false,
        needs_alignment: true,
        is_apart: false,
    };
}

impl From<crate::analysis::Summary> for Clobbers {
    fn from(summary: crate::analysis::Summary) -> Self {
        if !summary.fits_program_stack() {
            // The runtime goes to the other stack.
            return Self {
                is_apart: true,
                ..Self::EVERYTHING
            };
        }
        Self {
            gprs: summary.gprs,
            xmms: summary.xmms,
            flags: summary.flags,
            mxcsr: summary.fp,
            is_leaf: summary.leaf,
            needs_alignment: summary.aligned_stack,
            is_apart: false,
        }
    }
}

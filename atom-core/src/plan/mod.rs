//! From the calls that a tool added to machine code with symbolic targets.
//!
//! Only this stage knows what a tool wants. [`points`](self) says which calls
//! are made where; a point's code is emitted from what is live there and what
//! the routines may change; what several points share is emitted once.

mod build;
pub mod code;
mod data;
mod detour;
mod edge_counts;
mod exits;
mod inline;
mod part;
pub(crate) mod points;
pub(crate) mod return_address;
mod shared;
mod site;
mod sparse;
#[cfg(test)]
mod tests;
mod threads;
mod wrapper;

use crate::analysis::specialise::Specialiser;

pub use crate::x86::asm::{Frame, Shift};
pub use code::{Fixup, Guard, Guards, Insertion, Plan, Position, Snippet, Target, Totals};
pub use sparse::Sparse;
pub use threads::{ThreadAccess, ThreadOptions};

/// What an analysis routine, with all that it calls, may change.
///
/// Analysis code keeps to the System V ABI and is compiled for baseline
/// x86-64: callee-saved registers come back, and the upper halves of vector
/// registers stay as they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Clobbers {
    /// General registers, by hardware number.
    pub gprs: u16,
    /// Vector registers.
    pub xmms: u16,
    /// Arithmetic flags.
    pub flags: bool,
    /// It computes with floating point, and so depends on and changes MXCSR.
    pub mxcsr: bool,
    /// It calls nothing.
    pub is_leaf: bool,
    /// It wants the stack aligned as the ABI says.
    pub needs_alignment: bool,
}

impl Clobbers {
    /// All that the ABI lets a function change.
    pub const EVERYTHING: Self = Self {
        gprs: crate::live::RegSet::CALLER_SAVED.gpr_mask(),
        xmms: u16::MAX,
        flags: true,
        mxcsr: true,
        is_leaf: false,
        needs_alignment: true,
    };
}

impl From<crate::analysis::Summary> for Clobbers {
    fn from(summary: crate::analysis::Summary) -> Self {
        Self {
            gprs: summary.gprs,
            xmms: summary.xmms,
            flags: summary.flags,
            mxcsr: summary.fp,
            is_leaf: summary.leaf,
            needs_alignment: summary.aligned_stack,
        }
    }
}

/// What planning does beside the tool's calls.
#[derive(Clone, Copy, Default)]
pub struct Options<'a> {
    /// Address of the runtime's `finish` in the tool's file; hooks are set
    /// where a process may end. `None`: no hooks.
    pub finish: Option<u64>,
    /// Address of the runtime's `exec`. `None`: a process that becomes another
    /// program does so unnoticed.
    pub exec: Option<u64>,
    /// The program can have more than one thread: the end of a thread is not
    /// the end of the process.
    pub may_have_threads: bool,
    /// How per-thread data is found.
    pub threads: ThreadOptions,
    /// Makes what can be of calls part of their points. `None`: all are called.
    pub bodies: Option<&'a Specialiser<'a>>,
    /// Bytes from the start of the new segments that have fixed addresses below 2 GiB; 0 if
    /// the program may lie anywhere. Data there can be named by 32-bit displacements.
    pub low_room: u64,
    /// Makes each call that only counts at its own point, though totals could
    /// be had from fewer counters.
    pub every_point: bool,
}

//! Each thread's cache, in which the lines with bytes of ranges are marked.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use atom_tool::prelude::*;
use atom_tool::simulate::Comparison;
use atom_tool::simulate::cache::{Lines, Shape};

thread_state! {
    /// A thread's cache. The top bit of a tag is cleared if a byte of a range is in the
    /// line, and set otherwise.
    pub struct State {
        pub lines: Lines,
        pub comparison: Comparison,
    }
}

/// The bit of a tag that is set if no byte of a range is in the line.
pub const PLAIN: u64 = 1 << 63;

/// The cache's shape, for routines that do not get it as an argument.
pub static SHAPE: AtomicU64 = AtomicU64::new(0);

/// Marks the lines of a cache in `start..end`, where a range appears.
pub fn mark(state: &State, start: u64, end: u64) {
    let shape = Shape(SHAPE.load(Relaxed));
    let lines = state.lines.get(..shape.lines()).unwrap_or_default();
    let change = |cell: &ThreadCell<u64>| {
        let tag = cell.get();
        let line = tag.wrapping_neg();
        if tag & PLAIN != 0 && line < end && line + shape.line() > start {
            cell.replace(tag, tag ^ PLAIN);
        }
    };
    let first = shape.start(start);
    if (end - first).div_ceil(shape.line()) >= shape.sets() {
        lines.iter().for_each(change);
        return;
    }
    for line in (first..end).step_by(shape.line() as usize) {
        shape.set_of(&state.lines, line).iter().for_each(change);
    }
}

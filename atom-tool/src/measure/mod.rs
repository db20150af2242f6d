//! What simulators and recorders are built from: call paths, allocations, buffers, caches, clocks.

pub mod allocations;
pub mod clocks;
pub mod intervals;
pub(crate) mod landings;
pub mod notes;
pub mod paths;
pub mod simulate;
pub(crate) mod stack;
pub mod stacks;

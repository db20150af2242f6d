//! The pipeline: image, decode, cfg, live, tool, plan, rewrite, emit.
//!
//! Each stage borrows the ones before immutably and returns a new value.
//! Only `plan` knows what a tool wants, only `rewrite` knows new addresses,
//! only `emit` knows how the output file is laid out. Nothing here prints,
//! exits or keeps global state; every failure is an [`Error`].
#![deny(missing_docs)]

pub mod analysis;
pub mod cfg;
pub mod check;
pub mod decode;
pub mod emit;
pub mod error;
mod grouped;
pub mod ids;
pub mod image;
pub mod live;
pub mod memory;
mod parallel;
pub mod plan;
pub mod rewrite;
pub mod tool;

pub use error::{Error, Result};
pub use ids::{BlockId, InstId, ProcId};

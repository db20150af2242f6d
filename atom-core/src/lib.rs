//! The core: from the program's file to the instrumented output. The stages, in the order in which they run:
//!
//! ```text
//! image -> unwind -> cfg -> tool -> analysis -> live -> plan -> layout -> rewrite -> emit
//! ```
//!
//! Each stage borrows the values of the stages before it and returns a new value; its code uses nothing
//! of the stages after it, which a test checks. Below all stages are `error`, `ids`, `memory`, `parallel`,
//! `grouped` and `x86`. Above them are `check`, which judges the output, and `pipeline`, whose function `instrument` takes
//! objects and a tool through all stages; its head has an example.
//! Only `plan` knows what a tool wants, only `layout` assigns new addresses, only `emit` knows how the
//! output file is laid out. Nothing here prints, exits or keeps global state; every failure is an [`Error`].
#![deny(missing_docs)]

pub mod analysis;
pub mod cfg;
pub mod check;
pub mod emit;
pub mod error;
mod grouped;
pub mod ids;
pub mod image;
pub mod layout;
pub mod live;
pub mod memory;
mod parallel;
pub mod pipeline;
pub mod plan;
pub mod rewrite;
pub mod tool;
pub mod unwind;
pub mod x86;

pub use error::{Error, Result};
pub use ids::{BlockId, InstId, ProcId};

/// Size of a page in bytes, to which linkers and the kernel align segments.
pub(crate) const PAGE: u64 = 0x1000;

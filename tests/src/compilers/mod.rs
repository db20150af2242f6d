//! Test programs by many compilers with many options, beside their rewrites.
//!
//! The table is `compilers.txt` beside this crate: compilers, where each is had, and groups of options. A *case* is a
//! source, a compiler and a line of options. The compilers of other releases of Debian run in root folders
//! ([`crate::roots`]), and so do their programs.

mod judge;
mod table;

pub use judge::{Judge, Verdict, tally};
pub use table::{Case, Compiler, Table, sources, spread};

//! From the calls that a tool added to machine code with symbolic targets.
//!
//! Only this stage knows what a tool wants.

pub mod code;

pub use code::{Fixup, Insertion, Plan, Position, Snippet, Target};

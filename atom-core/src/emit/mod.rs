//! Writing the parts of the output file.

pub mod unwind;

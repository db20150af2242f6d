//! Files of other programs that show costs by stack, by procedure and by time. Tools write them, and so does the
//! command from the results of tools.

#![deny(missing_docs)]

pub mod callgrind;
pub mod chrome;
pub mod folded;
pub mod speedscope;

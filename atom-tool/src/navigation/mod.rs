//! What an instrument routine walks over: the program, its objects, procedures, blocks and instructions, and what is known of each.

pub(crate) mod address;
pub(crate) mod edges;
pub(crate) mod find;
pub(crate) mod float;
pub(crate) mod flow;
pub(crate) mod handle;
pub(crate) mod image;
pub(crate) mod labels;
pub(crate) mod object;
pub(crate) mod operands;
pub(crate) mod program;
pub(crate) mod references;
pub(crate) mod registers;

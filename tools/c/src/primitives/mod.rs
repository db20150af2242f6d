//! ATOM's primitives and ours as C functions. The header files in `include` declare them; the names and
//! the numbers of constants here are the ones there.
//!
//! A handle of C is the index of a procedure, block, instruction or object plus 1; NULL stands for none. Where ATOM
//! raises an error, and where a handle is wrong, `atom` ends with a message that names the primitive. Lists are given item by
//! item: a function takes the number of an item, and returns 0 after the last.

mod calls;
mod flow;
pub mod handles;
mod insts;
mod navigation;
mod objects;
pub mod options;
mod paths;
mod placed;
mod queries;
mod report;
mod sites;

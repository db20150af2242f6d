//! ATOM's primitives and ours as C functions. `include/instrument.h` and `include/atom.h` declare them; the names and
//! the numbers of constants here are the ones there.
//!
//! A handle of C is the index of a procedure, block, instruction or object plus 1; NULL stands for none. Where ATOM
//! raises an error, and where a handle is wrong, `atom` ends with a message that names the primitive. Lists are given item by
//! item: a function takes the number of an item, and returns 0 behind the last.

mod calls;
mod flow;
pub mod handles;
mod insts;
mod navigation;
mod objects;
mod placed;
mod queries;

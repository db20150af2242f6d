//! What the command keeps between runs: entries of a store, under names that are digests of all that they depend on.
//!
//! The records of runs are in the store's folder, too; what is in them is `atom run`'s matter.

pub mod identity;
pub mod records;
pub mod store;

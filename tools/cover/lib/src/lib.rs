//! What the tools *cover* and *afl* share.

pub mod afl;
pub mod marks;

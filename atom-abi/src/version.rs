//! The interface's version, and the hash that reminds of it.

/// Changes whenever a type of this crate changes its meaning or shape.
pub const INTERFACE_VERSION: u32 = 35;

/// Hash of this crate's source without comments and white space, as `tests/version.rs` makes it.
/// It changes with the interface, so the test fails until somebody has looked at the version.
pub const INTERFACE_HASH: u64 = 0x74e5_6f0d_5a8d_06b8;

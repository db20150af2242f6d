//! Reads the workspace's sources to judge them: which part uses which, and how long files and functions are.
//!
//! The crate uses nothing of the others, so its tests run at once and everywhere.
#![deny(missing_docs)]

pub mod circles;
pub mod lines;
pub mod measure;
pub mod sources;

use std::path::PathBuf;

/// A file or folder of the workspace, by its path from the workspace's root.
pub fn in_workspace(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

//! Errors of reading and writing.

use std::io;
use std::path::PathBuf;

/// Result of reading or writing a profile.
pub type Result<T> = std::result::Result<T, Error>;

/// The reason why a profile could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file could not be read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// An error in a file.
    #[error("{}: {error}", path.display())]
    In {
        /// The file.
        path: PathBuf,
        /// The error.
        error: Box<Error>,
    },
    /// The bytes are something else.
    #[error(
        "not a profile; tools write profiles beside their reports, NAME.profile beside NAME.out"
    )]
    NotAProfile,
    /// The profile was written by a newer version of `atom`.
    #[error(
        "a profile of format version {version}, written by atom {atom}; this atom reads versions up to {}: use atom {atom} or later",
        crate::VERSION
    )]
    Newer {
        /// The version of its format.
        version: u64,
        /// The version of `atom` that wrote it.
        atom: String,
    },
    /// The profile ends early.
    #[error("the profile ends early: it was not written to its end, or copied in part")]
    Truncated,
    /// Profiles that cannot be added up or compared.
    #[error("profiles of different {what}: {first} and {second}")]
    Different {
        /// What differs, in the plural.
        what: &'static str,
        /// What the first profile has.
        first: String,
        /// What the other one has.
        second: String,
    },
    /// The profile contradicts itself or its format.
    #[error("a damaged profile: {0}")]
    Damaged(String),
}

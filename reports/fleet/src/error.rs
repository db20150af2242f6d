//! Errors of appending.

use std::io;
use std::path::{Path, PathBuf};

use parquet::errors::ParquetError;

/// Result of appending.
pub type Result<T> = std::result::Result<T, Error>;

/// The reason why rows could not be appended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or a folder could not be read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// A file in the folder is no Parquet file, or writing one failed.
    #[error("{}: {error}", path.display())]
    Parquet {
        /// The file.
        path: PathBuf,
        /// The error.
        error: ParquetError,
    },
}

impl Error {
    pub(crate) fn file(path: &Path, error: io::Error) -> Self {
        Self::File {
            path: path.to_owned(),
            error,
        }
    }

    pub(crate) fn parquet(path: &Path, error: ParquetError) -> Self {
        Self::Parquet {
            path: path.to_owned(),
            error,
        }
    }
}

//! Errors of files and of the use of the interface.
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// An operation that failed.
#[derive(Debug)]
pub struct Error {
    /// Sort of failure.
    pub kind: ErrorKind,
    /// Operation that failed, such as `read`.
    pub doing: &'static str,
    /// The file, if one is concerned.
    pub file: Option<PathBuf>,
    /// Position in the file.
    pub position: FilePosition,
    /// What is wrong.
    pub reason: String,
    /// Advice to the user; may be empty.
    pub advice: &'static str,
}

/// Sorts of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// A system call failed.
    Io,
    /// A file's contents violate the format.
    Syntax,
    /// A file ends too early; everything before the end is valid.
    Truncated,
    /// The request is not valid here.
    Usage,
}

/// Position in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FilePosition {
    /// Not known, or the error does not concern a position.
    #[default]
    Nowhere,
    /// Byte offset; in the uncompressed contents if the file is compressed with gzip.
    Offset(u64),
    /// Line number, from 1.
    Line(u64),
}

impl Error {
    /// An error in a file's contents.
    pub(crate) fn syntax(position: FilePosition, reason: impl Into<String>) -> Self {
        Self::new(ErrorKind::Syntax, "read", position, reason)
    }

    /// The error of a file that ends too early.
    pub(crate) fn truncated(position: FilePosition, reason: impl Into<String>) -> Self {
        Self {
            advice: "the program was killed, or the file is not whole; what comes before can be used",
            ..Self::new(ErrorKind::Truncated, "read", position, reason)
        }
    }

    /// The error of a failed read: the file is shorter than its contents say, or its compressed data are damaged.
    pub(crate) fn reading(position: FilePosition, error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => {
                Self::syntax(position, error.to_string())
            }
            _ => Self::truncated(position, error.to_string()),
        }
    }

    /// The error of a request that is not valid.
    pub(crate) fn usage(doing: &'static str, reason: impl Into<String>) -> Self {
        Self::new(ErrorKind::Usage, doing, FilePosition::Nowhere, reason)
    }

    /// The error of a system call that failed.
    pub(crate) fn io(doing: &'static str, file: &Path, error: &io::Error) -> Self {
        Self {
            file: Some(file.to_path_buf()),
            ..Self::new(
                ErrorKind::Io,
                doing,
                FilePosition::Nowhere,
                error.to_string(),
            )
        }
    }

    fn new(
        kind: ErrorKind,
        doing: &'static str,
        position: FilePosition,
        reason: impl Into<String>,
    ) -> Self {
        Self {
            kind,
            doing,
            file: None,
            position,
            reason: reason.into(),
            advice: "",
        }
    }

    /// Adds the file that the error is about.
    pub(crate) fn of_file(mut self, file: &Path) -> Self {
        self.file.get_or_insert_with(|| file.to_path_buf());
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}", self.doing)?;
        if let Some(file) = &self.file {
            write!(f, " {}", file.display())?;
        }
        match self.position {
            FilePosition::Nowhere => {}
            FilePosition::Offset(offset) => write!(f, " at byte {offset}")?,
            FilePosition::Line(line) => write!(f, " at line {line}")?,
        }
        write!(f, ": {}", self.reason)?;
        if !self.advice.is_empty() {
            write!(f, " ({})", self.advice)?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

/// Result with an [`Error`] by default.
pub type Result<T, E = Error> = std::result::Result<T, E>;

//! What can go wrong with files and with the use of the interface.
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// An operation that failed.
#[derive(Debug)]
pub struct Error {
    /// What sort of failure it is.
    pub kind: ErrorKind,
    /// What was being done, such as `read`.
    pub doing: &'static str,
    /// The file, if one is concerned.
    pub file: Option<PathBuf>,
    /// Where in the file.
    pub place: Place,
    /// What is wrong.
    pub reason: String,
    /// What can be done about it; may be empty.
    pub advice: &'static str,
}

/// Sorts of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The system refused.
    Io,
    /// A file is not what it should be.
    Syntax,
    /// A file ends too early; what came before is whole.
    Truncated,
    /// The request makes no sense here.
    Usage,
}

/// A place in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// Not known, or not in a file.
    #[default]
    Nowhere,
    /// Byte offset, in the uncompressed contents if the file is compressed as a whole.
    Offset(u64),
    /// Line, from 1.
    Line(u64),
}

impl Error {
    /// A file's contents are wrong.
    pub(crate) fn syntax(place: Place, reason: impl Into<String>) -> Self {
        Self::new(ErrorKind::Syntax, "read", place, reason)
    }

    /// A file ends too early.
    pub(crate) fn truncated(place: Place, reason: impl Into<String>) -> Self {
        Self {
            advice: "the program was killed, or the file is not whole; what comes before can be used",
            ..Self::new(ErrorKind::Truncated, "read", place, reason)
        }
    }

    /// Reading failed: the file is shorter than it should be, or its compression is damaged.
    pub(crate) fn reading(place: Place, error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => {
                Self::syntax(place, error.to_string())
            }
            _ => Self::truncated(place, error.to_string()),
        }
    }

    /// The request makes no sense.
    pub(crate) fn usage(doing: &'static str, reason: impl Into<String>) -> Self {
        Self::new(ErrorKind::Usage, doing, Place::Nowhere, reason)
    }

    /// The system refused.
    pub(crate) fn io(doing: &'static str, file: &Path, error: &io::Error) -> Self {
        Self {
            file: Some(file.to_path_buf()),
            ..Self::new(ErrorKind::Io, doing, Place::Nowhere, error.to_string())
        }
    }

    fn new(kind: ErrorKind, doing: &'static str, place: Place, reason: impl Into<String>) -> Self {
        Self {
            kind,
            doing,
            file: None,
            place,
            reason: reason.into(),
            advice: "",
        }
    }

    /// The same error with the file that it is about.
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
        match self.place {
            Place::Nowhere => {}
            Place::Offset(offset) => write!(f, " at byte {offset}")?,
            Place::Line(line) => write!(f, " at line {line}")?,
        }
        write!(f, ": {}", self.reason)?;
        if !self.advice.is_empty() {
            write!(f, " ({})", self.advice)?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

/// Shorthand.
pub type Result<T, E = Error> = std::result::Result<T, E>;

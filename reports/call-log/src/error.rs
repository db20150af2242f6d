//! Errors of reading inputs.

use std::fmt;
use std::path::{Path, PathBuf};

/// Result of reading a log or the description of a report.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A position in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Location {
    /// The file as a whole.
    #[default]
    Whole,
    /// A line, counted from 1.
    Line(u64),
    /// A record of fixed size, counted from 1.
    Record(u64),
    /// A byte, counted from 0.
    Offset(u64),
}

/// A mistake in an input, or a file that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error {
    /// The file.
    pub file: PathBuf,
    /// Position in it.
    pub place: Location,
    /// What is wrong.
    pub reason: String,
    /// What the user can do about it; may be empty.
    pub advice: String,
}

impl std::error::Error for Error {}

impl Error {
    /// An error about a file as a whole.
    pub fn new(file: &Path, reason: impl Into<String>) -> Self {
        Self {
            file: file.to_path_buf(),
            place: Location::Whole,
            reason: reason.into(),
            advice: String::new(),
        }
    }

    /// The same error at a position of the file.
    #[must_use]
    pub fn at(mut self, place: Location) -> Self {
        self.place = place;
        self
    }

    /// The same error with advice.
    #[must_use]
    pub fn advice(mut self, advice: impl Into<String>) -> Self {
        self.advice = advice.into();
        self
    }
}

impl Error {
    /// The message without the advice.
    pub fn problem(&self) -> String {
        let place = match self.place {
            Location::Whole => String::new(),
            Location::Line(n) => format!(", line {n}"),
            Location::Record(n) => format!(", record {n}"),
            Location::Offset(n) => format!(", byte {n}"),
        };
        format!("{}{place}: {}", self.file.display(), self.reason)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem())?;
        if !self.advice.is_empty() {
            write!(f, " ({})", self.advice)?;
        }
        Ok(())
    }
}

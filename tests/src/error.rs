//! The error type of the test crate: the action that failed, the file and the reason.
//!
//! The crates under test have their own; sharing it would tie the judge to them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Shorthand for a result with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failure of the test machinery itself (not of a program under test).
#[derive(Debug, Clone)]
pub struct Error {
    /// The action that failed, as a gerund phrase.
    pub doing: &'static str,
    /// The file concerned.
    pub file: Option<PathBuf>,
    /// Why it failed.
    pub reason: String,
    /// The exit code of the command that failed, if that is what happened.
    pub code: Option<i32>,
}

impl Error {
    /// An error without a file.
    pub fn new(doing: &'static str, reason: impl fmt::Display) -> Self {
        Self {
            doing,
            file: None,
            reason: reason.to_string(),
            code: None,
        }
    }

    /// Adds a command's exit code.
    pub fn code(mut self, code: i32) -> Self {
        self.code = Some(code);
        self
    }

    /// Adds the file.
    pub fn file(mut self, file: impl AsRef<Path>) -> Self {
        self.file = Some(file.as_ref().to_path_buf());
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.doing)?;
        if let Some(file) = &self.file {
            write!(f, " {}", file.display())?;
        }
        write!(f, ": {}", self.reason)
    }
}

impl std::error::Error for Error {}

/// The exit code of a command that judges: success if nothing was found. An error is told with the command's name.
pub fn exit_code(command: &str, done: Result<bool>) -> ExitCode {
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{command}: {error}");
            ExitCode::FAILURE
        }
    }
}

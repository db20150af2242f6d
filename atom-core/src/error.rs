//! The one error type: what was tried, where, and what to do about it.

use std::fmt;
use std::path::PathBuf;

/// Shorthand for a result with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Kind of a failure, for the caller that has to react to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ErrorKind {
    /// Any other failure.
    #[default]
    Other,
    /// The inserted code makes the program larger than its code can reach. Fewer instrumented
    /// points would fit.
    TooLarge,
    /// The command line asks for what cannot be.
    Usage,
    /// The operating system refused something. Another process, with other limits and rights, may succeed.
    System,
}

/// Why something failed, with the kind of failure that follows from it.
pub struct Reason {
    kind: ErrorKind,
    text: String,
}

impl From<String> for Reason {
    fn from(text: String) -> Self {
        Self {
            kind: ErrorKind::Other,
            text,
        }
    }
}

impl From<&str> for Reason {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl From<std::io::Error> for Reason {
    fn from(error: std::io::Error) -> Self {
        (&error).into()
    }
}

impl From<&std::io::Error> for Reason {
    fn from(error: &std::io::Error) -> Self {
        let kind = match error.raw_os_error() {
            Some(_) => ErrorKind::System,
            None => ErrorKind::Other,
        };
        Self {
            kind,
            text: error.to_string(),
        }
    }
}

/// A failure of any stage.
///
/// `Display` gives one line: the attempt, the place, the reason. Advice is
/// separate so that a command can print it on a line of its own.
#[derive(Debug)]
pub struct Error {
    /// Kind of the failure.
    pub kind: ErrorKind,
    /// The attempt as a gerund phrase: "reading the program".
    pub doing: &'static str,
    /// The file concerned.
    pub file: Option<PathBuf>,
    /// The virtual address concerned.
    pub address: Option<u64>,
    /// The symbol concerned.
    pub symbol: Option<String>,
    /// Reason of the failure.
    pub reason: String,
    /// What the user can do about it.
    pub advice: Option<String>,
}

impl Error {
    /// An error with a reason and no place yet.
    pub fn new(doing: &'static str, reason: impl Into<Reason>) -> Self {
        let Reason { kind, text } = reason.into();
        Self {
            kind,
            doing,
            file: None,
            address: None,
            symbol: None,
            reason: text,
            advice: None,
        }
    }

    /// An error of kind [`ErrorKind::Usage`].
    pub fn usage(reason: impl Into<String>) -> Self {
        Self {
            kind: ErrorKind::Usage,
            ..Self::new("reading the command line", reason.into())
        }
    }

    /// An error of kind [`ErrorKind::TooLarge`]. `what` is the subject and the auxiliary verb of
    /// the reason, such as "it does".
    pub fn too_large(doing: &'static str, what: &str) -> Self {
        let reason = format!("{what} not fit within 2 GiB of the program");
        Self {
            kind: ErrorKind::TooLarge,
            ..Self::new(doing, reason)
        }
        .advice("instrument fewer procedures")
    }

    /// Adds the file.
    pub fn file(mut self, file: impl Into<PathBuf>) -> Self {
        self.file = Some(file.into());
        self
    }

    /// Adds the virtual address.
    pub fn address(mut self, address: u64) -> Self {
        self.address = Some(address);
        self
    }

    /// Adds the symbol.
    pub fn symbol(mut self, symbol: impl Into<String>) -> Self {
        self.symbol = Some(symbol.into());
        self
    }

    /// Adds advice.
    pub fn advice(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.doing)?;
        if let Some(file) = &self.file {
            write!(f, " {}", file.display())?;
        }
        if let Some(address) = self.address {
            write!(f, " at {address:#x}")?;
        }
        if let Some(symbol) = &self.symbol {
            write!(f, " ({symbol})")?;
        }
        write!(f, ": {}", self.reason)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_errors_are_told_from_others() {
        let kind = |reason: Reason| Error::new("reading", reason).kind;
        let io = std::io::Error::from_raw_os_error;
        assert_eq!(kind(io(libc::EMFILE).into()), ErrorKind::System);
        assert_eq!(kind("it is empty".into()), ErrorKind::Other);
        // The standard library's own words name no refusal of the system.
        let short = std::io::ErrorKind::UnexpectedEof;
        assert_eq!(kind(std::io::Error::from(short).into()), ErrorKind::Other);
    }
}

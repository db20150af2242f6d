//! How the command and its views write: files whole or not at all, standard output, notes on standard error,
//! progress bars, and the width of tables.
#![deny(missing_docs)]

pub mod file;
pub mod message;
pub mod progress;
pub mod temporary;
pub mod width;

pub use file::PendingFile;

use std::io::{BufWriter, ErrorKind, Write};

use atom_core::{Error, Result};

/// Writes a text to standard output.
///
/// # Errors
/// Standard output cannot be written. A reader that has ended, such as `head`, is no error.
pub fn print(text: &str) -> Result<()> {
    print_with(|out| out.write_all(text.as_bytes()))
}

/// Calls a function that writes to standard output.
///
/// # Errors
/// Standard output cannot be written. A reader that has ended, such as `head`, is no error.
pub fn print_with(write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> Result<()> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    match write(&mut out).and_then(|()| out.flush()) {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(()),
        Err(e) => Err(Error::new("writing to standard output", e)),
        Ok(()) => Ok(()),
    }
}

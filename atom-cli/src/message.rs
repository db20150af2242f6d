//! Messages of the command: errors, and the notes that its views print too.

use atom_core::Error;
use atom_core::error::ErrorKind;
pub use output::message::{count, leave_out_notes, note, number, say};

use crate::source;

/// Exit code of wrong usage.
pub const WRONG_USAGE: u8 = 2;
/// Exit code if the inserted code does not fit within reach.
const TOO_LARGE: u8 = 3;

/// The exit code of a command that ends with an error.
pub fn exit_code(error: &Error) -> u8 {
    match error.kind {
        ErrorKind::TooLarge => TOO_LARGE,
        ErrorKind::Usage => WRONG_USAGE,
        ErrorKind::Other | ErrorKind::System => 1,
    }
}

/// Prints an error and, on a line of its own, its advice.
pub fn error(error: &Error) {
    say(&error_text(error));
}

fn error_text(error: &Error) -> String {
    let text = source::text_of(error);
    match &error.advice {
        Some(advice) => format!("atom: {text}\n  help: {advice}"),
        None => format!("atom: {text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_has_its_own_line() {
        let e = Error::new("reading the program", "it is empty")
            .file("x")
            .advice("fill it");
        assert_eq!(
            error_text(&e),
            "atom: reading the program x: it is empty\n  help: fill it"
        );
    }
}

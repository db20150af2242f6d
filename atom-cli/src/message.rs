//! Messages of the command: errors, and the notes that its views print too.

use atom_core::Error;
pub use output::message::{count, leave_out_notes, note, number, say};

use crate::source;

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

//! Notes, and numbers in messages.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

/// True once nobody wants notes.
static QUIET: AtomicBool = AtomicBool::new(false);

/// Prints no notes from now on.
pub fn leave_out_notes() {
    QUIET.store(true, Ordering::Relaxed);
}

/// Prints a note: something worth knowing that is no error.
pub fn note(text: &str) {
    if !QUIET.load(Ordering::Relaxed) {
        say(&format!("atom: note: {text}"));
    }
}

/// Prints a line on standard error. Where nobody reads it any more, it is lost: a message must not change how the command ends.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// A number with commas: `1,234,567`.
pub fn number(n: u64) -> String {
    tables::grouped(n)
}

/// A number and its noun: `1 block`, `2 blocks`.
pub fn count(n: usize, noun: &str) -> String {
    let s = if n == 1 { "" } else { "s" };
    format!("{} {noun}{s}", number(n as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        let all = [0, 12, 999, 1000, 12345, 1234567].map(number);
        assert_eq!(all, ["0", "12", "999", "1,000", "12,345", "1,234,567"]);
        assert_eq!(count(1, "call"), "1 call");
        assert_eq!(count(2000, "call"), "2,000 calls");
    }
}

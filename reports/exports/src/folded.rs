//! Folded stacks, for flame graph programs: a line for each stack, its frames with semicolons between them, a blank and
//! the value.

use std::fmt::{Display, Write as _};
use std::io::{self, Write};

/// Writes the line of a stack, whose outermost frame is first.
///
/// # Errors
/// The writer's.
pub fn write<'a>(
    frames: impl Iterator<Item = &'a str>,
    value: impl Display,
    to: &mut dyn Write,
) -> io::Result<()> {
    let mut line = String::new();
    for (i, frame) in frames.enumerate() {
        if i != 0 {
            line.push(';');
        }
        // Semicolons divide frames, and a line is a stack.
        line.extend(frame.chars().map(|c| match c {
            ';' => ':',
            '\n' => ' ',
            c => c,
        }));
    }
    // Writing to a string does not fail.
    let _ = writeln!(line, " {value}");
    to.write_all(line.as_bytes())
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_stack_is_a_line() {
        let mut out = Vec::new();
        super::write(["main", "f;g", "a\nb"].into_iter(), 1.5, &mut out).unwrap();
        assert_eq!(out, b"main;f:g;a b 1.5\n");
    }
}

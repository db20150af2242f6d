//! Long lines as several lines.

use crate::columns;

/// Spaces in front of all lines but the first.
const INDENT: usize = 2;

/// The words of a text in lines of at most `width` columns of the terminal; a longer word has a line of its own. All lines but the
/// first are indented. `width` 0 means one line.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if width == 0 || columns(line) + 1 + columns(word) <= width => {
                line.push(' ');
                line.push_str(word);
            }
            None => lines.push(word.to_owned()),
            Some(_) => lines.push(format!("{:INDENT$}{word}", "")),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::wrapped;

    #[test]
    fn lines_end_between_words() {
        assert_eq!(wrapped("a b", 0), ["a b"]);
        assert_eq!(
            wrapped("none: liba.so, libb.so, libc.so", 16),
            ["none: liba.so,", "  libb.so,", "  libc.so"]
        );
        assert_eq!(
            wrapped("longer than this", 4),
            ["longer", "  than", "  this"]
        );
        assert_eq!(wrapped("öö öö", 5), ["öö öö"]);
    }
}

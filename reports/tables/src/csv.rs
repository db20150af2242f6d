//! Comma-separated values.

use std::borrow::Cow;

/// A field of a line, in quotes if its text needs them.
pub fn csv_field(text: &str) -> Cow<'_, str> {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\"")).into()
    } else {
        text.into()
    }
}

#[cfg(test)]
mod tests {
    use super::csv_field;

    #[test]
    fn fields_are_quoted_where_they_must_be() {
        assert_eq!(csv_field("a b;c"), "a b;c");
        assert_eq!(csv_field("f<1,2>"), "\"f<1,2>\"");
        assert_eq!(csv_field("say \"a\"\n"), "\"say \"\"a\"\"\n\"");
    }
}

//! The help of a tool, which declares its options: the parser, the manual page, completions and the tables of the
//! documentation are made from it.
//!
//! The first line says what the tool does. An option has two spaces in front; its forms, with `, ` between, are followed
//! by at least two spaces and a sentence, which may continue in lines with more spaces:
//!
//! - `Misses of a data cache`, an empty line and `Options:`, and below these the options:
//! - `  --preset machine|l1   the shape of the cache`
//! - `  --line N              bytes of a line (default: 64)`
//! - `  --quiet, -q           no report`
//!
//! A form is a name, and the kind of its value if it takes one. The value of `a|b` is one of these words, and the first is
//! used if the option is not given.

/// A declared option, or some that share a sentence.
#[derive(Clone, Copy, Debug)]
pub struct Declared<'a> {
    forms: &'a str,
    /// The sentence, with the spaces and line ends of the help.
    pub sentence: &'a str,
}

/// How an option is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Form<'a> {
    /// All of it: `--line N`.
    pub text: &'a str,
    /// The name with its dashes.
    pub name: &'a str,
    /// The kind of the value, if it takes one.
    pub value: Option<&'a str>,
}

impl<'a> Declared<'a> {
    /// The ways in which the options are written.
    pub fn forms(&self) -> impl Iterator<Item = Form<'a>> + use<'a> {
        self.forms.split(", ").map(|text| {
            let parts = text.split_once(' ');
            Form {
                text,
                name: parts.map_or(text, |(name, _)| name),
                value: parts.map(|(_, value)| value),
            }
        })
    }

    /// The value that is used if none is given.
    pub fn default(&self) -> Option<&'a str> {
        let (_, rest) = self.sentence.split_once("(default: ")?;
        Some(rest.split_once(')')?.0)
    }
}

/// The options that a help declares.
pub fn declared(help: &str) -> impl Iterator<Item = Declared<'_>> {
    const START: &str = "\n  -";
    help.match_indices(START).map(|(at, _)| {
        let rest = &help[at + START.len() - 1..];
        let continues = |end: &usize| rest[end + 1..].starts_with("    ");
        let mut ends = rest.match_indices('\n').map(|(end, _)| end);
        let end = ends.find(|end| !continues(end)).unwrap_or(rest.len());
        let (forms, sentence) = rest[..end].split_once("  ").unwrap_or((&rest[..end], ""));
        Declared {
            forms: forms.trim_end(),
            sentence: sentence.trim(),
        }
    })
}

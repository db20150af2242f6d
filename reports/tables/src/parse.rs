//! A demangled name as a tree of words and brackets.
//!
//! The grammar of both languages is only as far understood as shortening needs it: what is a word, which
//! brackets belong together, and that `operator<` is a word.

use crate::call_path;

/// A part of a name.
#[derive(Clone, PartialEq, Debug)]
pub enum Node {
    /// A word, `::`, a space or a single other character.
    Word(String),
    /// Brackets with what is in them.
    Group(char, Vec<Node>, char),
}

impl Node {
    /// The word `text`.
    pub fn word(text: &str) -> Self {
        Self::Word(text.to_owned())
    }

    /// True for this word.
    pub fn is(&self, text: &str) -> bool {
        matches!(self, Self::Word(word) if word == text)
    }

    /// True for brackets that open with this character.
    pub fn opens(&self, with: char) -> bool {
        matches!(self, Self::Group(open, ..) if *open == with)
    }

    /// True for a word that is a name or a number.
    pub fn is_name(&self) -> bool {
        matches!(self, Self::Word(word) if word.starts_with(is_name_char))
    }
}

/// True for characters of names and numbers.
pub fn is_name_char(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '$' | '~' | '@')
}

/// The words of a name in their order; brackets are words of one character. Together they are the name.
pub fn words(name: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = name;
    while let Some(first) = rest.chars().next() {
        let length = if rest.starts_with("::") || rest.starts_with("->") || rest.starts_with("=>") {
            2
        } else if is_name_char(first) {
            let end = rest.find(|c| !is_name_char(c)).unwrap_or(rest.len());
            match &rest[..end] {
                "operator" => end + operator(&rest[end..]),
                _ => end + copy(rest, end),
            }
        } else {
            first.len_utf8()
        };
        let (word, behind) = rest.split_at(length);
        words.push(word);
        rest = behind;
    }
    words
}

/// Number of bytes after a name that say which copy of a procedure it is: they are a part of the word.
fn copy(rest: &str, end: usize) -> usize {
    let is_part = |c: char| is_name_char(c) || c == '.';
    let whole = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
    let suffix = call_path::copy_suffix(&rest[..whole]);
    // Else something else is between the name and the suffix.
    if end + suffix == whole { suffix } else { 0 }
}

/// Number of bytes after `operator` that name the operator.
fn operator(rest: &str) -> usize {
    if rest.starts_with("()") || rest.starts_with("[]") {
        return 2;
    }
    if let Some(behind) = rest.strip_prefix(' ') {
        // A conversion, `new` or `delete`: the type is a part of the name.
        return 1 + behind.find(['(', '<', '[']).unwrap_or(behind.len());
    }
    let symbols = rest.find(|c: char| !"<>=!+-*/%^&|~,".contains(c));
    let symbols = symbols.unwrap_or(rest.len());
    // In `operator<<int>` and `operator-><int>` the last one opens the template's arguments.
    let known = [
        "<=>", "<<=", ">>=", "->*", "<<", ">>", "<=", ">=", "->", "==", "!=", "&&", "||", "++",
        "--", "+=", "-=", "*=", "/=", "%=", "^=", "&=", "|=",
    ];
    let found = known.iter().find(|k| rest[..symbols].starts_with(**k));
    match found {
        // `operator<<int>(…)`: `<` of `int`, as no parameters follow at once.
        Some(&"<<") if rest[2..].starts_with(is_name_char) => 1,
        Some(known) => known.len(),
        None => symbols.min(1),
    }
}

/// The tree of a name; `None` if its brackets do not match.
pub fn parse(name: &str) -> Option<Vec<Node>> {
    let mut open: Vec<(char, Vec<Node>)> = Vec::new();
    let mut nodes: Vec<Node> = Vec::new();
    for word in words(name) {
        match word {
            "(" | "<" | "[" | "{" => {
                open.push((word.chars().next()?, std::mem::take(&mut nodes)));
            }
            ")" | ">" | "]" | "}" => {
                let close = word.chars().next()?;
                let (opened, outer) = open.pop()?;
                if !matches!(
                    (opened, close),
                    ('(', ')') | ('<', '>') | ('[', ']') | ('{', '}')
                ) {
                    return None;
                }
                let inner = std::mem::replace(&mut nodes, outer);
                nodes.push(Node::Group(opened, inner, close));
            }
            _ => nodes.push(Node::word(word)),
        }
    }
    open.is_empty().then_some(nodes)
}

/// The text of a tree.
pub fn text(nodes: &[Node]) -> String {
    let mut out = String::new();
    write(nodes, &mut out);
    out
}

fn write(nodes: &[Node], out: &mut String) {
    for node in nodes {
        match node {
            Node::Word(word) => out.push_str(word),
            Node::Group(open, inner, close) => {
                out.push(*open);
                write(inner, out);
                out.push(*close);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_are_words() {
        for (name, split) in [
            ("operator<<(int)", "operator<<|(|int|)"),
            ("operator<(int)", "operator<|(|int|)"),
            ("operator<<int>(int)", "operator<|<|int|>|(|int|)"),
            ("operator<< <int>(int)", "operator<<| |<|int|>|(|int|)"),
            ("a::operator()(b)", "a|::|operator()|(|b|)"),
            ("operator->()", "operator->|(|)"),
            ("operator bool()", "operator bool|(|)"),
            ("operators<int>", "operators|<|int|>"),
            ("operator", "operator"),
            ("f.constprop.0.cold", "f.constprop.0.cold"),
            ("f.x.isra.0", "f|.|x.isra.0"),
        ] {
            assert_eq!(words(name).join("|"), split);
        }
    }

    #[test]
    fn texts_are_kept() {
        for name in ["a<b>::c(d<e>[2]) const", "fn(u8) -> u8", "größe<…>", ""] {
            assert_eq!(text(&parse(name).unwrap()), name);
        }
        for name in ["a<b", "a>b", "(]"] {
            assert_eq!(parse(name), None, "{name}");
        }
    }
}

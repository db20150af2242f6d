//! The statement after a label, as the source file has it.
//!
//! Debug information does not say what kind of statement a label marks, nor where it ends. If
//! the source file is available, a few tokens tell. The file is used only if the label is at
//! the line that debug information gives.

/// Kinds of statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StatementKind {
    /// `for` or `while`.
    Loop,
    /// `do`.
    Do,
    /// `{`.
    Block,
    /// A word with arguments, perhaps a macro, which may be any statement.
    Macro,
    /// Any other statement.
    Other,
}

/// A statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Statement {
    /// Its kind.
    pub kind: StatementKind,
    /// Line of its first token.
    pub first: u32,
    /// Last line of a loop's header; of a `do`, line of its `while`.
    pub header: u32,
    /// Line of its last token, if that was found.
    pub last: Option<u32>,
}

/// Largest file in bytes that is read.
const MAX_FILE: u64 = 64 << 20;
/// Deepest nesting of statements that is followed.
const MAX_DEPTH: u32 = 200;

/// The statement that the label at this line of the file marks.
pub fn labelled(file: &str, line: u32, label: &str) -> Option<Statement> {
    let facts = std::fs::metadata(file).ok()?;
    if !facts.is_file() || facts.len() > MAX_FILE {
        return None;
    }
    let text = std::fs::read(file).ok()?;
    statement(&String::from_utf8_lossy(&text), line, label)
}

fn statement(text: &str, line: u32, label: &str) -> Option<Statement> {
    let tokens = tokens(text);
    let from = tokens.partition_point(|t| t.1 < line);
    let on_line = tokens[from..].iter().take_while(|t| t.1 == line);
    let at = from + on_line.clone().position(|t| t.0 == label)?;
    let mut next = at + 1;
    if tokens.get(next)?.0 != ":" {
        return None;
    }
    next += 1;
    // A further label of the same statement.
    while is_word(tokens.get(next)?.0) && tokens.get(next + 1)?.0 == ":" {
        next += 2;
    }
    let (word, first) = *tokens.get(next)?;
    let after = tokens.get(next + 1).map_or("", |t| t.0);
    let kind = match word {
        "for" | "while" => StatementKind::Loop,
        "do" => StatementKind::Do,
        "{" => StatementKind::Block,
        _ if is_word(word) && after == "(" => StatementKind::Macro,
        _ => StatementKind::Other,
    };
    let header = match kind {
        StatementKind::Loop => closing(&tokens, next + 1).map_or(first, |at| tokens[at].1),
        StatementKind::Do => {
            match end(&tokens, next + 1, 0).and_then(|body| tokens.get(body + 1)) {
                Some(("while", line)) => *line,
                _ => return None,
            }
        }
        _ => first,
    };
    let last = end(&tokens, next, 0).map(|at| tokens[at].1);
    Some(Statement {
        kind,
        first,
        header,
        last,
    })
}

type Token<'t> = (&'t str, u32);

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
}

/// Words and single other characters with their lines; comments, literals'
/// contents and preprocessor lines are left out.
fn tokens(text: &str) -> Vec<Token<'_>> {
    let bytes = text.as_bytes();
    let mut tokens = Vec::new();
    let (mut i, mut line, mut line_starts) = (0, 1, true);
    while i < bytes.len() {
        let rest = &bytes[i..];
        let start = i;
        i += match rest {
            [b'\n', ..] => {
                line_starts = true;
                line += 1;
                1
            }
            [b'/', b'/', ..] => rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len()),
            [b'/', b'*', ..] => {
                let inside = rest[2..].windows(2).position(|w| w == b"*/");
                inside.map_or(rest.len(), |n| n + 4)
            }
            [b'#', ..] if line_starts => directive(rest),
            [b'"' | b'\'', ..] => literal(rest),
            [b, ..] if b.is_ascii_whitespace() => 1,
            [b, ..] if b.is_ascii_alphanumeric() || *b == b'_' => {
                let word = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
                rest.iter().position(|b| !word(b)).unwrap_or(rest.len())
            }
            _ => text[start..].chars().next().map_or(1, char::len_utf8),
        };
        let token = &text[start..i];
        if token == "\n" {
            continue;
        }
        let blank = token.starts_with(|c: char| c.is_whitespace());
        if !blank && !token.starts_with("//") && !token.starts_with("/*") {
            if !token.starts_with('#') {
                tokens.push((token, line));
            }
            line_starts = false;
        }
        line += token.bytes().filter(|b| *b == b'\n').count() as u32;
    }
    tokens
}

/// Length of a preprocessor line with its continuations.
fn directive(rest: &[u8]) -> usize {
    let mut previous = 0;
    for (i, b) in rest.iter().enumerate() {
        if *b == b'\n' && previous != b'\\' {
            return i;
        }
        previous = *b;
    }
    rest.len()
}

/// Length of a string or character.
fn literal(rest: &[u8]) -> usize {
    let mut i = 1;
    while i < rest.len() && rest[i] != rest[0] && rest[i] != b'\n' {
        i += if rest[i] == b'\\' { 2 } else { 1 };
    }
    (i + 1).min(rest.len())
}

/// The bracket that closes the one at `open`.
fn closing(tokens: &[Token<'_>], open: usize) -> Option<usize> {
    let mut depth = 0usize;
    for (i, (token, _)) in tokens.iter().enumerate().skip(open) {
        match *token {
            "(" | "{" | "[" => depth += 1,
            ")" | "}" | "]" => depth = depth.checked_sub(1)?,
            _ if depth == 0 => return None,
            _ => {}
        }
        if depth == 0 {
            return Some(i);
        }
    }
    None
}

/// The last token of the statement at `at`.
fn end(tokens: &[Token<'_>], at: usize, depth: u32) -> Option<usize> {
    if depth > MAX_DEPTH {
        return None;
    }
    match tokens.get(at)?.0 {
        "{" => closing(tokens, at),
        "for" | "while" | "switch" => end(tokens, closing(tokens, at + 1)? + 1, depth + 1),
        "if" => {
            let then = end(tokens, closing(tokens, at + 1)? + 1, depth + 1)?;
            match tokens.get(then + 1) {
                Some(("else", _)) => end(tokens, then + 2, depth + 1),
                _ => Some(then),
            }
        }
        "do" => {
            let body = end(tokens, at + 1, depth + 1)?;
            Some(closing(tokens, body + 2)? + 1)
        }
        _ => {
            let mut i = at;
            loop {
                match tokens.get(i)?.0 {
                    ";" => return Some(i),
                    "(" | "{" | "[" => i = closing(tokens, i)? + 1,
                    ")" | "}" | "]" => return None,
                    _ => i += 1,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "int f(int n)
{
    int i, s = 0; /* a { in a comment
    and a line */
#define X { \\
    (
a:  for (i = 0;
         i < n; i++)
        if (i == '{') { s++; }
        else s += \"}(\"[i];
b: c: do {
        s--; } while (s > 3
    );
d:  { s++; }
e:  EACH(i) s++;
g:  return s;
}
";

    #[test]
    fn statements_are_told_apart() {
        let at = |line, label| statement(TEXT, line, label).unwrap();
        let found = at(7, "a");
        assert_eq!((found.kind, found.first), (StatementKind::Loop, 7));
        assert_eq!((found.header, found.last), (8, Some(10)));
        for label in ["b", "c"] {
            let found = at(11, label);
            assert_eq!((found.kind, found.last), (StatementKind::Do, Some(13)));
            assert_eq!(found.header, 12);
        }
        assert_eq!(at(14, "d").kind, StatementKind::Block);
        assert_eq!(at(15, "e").kind, StatementKind::Macro);
        assert_eq!(at(16, "g").kind, StatementKind::Other);
        assert_eq!(statement(TEXT, 6, "a"), None);
        assert_eq!(statement(TEXT, 7, "z"), None);
        assert_eq!(statement("a: for (", 1, "a").unwrap().last, None);
    }
}

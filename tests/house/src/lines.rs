//! Lines of code: those with a token that is no comment. Code for tests only does not count.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};

use crate::measure::source_files;

/// Folders whose files are tests, programs to be tested, or examples.
const NOT_COUNTED: &[&str] = &["tests", "fuzz", "examples"];

/// Lines of code of each source file outside tests, by the file's path from the workspace's root.
pub fn code_lines(root: &Path) -> BTreeMap<String, usize> {
    let is_counted = |file: &String| !file.split('/').any(|part| NOT_COUNTED.contains(&part));
    let mut of_tests = BTreeSet::new();
    let mut lines = BTreeMap::new();
    for file in source_files(root).into_iter().filter(is_counted) {
        let text = std::fs::read_to_string(root.join(&file)).unwrap();
        let tokens = text.parse().unwrap_or_else(|e| panic!("{file}: {e}"));
        let mut counter = Counter::default();
        counter.read(tokens);
        let folder = folder_of_children(&file);
        of_tests.extend(counter.tests.iter().map(|name| format!("{folder}/{name}")));
        lines.insert(file, counter.lines.len());
    }
    lines.retain(|file, _| {
        let module = file.trim_end_matches(".rs").trim_end_matches("/mod");
        let mut above = Path::new(module).ancestors();
        !above.any(|a| of_tests.contains(a.to_str().unwrap()))
    });
    lines
}

/// The folder with the modules that a file declares.
fn folder_of_children(file: &str) -> &str {
    let name = file.trim_end_matches(".rs");
    let owner = name.rsplit_once('/').unwrap_or(("", name));
    match owner.1 {
        "mod" | "lib" | "main" => owner.0,
        _ => name,
    }
}

#[derive(Default)]
struct Counter {
    /// Lines with code.
    lines: BTreeSet<usize>,
    /// Modules in files of their own that are for tests only.
    tests: Vec<String>,
}

impl Counter {
    fn read(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut rest = tokens.as_slice();
        while let Some((first, after)) = rest.split_first() {
            rest = match attribute(rest) {
                Some((text, after)) if text.starts_with("doc=") => after,
                Some((text, after)) if text == "cfg(test)" => self.skip_item(after),
                _ => {
                    self.count(first);
                    after
                }
            };
        }
    }

    fn count(&mut self, token: &TokenTree) {
        let span = token.span();
        match token {
            TokenTree::Group(group) => {
                self.lines.insert(span.start().line);
                self.lines.insert(span.end().line);
                self.read(group.stream());
            }
            _ => self.lines.extend(span.start().line..=span.end().line),
        }
    }

    /// The tokens after an item that is for tests only.
    fn skip_item<'t>(&mut self, rest: &'t [TokenTree]) -> &'t [TokenTree] {
        let is_end = |t: &TokenTree| match t {
            TokenTree::Punct(p) => p.as_char() == ';',
            TokenTree::Group(g) => g.delimiter() == Delimiter::Brace,
            _ => false,
        };
        let end = rest.iter().position(is_end).map_or(rest.len(), |e| e + 1);
        if let [
            ..,
            TokenTree::Ident(word),
            TokenTree::Ident(name),
            TokenTree::Punct(_),
        ] = &rest[..end]
            && word == "mod"
        {
            self.tests.push(name.to_string());
        }
        &rest[end..]
    }
}

/// The text of an attribute at the start, without spaces, and what comes after it.
fn attribute(rest: &[TokenTree]) -> Option<(String, &[TokenTree])> {
    let TokenTree::Punct(hash) = rest.first()? else {
        return None;
    };
    if hash.as_char() != '#' {
        return None;
    }
    let is_inner = |t: &TokenTree| matches!(t, TokenTree::Punct(p) if p.as_char() == '!' && p.spacing() == Spacing::Alone);
    let at = 1 + usize::from(rest.get(1).is_some_and(is_inner));
    match rest.get(at)? {
        TokenTree::Group(g) if g.delimiter() == Delimiter::Bracket => {
            let text = g.stream().to_string().replace([' ', '\n'], "");
            Some((text, &rest[at + 1..]))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_of(text: &str) -> Vec<usize> {
        let mut counter = Counter::default();
        counter.read(text.parse().unwrap());
        counter.lines.into_iter().collect()
    }

    #[test]
    fn comments_blank_lines_and_tests_do_not_count() {
        let text = "//! head\n#![deny(x)]\n/// doc\nfn f() {\n    // comment\n\n    g(\"a\nb\");\n}\n\
                    #[cfg(test)]\nmod tests {\n    fn t() {}\n}\nfn h() {}\n";
        assert_eq!(lines_of(text), [2, 4, 7, 8, 9, 14]);
    }
}

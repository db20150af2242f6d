//! Comments and pages use plain words: no phrase of the list below.
//!
//! Looked at are lines of Rust sources that are comments, and `docs/*.md`, `docs/tools/*.md`, `README.md` and
//! `CONTRIBUTING.md` without their code. Text in backquotes or quotation marks, links and headings may have any word.

use std::path::{Path, PathBuf};

use house::in_workspace;

/// Phrases that a reader stumbles over, with what is said in their place.
const PHRASES: [(&str, &str); 12] = [
    ("behind the", "after the"),
    ("behind it", "after it"),
    ("behind them", "after them"),
    ("behind a", "after a"),
    ("stands at", "is at"),
    ("stands in", "is in"),
    ("what stands", "what is"),
    ("lies at", "is at"),
    ("lies in", "is in"),
    ("what lies", "what is"),
    ("goes on", "continues"),
    ("went on", "continued"),
];

/// All files below a folder with this extension, build folders left out.
fn files(folder: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        if path.is_dir() && name != "target" && name != ".git" {
            files(&path, extension, found);
        } else if path.extension().is_some_and(|e| e == extension) {
            found.push(path);
        }
    }
}

/// The line without what is in backquotes, quotation marks or the target of a link.
fn prose(line: &str) -> String {
    let mut text = String::new();
    let mut closing = None;
    let mut before = ' ';
    for c in line.chars() {
        match closing {
            Some(end) if c == end => closing = None,
            Some(_) => {}
            None if c == '`' || c == '"' => closing = Some(c),
            None if c == '(' && before == ']' => closing = Some(')'),
            None => text.push(c),
        }
        before = c;
    }
    text
}

/// The lines of a source or a page that people read as text, with their numbers.
fn lines(path: &Path) -> Vec<(usize, String)> {
    let is_page = path.extension().is_some_and(|e| e == "md");
    let source = std::fs::read_to_string(path).unwrap();
    let mut is_code = false;
    let mut found = Vec::new();
    for (number, line) in (1..).zip(source.lines()) {
        let text = if is_page {
            Some(line).filter(|l| !l.starts_with('#') && !l.starts_with("    "))
        } else {
            line.trim_start().strip_prefix("//")
        };
        let Some(text) = text else { continue };
        let is_fence = text.trim_start_matches(['/', '!', ' ']).starts_with("```");
        is_code ^= is_fence;
        if !is_code && !is_fence {
            found.push((number, prose(text)));
        }
    }
    found
}

/// True if the text has the phrase as whole words.
fn has(text: &str, phrase: &str) -> bool {
    text.match_indices(phrase).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + phrase.len()..].chars().next();
        ![before, after]
            .into_iter()
            .flatten()
            .any(char::is_alphanumeric)
    })
}

#[test]
fn comments_and_pages_are_in_plain_words() {
    let mut paths = Vec::new();
    files(&in_workspace(""), "rs", &mut paths);
    files(&in_workspace("docs"), "md", &mut paths);
    paths.extend(["README.md", "CONTRIBUTING.md"].map(in_workspace));
    let mut found = Vec::new();
    for path in paths {
        for (number, text) in lines(&path) {
            for (phrase, better) in PHRASES.iter().filter(|p| has(&text, p.0)) {
                found.push(format!(
                    "{}:{number}: \"{phrase}\": say \"{better}\"",
                    path.display()
                ));
            }
        }
    }
    assert!(
        found.is_empty(),
        "{}\n{} in all",
        found.join("\n"),
        found.len()
    );
}

#[test]
fn phrases_are_found() {
    assert!(has("the code behind the call", "behind the"));
    assert!(!has("the code behind these", "behind the"));
    assert_eq!(
        prose("see [what lies](a#what-lies) in `what lies`"),
        "see [what lies] in "
    );
}

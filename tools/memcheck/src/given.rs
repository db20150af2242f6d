//! What a run is given and its instrumented program does not depend on: names of files, and lines for the head.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::OnceLock;

use atom_tool::prelude::*;
use atom_tool::report::arguments;

/// What the process is given.
#[derive(Default)]
pub struct Given {
    /// Names of the files for lines and for XML, or nothing.
    pub log: String,
    pub xml: String,
    pub suppressions: Vec<String>,
    /// Lines for the head.
    pub lines: Vec<String>,
    /// The words of the command line that started the tool, if it was another one than `atom run`.
    pub words: Vec<String>,
    /// A comment of the user, for XML.
    pub comment: String,
}

/// True if names of files are meant for each program of the run, as they are.
static IS_EXACT: OnceLock<bool> = OnceLock::new();

impl Given {
    /// Reads the names: of the file of the run, and what is given without one.
    pub fn read(names: Strings) -> Self {
        let mut names = names.iter();
        let mut name = || names.next().unwrap_or_default().to_owned();
        let [run, log, xml, suppressions] = [name(), name(), name(), name()];
        let _ = IS_EXACT.set(!run.is_empty());
        if run.is_empty() {
            return Self {
                log,
                xml,
                suppressions: suppressions.lines().map(str::to_owned).collect(),
                ..Self::default()
            };
        }
        let run = run.replace("%w", &output::waiter().to_string());
        // A process may live longer than the command that has started it.
        Self::parse(&std::fs::read_to_string(run).unwrap_or_default())
    }

    /// Reads the text of a run's file: lines with a word, a space, and a text.
    fn parse(text: &str) -> Self {
        let mut given = Self::default();
        for (word, text) in text.lines().filter_map(|line| line.split_once(' ')) {
            let text = text.to_owned();
            match word {
                "log" => given.log = text,
                "xml" => given.xml = text,
                "suppressions" => given.suppressions.push(text),
                "line" => given.lines.push(text),
                "word" => given.words.push(text),
                "comment" => given.comment = text,
                _ => {}
            }
        }
        given
    }

    /// The first lines.
    pub fn head(&self) -> String {
        let mut text = String::from("Memcheck, a memory error detector\n");
        for line in &self.lines {
            let _ = writeln!(text, "{line}");
        }
        let _ = writeln!(text, "Command: {}\n", arguments().join(" "));
        text
    }
}

/// The path that the name of a file stands for in this process. `%p` becomes the process id, `%n` as well, `%q{NAME}` a
/// variable of the environment.
///
/// # Errors
/// If there is no such variable, or it is written in another way.
pub fn path(name: &str) -> Result<PathBuf, String> {
    let mut text = String::new();
    let mut rest = name;
    while let Some((before, after)) = rest.split_once("%q") {
        let inner = after
            .strip_prefix('{')
            .and_then(|after| after.split_once('}'));
        let (variable, after) = inner.ok_or("`%q` without a variable in braces")?;
        let value = std::env::var(variable);
        let value = value.map_err(|_| format!("{name}: the variable {variable} is not set"))?;
        let _ = write!(text, "{before}{value}");
        rest = after;
    }
    text.push_str(rest);
    let text = text.replace("%n", "%p");
    if IS_EXACT.get() == Some(&true) {
        return Ok(text.replace("%p", &std::process::id().to_string()).into());
    }
    Ok(output::path(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runs_file_has_words_with_texts() {
        let text = "log /tmp/a b\nline one\nline two\nsuppressions /x\nother\n";
        let given = Given::parse(text);
        assert_eq!(given.log, "/tmp/a b");
        assert_eq!(given.lines, ["one", "two"]);
        assert_eq!(given.suppressions, ["/x"]);
        assert!(given.xml.is_empty());
        let head = given.head();
        assert!(head.starts_with("Memcheck, a memory error detector\none\ntwo\nCommand: "));
    }

    #[test]
    fn names_have_variables() {
        assert!(path("/a.%q{NO_SUCH_VARIABLE}").is_err());
        assert!(path("/a.%q").is_err());
        let value = std::env::var("PATH").expect("it is set");
        let found = path("/%q{PATH}/b.").expect("it is there");
        let found = found.display().to_string();
        assert!(found.starts_with(&format!("/{value}/b.")), "{found}");
    }
}

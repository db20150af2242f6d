//! Where the options come from: `~/.valgrindrc`, the variable `VALGRIND_OPTS`, `./.valgrindrc`, and the command line. What comes
//! later prevails.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::known::{self, Fate};
use super::{Complaint, Tool};

const FILE: &str = ".valgrindrc";
const VARIABLE: &str = "VALGRIND_OPTS";
/// Bits of a file's mode by which others may write to it.
const OTHERS_WRITE: u32 = 0o002;

/// What a person wants to read in place of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asked {
    Help,
    Version,
}

/// An option with its value.
#[derive(PartialEq, Eq, Debug)]
struct Given {
    option: String,
    value: String,
}

/// The options, and the program with its arguments.
#[derive(Debug)]
pub struct Settings {
    pub tool: Tool,
    /// The words that are options, of all sources.
    pub words: Vec<String>,
    pub command: Vec<OsString>,
    /// Lines about options that have no effect here.
    pub notes: Vec<String>,
    pub asked: Option<Asked>,
    given: Vec<Given>,
}

impl Settings {
    /// Reads all sources.
    pub fn read(words: &[OsString]) -> Result<Self, Complaint> {
        let is_option =
            |word: &&OsString| word.as_encoded_bytes().starts_with(b"-") && *word != "--";
        let own = words.iter().take_while(is_option);
        let own: Vec<String> = own
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        let mut command = &words[own.len()..];
        if command.first().is_some_and(|word| word == "--") {
            command = &command[1..];
        }
        let is_alone = own.iter().any(|word| word == "--command-line-only=yes");
        let mut all = if is_alone { Vec::new() } else { elsewhere() };
        all.extend(own);
        Self::of(all, command.to_vec())
    }

    /// Checks the options.
    fn of(words: Vec<String>, command: Vec<OsString>) -> Result<Self, Complaint> {
        let tool = words
            .iter()
            .filter_map(|word| word.strip_prefix("--tool="))
            .next_back();
        let mut settings = Self {
            tool: Tool::named(tool.unwrap_or("memcheck"))?,
            given: Vec::new(),
            notes: Vec::new(),
            asked: None,
            command,
            words,
        };
        for word in settings.words.clone() {
            settings.add(&word)?;
        }
        Ok(settings)
    }

    fn add(&mut self, word: &str) -> Result<(), Complaint> {
        let unknown = || Complaint::usage(format!("Unknown option: {word}"));
        match word {
            "-h" | "--help" | "--help-debug" | "--help-dyn-options" => {
                self.asked.get_or_insert(Asked::Help);
                return Ok(());
            }
            "--version" => {
                self.asked.get_or_insert(Asked::Version);
                return Ok(());
            }
            "-q" | "--quiet" => return self.add("--quiet=yes"),
            "-v" | "--verbose" | "-d" => return Ok(()),
            "-s" => return self.add("--show-error-list=yes"),
            _ => {}
        }
        let (option, value) = word.split_once('=').ok_or_else(unknown)?;
        let mut option = option.to_owned();
        if let Some((tool, own)) = option.trim_start_matches("--").split_once(':') {
            if tool != self.tool.name() {
                return Ok(());
            }
            option = format!("--{own}");
        }
        match known::wrong_value(&option, value) {
            Some(why) if why.is_empty() => return Err(unknown()),
            Some(why) => return Err(Complaint::bad(word, &why)),
            None => {}
        }
        match known::fate(self.tool, &option, value) {
            Fate::Taken => self.given.push(Given {
                option,
                value: value.to_owned(),
            }),
            Fate::Nothing => {}
            Fate::Told(why) => self.notes.push(format!("{word} has no effect: {why}")),
            Fate::Refused(why) => return Err(Complaint::bad(word, why)),
            Fate::Unknown => return Err(unknown()),
        }
        Ok(())
    }

    /// The value of an option: the last one.
    pub fn value(&self, option: &str) -> Option<&str> {
        self.values(option).next_back()
    }

    /// All values of an option.
    pub fn values(&self, option: &str) -> impl DoubleEndedIterator<Item = &str> {
        let these = self
            .given
            .iter()
            .filter(move |given| given.option == option);
        these.map(|given| given.value.as_str())
    }

    /// True if an option is `yes`.
    pub fn is_yes(&self, option: &str) -> bool {
        self.value(option) == Some("yes")
    }

    /// The options of these with their values, in the order in which they were given.
    pub fn in_order<'a>(&'a self, options: &'a [&str]) -> impl Iterator<Item = (&'a str, &'a str)> {
        let these = self
            .given
            .iter()
            .filter(|given| options.contains(&&*given.option));
        these.map(|given| (given.option.as_str(), given.value.as_str()))
    }
}

/// The words of the files and of the variable.
fn elsewhere() -> Vec<String> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let here = std::env::current_dir().ok();
    let mut words = home.as_deref().map(of_file).unwrap_or_default();
    words.extend(split(&std::env::var(VARIABLE).unwrap_or_default()));
    if here != home {
        words.extend(here.as_deref().map(of_file).unwrap_or_default());
    }
    words
}

fn split(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// The words of the file in a folder. One that others may have written is left out.
fn of_file(folder: &Path) -> Vec<String> {
    let file = folder.join(FILE);
    // SAFETY: it always succeeds.
    let user = unsafe { libc::geteuid() };
    let is_own = std::fs::metadata(&file)
        .is_ok_and(|m| m.is_file() && m.uid() == user && m.mode() & OTHERS_WRITE == 0);
    if !is_own {
        return Vec::new();
    }
    split(&std::fs::read_to_string(file).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(words: &[&str]) -> Result<Settings, Complaint> {
        let words = words.iter().map(|word| (*word).to_owned());
        Settings::of(words.collect(), Vec::new())
    }

    #[test]
    fn the_last_value_prevails() {
        let read = settings(&[
            "--num-callers=3",
            "-q",
            "--num-callers=5",
            "--track-fds=yes",
        ])
        .unwrap();
        assert_eq!(
            (read.tool, read.value("--num-callers")),
            (Tool::Memcheck, Some("5"))
        );
        assert!(read.is_yes("--quiet") && !read.is_yes("--xml"));
        assert_eq!(
            read.notes,
            ["--track-fds=yes has no effect: open descriptors are not listed"]
        );
    }

    #[test]
    fn options_may_be_of_one_tool() {
        let words = [
            "--tool=callgrind",
            "--memcheck:leak-check=full",
            "--callgrind:callgrind-out-file=x",
        ];
        let read = settings(&words).unwrap();
        assert_eq!(read.value("--callgrind-out-file"), Some("x"));
        assert_eq!(read.value("--leak-check"), None);
    }

    #[test]
    fn mistakes_are_told_as_valgrind_does() {
        let text = |words: &[&str]| settings(words).unwrap_err().text;
        assert!(text(&["--foo"]).starts_with("Unknown option: --foo\n"));
        assert!(text(&["--leak-check=foo"]).starts_with("Unknown option: --leak-check=foo\n"));
        assert!(
            text(&["--error-exitcode=a"])
                .starts_with("Bad option: --error-exitcode=a\nInvalid integer")
        );
        assert!(text(&["--xtree-leak=yes"]).contains("leaks are not written as a tree"));
        assert!(text(&["--tool=nope"]).starts_with("failed to start tool 'nope'"));
    }
}

//! What `atom run` tells the process that instruments a program for it, and what that process answers.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use atom_core::Error;
use atom_core::error::ErrorKind;
use serde::{Deserialize, Serialize};

use crate::source;

/// The option that has a job as its value.
pub const OPTION: &str = "--job";

/// A word of a command line, or a path.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
#[serde(untagged)]
pub enum Word {
    /// In UTF-8.
    Text(String),
    /// Any bytes.
    Bytes(Vec<u8>),
}

impl Word {
    /// The word's bytes.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Bytes(bytes) => bytes,
        }
    }

    /// The word as a path.
    pub fn path(&self) -> &Path {
        Path::new(OsStr::from_bytes(self.bytes()))
    }
}

impl<T: AsRef<OsStr>> From<T> for Word {
    fn from(word: T) -> Self {
        let word = word.as_ref();
        let bytes = || Self::Bytes(word.as_bytes().to_vec());
        word.to_str()
            .map_or_else(bytes, |text| Self::Text(text.into()))
    }
}

/// A process that runs already.
#[derive(Serialize, Deserialize, Clone, Default, Debug)]
pub struct Running {
    /// Addresses for the area.
    pub area: [u64; 2],
    /// The objects: the program first.
    pub objects: Vec<Mapped>,
}

/// An object of a process that runs already.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct Mapped {
    /// Path of its file.
    pub path: Word,
    /// Addresses for its new segments, as in its file.
    pub place: [u64; 2],
}

/// A program to instrument for `atom run`.
#[derive(Serialize, Deserialize, Clone, Default, Debug)]
#[serde(default)]
pub struct Job {
    /// The path that the instrumented program will have when it is run.
    pub placed_at: Option<Word>,
    /// The path by which the program is run.
    pub named: Option<Word>,
    /// The source of the tool, which messages name.
    pub tool_source: Option<Word>,
    /// The record that the runtime leaves, up to the process number.
    pub record: Option<Word>,
    /// The libraries that the program loads at its start, the loader included; empty if they are not known.
    pub loads: Vec<Word>,
    /// First words of the command line by which executed programs are instrumented.
    pub follow: Vec<Word>,
    /// First words of the command line by which libraries are instrumented when the program opens them.
    pub late: Vec<Word>,
    /// The process for which the program is instrumented, if it runs already.
    pub attach: Option<Running>,
    /// An error is answered on standard output, for a caller that does not show messages.
    pub answers: bool,
    /// Notes are left out.
    pub quiet: bool,
}

impl Job {
    /// From the option's value.
    pub fn parse(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|e| e.to_string())
    }

    /// As the option's value.
    pub fn to_word(&self) -> String {
        serde_json::to_string(self).expect("plain fields always serialise")
    }
}

/// The answer about a program that cannot be instrumented.
#[derive(Serialize, Deserialize, Clone)]
pub struct Answer {
    /// What was tried and why it failed, in one line.
    pub reason: String,
    /// True if the system refused something: the next attempt may succeed.
    pub may_pass: bool,
}

impl Answer {
    /// Prints the answer for an error.
    pub fn give(error: &Error) {
        let reason = source::text_of(error);
        let may_pass = error.kind == ErrorKind::System;
        let answer = serde_json::to_string(&Self { reason, may_pass });
        println!("{}", answer.expect("plain fields always serialise"));
    }

    /// Reads what a process has printed; `None` if it has ended without an answer.
    pub fn read(text: &[u8]) -> Option<Self> {
        let line = text.trim_ascii_end().rsplit(|b| *b == b'\n').next()?;
        serde_json::from_slice(line).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_have_paths_of_any_bytes() {
        let job = Job {
            named: Some(OsStr::from_bytes(b"/a\xff \"b").into()),
            late: vec!["--opened".into()],
            ..Job::default()
        };
        let read = Job::parse(&job.to_word()).unwrap();
        assert_eq!(
            (read.named, read.late, read.answers),
            (job.named, job.late, false)
        );
        assert!(Job::parse("x").is_err());
    }

    #[test]
    fn the_answer_follows_what_a_tool_has_printed() {
        let read = |text: &str| Answer::read(text.as_bytes());
        let reason = "reading x: it is empty";
        let text = format!("of the tool\n{{\"reason\":\"{reason}\",\"may_pass\":true}}\n");
        let answer = read(&text).unwrap();
        assert_eq!((answer.reason.as_str(), answer.may_pass), (reason, true));
        assert!(read("of the tool\n").is_none());
    }
}

//! Where and how it is told: lines for people, or Valgrind's XML.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsFd;
use std::process;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use atom_tool::prelude::*;

use crate::suppressions;
use crate::told::Told;
use crate::xml;

plain_data! {
    /// How it is told.
    pub struct Manner {
        pub is_xml: u8,
        /// No lines but errors.
        pub is_quiet: u8,
        /// After each error a suppression for it.
        pub with_suppressions: u8,
        pub _unused: u8,
    }
}

static OUT: OnceLock<File> = OnceLock::new();
static XML: OnceLock<File> = OnceLock::new();
static MANNER: OnceLock<Manner> = OnceLock::new();
/// Number of errors that were told.
static TOLD: AtomicU64 = AtomicU64::new(0);

fn manner() -> Manner {
    MANNER.get().copied().unwrap_or(Manner {
        is_xml: 0,
        is_quiet: 0,
        with_suppressions: 0,
        _unused: 0,
    })
}

/// `log` and `xml` are names of files, or empty. Without a name lines go to standard error as it is at the start, which
/// programs may close.
pub fn begin(how: Manner, log: &str, xml_file: &str) {
    let _ = MANNER.set(how);
    open(&OUT, log);
    if how.is_xml != 0 {
        open(&XML, xml_file);
        put(&XML, &xml::head());
    }
}

fn open(place: &OnceLock<File>, name: &str) {
    let file = match name {
        "" => std::io::stderr()
            .as_fd()
            .try_clone_to_owned()
            .map(File::from),
        name => File::create(output::path(name)),
    };
    match file {
        Ok(file) => _ = place.set(file),
        Err(error) if !name.is_empty() => eprintln!("memcheck: cannot write {name}: {error}"),
        Err(_) => {}
    }
}

fn put(place: &OnceLock<File>, text: &str) {
    if let Some(mut file) = place.get() {
        let _ = file.write_all(text.as_bytes());
    }
}

/// Lines with the number of the process in front, all at once.
fn put_lines(text: &str) {
    let pid = process::id();
    let lines = text.lines().map(|line| format!("=={pid}== {line}\n"));
    put(&OUT, &lines.collect::<String>());
}

/// Tells something that is no error.
pub fn note(text: &str) {
    let how = manner();
    if how.is_quiet == 0 && how.is_xml == 0 {
        put_lines(text);
    }
}

/// Tells an error.
pub fn error(told: &Told) {
    let how = manner();
    let number = TOLD.fetch_add(1, Relaxed);
    let suppression = (how.with_suppressions != 0).then(|| suppressions::write(told));
    if how.is_xml != 0 {
        put(&XML, &xml::error(told, number, suppression.as_deref()));
        return;
    }
    put_lines(&told.text());
    if let Some(suppression) = suppression {
        put(&OUT, &suppression);
    }
}

/// Ends what is told in XML.
pub fn end() {
    if manner().is_xml != 0 {
        put(&XML, &xml::tail());
    }
}

/// A number with groups of three digits.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i != 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        let _ = write!(text, "{digit}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_in_groups() {
        let all = [0, 12, 123, 1234, 123_456, 1_234_567].map(grouped);
        assert_eq!(all.join(" "), "0 12 123 1,234 123,456 1,234,567");
    }
}

//! Executions that a recorder saw and did not record, as the notes of a data file count them.
use std::collections::BTreeMap;

use crate::types::Sid;

/// Key prefix, followed by a section's number, of the note that counts how often the section was
/// entered while it was open.
const FOLDED: &str = "folded.";
/// Key prefix of the note that counts how often a kernel was entered within another kernel.
const NESTED: &str = "nested.";

/// Numbers of executions of a section that were not recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unrecorded {
    /// Executions that began while the section was open, by recursion. They belong to the outermost one.
    pub folded: u64,
    /// Executions of a kernel within another kernel.
    pub nested: u64,
}

impl Unrecorded {
    /// Reads the notes of a data file about section `sid`.
    pub fn of(info: &[(String, String)], sid: Sid) -> Self {
        let mut found = Self::default();
        for (key, value) in info {
            match parse(key) {
                Some((at, nested)) if at == sid => found.add(nested, value.parse().unwrap_or(0)),
                _ => {}
            }
        }
        found
    }

    /// Whether `key` is the key of a note about unrecorded executions.
    pub fn is_note(key: &str) -> bool {
        parse(key).is_some()
    }

    /// Adds `n` to `nested` or to `folded`.
    pub(crate) fn add(&mut self, nested: bool, n: u64) {
        let sum = if nested {
            &mut self.nested
        } else {
            &mut self.folded
        };
        *sum = sum.saturating_add(n);
    }
}

fn parse(key: &str) -> Option<(Sid, bool)> {
    let (number, nested) = match (key.strip_prefix(FOLDED), key.strip_prefix(NESTED)) {
        (Some(number), _) => (number, false),
        (_, Some(number)) => (number, true),
        _ => return None,
    };
    Some((Sid(number.parse().ok()?), nested))
}

/// Unrecorded executions, by section.
pub(crate) type All = BTreeMap<Sid, Unrecorded>;

/// Notes that store `all` in a data file.
pub(crate) fn notes(all: &All) -> Vec<(String, String)> {
    let mut notes = Vec::new();
    for (sid, left_out) in all {
        for (key, n) in [(FOLDED, left_out.folded), (NESTED, left_out.nested)] {
            if n > 0 {
                notes.push((format!("{key}{sid}"), n.to_string()));
            }
        }
    }
    notes
}

/// Removes the notes about unrecorded executions from `info` and adds their numbers to `all`.
pub(crate) fn take(info: &mut Vec<(String, String)>, all: &mut All) {
    info.retain(|(key, value)| match parse(key) {
        Some((sid, nested)) => {
            let n = value.parse().unwrap_or(0);
            all.entry(sid).or_default().add(nested, n);
            false
        }
        None => true,
    });
}

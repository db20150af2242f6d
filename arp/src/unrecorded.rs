//! Executions that a recorder saw and did not record, as the notes of a data file tell them.
use std::collections::BTreeMap;

use crate::types::Sid;

/// A note with this and a section's number says how often it was entered while it was open.
const FOLDED: &str = "folded.";
/// The same of kernels that were entered within other kernels.
const NESTED: &str = "nested.";

/// How often a section was entered without being recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unrecorded {
    /// While it was open: by recursion. Such executions are a part of the outermost one.
    pub folded: u64,
    /// A kernel within another kernel.
    pub nested: u64,
}

impl Unrecorded {
    /// What the notes of a data file say of a section.
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

    /// Whether a note is one of those that this is made from.
    pub fn is_note(key: &str) -> bool {
        parse(key).is_some()
    }

    /// Adds to one of the numbers.
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

/// What was not recorded, by section.
pub(crate) type All = BTreeMap<Sid, Unrecorded>;

/// The notes that say it.
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

/// Takes such notes out of others, and adds up what they say.
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

//! Data files: formats, readers and writers.
pub(crate) mod ascii;
pub(crate) mod blocks;
pub(crate) mod bytes;
pub(crate) mod order;
pub(crate) mod output;
pub(crate) mod reader;
pub(crate) mod record;
pub(crate) mod samples;
pub(crate) mod sink;
pub(crate) mod sums;
pub(crate) mod writer;

use crate::types::{Mode, Section, ValueSet};

/// The first line of every data file.
pub(crate) const TITLE: &str = "# Atomium record and playback data - format version 1.1.";

/// Limit of open sections of a record in a file.
pub(crate) const MAX_STACK: usize = 1 << 12;
/// Limit of histogram octaves of a record in a file; each takes 1 KiB of memory.
pub(crate) const MAX_OCTAVES: usize = 1 << 16;
/// Limit of sets of values in a file.
pub(crate) const MAX_SETS: usize = 1 << 10;

/// Heading of a data file, with the notes and descriptions.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Heading {
    pub mode: Mode,
    pub sets: Vec<ValueSet>,
    pub info: Vec<(String, String)>,
    pub sections: Vec<Section>,
}

impl Heading {
    /// The first two lines of a file in this format.
    pub fn lines(&self, format: u8) -> String {
        let mut text = format!("{TITLE}\n{format} {} {}", self.mode as u8, self.sets.len());
        for set in &self.sets {
            text.push_str(&format!(" {}", set.data_type as u8));
        }
        text.push('\n');
        text
    }

    /// Adds a description, in place of an older one of the same section.
    pub fn add_section(&mut self, section: Section) {
        // Files list sections by number, so the position is usually the end of the list.
        match self.sections.binary_search_by_key(&section.sid, |s| s.sid) {
            Ok(at) => self.sections[at] = section,
            Err(at) => self.sections.insert(at, section),
        }
    }
}

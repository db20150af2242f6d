//! What a cell of a row holds: the number of a text, or an integer, either of which may be missing.

use parquet::data_type::ByteArray;
use rustc_hash::FxHashMap;

/// The number of a missing text.
pub const NO_TEXT: u32 = u32::MAX;
/// A missing integer. No measure has this value, as measures are not negative.
pub const NO_INTEGER: i64 = i64::MIN;

/// Texts, each with its number.
#[derive(Default)]
pub struct Names {
    numbers: FxHashMap<Box<str>, u32>,
    /// The texts by their numbers.
    pub all: Vec<ByteArray>,
}

impl Names {
    /// The number of a text.
    pub fn number(&mut self, text: &str) -> u32 {
        if let Some(known) = self.numbers.get(text) {
            return *known;
        }
        let new = self.all.len() as u32;
        self.all.push(ByteArray::from(text));
        self.numbers.insert(text.into(), new);
        new
    }

    /// The number of a text; [`NO_TEXT`] if it is missing or empty.
    pub fn maybe(&mut self, text: Option<&str>) -> u32 {
        match text {
            None | Some("") => NO_TEXT,
            Some(text) => self.number(text),
        }
    }
}

/// A number as an integer of the file; missing if it does not fit.
pub fn integer(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(NO_INTEGER)
}

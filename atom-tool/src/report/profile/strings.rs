//! The dictionary of the texts in tables.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher};

/// The texts, each once. The hash needs no random numbers from the system.
#[derive(Default)]
pub struct Texts<'a> {
    /// The texts in the order of their indices.
    pub all: Vec<&'a str>,
    /// The index of the first one: texts of fixed columns are in front.
    first: u32,
    indices: HashMap<&'a str, u32, BuildHasherDefault<DefaultHasher>>,
    last: Option<(&'a str, u32)>,
}

impl<'a> Texts<'a> {
    /// A dictionary that is after another one with `first` texts.
    pub fn behind(first: u32) -> Self {
        Self {
            first,
            ..Self::default()
        }
    }

    /// The index of a text.
    pub fn index(&mut self, text: &'a str) -> u32 {
        // Rows of one procedure are together and share its name.
        if let Some((last, index)) = self.last
            && std::ptr::eq(last, text)
        {
            return index;
        }
        let next = self.first + self.all.len() as u32;
        let index = *self.indices.entry(text).or_insert(next);
        if index == next {
            self.all.push(text);
        }
        self.last = Some((text, index));
        index
    }
}

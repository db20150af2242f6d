//! Many strings as one argument.
//!
//! Reports repeat names of procedures and files, and only the instrument routine knows the
//! names. A [`StringList`] keeps them in one array of bytes, each as its length (u32), its text and a null, for C.
//! The key of a string is its offset in that array.

use std::collections::HashMap;

use atom_abi::host::{self, ArgKind};

use crate::calls::params::{Array, Param, code};
use crate::calls::proto::{NamedArg, PlacedType};
use crate::calls::typed::{Arg, array};

/// Instrument side: a list of strings. Pass `&list` to a parameter [`Strings`].
#[derive(Default, Clone, Debug)]
pub struct StringList {
    interned: HashMap<Box<str>, u32>,
    bytes: Vec<u8>,
}

impl StringList {
    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a string, also if the list has it already; returns its key.
    ///
    /// # Panics
    /// If all strings together exceed 4 GiB.
    pub fn push(&mut self, text: &str) -> u32 {
        let key =
            u32::try_from(self.bytes.len()).expect("the strings of a list take less than 4 GiB");
        let len = u32::try_from(text.len()).expect("a string of a list takes less than 4 GiB");
        self.bytes.extend(len.to_le_bytes());
        self.bytes.extend(text.as_bytes());
        self.bytes.push(0);
        key
    }

    /// The key of a string; appends it if no call of `intern` did so before.
    pub fn intern(&mut self, text: &str) -> u32 {
        if let Some(&key) = self.interned.get(text) {
            return key;
        }
        let key = self.push(text);
        self.interned.insert(text.into(), key);
        key
    }

    /// The string with this key; empty if there is none.
    pub fn get(&self, key: u32) -> &str {
        read(&self.bytes, key as usize).map_or("", |(text, _)| text)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Arg<Strings> for &StringList {
    fn to_host(&self) -> host::Arg {
        array(ArgKind::Array, &self.bytes)
    }
}

impl<'a> From<&'a StringList> for NamedArg<'a> {
    fn from(strings: &'a StringList) -> Self {
        Self::Encoded(PlacedType::Strings, strings.bytes())
    }
}

/// Analysis side: a list of strings.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Strings(Array<u8>);

// SAFETY: transparent over an array, which is one pointer.
unsafe impl Param for Strings {
    const CODE: u8 = code::OTHER;
}

impl Strings {
    /// The string with this key; empty if there is none.
    pub fn get(self, key: u32) -> &'static str {
        read(self.0.as_slice(), key as usize).map_or("", |(text, _)| text)
    }

    /// All strings in the order in which they were added.
    pub fn iter(self) -> impl Iterator<Item = &'static str> {
        let bytes = self.0.as_slice();
        let mut at = 0;
        std::iter::from_fn(move || {
            let (text, next) = read(bytes, at)?;
            at = next;
            Some(text)
        })
    }
}

/// The string at an offset, and the offset after it.
pub(crate) fn read(bytes: &[u8], at: usize) -> Option<(&str, usize)> {
    let (len, rest) = bytes.get(at..)?.split_first_chunk()?;
    let len = u32::from_le_bytes(*len) as usize;
    let text = std::str::from_utf8(rest.get(..len)?).ok()?;
    Some((text, at + 4 + len + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_find_their_strings() {
        let mut list = StringList::new();
        let keys = [
            list.intern("main"),
            list.intern(""),
            list.intern("größe"),
            list.intern("main"),
        ];
        assert_eq!(keys[0], keys[3]);
        let found = keys.map(|key| read(&list.bytes, key as usize).unwrap().0);
        assert_eq!(found, ["main", "", "größe", "main"]);
        assert_eq!(read(&list.bytes, list.bytes.len()), None);
        assert_ne!(list.push("main"), keys[0]);
    }
}

//! Columns of a profile whose values are known when the program is instrumented. They are made into JSON and compressed
//! then, and the program's end copies them.
//!
//! A file of RFC 1952 is a sequence of blocks (RFC 1951). A fragment is made of whole blocks that end at a byte, and
//! refers to nothing in front of it; what follows it does not refer to it. So fragments can stand between blocks that
//! are made later.

use miniz_oxide::deflate::core::{
    CompressorOxide, TDEFLFlush, compress_to_output, create_comp_flags_from_zip_params,
};

use super::json::Json;
use super::strings::Texts;
use super::table::{column_head, places};
use crate::report::Cell;
use crate::report::column::{Column, Role, Type};

/// Level of compression; there is time when a program is instrumented.
const LEVEL: u8 = 6;

/// Number of words of 32 bits in front of the compressed parts.
const WORDS: usize = 7;

/// The values of a column of [`fixed_columns`], one for each row.
#[derive(Clone, Debug, PartialEq)]
pub enum FixedValues<'a> {
    /// Texts.
    Texts(Vec<&'a str>),
    /// Source lines: cells made by [`Cell::place`], or empty ones.
    Places(Vec<Cell>),
}

/// Part of a profile, compressed.
#[derive(Clone, Copy, Debug)]
pub struct Fragment {
    /// Length in bytes before it was compressed.
    pub len: u32,
    /// Check sum of these bytes.
    crc: u32,
    /// The blocks.
    pub packed: &'static [u8],
}

impl Fragment {
    /// The check sum, to be combined with others.
    pub fn sum(&self) -> crc32fast::Hasher {
        crc32fast::Hasher::new_with_initial_len(self.crc, self.len.into())
    }
}

/// Analysis side: what [`fixed_columns`] made.
#[derive(Clone, Copy, Debug)]
pub struct Fixed {
    strings: u32,
    columns: Fragment,
    texts: Fragment,
}

impl Fixed {
    /// From the bytes; none if they are not what [`fixed_columns`] made.
    pub fn new(bytes: &'static [u8]) -> Option<Self> {
        let (head, rest) = bytes.split_at_checked(WORDS * size_of::<u32>())?;
        let mut words = [0; WORDS];
        for (word, bytes) in words.iter_mut().zip(head.chunks_exact(size_of::<u32>())) {
            *word = u32::from_le_bytes(bytes.try_into().ok()?);
        }
        let [
            strings,
            len,
            crc,
            packed,
            texts_len,
            texts_crc,
            texts_packed,
        ] = words;
        let (columns, texts) = rest.split_at_checked(packed as usize)?;
        let fragment = |len, crc, packed| Fragment { len, crc, packed };
        Some(Self {
            strings,
            columns: fragment(len, crc, columns),
            texts: fragment(texts_len, texts_crc, texts.get(..texts_packed as usize)?),
        })
    }

    /// Number of texts.
    pub fn strings(self) -> u32 {
        self.strings
    }

    /// The columns.
    pub fn columns(self) -> Fragment {
        self.columns
    }

    /// The texts to which the columns refer.
    pub fn texts(self) -> Fragment {
        self.texts
    }
}

/// Instrument side: makes columns for [`Report::fixed_table`](crate::Report::fixed_table), as an argument for a parameter `Array<u8>`.
pub fn fixed_columns(columns: &[(Column, FixedValues<'_>)]) -> Vec<u8> {
    let (mut json, mut texts) = (Json::default(), Texts::default());
    for (column, values) in columns {
        let (kind, role) = match values {
            FixedValues::Texts(_) => (Type::Text, Role::Label),
            FixedValues::Places(_) => (Type::Place, Role::Label),
        };
        column_head(&mut json, column, kind, column.role.unwrap_or(role));
        match values {
            FixedValues::Texts(all) => {
                json.key("values").open('[');
                all.iter()
                    .for_each(|text| json.index(Some(texts.index(text))));
                json.close(']');
            }
            FixedValues::Places(all) => places(&mut json, &mut texts, all.iter(), true),
        }
        json.close('}');
    }
    let mut strings = Json::default();
    texts.all.iter().for_each(|text| strings.text(text));
    let mut bytes = Vec::new();
    let mut words = vec![texts.all.len() as u32];
    for json in [json, strings] {
        let json = json.bytes();
        let before = bytes.len();
        Deflater::new(LEVEL).append(&json, End::OfPart, &mut bytes);
        let packed = bytes.len() - before;
        words.extend([json.len() as u32, crc32fast::hash(&json), packed as u32]);
    }
    let head = words.into_iter().flat_map(u32::to_le_bytes);
    head.chain(bytes).collect()
}

/// What ends behind some bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// A part of the file. What follows does not refer to it.
    OfPart,
    /// The file.
    OfFile,
}

/// Compresses the parts of a file.
pub struct Deflater(CompressorOxide);

impl Deflater {
    /// For a level of compression, from 1 on.
    pub fn new(level: u8) -> Self {
        let flags = create_comp_flags_from_zip_params(level.into(), 0, 0);
        Self(CompressorOxide::new(flags))
    }

    /// Appends bytes as whole blocks, which end at a byte.
    pub fn append(&mut self, bytes: &[u8], end: End, to: &mut Vec<u8>) {
        let flush = match end {
            End::OfPart => TDEFLFlush::Full,
            End::OfFile => TDEFLFlush::Finish,
        };
        // Memory takes all.
        let _ = compress_to_output(&mut self.0, bytes, flush, |out| {
            to.extend_from_slice(out);
            true
        });
    }
}

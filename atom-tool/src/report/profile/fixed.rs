//! Columns of a profile whose values are known when the program is instrumented. They are made into JSON and compressed
//! then, and the program's end copies them.
//!
//! A file of RFC 1952 is a sequence of blocks (RFC 1951). A fragment is made of whole blocks that end at a byte, and
//! refers to nothing in front of it; what follows it does not refer to it. So fragments can be between blocks that
//! are made later.

use atom_abi::OBJECT_SHIFT;
use miniz_oxide::deflate::core::{
    CompressorOxide, TDEFLFlush, compress_to_output, create_comp_flags_from_zip_params,
};

use super::json::{Fragment, Json};
use super::strings::Texts;
use crate::report::{Cell, Values};

/// Level of compression; there is time when a program is instrumented.
const LEVEL: u8 = 6;

/// Number of words of 32 bits at the start: the number of columns, the number of texts, and the words of the texts' fragment.
const HEAD: usize = 2 + FRAGMENT;
/// Number of words of a fragment: its lengths before and after compression, and its check sum.
const FRAGMENT: usize = 3;
/// Number of words of a column: its number of rows, and the words of its fragments.
const COLUMN: usize = 1 + FRAGMENTS * FRAGMENT;
/// Number of fragments of a column: objects, files, values. Those that its type does not have are empty.
const FRAGMENTS: usize = 3;

/// The values of a column of [`fixed_columns`], one for each row.
#[derive(Clone, Debug, PartialEq)]
pub enum FixedValues<'a> {
    /// Numbers.
    Numbers(Vec<u64>),
    /// Addresses of the original program.
    Addresses(Vec<u64>),
    /// Texts.
    Texts(Vec<&'a str>),
    /// Source lines: cells made by [`Cell::place`], or empty ones.
    Places(Vec<Cell>),
}

/// Analysis side: what [`fixed_columns`] made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FixedColumns {
    bytes: &'static [u8],
}

impl FixedColumns {
    /// From the bytes; none if they are not what [`fixed_columns`] made.
    pub fn new(bytes: &'static [u8]) -> Option<Self> {
        let columns = Self { bytes };
        let last = columns.word(0)?.checked_sub(1)?;
        columns.fragment(columns.words_of(last as usize) + COLUMN - FRAGMENT)?;
        Some(columns)
    }

    /// The values of the column with this number, in the order in which [`fixed_columns`] got them, with `more` rows after it
    /// them. There must be such a column.
    pub fn column(self, number: usize, more: Values) -> Values {
        let at = self.words_of(number);
        let fragment = |i: usize| self.fragment(at + 1 + i * FRAGMENT);
        let empty = || Fragment {
            len: 0,
            crc: 0,
            packed: &[],
        };
        let column = FixedColumn {
            columns: self,
            rows: self.word(at).unwrap_or(0) as usize,
            fragments: std::array::from_fn(|i| fragment(i).unwrap_or_else(empty)),
        };
        Values::Fixed(column, Box::new(more))
    }

    /// Number of texts.
    pub(super) fn strings(self) -> u32 {
        self.word(1).unwrap_or(0)
    }

    /// The texts to which the columns refer.
    pub(super) fn texts(self) -> Option<Fragment> {
        self.fragment(2).filter(|texts| texts.len != 0)
    }

    /// Number of words in front of the words of a column.
    fn words_of(self, column: usize) -> usize {
        HEAD + column * COLUMN
    }

    fn word(self, i: usize) -> Option<u32> {
        let bytes = self.bytes.get(i * size_of::<u32>()..)?;
        Some(u32::from_le_bytes(*bytes.first_chunk()?))
    }

    /// The fragment whose words begin with this number. Fragments are after all words in the order of their words.
    fn fragment(self, at: usize) -> Option<Fragment> {
        let (len, start, crc) = (self.word(at)?, self.word(at + 1)?, self.word(at + 2)?);
        let packed = self.bytes.get(start as usize..)?;
        let (length, packed) = packed.split_first_chunk()?;
        let packed = packed.get(..u32::from_le_bytes(*length) as usize)?;
        Some(Fragment { len, crc, packed })
    }
}

/// A column whose first rows were compressed before.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FixedColumn {
    pub(super) columns: FixedColumns,
    pub(in crate::report) rows: usize,
    fragments: [Fragment; FRAGMENTS],
}

impl FixedColumn {
    /// The numbers of the rows' objects.
    pub(super) fn objects(&self) -> Fragment {
        self.fragments[0]
    }

    /// The indices of source files.
    pub(super) fn files(&self) -> Fragment {
        self.fragments[1]
    }

    /// The values.
    pub(super) fn values(&self) -> Fragment {
        self.fragments[2]
    }
}

/// Instrument side: makes columns for [`FixedColumns`], as an argument for a parameter `Array<u8>`. `objects` is the number
/// of the process's objects.
pub fn fixed_columns(objects: usize, columns: &[FixedValues<'_>]) -> Vec<u8> {
    let mut texts = Texts::default();
    let columns: Vec<(usize, [Json; FRAGMENTS])> = columns
        .iter()
        .map(|values| parts(objects, &mut texts, values))
        .collect();
    let mut strings = Json::default();
    texts.all.iter().for_each(|text| strings.text(text));
    let mut words = vec![columns.len() as u32, texts.all.len() as u32];
    let words_in_all = HEAD + columns.len() * COLUMN;
    let mut bytes = Vec::new();
    let mut push = |words: &mut Vec<u32>, json: Json| {
        let json = json.bytes();
        let start = words_in_all * size_of::<u32>() + bytes.len();
        words.extend([json.len() as u32, start as u32, crc32fast::hash(&json)]);
        let mut packed = Vec::new();
        if !json.is_empty() {
            Deflater::new(LEVEL).append(&json, End::OfPart, &mut packed);
        }
        bytes.extend((packed.len() as u32).to_le_bytes());
        bytes.extend(packed);
    };
    push(&mut words, strings);
    for (rows, parts) in columns {
        words.push(rows as u32);
        parts.into_iter().for_each(|json| push(&mut words, json));
    }
    let words = words.into_iter().flat_map(u32::to_le_bytes);
    words.chain(bytes).collect()
}

/// The number of rows of a column, and its parts as JSON.
fn parts<'a>(
    objects: usize,
    texts: &mut Texts<'a>,
    values: &'a FixedValues<'_>,
) -> (usize, [Json; FRAGMENTS]) {
    let mut parts: [Json; FRAGMENTS] = Default::default();
    let [of_objects, of_files, of_values] = &mut parts;
    let rows = match values {
        FixedValues::Numbers(all) => {
            all.iter().for_each(|n| of_values.number(*n));
            all.len()
        }
        FixedValues::Addresses(all) => {
            for address in all {
                let (object, address) = in_object(*address, objects);
                of_objects.number(object);
                of_values.address(address);
            }
            all.len()
        }
        FixedValues::Texts(all) => {
            for text in all {
                of_values.index(Some(texts.index(text)));
            }
            all.len()
        }
        FixedValues::Places(all) => {
            for cell in all {
                let (file, line, object) = match cell {
                    Cell::Place { file, line, object } => (Some(file), *line, *object),
                    _ => (None, 0, 0),
                };
                of_objects.number(object.into());
                of_files.index(file.map(|file| texts.index(file)));
                of_values.number(line.into());
            }
            all.len()
        }
    };
    (rows, parts)
}

/// The object of an address of the process, and the address in it, given the number of the process's objects.
pub fn in_object(address: u64, objects: usize) -> (u64, u64) {
    // A program alone may have addresses of any size, and so has memory at run time.
    match address >> OBJECT_SHIFT {
        object if object < objects as u64 => (object, address & ((1 << OBJECT_SHIFT) - 1)),
        _ => (0, address),
    }
}

/// What ends after some bytes.
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

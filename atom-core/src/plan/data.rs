//! Strings and arrays that calls pass: their contents and their records.

use atom_abi::THREAD_HEADER;
use rustc_hash::FxHashMap;

use super::sparse::Sparse;
use crate::error::{Error, Result};
use crate::tool::{Argument, Calls};

/// The plan's data and where in it each argument lies.
#[derive(Default)]
pub struct Data {
    /// The bytes.
    pub bytes: Sparse,
    /// Slots that want the run-time address of the data added.
    pub relocs: Vec<u32>,
    /// By argument of [`Calls::args`]: its offset, for those that lie here.
    pub offsets: Vec<u32>,
    /// Where the tool's per-thread data will lie, in the main block.
    pub thread_data: u32,
    /// Where per-thread data lies, if there is any and once it is placed.
    pub threads: Option<super::threads::Place>,
}

/// Alignment of contents: that of the widest element there can be.
const ALIGN: usize = 16;

impl Data {
    /// Lays out all arguments. The data that the tool placed comes first;
    /// equal contents and equal records are kept once.
    pub fn build(calls: &Calls) -> Result<Self> {
        let mut data = Self {
            bytes: Sparse::copy_of(&calls.placed),
            ..Self::default()
        };
        let mut contents: FxHashMap<&[u8], u32> = FxHashMap::default();
        let mut records: FxHashMap<(u32, u64), u32> = FxHashMap::default();
        data.offsets.reserve(calls.args.len());
        for argument in &calls.args {
            let offset = match *argument {
                Argument::Str(start, end) | Argument::CStr(start, end) => {
                    let bytes = slice(calls, start, end)?;
                    let at = data.contents(&mut contents, bytes);
                    match argument {
                        Argument::Str(..) => data.record(&mut records, at, bytes.len() as u64),
                        _ => at,
                    }
                }
                Argument::Array(start, end, size) | Argument::CArray(start, end, size) => {
                    let bytes = slice(calls, start, end)?;
                    let at = data.contents(&mut contents, bytes);
                    let count = bytes.len() as u64 / u64::from(size.max(1));
                    match argument {
                        Argument::Array(..) => data.record(&mut records, at, count),
                        _ => at,
                    }
                }
                Argument::Data(offset) if (offset as usize) < calls.placed.len().max(1) => offset,
                Argument::Data(_) => return Err(bad("an argument points outside the placed data")),
                Argument::ThreadData(offset) if offset < calls.thread_data.len => offset,
                Argument::ThreadData(_) => {
                    return Err(bad("an argument points outside the threads' data"));
                }
                _ => 0,
            };
            data.offsets.push(offset);
        }
        data.thread_data =
            data.bytes.len().next_multiple_of(THREAD_HEADER) as u32 + THREAD_HEADER as u32;
        for (argument, offset) in calls.args.iter().zip(&mut data.offsets) {
            if let Argument::ThreadData(_) = argument {
                *offset += data.thread_data;
            }
        }
        data.check_size()?;
        Ok(data)
    }

    /// Adds so many zero bytes, from the start of a cache line; their offset.
    pub fn reserve(&mut self, size: usize) -> u32 {
        let start = self.bytes.len().next_multiple_of(64);
        self.bytes.grow(start + size);
        start as u32
    }

    /// Whether offsets can tell all of it apart.
    pub fn check_size(&self) -> Result<()> {
        match u32::try_from(self.bytes.len()) {
            Ok(_) => Ok(()),
            Err(_) => Err(bad("the tool's strings and arrays exceed 4 GB")),
        }
    }

    fn align(&mut self) -> u32 {
        self.bytes.grow(self.bytes.len().next_multiple_of(ALIGN));
        self.bytes.len() as u32
    }

    /// Contents, with a null after them for C's sake.
    fn contents<'a>(&mut self, known: &mut FxHashMap<&'a [u8], u32>, bytes: &'a [u8]) -> u32 {
        if let Some(&at) = known.get(bytes) {
            return at;
        }
        let at = self.align();
        self.bytes.extend(bytes);
        self.bytes.extend(&[0]);
        known.insert(bytes, at);
        at
    }

    /// A record of address and length.
    fn record(&mut self, known: &mut FxHashMap<(u32, u64), u32>, at: u32, len: u64) -> u32 {
        if let Some(&record) = known.get(&(at, len)) {
            return record;
        }
        let record = self.align();
        self.relocs.push(record);
        self.bytes.extend(&u64::from(at).to_le_bytes());
        self.bytes.extend(&len.to_le_bytes());
        known.insert((at, len), record);
        record
    }
}

fn bad(reason: &str) -> Error {
    Error::new("planning a call", reason)
}

fn slice(calls: &Calls, start: u32, end: u32) -> Result<&[u8]> {
    calls
        .data
        .get(start as usize..end as usize)
        .ok_or_else(|| bad("a string or array argument lies outside the call data"))
}

//! Strings and arrays that calls pass: their contents and their records.

use std::ops::Range;

use atom_abi::{CountRange, STACK_SIZE, THREAD_HEADER, THREAD_THIS, ThreadInfo};
use rustc_hash::FxHashMap;

use super::kept::{Fixed, Late};
use super::private_stack::PRIVATE_SIZE;
use super::sparse::Sparse;
use crate::error::{Error, Result};
use crate::tool::{Argument, Calls, ThreadData};

/// Places of the main block and of its description, as offsets in the plan's data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ThreadPlace {
    /// The main block.
    pub block: u32,
    /// The `ThreadInfo`.
    pub info: u32,
    /// Size of a block in bytes.
    pub size: u32,
    /// True if the tool or its counters have data in a block, or routines a stack.
    pub has_data: bool,
}

/// The plan's data and the place of each argument in it.
#[derive(Default)]
pub struct Data {
    /// Contents.
    pub bytes: Sparse,
    /// Offsets of slots to which the run-time address of the data is added.
    pub relocs: Vec<u32>,
    /// Offset of each argument of [`Calls::args`]; 0 for arguments that are not here.
    pub offsets: Vec<u32>,
    /// Offset of the tool's per-thread data, in the main block.
    pub thread_data: u32,
    /// Ranges that are zeros in a forked child again.
    pub counts: Vec<Range<u32>>,
    /// Place of per-thread data, if there is any, once it is placed.
    pub threads: Option<ThreadPlace>,
    /// Places that are reserved for what is at the same place whenever a library is added.
    pub fixed: Option<Fixed>,
    /// Offsets of the records of the arguments that may be replaced, in the order of the arguments; kept if libraries may be
    /// added.
    pub records: Vec<u32>,
}

/// Alignment of contents in bytes: the size of the widest element there can be.
const ALIGN: usize = 16;

impl Data {
    /// Lays out all arguments. The data that the tool placed comes first;
    /// equal contents and equal records are kept once.
    pub fn build(calls: &Calls, late: &Late<'_>) -> Result<Self> {
        let mut data = Self {
            bytes: Sparse::copy_of(&calls.placed),
            counts: calls.counts.clone(),
            ..Self::default()
        };
        data.fixed = late.fixed(calls);
        if let Some(fixed) = data.fixed {
            data.bytes.grow(fixed.rest as usize);
        }
        let replaceable = late.replaceable(calls);
        let mut contents: FxHashMap<&[u8], u32> = FxHashMap::default();
        let mut records: FxHashMap<(u32, u64), u32> = FxHashMap::default();
        data.offsets.reserve(calls.args.len());
        for (number, argument) in calls.args.iter().enumerate() {
            let is_record = matches!(argument, Argument::Str(..) | Argument::Array(..));
            if is_record && replaceable.binary_search(&(number as u32)).is_ok() {
                // A record of its own, which is replaced when a library is added.
                let at = data.own_record(calls, argument, &mut contents)?;
                data.records.push(at);
                data.offsets.push(at);
                continue;
            }
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
        let block = match data.fixed {
            Some(fixed) => fixed.block,
            None => data.bytes.len().next_multiple_of(THREAD_HEADER) as u32,
        };
        data.thread_data = block + THREAD_HEADER as u32;
        for (argument, offset) in calls.args.iter().zip(&mut data.offsets) {
            if let Argument::ThreadData(_) = argument {
                *offset += data.thread_data;
            }
        }
        data.check_size()?;
        Ok(data)
    }

    /// Adds the contents of a string or an array and a record that no other argument has; returns the record's offset.
    fn own_record<'a>(
        &mut self,
        calls: &'a Calls,
        argument: &Argument,
        contents: &mut FxHashMap<&'a [u8], u32>,
    ) -> Result<u32> {
        let (start, end, size) = match *argument {
            Argument::Array(start, end, size) => (start, end, size.max(1)),
            Argument::Str(start, end) => (start, end, 1),
            _ => return Err(bad("a record was wanted for a number")),
        };
        let bytes = slice(calls, start, end)?;
        let at = self.contents(contents, bytes);
        let count = bytes.len() as u64 / u64::from(size);
        Ok(self.record(&mut FxHashMap::default(), at, count))
    }

    /// The view of a part of the calls: the places of their arguments, without contents.
    pub fn of_part(offsets: Vec<u32>, thread_data: u32) -> Self {
        Self {
            offsets,
            thread_data,
            ..Self::default()
        }
    }

    /// Adds `size` zero bytes at the start of a cache line; returns their offset.
    pub fn reserve(&mut self, size: usize) -> u32 {
        let start = self.bytes.len().next_multiple_of(64);
        self.bytes.grow(start + size);
        start as u32
    }

    /// Adds a page of zeros for what decides between two versions, with nothing else in it; returns its offset. The data
    /// begins at a page.
    pub fn reserve_control(&mut self) -> u32 {
        if let Some(fixed) = self.fixed {
            return fixed.control;
        }
        let start = self.bytes.len().next_multiple_of(crate::PAGE as usize);
        self.bytes.grow(start + crate::PAGE as usize);
        start as u32
    }

    /// As [`Data::reserve`], for counts: a forked child begins with zeros.
    pub fn reserve_counts(&mut self, size: usize) -> u32 {
        let start = self.reserve(size);
        self.counts.push(start..start + size as u32);
        start
    }

    /// As [`Data::reserve_counts`], for the counters of edges, which have a place of their own if libraries may be added.
    pub fn reserve_edges(&mut self, size: usize) -> u32 {
        match self.fixed {
            Some(fixed) => {
                self.counts.push(fixed.edges..fixed.edges + size as u32);
                fixed.edges
            }
            None => self.reserve_counts(size),
        }
    }

    /// Writes the table of all counts; returns its offset and the number of its entries.
    pub fn place_counts(&mut self) -> (u32, usize) {
        let counts = std::mem::take(&mut self.counts);
        let table = self.reserve(size_of::<CountRange>() * counts.len());
        for (slot, range) in (table..).step_by(size_of::<CountRange>()).zip(&counts) {
            let len = u64::from(range.end - range.start);
            let words = [u64::from(range.start), len].map(u64::to_le_bytes);
            self.bytes.write(slot as usize, words.as_flattened());
            self.relocs.push(slot);
        }
        (table, counts.len())
    }

    /// Lays out the main block and the `ThreadInfo`. Each block gets `cells` further cells, which are
    /// summed at the end. Returns the offset of the first of them in the main block.
    /// With `stacks`, each thread has a stack for analysis routines.
    pub fn place_threads(&mut self, threads: &ThreadData, cells: usize, stacks: bool) -> u32 {
        const HEADER: u32 = THREAD_HEADER as u32;
        let reserve = |bytes: &mut Sparse, len: usize| {
            let at = bytes.len().next_multiple_of(THREAD_HEADER);
            bytes.grow(at + len);
            at as u32
        };
        let more = (HEADER + threads.len).next_multiple_of(HEADER);
        let size = (more + 8 * cells as u32).next_multiple_of(HEADER) + PRIVATE_SIZE;
        let (block, size) = match self.fixed {
            Some(fixed) => (fixed.block, fixed.block_size),
            None => (reserve(&mut self.bytes, size as usize), size),
        };
        debug_assert_eq!(block + HEADER, self.thread_data);
        for (offset, range) in &threads.initial {
            let at = (block + HEADER + offset) as usize;
            let contents = &threads.contents[range.start as usize..range.end as usize];
            self.bytes.write(at, contents);
        }
        let mut table = |ranges: &mut dyn Iterator<Item = (u32, u32)>| {
            let at = reserve(&mut self.bytes, 0);
            for (offset, len) in ranges {
                self.bytes.extend(&(HEADER + offset).to_le_bytes());
                self.bytes.extend(&len.to_le_bytes());
            }
            u64::from(at)
        };
        let counters = (more - HEADER, 8 * cells as u32);
        let sums = threads.sums.iter().map(|r| (r.start, r.end - r.start));
        let sums = table(&mut sums.chain((cells != 0).then_some(counters)));
        let initial = table(&mut threads.initial.iter().map(|(at, r)| (*at, r.end - r.start)));
        let pieces = threads.pieces.iter().map(|piece| (piece.start, piece.size));
        let pieces = table(&mut pieces.chain((cells != 0).then_some(counters)));
        let contents = reserve(&mut self.bytes, 0);
        self.bytes.extend(&threads.contents);
        let info = reserve(&mut self.bytes, size_of::<ThreadInfo>());
        // The fields of `ThreadInfo` in their order; true for the address of an offset.
        let fields = [
            (u64::from(block), true),
            (u64::from(block), true),
            (size.into(), false),
            (sums, true),
            (threads.sums.len() as u64 + u64::from(cells != 0), false),
            (initial, true),
            (threads.initial.len() as u64, false),
            (contents.into(), true),
            (if stacks { STACK_SIZE as u64 } else { 0 }, false),
            (pieces, true),
            (threads.pieces.len() as u64 + u64::from(cells != 0), false),
        ];
        const { assert!(size_of::<ThreadInfo>() == 11 * 8) };
        for (slot, (value, is_address)) in (info..).step_by(8).zip(fields) {
            self.bytes.write(slot as usize, &value.to_le_bytes());
            if is_address {
                self.relocs.push(slot);
            }
        }
        let this = block as usize + THREAD_THIS;
        self.bytes.write(this, &u64::from(block).to_le_bytes());
        self.relocs.push(block + THREAD_THIS as u32);
        let has_data = threads.len != 0 || cells != 0 || stacks;
        self.threads = Some(ThreadPlace {
            block,
            info,
            size,
            has_data,
        });
        block + more
    }

    /// Checks that all of the data can be addressed by 32-bit offsets.
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

    /// Adds contents, with a zero byte after them for C; returns their offset.
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

    /// Adds a record of address and length; returns its offset.
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

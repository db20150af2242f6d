//! Go's tables of the rewritten program.
//!
//! All of the original's tables stay valid, so that pointers to functions and functions that stay are found as
//! before. After them come an entry for the gap between the texts, and a record for each moved piece of
//! a function. Its tables say for each new address what the original's say for the instruction that it belongs to,
//! with two exceptions:
//!
//! - where inserted code has lowered the stack pointer, the distance from the frame's end is larger;
//! - inside of inserted code, after its first instruction that writes a register, a thread may not be stopped
//!   (`PCDATA_UnsafePoint` -2): the stack maps describe the program's own instructions. The same holds for sequences that Go's runtime starts again from their beginning (values below
//!   -2): the beginning of a sequence would be a place after inserted code.

use rayon::prelude::*;

use super::pc_values::{self, NOTHING, Run, Writer};
use super::{DOING, Function, GoTable, INLINED_CALLS, Record, field, flag, pcdata, word, word_at};
use crate::{Error, Result};

/// A piece of the new text, up to the next one's start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// First address.
    pub new: u64,
    /// The original address for which the tables say what holds here.
    pub old: u64,
    /// True if a thread may not be stopped here although it may be at `old`: after the first instruction of inserted code that
    /// writes a register.
    pub is_inside: bool,
    /// Distance in bytes by which the stack pointer is lower than in the original.
    pub depth: u32,
}

/// A procedure in the new text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MovedProcedure {
    /// Original address.
    pub old: u64,
    /// The address after the original.
    pub old_end: u64,
    /// First new address.
    pub new: u64,
    /// The address after it. The next procedure starts at least one byte later, as the address after a call that ends a procedure must
    /// not be the next one's.
    pub end: u64,
}

/// What the tables need to know of the new text.
pub trait NewText: Sync {
    /// The pieces of a moved procedure, by address; the first one starts where the procedure does.
    fn segments(&self, procedure: &MovedProcedure) -> Vec<Segment>;

    /// New address of the first instruction of a moved procedure that is not before an original address.
    fn address(&self, procedure: &MovedProcedure, old: u64) -> Option<u64>;
}

/// A word of the module data with its new value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Change {
    /// Address of the word.
    pub address: u64,
    /// Its value.
    pub value: u64,
    /// True for an address, to which the loader adds the load bias.
    pub is_address: bool,
}

/// The new tables.
#[derive(Clone, Default, Debug)]
pub struct GoBlob {
    /// Address of the first byte.
    pub address: u64,
    /// Contents: pctab, pclntable, ftab, findfunctab, inlined calls.
    pub bytes: Vec<u8>,
    /// Words of the module data to change.
    pub changes: Vec<Change>,
}

impl GoBlob {
    /// The address after the tables.
    pub fn end(&self) -> u64 {
        self.address + self.bytes.len() as u64
    }
}

/// Functions whose stated entry Go's runtime compares with pointers to them, which keep the original address.
const COMPARED: [&str; 2] = ["reflect.makeFuncStub", "reflect.methodValueCall"];

/// Alignment of each part in bytes.
const ALIGNMENT: usize = 16;
/// `PCDATA_UnsafePoint`: a thread may not be stopped here.
const UNSAFE: i32 = -2;
/// Number of the `funcdata` without which a thread is never stopped in a function.
const LOCAL_POINTERS: usize = 1;

/// Addresses that a bucket of `findfunctab` stands for, in bytes, and its number of parts.
const BUCKET: u64 = 4096;
const PARTS: u64 = 16;
/// Size of a bucket's entry in bytes.
const BUCKET_SIZE: usize = 4 + PARTS as usize;

/// An entry of `ftab` that is added, with what it leads to. Offsets count from the first added byte.
#[derive(Default)]
struct Piece {
    /// First address.
    start: u64,
    /// The address that the record states as the function's entry, from which its tables count.
    entry: u64,
    /// Record, with offsets in `pctab` and of `funcdata` that count from the piece's own.
    record: Vec<u8>,
    /// Tables by program counter.
    pctab: Vec<u8>,
    /// Places in the record of offsets into `pctab`.
    offsets: Vec<usize>,
    /// Inlined calls, and the place in the record of their distance from `gofunc`.
    inlined: Option<(Vec<u8>, usize)>,
}

/// Builds the tables for moved procedures, which are sorted by new address, at `address`.
pub fn build(
    table: &GoTable<'_>,
    moved: &[MovedProcedure],
    text: &dyn NewText,
    address: u64,
) -> Result<GoBlob> {
    let address = address.next_multiple_of(ALIGNMENT as u64);
    let mut pieces: Vec<Piece> = moved
        .par_iter()
        .enumerate()
        .map(|(i, procedure)| {
            let end = moved.get(i + 1).map_or(procedure.end + 1, |next| next.new);
            piece(table, procedure, end, text)
        })
        .collect();
    let Some(last) = moved.last() else {
        return Ok(GoBlob::default());
    };
    let old_end = table.functions.last().map_or(0, |f| f.end);
    pieces.insert(0, gap(table, old_end, moved[0].new));
    let max_pc = last.end + 1;
    let builder = Builder {
        table,
        address,
        bytes: Vec::new(),
    };
    builder.write(&pieces, max_pc)
}

struct Builder<'a> {
    table: &'a GoTable<'a>,
    address: u64,
    bytes: Vec<u8>,
}

impl Builder<'_> {
    /// Starts a part; yields its address.
    fn part(&mut self) -> u64 {
        let size = self.bytes.len().next_multiple_of(ALIGNMENT);
        self.bytes.resize(size, 0);
        self.address + size as u64
    }

    fn write(mut self, pieces: &[Piece], max_pc: u64) -> Result<GoBlob> {
        let table = self.table;
        let pctab = self.part();
        self.bytes.extend_from_slice(table.pctab);
        let mut tables = Vec::with_capacity(pieces.len());
        for piece in pieces {
            tables.push(self.bytes.len() as u64 + self.address - pctab);
            self.bytes.extend_from_slice(&piece.pctab);
        }
        let pctab_size = self.address + self.bytes.len() as u64 - pctab;
        let mut inlined = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let at = self.part();
            inlined.push(at);
            let calls = piece.inlined.as_ref().map_or(&[][..], |(bytes, _)| bytes);
            self.bytes.extend_from_slice(calls);
        }
        let pclntable = self.part();
        self.bytes.extend_from_slice(table.pclntable);
        let mut records = Vec::with_capacity(pieces.len());
        for ((piece, tables), inlined) in pieces.iter().zip(tables).zip(inlined) {
            let size = self.bytes.len().next_multiple_of(8);
            self.bytes.resize(size, 0);
            records.push(self.address + size as u64 - pclntable);
            let record = self.bytes.len();
            self.bytes.extend_from_slice(&piece.record);
            let bytes = &mut self.bytes[record..];
            set(bytes, field::ENTRY, offset(piece.entry, table.text)?);
            for at in &piece.offsets {
                let own = get(bytes, *at);
                set(bytes, *at, offset(tables + u64::from(own), 0)?);
            }
            if let Some((_, at)) = &piece.inlined {
                set(bytes, *at, offset(inlined, table.gofunc)?);
            }
        }
        let pclntable_size = self.address + self.bytes.len() as u64 - pclntable;
        let ftab = self.part();
        let old = table.functions.iter();
        let old = old.map(|f| (f.start, u64::from(f.record)));
        let new = pieces.iter().map(|p| p.start).zip(records.iter().copied());
        let entries: Vec<(u64, u64)> = old.chain(new).collect();
        for (start, record) in entries.iter().chain([&(max_pc, 0)]) {
            self.bytes.extend(offset(*start, table.text)?.to_le_bytes());
            self.bytes.extend(offset(*record, 0)?.to_le_bytes());
        }
        let find = self.part();
        let starts: Vec<u64> = entries.iter().map(|e| e.0).collect();
        self.find(&starts, max_pc)?;
        let mut changes = Vec::new();
        let slices = [
            (word::PCTAB, pctab, pctab_size),
            (word::PCLNTABLE, pclntable, pclntable_size),
            (word::FTAB, ftab, entries.len() as u64 + 1),
        ];
        let mut change = |word: usize, value: u64, is_address: bool| {
            changes.push(Change {
                address: table.module + 8 * word as u64,
                value,
                is_address,
            });
        };
        for (word, start, length) in slices {
            change(word, start, true);
            change(word + 1, length, false);
            change(word + 2, length, false);
        }
        change(word::FIND, find, true);
        change(word::MAX_PC, max_pc, true);
        Ok(GoBlob {
            address: self.address,
            bytes: self.bytes,
            changes,
        })
    }

    /// Writes the index of functions by address. `starts` are the addresses of the entries of `ftab`. Buckets between
    /// the texts stay zero, since no code is there.
    fn find(&mut self, starts: &[u64], max_pc: u64) -> Result<()> {
        let min = starts[0];
        let gap = self.table.functions.len();
        let gap = starts[gap]..starts[gap + 1];
        let buckets = (max_pc - min).div_ceil(BUCKET);
        let at = self.bytes.len();
        self.bytes.resize(at + buckets as usize * BUCKET_SIZE, 0);
        let entries = self.bytes[at..].chunks_exact_mut(BUCKET_SIZE);
        let mut next = 0;
        let mut index_at = |address: u64| {
            while starts.get(next + 1).is_some_and(|s| *s <= address) {
                next += 1;
            }
            next
        };
        for (i, entry) in entries.enumerate() {
            let start = min + i as u64 * BUCKET;
            if gap.contains(&start) && gap.contains(&(start + BUCKET)) {
                continue;
            }
            let first = index_at(start);
            set(entry, 0, offset(first as u64, 0)?);
            for part in 0..PARTS {
                let own = index_at(start + part * (BUCKET / PARTS)) - first;
                entry[4 + part as usize] = u8::try_from(own).map_err(|_| {
                    Error::new(
                        "writing Go's tables",
                        "more than 255 functions lie in 4096 bytes",
                    )
                    .address(start)
                })?;
            }
        }
        Ok(())
    }
}

/// The entry for the addresses between the texts, where inserted code is that is no function's. A
/// profile shows them as code outside of the program. Unwinding ends there, as the stack may be another one.
fn gap(table: &GoTable<'_>, start: u64, end: u64) -> Piece {
    let size = table.form.record_size();
    let mut piece = Piece {
        start,
        entry: start,
        record: vec![0; size],
        ..Piece::default()
    };
    let functions = table.functions.iter();
    let mut outside = functions.filter(|f| table.name(f) == "runtime._ExternalCode");
    if let Some(function) = outside.next() {
        let name = get(table.record(function).bytes(), field::NAME);
        set(&mut piece.record, field::NAME, name);
    }
    piece.record[size - field::FLAGS_FROM_END] = flag::TOP_FRAME;
    let mut writer = Writer::default();
    writer.push((end - start) as u32, 0, &mut piece.pctab);
    writer.end(&mut piece.pctab);
    // Offset 0 means that there is no table, so the file and line have none.
    piece.offsets.push(field::TABLES[0]);
    piece
}

/// The entry for a moved procedure, which extends to `end`.
fn piece(table: &GoTable<'_>, procedure: &MovedProcedure, end: u64, text: &dyn NewText) -> Piece {
    let Some(function) = table.function_at(procedure.old) else {
        // Code of another language.
        return gap(table, procedure.new, end);
    };
    let record = table.record(function);
    let old_lists = record.bytes()[table.form.record_size()..].to_vec();
    let base = if COMPARED.contains(&table.name(function)) {
        function.start
    } else {
        procedure.new
    };
    let mut piece = Piece {
        start: procedure.new,
        entry: base,
        record: record.bytes()[..table.form.record_size()].to_vec(),
        ..Piece::default()
    };
    let segments = text.segments(procedure);
    let mut writer = TableWriter {
        table,
        function,
        segments: &segments,
        base,
        end,
        out: Vec::new(),
    };
    for (i, at) in field::TABLES.into_iter().enumerate() {
        let old = get(&piece.record, at);
        let change = |segment: &Segment, value| match i {
            0 => value + segment.depth as i32,
            _ => value,
        };
        if let Some(own) = writer.table(old, change) {
            set(&mut piece.record, at, own);
            piece.offsets.push(at);
        }
    }
    let stoppable = record.funcdata(LOCAL_POINTERS).is_some();
    let has_inserted = segments.iter().any(|s| s.is_inside);
    let count = record.pcdata_count();
    let new_count = count.max(usize::from(stoppable && has_inserted));
    for number in 0..new_count {
        let old = record.pcdata(number);
        let at = piece.record.len();
        let own = match number {
            pcdata::UNSAFE_POINT if stoppable => writer.unsafe_points(old),
            _ => writer.table(old, |_, value| value),
        };
        piece.record.extend(own.unwrap_or(0).to_le_bytes());
        piece.offsets.extend(own.map(|_| at));
    }
    let lists = piece.record.len();
    piece.record.extend_from_slice(&old_lists[4 * count..]);
    piece.pctab = writer.out;
    set(&mut piece.record, field::PCDATA_COUNT, new_count as u32);
    let resumed = table
        .defer_return(function)
        .filter(|a| (procedure.old..procedure.old_end).contains(a))
        .and_then(|a| text.address(procedure, a));
    let distance = resumed.map_or(0, |a| (a - base) as u32);
    set(&mut piece.record, field::DEFER_RETURN, distance);
    let parent = |old: u64| Some((text.address(procedure, old)?.saturating_sub(base)) as u32);
    piece.inlined = inlined_calls(table, function, &record, parent)
        .map(|bytes| (bytes, lists + 4 * INLINED_CALLS));
    piece
}

/// The inlined calls of a function, with the places of the calls in the new text as `parent` gives them.
fn inlined_calls(
    table: &GoTable<'_>,
    function: &Function,
    record: &Record<'_>,
    parent: impl Fn(u64) -> Option<u32>,
) -> Option<Vec<u8>> {
    let bytes = table.funcdata_at(record.funcdata(INLINED_CALLS)?)?;
    let values = table.values(record.pcdata(pcdata::INLINED));
    // Calls that contain others have lower numbers.
    let highest = values
        .iter()
        .map(|run| run.value)
        .max()
        .filter(|n| *n >= 0)?;
    let size = table.form.inlined_call_size();
    let mut calls = bytes.get(..size * (highest as usize + 1))?.to_vec();
    for call in calls.chunks_exact_mut(size) {
        let at = table.form.parent_pc();
        let old = function.start + u64::from(get(call, at));
        if let Some(new) = parent(old) {
            set(call, at, new);
        }
    }
    Some(calls)
}

/// Writes tables by program counter for a moved procedure.
struct TableWriter<'a> {
    table: &'a GoTable<'a>,
    function: &'a Function,
    segments: &'a [Segment],
    /// The address from which tables count.
    base: u64,
    end: u64,
    out: Vec<u8>,
}

impl TableWriter<'_> {
    /// Writes the table that says what the original's at an offset says; yields its offset, or
    /// `None` if the original has none.
    fn table(&mut self, old: u32, change: impl Fn(&Segment, i32) -> i32) -> Option<u32> {
        let values = match old {
            0 => return None,
            old => self.table.values(old),
        };
        Some(self.write(&values, change))
    }

    /// Writes the table of the places where a thread may be stopped.
    fn unsafe_points(&mut self, old: u32) -> Option<u32> {
        let values = self.table.values(old);
        let is_needed = old != 0 || self.segments.iter().any(|s| s.is_inside);
        let change = |segment: &Segment, value: i32| {
            if segment.is_inside {
                UNSAFE
            } else {
                value.max(UNSAFE)
            }
        };
        is_needed.then(|| self.write(&values, change))
    }

    fn write(&mut self, values: &[Run], change: impl Fn(&Segment, i32) -> i32) -> u32 {
        let start = self.out.len() as u32;
        let mut writer = Writer::default();
        // Most segments come in the order of original addresses.
        let mut at = 0;
        let ends = self.segments.iter().skip(1).map(|s| s.new);
        for (segment, end) in self.segments.iter().zip(ends.chain([self.end])) {
            if end <= segment.new {
                continue;
            }
            let old = segment.old.saturating_sub(self.function.start) as u32;
            let begin = |at: usize| match at {
                0 => 0,
                at => values[at - 1].end,
            };
            if old < begin(at) {
                at = values.partition_point(|r| r.end <= old);
            }
            while values.get(at).is_some_and(|r| r.end <= old) {
                at += 1;
            }
            let value = values.get(at).map_or(NOTHING, |r| r.value);
            debug_assert_eq!(value, pc_values::at(values, old));
            let end = (end - self.base) as u32;
            writer.push(end, change(segment, value), &mut self.out);
        }
        writer.end(&mut self.out);
        start
    }
}

fn get(bytes: &[u8], at: usize) -> u32 {
    word_at(bytes, at).expect("the place lies in the record")
}

fn set(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

/// A distance as the tables state it.
fn offset(address: u64, base: u64) -> Result<u32> {
    u32::try_from(address.wrapping_sub(base)).map_err(|_| {
        Error::new(
            DOING,
            format!("{address:#x} is too far from {base:#x} for the tables"),
        )
    })
}

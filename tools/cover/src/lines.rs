//! The source lines in their order, and the blocks that have code of each, found when the program is instrumented.
//!
//! A row is a line of a source file in one object. Rows are ordered by file, object and line. What the program's end
//! needs is packed as numbers in LEB128:
//!
//! - the number of rows, the number of pairs of a file and an object, and the length in bytes of the rows' lines;
//! - for each pair the key of the file's name, the number of the object, and its number of rows;
//! - for each row the difference of its line from the line of the row before, or from 0 at the start of a pair;
//! - for each procedure its first block as the difference from the procedure before, the length in bytes of the rest, and
//!   for each of its rows: the difference of the row's number from the one before, the number of blocks, the first one's
//!   distance from the procedure's first block, and the differences between them.
//!
//! Most procedures of a process are never executed; they are passed over. Differences that may be negative have their
//! sign in the lowest bit.
//!
//! Places and names of procedures are columns of the profile that are fixed (`crate::columns`).

use std::collections::BTreeMap;

use atom_tool::prelude::*;
use leb128::next;

use crate::kind::Kind;
use crate::packed::{self, Line};

/// A block with code of a line. The order of parts is the order of rows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Part {
    /// Key of the file's name.
    file: u32,
    object: usize,
    line: u32,
    /// Number of the procedure's first block.
    proc: u32,
    block: u32,
    /// Key of the procedure's name.
    name: u32,
}

impl Part {
    /// The row.
    fn row(&self) -> (u32, usize, u32) {
        (self.file, self.object, self.line)
    }
}

/// Instrument side: the lines of all blocks.
#[derive(Default)]
pub struct LineList {
    parts: Vec<Part>,
}

impl LineList {
    /// Appends the lines of a block.
    pub fn push(&mut self, block: Block<'_>, proc: u32, name: u32, lines: &[Line]) {
        let object = Address(block.pc()).object_number();
        let block = block.index() as u32;
        let part = |&(file, line): &Line| Part {
            file,
            object,
            line,
            proc,
            block,
            name,
        };
        self.parts.extend(lines.iter().map(part));
    }

    /// Puts the lines in order. The names are those of procedures.
    pub fn finish(mut self, names: &mut StringList) -> LineColumns {
        self.parts.sort_unstable();
        self.parts.dedup();
        let rows: Vec<&[Part]> = self.parts.chunk_by(|a, b| a.row() == b.row()).collect();
        let firsts = || rows.iter().map(|row| &row[0]);
        LineColumns {
            packed: pack(&rows),
            lines: firsts().map(Part::row).collect(),
            procs: rows.iter().map(|row| procs_of(row, names)).collect(),
        }
    }
}

/// Key of the name of the procedure that has all code of a row, or of the number of its procedures.
fn procs_of(row: &[Part], names: &mut StringList) -> u32 {
    // Parts of a row are in the order of their procedures.
    match row.chunk_by(|a, b| a.proc == b.proc).count() {
        1 => row[0].name,
        n => names.intern(&format!("{n} procedures")),
    }
}

/// The rows in their order.
pub struct LineColumns {
    /// What the program's end reads.
    pub packed: Vec<u8>,
    /// Keys of the files' names, numbers of objects, and lines.
    pub lines: Vec<(u32, usize, u32)>,
    /// Keys of the names of the procedures that have code of the line, or of their number.
    pub procs: Vec<u32>,
}

/// Packs the rows.
fn pack(rows: &[&[Part]]) -> Vec<u8> {
    let pairs: Vec<&[&[Part]]> = rows
        .chunk_by(|a, b| (a[0].file, a[0].object) == (b[0].file, b[0].object))
        .collect();
    let mut numbers = Vec::new();
    for pair in &pairs {
        let mut last = 0;
        for row in *pair {
            leb128::push(&mut numbers, u64::from(row[0].line - last));
            last = row[0].line;
        }
    }
    let mut packed = Vec::new();
    for number in [rows.len(), pairs.len(), numbers.len()] {
        leb128::push(&mut packed, number as u64);
    }
    for pair in pairs {
        let Part { file, object, .. } = pair[0][0];
        for number in [u64::from(file), object as u64, pair.len() as u64] {
            leb128::push(&mut packed, number);
        }
    }
    packed.extend(numbers);
    // The blocks of each procedure, by row.
    let mut procs: BTreeMap<u32, Vec<(usize, &[Part])>> = BTreeMap::new();
    for (i, row) in rows.iter().enumerate() {
        for part in row.chunk_by(|a, b| a.proc == b.proc) {
            procs.entry(part[0].proc).or_default().push((i, part));
        }
    }
    let mut last = 0;
    for (proc, rows) in procs {
        let mut own = Vec::new();
        let mut last_row = 0;
        for (row, parts) in rows {
            leb128::push(&mut own, (row - last_row) as u64);
            leb128::push(&mut own, parts.len() as u64);
            let mut before = proc;
            for part in parts {
                leb128::push(&mut own, u64::from(part.block - before));
                before = part.block;
            }
            last_row = row;
        }
        leb128::push(&mut packed, u64::from(proc - last));
        packed::push_piece(&mut packed, &own);
        last = proc;
    }
    packed
}

/// A line of the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LineRow {
    pub line: Line,
    pub count: u64,
}

/// The lines of a source file in one object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FilePart {
    /// Key of the file's name.
    pub file: u32,
    /// Number of its first row.
    pub first: usize,
    /// Number of its rows.
    pub rows: usize,
}

/// Analysis side: the packed lines with their executions, to which each procedure is added in the order of blocks.
#[derive(Default)]
pub struct Lines<'a> {
    /// Executions of the rows.
    pub counts: Vec<u64>,
    pub files: Vec<FilePart>,
    /// The rows' lines.
    numbers: &'a [u8],
    /// The procedures that follow.
    procs: &'a [u8],
    /// First block of the last procedure that was read.
    last: u32,
    /// First block and rows of the procedure that was read and not added.
    waiting: Option<(u32, &'a [u8])>,
}

impl<'a> Lines<'a> {
    /// From the packed lines; empty if there are none.
    pub fn new(packed: &'a [u8]) -> Self {
        Self::read(packed).unwrap_or_default()
    }

    fn read(mut packed: &'a [u8]) -> Option<Self> {
        let mut take = || next(&mut packed).map(|n| n as usize);
        let (rows, pairs, length) = (take()?, take()?, take()?);
        let mut files = Vec::with_capacity(pairs.min(rows));
        let mut first = 0;
        for _ in 0..pairs {
            let (file, _, rows) = (take()? as u32, take()?, take()?);
            files.push(FilePart { file, first, rows });
            first += rows;
        }
        let (numbers, procs) = packed.split_at_checked(length)?;
        let mut lines = Self {
            counts: vec![0; rows],
            files,
            numbers,
            procs,
            ..Self::default()
        };
        lines.advance();
        Some(lines)
    }

    /// Reads the next procedure.
    fn advance(&mut self) {
        self.waiting = (|| {
            let first = self.last + next(&mut self.procs)? as u32;
            let own = packed::next_piece(&mut self.procs)?;
            self.last = first;
            Some((first, own))
        })();
    }

    /// Adds the executions in a procedure, given the number of its first block, to its lines, if it has lines and if any of its blocks
    /// was executed. `count` gives the executions of a block. In one procedure a line is executed as often as the block
    /// of it that is executed most often.
    pub fn add(&mut self, proc: u32, is_executed: bool, count: impl Fn(u32) -> u64, kind: Kind) {
        while let Some((first, own)) = self.waiting.filter(|waiting| waiting.0 <= proc) {
            if first == proc && is_executed {
                let mut own = own;
                let mut row = 0;
                while let Some((to, most)) = read_row(&mut own, proc, &count) {
                    row += to;
                    if let Some(known) = self.counts.get_mut(row) {
                        *known = kind.sum(*known, most);
                    }
                }
            }
            self.advance();
        }
    }

    /// All lines in their order, with their executions.
    pub fn all(&self) -> impl Iterator<Item = LineRow> {
        let mut numbers = self.numbers;
        let rows = |part: &FilePart| (part.first..).take(part.rows);
        let all = self
            .files
            .iter()
            .flat_map(move |part| rows(part).map(move |row| (part.file, row, row == part.first)));
        let mut line = 0;
        all.map_while(move |(file, row, is_first)| {
            let difference = next(&mut numbers)? as u32;
            line = if is_first {
                difference
            } else {
                line + difference
            };
            let count = *self.counts.get(row)?;
            Some(LineRow {
                line: (file, line),
                count,
            })
        })
    }
}

/// Reads a row of a procedure: the difference of its number, and the executions of the block that is executed most often.
fn read_row(bytes: &mut &[u8], proc: u32, count: impl Fn(u32) -> u64) -> Option<(usize, u64)> {
    let row = next(bytes)? as usize;
    let (mut block, mut most) = (proc, 0);
    for _ in 0..next(bytes)? {
        block += next(bytes)? as u32;
        most = most.max(count(block));
    }
    Some((row, most))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_the_sum_over_procedures_of_their_largest_blocks() {
        let part = |file, line, object, proc, block| Part {
            file,
            object,
            line,
            proc,
            block,
            name: 0,
        };
        let parts = [
            part(3, 7, 0, 0, 4),
            part(3, 7, 0, 0, 2),
            part(3, 7, 0, 5, 6),
            part(3, 9, 0, 5, 7),
            part(3, 7, 1, 8, 9),
            part(3, 7, 0, 0, 2),
            part(1, 900, 0, 5, 5),
        ];
        let list = LineList {
            parts: parts.to_vec(),
        };
        let mut names = StringList::new();
        let LineColumns {
            packed,
            lines,
            procs,
        } = list.finish(&mut names);
        assert_eq!(lines, [(1, 0, 900), (3, 0, 7), (3, 0, 9), (3, 1, 7)]);
        assert_eq!(names.get(procs[1]), "2 procedures");
        assert_eq!([procs[0], procs[2], procs[3]], [0; 3]);
        let counts = [0, 0, 10, 0, 30, 5, 100, 0, 0, 1000];
        let count = |block: u32| counts[block as usize];
        let found = |packed: &[u8], is_counted, without: u32| {
            let mut lines = Lines::new(packed);
            for proc in [0, 5, 8] {
                lines.add(proc, proc != without, count, Kind { is_counted });
            }
            lines
                .all()
                .map(|row| (row.line, row.count))
                .collect::<Vec<_>>()
        };
        let all = [((1, 900), 5), ((3, 7), 130), ((3, 9), 0), ((3, 7), 1000)];
        assert_eq!(found(&packed, true, 1), all);
        assert_eq!(found(&packed, false, 1)[1].1, 100);
        // Procedures that were not executed are passed over.
        let without = [((1, 900), 0), ((3, 7), 30), ((3, 9), 0), ((3, 7), 1000)];
        assert_eq!(found(&packed, true, 5), without);
        let files: Vec<_> = Lines::new(&packed)
            .files
            .iter()
            .map(|part| (part.file, part.first, part.rows))
            .collect();
        assert_eq!(files, [(1, 0, 1), (3, 1, 2), (3, 3, 1)]);
        // What is cut off is not counted.
        assert_eq!(found(&packed[..packed.len() - 1], true, 1)[3].1, 0);
        assert_eq!(found(&[], true, 1), []);
    }
}

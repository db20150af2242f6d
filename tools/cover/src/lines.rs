//! The source lines in their order, and the blocks that have code of each, found when the program is instrumented.
//!
//! What the program's end needs is packed as numbers in LEB128: the number of lines, and for each line the differences of
//! file and line from the one before, the number of the object, and the blocks. Blocks stand in groups, one for each
//! procedure: the number of groups, and for each its number of blocks, the difference of the first one from the first one
//! of the group before (of any line), and the differences between its blocks. Differences that may be negative have their sign in the
//! lowest bit.
//!
//! Places and names of procedures are columns of the profile that are [fixed](atom_tool::report::fixed_columns).

use atom_tool::prelude::*;
use atom_tool::report::{Column, FixedValues, fixed_columns};
use leb128::next;

use crate::packed::{Line, behind, difference};
use crate::report::Kind;

/// A block with code of a line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Part {
    line: Line,
    object: usize,
    /// Number of the procedure's first block.
    proc: u32,
    block: u32,
    /// Key of the procedure's name.
    name: u32,
}

/// Instrument side: the lines of all blocks.
#[derive(Default)]
pub struct LineList {
    parts: Vec<Part>,
}

/// A line of the process: its executions.
#[derive(Clone, Copy)]
pub struct LineRow {
    pub line: Line,
    pub object: usize,
    pub count: u64,
}

impl LineList {
    /// Appends the lines of a block.
    pub fn push(&mut self, block: Block<'_>, proc: u32, name: u32, lines: &[Line]) {
        let object = Address(block.pc()).object_number();
        let block = block.index() as u32;
        let part = |line: &Line| Part {
            line: *line,
            object,
            proc,
            block,
            name,
        };
        self.parts.extend(lines.iter().map(part));
    }

    /// The packed lines, and the columns of the profile that are fixed. `name` gives the text of a key.
    pub fn finish(mut self, name: impl Fn(u32) -> String) -> (Vec<u8>, Vec<u8>) {
        if self.parts.is_empty() {
            return Default::default();
        }
        self.parts.sort_unstable();
        self.parts.dedup();
        let rows = || {
            self.parts
                .chunk_by(|a, b| (a.line, a.object) == (b.line, b.object))
        };
        let mut packed = Vec::new();
        leb128::push(&mut packed, rows().count() as u64);
        let mut last = Last::default();
        rows().for_each(|row| push_row(&mut packed, row, &mut last));
        let firsts = || rows().map(|row| &row[0]);
        let places = firsts().map(|part| Cell::Place {
            file: name(part.line.0).into(),
            line: part.line.1,
            object: part.object as u32,
        });
        let procs: Vec<String> = firsts().map(|part| name(part.name)).collect();
        let columns = fixed_columns(&[
            (
                Column::place("line").key(),
                FixedValues::Places(places.collect()),
            ),
            (
                Column::text("procedure"),
                FixedValues::Texts(procs.iter().map(String::as_str).collect()),
            ),
        ]);
        (packed, columns)
    }
}

/// The line before, and the first block of the group before.
#[derive(Default)]
struct Last {
    line: Line,
    block: u32,
}

/// Appends a line with its blocks.
fn push_row(packed: &mut Vec<u8>, row: &[Part], last: &mut Last) {
    let Part { line, object, .. } = row[0];
    let procs = || row.chunk_by(|a, b| a.proc == b.proc);
    for number in [
        difference(line.0, last.line.0),
        difference(line.1, last.line.1),
        object as u64,
        procs().count() as u64,
    ] {
        leb128::push(packed, number);
    }
    last.line = line;
    for blocks in procs() {
        leb128::push(packed, blocks.len() as u64);
        leb128::push(packed, difference(blocks[0].block, last.block));
        last.block = blocks[0].block;
        for pair in blocks.windows(2) {
            leb128::push(packed, u64::from(pair[1].block - pair[0].block));
        }
    }
}

/// Reads the lines, adds up their executions and gives them to `each`. `count` gives the executions of a block. In one procedure a
/// line is executed as often as the block of it that is executed most often.
pub fn each(
    mut packed: &[u8],
    count: impl Fn(u32) -> u64,
    kind: Kind,
    mut each: impl FnMut(LineRow),
) {
    let mut last = Last::default();
    for _ in 0..next(&mut packed).unwrap_or(0) {
        match read_row(&mut packed, &mut last, &count, kind) {
            Some(row) => each(row),
            None => return,
        }
    }
}

fn read_row(
    bytes: &mut &[u8],
    last: &mut Last,
    executed: impl Fn(u32) -> u64,
    kind: Kind,
) -> Option<LineRow> {
    let line = (
        behind(last.line.0, next(bytes)?),
        behind(last.line.1, next(bytes)?),
    );
    last.line = line;
    let object = next(bytes)? as usize;
    let mut count = 0;
    for _ in 0..next(bytes)? {
        let blocks = next(bytes)?;
        last.block = behind(last.block, next(bytes)?);
        let (mut block, mut most) = (last.block, executed(last.block));
        for _ in 1..blocks {
            block += next(bytes)? as u32;
            most = most.max(executed(block));
        }
        count = kind.sum(count, most);
    }
    Some(LineRow {
        line,
        object,
        count,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_the_sum_over_procedures_of_their_largest_blocks() {
        let part = |line, object, proc, block| Part {
            line,
            object,
            proc,
            block,
            name: 0,
        };
        let parts = [
            part((3, 7), 0, 0, 4),
            part((3, 7), 0, 0, 2),
            part((3, 7), 0, 5, 6),
            part((3, 7), 1, 8, 9),
            part((3, 7), 0, 0, 2),
            part((1, 900), 0, 5, 5),
        ];
        let list = LineList {
            parts: parts.to_vec(),
        };
        let (packed, columns) = list.finish(|key| key.to_string());
        assert!(!columns.is_empty());
        let counts = [0, 0, 10, 0, 30, 5, 100, 0, 0, 1000];
        let count = |block: u32| counts[block as usize];
        let found = |is_counted| {
            let mut rows = Vec::new();
            each(&packed, count, Kind { is_counted }, |row| {
                rows.push((row.line, row.object, row.count));
            });
            rows
        };
        let expected = [((1, 900), 0, 5), ((3, 7), 0, 130), ((3, 7), 1, 1000)];
        assert_eq!(found(true), expected);
        assert_eq!(found(false)[1].2, 100);
        let mut rest = 0;
        let short = &packed[..packed.len() - 1];
        each(short, count, Kind { is_counted: true }, |_| rest += 1);
        assert_eq!(rest, 2);
    }
}

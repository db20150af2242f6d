//! Columns of the profile that are known when the program is instrumented: the source lines, and the procedures that have
//! lines. All of them have a row in the profile, executed or not, and the program's end need not look at those that
//! were not.

use atom_tool::prelude::*;
use atom_tool::report::{Column, FixedColumns, FixedValues, Sum, Values, fixed_columns};

use crate::lines::LineColumns;
use crate::packed::Head;

/// Numbers of the columns.
const LINE: usize = 0;
const LINE_PROC: usize = 1;
const BLOCKS: usize = 2;
const PC: usize = 3;
const PROC_LINE: usize = 4;
const PROC: usize = 5;

/// Instrument side: makes the columns of the lines and of the procedures that have lines, which are given with their numbers of blocks.
pub fn make(
    objects: usize,
    lines: &LineColumns,
    procs: &[(Head, usize)],
    names: &StringList,
) -> Vec<u8> {
    let place = |file: u32, line, object| Cell::Place {
        file: names.get(file).to_owned().into(),
        line,
        object,
    };
    let of_proc = |(head, _): &(Head, usize)| {
        let object = Address(head.pc).object_number();
        place(head.line.0, head.line.1, object as u32)
    };
    let of_line = |&(file, object, line): &(u32, usize, u32)| place(file, line, object as u32);
    let name = |key: &u32| names.get(*key);
    fixed_columns(
        objects,
        &[
            FixedValues::Places(lines.lines.iter().map(of_line).collect()),
            FixedValues::Texts(lines.procs.iter().map(name).collect()),
            FixedValues::Numbers(procs.iter().map(|proc| proc.1 as u64).collect()),
            FixedValues::Addresses(procs.iter().map(|proc| proc.0.pc).collect()),
            FixedValues::Places(procs.iter().map(of_proc).collect()),
            FixedValues::Texts(procs.iter().map(|proc| name(&proc.0.name)).collect()),
        ],
    )
}

/// Analysis side: place and procedure of each line.
pub fn of_lines(fixed: FixedColumns) -> [(Column, Values); 2] {
    let none = (Values::Places(Vec::new()), Values::Texts(Vec::new()));
    [
        (Column::place("line").key(), fixed.column(LINE, none.0)),
        (Column::text("procedure"), fixed.column(LINE_PROC, none.1)),
    ]
}

/// Analysis side: number of blocks, address, line and name of each procedure that has lines, and of further ones, of
/// which the numbers of blocks, the addresses and the names are given.
pub fn of_procs(
    fixed: FixedColumns,
    (blocks, pcs, names): (Vec<u64>, Vec<u64>, Vec<&'static str>),
) -> [(Column, Values); 4] {
    let no_lines = Values::Places(vec![Cell::Empty; names.len()]);
    let blocks = fixed.column(BLOCKS, Values::Numbers(blocks));
    [
        (BLOCKS_COLUMN, blocks),
        (
            Column::address("pc"),
            fixed.column(PC, Values::Numbers(pcs)),
        ),
        (Column::place("line"), fixed.column(PROC_LINE, no_lines)),
        (
            Column::text("procedure"),
            fixed.column(PROC, Values::Texts(names)),
        ),
    ]
}

/// The column with the number of a procedure's blocks.
pub const BLOCKS_COLUMN: Column = Column::count("blocks", "blocks").sum(Sum::Max);

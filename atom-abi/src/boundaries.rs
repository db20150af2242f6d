//! The table of instruction boundaries of an object: what the runtime needs to show signal handlers original
//! addresses.
//!
//! The table is after the object's new text, by which it is found: its head has five 32-bit words, namely [`MARK`] or [`MARK_KEPT`], the number
//! of procedures that moved, in all their versions, the distance from the start of the new text to the table in bytes, the offset of the
//! *accesses* from the table's start, or 0 if there are none, and the number of the entry with which the version begins to which pads lead. An
//! entry for each procedure of each version follows, and one more that ends them: the procedure's new start (minus the
//! start of the new text), its original start (minus the address of the image), and the offset of its records
//! from the end of all entries, 32 bits each. Procedures are in ascending order of their new addresses, and those of a version also of their original ones.
//!
//! The records of a procedure describe its new text from its start on:
//!
//! | part | in the new text | in the original |
//! | --- | --- | --- |
//! | *after* | code that follows the run before it, in front of the next instruction's label | |
//! | *skipped* | | bytes that have no counterpart |
//! | *before* | code between the label and the instruction | |
//! | *run* | bytes of instructions that have the same sizes | the same |
//!
//! A branch of another size ends its run after its first byte. All addresses of a run at which instructions
//! start are boundaries, and so is the label, and the first address of *after* if the record [is open](IS_OPEN). In
//! all other places of the new text runs inserted code.
//!
//! A record begins with a byte: the low bits say which of the first three parts are not empty; the high bits have the length of the run, or
//! [`LONG_RUN`] if it is longer, whose rest follows as a LEB128 number. The sizes of the parts that are not empty come then,
//! as LEB128 numbers in the order of the table.
//!
//! The accesses are instructions of inserted code that are in the place of an analysis routine's and may fault. Two 32-bit words come
//! first: the number of routines and the size of the entries in bytes. For each routine its address in the tool's file follows (32 bits).
//! An entry has the distance from the access before it, or for the first from the start of the new text, times 2, plus 1 if the routine's
//! number follows because it is another one than before, as LEB128 numbers. Accesses are in ascending order of addresses.

/// First word of the table.
pub const MARK: u32 = 0x6f74_6e31;

/// First word where tables of the program's own describe the new text, so handlers see addresses of the new text.
pub const MARK_KEPT: u32 = 0x6f74_6e32;

/// Size of the head in bytes.
pub const HEAD: usize = 20;

/// Size of an entry in bytes.
pub const ENTRY: usize = 12;

/// Bit of a record's first byte: *after* is not empty.
pub const BEHIND: u8 = 1;

/// Bit of a record's first byte: *skipped* is not empty.
pub const SKIPPED: u8 = 2;

/// Bit of a record's first byte: *before* is not empty.
pub const BEFORE: u8 = 4;

/// Bit of a record's first byte: at the start of *after* the program's state is that at the record's label.
pub const IS_OPEN: u8 = 8;

/// Number of the bit of a record's first byte from which on the length of the run is.
pub const RUN_SHIFT: u32 = 4;

/// A run of at least this length has the rest of it in a number of its own.
pub const LONG_RUN: u8 = 15;

/// A record with its addresses: offsets from the start of the new text, and of the original from the image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Start of what is after the run before.
    pub behind: u32,
    /// The next instruction's label.
    pub label: u32,
    /// The run in the new text.
    pub run: u32,
    /// The run in the original.
    pub old: u32,
    /// Size of the run in bytes.
    pub len: u32,
    /// The record [is open](IS_OPEN).
    pub is_open: bool,
}

impl Piece {
    /// The original offset with the state that is at an offset in the new text; `None` if no boundary of this record
    /// is there.
    pub fn original_of(&self, new: u32) -> Option<u32> {
        let inside = new.wrapping_sub(self.run);
        if inside < self.len {
            return Some(self.old + inside);
        }
        let is_boundary = new == self.label || new == self.behind && self.is_open;
        is_boundary.then_some(self.old)
    }
}

/// The records of a procedure, in ascending order of their addresses.
pub struct Records<'a> {
    bytes: &'a [u8],
    new: u32,
    old: u32,
}

impl<'a> Records<'a> {
    /// The records in `bytes`, of a procedure with these starts.
    pub fn new(bytes: &'a [u8], new: u32, old: u32) -> Self {
        Self { bytes, new, old }
    }
}

impl Iterator for Records<'_> {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        let (head, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        let mut len = u32::from(head >> RUN_SHIFT);
        let mut number = |is_there: bool| {
            if is_there {
                leb128::next(&mut self.bytes).map(|n| n as u32)
            } else {
                Some(0)
            }
        };
        len += number(len == u32::from(LONG_RUN))?;
        let [behind, skipped, before] = [BEHIND, SKIPPED, BEFORE].map(|bit| head & bit != 0);
        let (behind, skipped, before) = (number(behind)?, number(skipped)?, number(before)?);
        let piece = Piece {
            behind: self.new,
            label: self.new + behind,
            run: self.new + behind + before,
            old: self.old + skipped,
            len,
            is_open: head & IS_OPEN != 0,
        };
        (self.new, self.old) = (piece.run + len, piece.old + len);
        Some(piece)
    }
}

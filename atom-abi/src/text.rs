//! What the runtime needs to let moved procedures run in place again, when the process writes to its own text.

/// Where the table of an object's moved code is, and what it is about. All are addresses in the file.
#[repr(C)]
pub struct TextPlace {
    /// Address of the [`TextTable`]; 0 if nothing moved.
    pub table: u64,
    /// [`TextTable::start`].
    pub start: u64,
    /// [`TextTable::end`].
    pub end: u64,
}

/// The table of an object's moved code, in the object's new segment. Nothing reads it before the process makes its text
/// writable.
///
/// After the structure are unsigned LEB128 numbers, in this order:
///
/// - for each procedure that moves, by address: the distance of its original start from the end of the one before (the
///   first: from `image`); its original size in bytes; the distance of its new start from the new start of the one before
///   (the first: from `new_text`);
/// - for each pair of procedures of which one enters the other elsewhere than at its start: their two indexes;
/// - for each change of the original text that belongs to a procedure: the distance of its address from the address of the one
///   before (the first: from `image`); the distance of an address of that procedure from its own, signed and folded as in
///   [`Totals`](crate::Totals); the number of bytes; the original bytes;
/// - for each displacement in the original text that leads to a new address: its distance from the one before
///   (the first: from `image`); the four original bytes, which lead to the start of a procedure that moves;
/// - for each displacement in the new text that leads to the new start of a procedure: its distance from the one before
///   (the first: from `new_text`).
#[repr(C)]
pub struct TextTable {
    /// First address of the original image. All addresses are those in the file.
    pub image: u64,
    /// First original address of a procedure that moves.
    pub start: u64,
    /// Original address after the last procedure that moves.
    pub end: u64,
    /// First address of the new text.
    pub new_text: u64,
    /// Number of procedures that move.
    pub procs: u32,
    /// Number of pairs.
    pub pairs: u32,
    /// Number of changes.
    pub changes: u32,
    /// Number of displacements of procedures that do not move.
    pub branches: u32,
    /// Number of displacements in the new text.
    pub sites: u32,
    /// Size in bytes of the numbers.
    pub size: u32,
}

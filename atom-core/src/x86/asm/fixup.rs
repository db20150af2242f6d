//! What code under construction leaves open: fields whose targets are not placed yet,
//! and how far the stack pointer has moved.

/// A four-byte field: `target + addend - (address of the field + 4)`, or the sum itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fixup<T> {
    /// Offset of the field from the snippet's first byte.
    pub at: u32,
    /// What it points to.
    pub target: T,
    /// Added to the target (minus the bytes between the field's end and the
    /// instruction's end).
    pub addend: i32,
    /// The address itself, extended by its sign; only in programs at fixed addresses.
    pub absolute: bool,
}

/// How the frame of the code around an insertion, or of a shared snippet's
/// caller, is found from inside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Frame {
    /// rsp is so many bytes below what it was before.
    Below(u32),
    /// rbp, which was pushed first of all, points at where it was pushed.
    Base,
}

/// A change of [`Frame`], for the unwind tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shift {
    /// Offset behind the instruction that made it.
    pub at: u32,
    /// What holds from there on.
    pub frame: Frame,
}

//! Notes about code under construction: fields whose targets are not placed yet, and movements of
//! the stack pointer.

/// A four-byte field with the value `target + addend - (address of the field + 4)`, or
/// `target + addend` if it is absolute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fixup<T> {
    /// Offset of the field in bytes from the first byte of the code.
    pub at: u32,
    /// Symbolic target.
    pub target: T,
    /// Bytes added to the target, minus the bytes between the field's end and the instruction's end.
    pub addend: i32,
    /// The field holds the address itself, extended by its sign; only in programs at fixed addresses.
    pub absolute: bool,
}

/// How inserted code finds the frame of the code around it, or shared code the frame of its caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Frame {
    /// rsp is this number of bytes below its value before.
    Below(u32),
    /// rbp points to the place where rbp itself was pushed, before anything else was.
    Base,
}

/// A change of [`Frame`], for the unwind tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shift {
    /// Offset in bytes behind the instruction that made the change.
    pub at: u32,
    /// The frame from there on.
    pub frame: Frame,
}

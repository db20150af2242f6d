//! Notes about code under construction: fields whose targets are not placed yet, and movements of
//! the stack pointer.

use super::Asm;

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
    /// rsp's value before is in memory, this number of bytes above rsp.
    Stored(u32),
}

/// An instruction that an analysis routine would execute if it were called, and that may fault: it goes to memory by a register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// Offset of the instruction in bytes from the first byte of the code.
    pub at: u32,
    /// The routine's address in the tool's file.
    pub routine: u32,
}

/// A change of [`Frame`], for the unwind tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameChange {
    /// Offset in bytes after the instruction that made the change.
    pub at: u32,
    /// The frame from there on.
    pub frame: Frame,
}

impl FrameChange {
    /// The same, in code in front of which `bytes` bytes are.
    pub fn moved(self, bytes: u32) -> Self {
        Self {
            at: self.at + bytes,
            ..self
        }
    }
}

impl Access {
    /// The same, in code in front of which `bytes` bytes are.
    pub fn moved(self, bytes: u32) -> Self {
        Self {
            at: self.at + bytes,
            ..self
        }
    }
}

impl<T> Asm<T> {
    /// Adds the changes of frame and accesses of other code, which has been appended at the offset `start`.
    pub fn add_notes(&mut self, other: &Self, start: u32) {
        self.frame_changes
            .extend(other.frame_changes.iter().map(|s| s.moved(start)));
        self.accesses
            .extend(other.accesses.iter().map(|a| a.moved(start)));
    }

    /// Notes that the next instruction is one of a routine, given by its address in the tool's file, and may fault.
    pub fn accesses_for(&mut self, routine: u32) {
        self.accesses.push(Access {
            at: self.code.len() as u32,
            routine,
        });
    }
}

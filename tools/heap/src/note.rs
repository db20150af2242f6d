//! Notes of what a program did with a block of the heap.

/// Kinds of notes: an allocation, a reallocation, a block that is freed.
pub const ALLOCATED: u32 = 0;
pub const REALLOCATED: u32 = 1;
pub const FREED: u32 = 2;

/// Words of a note: kind, time, block, size in bytes, address of the node of the call path, old block.
pub const WORDS: usize = 6;
/// The word with the block.
pub const BLOCK: usize = 2;
/// A note.
pub type Note = [u64; WORDS];

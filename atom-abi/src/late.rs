//! What the runtime gets with a library that is instrumented when the process opens it.
//!
//! `atom` writes a file whose contents are in the area, at an address of its own that nothing else uses. It begins
//! with a [`LateInfo`]. All addresses in it are run-time addresses.

/// Version of the form of a [`LateInfo`].
pub const LATE_VERSION: u64 = 1;

/// Most objects of a process to which libraries are added.
pub const MOST_OBJECTS: usize = 1024;

/// The beginning of the file.
#[repr(C)]
pub struct LateInfo {
    /// [`LATE_VERSION`].
    pub version: u64,
    /// Address at which the file is mapped.
    pub start: u64,
    /// Size in bytes of the file, whole pages.
    pub size: u64,
    /// Address that the file of this process's next library has.
    pub next: u64,
    /// Words of the area to be replaced, in this order, as soon as the file is mapped.
    pub words: *const [u64; 2],
    /// Number of entries at `words`. An entry is an address and a value.
    pub word_count: usize,
    /// Words of each thread's block to be replaced.
    pub block_words: *const [u64; 2],
    /// Number of entries at `block_words`. An entry is an offset in a block and a value.
    pub block_word_count: usize,
    /// Number of the library among the objects of the process. Libraries that it needs may follow it.
    pub object: usize,
}

// SAFETY: written by `atom`, only read afterwards.
unsafe impl Sync for LateInfo {}

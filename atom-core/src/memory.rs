//! How the process gets and returns memory.
//!
//! The stages make large vectors that live long and small ones that go soon.
//! What is left of those is not what the next stage asks for, so with the
//! allocator's own ways much more memory would be in use than is needed.

use std::fs::File;
use std::ops::Deref;
use std::path::Path;

use memmap2::Mmap;

/// What is in a file; of a regular one only the pages that are looked at take memory.
pub(crate) enum Contents {
    Mapped(Mmap),
    Read(Vec<u8>),
}

impl Contents {
    /// Opens a file that nobody changes meanwhile.
    pub(crate) fn of(path: &Path) -> std::io::Result<Self> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() || metadata.len() == 0 {
            return std::fs::read(path).map(Self::Read);
        }
        // SAFETY: a tool is loaded as code too, so whoever changes its file while it is in
        // use does worse than to change what is read here.
        unsafe { Mmap::map(&file) }.map(Self::Mapped)
    }
}

impl Deref for Contents {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Mapped(map) => map,
            Self::Read(bytes) => bytes,
        }
    }
}

/// Gives each large vector a mapping of its own, which goes back to the system
/// as soon as it is freed and grows without being copied. Else the allocator
/// would put more and more of them among small pieces. Call it at the start.
pub fn keep_large_apart() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it sets numbers of the allocator.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 1 << 20);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 16 << 20);
    }
}

/// Starts the threads that share the work, each with a wide heap: glibc widens that of a thread
/// other than the first by what is asked for, mostly a page, and page faults of all threads
/// wait for each of these system calls. It takes addresses, not memory. Call it before any work
/// is shared.
pub fn start_threads() {
    // Smaller than what gets a mapping of its own; together they fit into one of glibc's heaps.
    const BLOCK: usize = (1 << 20) - 4096;
    const BLOCKS: usize = 48;
    let widen = |_| {
        let room: Vec<Vec<u8>> = (0..BLOCKS).map(|_| Vec::with_capacity(BLOCK)).collect();
        drop(std::hint::black_box(room));
    };
    // If they have been started they stay as they are.
    let _ = rayon::ThreadPoolBuilder::new()
        .start_handler(widen)
        .build_global();
}

/// Gives memory that is free, but kept for later allocations, back to the system.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes a number and only looks at the allocator's own lists,
    // under their locks.
    unsafe {
        libc::malloc_trim(0);
    }
}

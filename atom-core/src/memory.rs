//! How the process gets and returns memory.
//!
//! The stages make large vectors that live long and small vectors that are freed soon. The free
//! pieces do not have the sizes that the next stage asks for. So with the allocator's default
//! settings the process would keep much more memory than it needs.

use std::fs::File;
use std::ops::Deref;
use std::path::Path;

use memmap2::Mmap;

/// Contents of a file. Of a regular file only the pages that are read take memory.
pub(crate) enum Contents {
    Mapped(Mmap),
    Read(Vec<u8>),
}

impl Contents {
    /// Opens a file. No other process may change the file meanwhile.
    pub(crate) fn of(path: &Path) -> std::io::Result<Self> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() || metadata.len() == 0 {
            return std::fs::read(path).map(Self::Read);
        }
        // SAFETY: the bytes change only if the file is changed while it is in use. The file is a
        // tool, which is loaded as code too, so such a change does worse harm than a wrong read
        // here.
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

/// Gives each large vector a mapping of its own, and each thread wide heaps.
///
/// A large vector goes back to the system as soon as it is freed, and grows without being copied. By default the
/// allocator would raise its limit for mappings and put large vectors among small pieces.
///
/// glibc widens the heap of every thread but the first in steps of one page, and page faults of all threads wait for each
/// of these system calls. A wide heap takes addresses, not memory. To be called before other work.
pub fn set_allocator() {
    #[cfg(target_env = "gnu")]
    // SAFETY: `mallopt` sets numbers of the allocator.
    unsafe {
        // Size in bytes of glibc's heaps.
        const HEAP: libc::c_int = 64 << 20;
        libc::mallopt(libc::M_MMAP_THRESHOLD, 1 << 20);
        libc::mallopt(libc::M_TOP_PAD, HEAP);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 16 << 20);
    }
}

/// Gives free memory that the allocator keeps for later allocations back to the system.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: `malloc_trim` takes a number and uses only the allocator's own lists, under their
    // locks.
    unsafe {
        libc::malloc_trim(0);
    }
}

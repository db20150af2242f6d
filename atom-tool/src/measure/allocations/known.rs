//! The procedures that allocate and free memory, by their symbols.

/// The kinds of the allocator's procedures, by what they do with their arguments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum Allocator {
    /// `(size)`
    Malloc = 0,
    /// `(n, size)`
    Calloc = 1,
    /// `(block, size)`
    Realloc = 2,
    /// `(block, n, size)`
    ReallocArray = 3,
    /// `(alignment, size)`
    Aligned = 4,
    /// `(&block, alignment, size)`, 0 on success
    PosixMemalign = 5,
    /// `(address, size, ...)`
    Mmap = 6,
    /// `(block)`
    Free = 7,
    /// `(address, size)`
    Munmap = 8,
    /// `(address, old size, new size)`
    Mremap = 9,
}

/// The procedures, by their symbols.
const PROCEDURES: [(&str, Allocator); 51] = [
    ("malloc", Allocator::Malloc),
    ("__libc_malloc", Allocator::Malloc),
    ("__malloc", Allocator::Malloc),
    ("valloc", Allocator::Malloc),
    ("__libc_valloc", Allocator::Malloc),
    ("pvalloc", Allocator::Malloc),
    ("calloc", Allocator::Calloc),
    ("__libc_calloc", Allocator::Calloc),
    ("__calloc", Allocator::Calloc),
    ("realloc", Allocator::Realloc),
    ("__libc_realloc", Allocator::Realloc),
    ("__realloc", Allocator::Realloc),
    ("reallocarray", Allocator::ReallocArray),
    ("__libc_reallocarray", Allocator::ReallocArray),
    ("aligned_alloc", Allocator::Aligned),
    ("memalign", Allocator::Aligned),
    ("__libc_memalign", Allocator::Aligned),
    ("posix_memalign", Allocator::PosixMemalign),
    ("__posix_memalign", Allocator::PosixMemalign),
    ("mmap", Allocator::Mmap),
    ("mmap64", Allocator::Mmap),
    ("__mmap", Allocator::Mmap),
    ("__mmap64", Allocator::Mmap),
    ("munmap", Allocator::Munmap),
    ("__munmap", Allocator::Munmap),
    ("mremap", Allocator::Mremap),
    ("__mremap", Allocator::Mremap),
    ("free", Allocator::Free),
    ("__libc_free", Allocator::Free),
    ("__free", Allocator::Free),
    ("cfree", Allocator::Free),
    ("_Znwm", Allocator::Malloc),
    ("_Znam", Allocator::Malloc),
    ("_ZnwmRKSt9nothrow_t", Allocator::Malloc),
    ("_ZnamRKSt9nothrow_t", Allocator::Malloc),
    ("_ZnwmSt11align_val_t", Allocator::Malloc),
    ("_ZnamSt11align_val_t", Allocator::Malloc),
    ("_ZnwmSt11align_val_tRKSt9nothrow_t", Allocator::Malloc),
    ("_ZnamSt11align_val_tRKSt9nothrow_t", Allocator::Malloc),
    ("_ZdlPv", Allocator::Free),
    ("_ZdaPv", Allocator::Free),
    ("_ZdlPvm", Allocator::Free),
    ("_ZdaPvm", Allocator::Free),
    ("_ZdlPvSt11align_val_t", Allocator::Free),
    ("_ZdaPvSt11align_val_t", Allocator::Free),
    ("_ZdlPvRKSt9nothrow_t", Allocator::Free),
    ("_ZdaPvRKSt9nothrow_t", Allocator::Free),
    ("_ZdlPvSt11align_val_tRKSt9nothrow_t", Allocator::Free),
    ("_ZdaPvSt11align_val_tRKSt9nothrow_t", Allocator::Free),
    ("_ZdlPvmSt11align_val_t", Allocator::Free),
    ("_ZdaPvmSt11align_val_t", Allocator::Free),
];

impl Allocator {
    /// The kind of the procedure with this symbol.
    pub fn of(symbol: &str) -> Option<Self> {
        let known = PROCEDURES.iter().find(|(name, _)| *name == symbol);
        known.map(|(_, kind)| *kind)
    }

    /// All procedures, by their symbols.
    pub(super) fn procedures() -> impl Iterator<Item = (&'static str, Self)> {
        PROCEDURES.into_iter()
    }

    /// True for those that map and unmap memory.
    pub fn is_mapping(self) -> bool {
        matches!(self, Self::Mmap | Self::Munmap | Self::Mremap)
    }

    /// Given the first three arguments: the requested size in bytes, and the old block, or for `posix_memalign` the address at
    /// which the block's address will be. Both are 0 where they have no meaning.
    #[inline(always)]
    pub fn request(self, [a, b, c]: [u64; 3]) -> (u64, u64) {
        match self {
            Self::Malloc => (a, 0),
            Self::Calloc => (a.saturating_mul(b), 0),
            Self::Realloc => (b, a),
            Self::ReallocArray => (b.saturating_mul(c), a),
            Self::Aligned | Self::Mmap => (b, 0),
            Self::PosixMemalign | Self::Mremap => (c, a),
            Self::Free | Self::Munmap => (0, a),
        }
    }

    /// True for those that give a block.
    pub fn is_allocating(self) -> bool {
        !matches!(self, Self::Free | Self::Munmap)
    }

    /// True for those that take a block and give one.
    pub fn takes_block(self) -> bool {
        matches!(self, Self::Realloc | Self::ReallocArray | Self::Mremap)
    }

    /// The kind with this number; the remainder counts.
    pub fn from_number(number: u64) -> Self {
        use Allocator::*;
        let all = [
            Malloc,
            Calloc,
            Realloc,
            ReallocArray,
            Aligned,
            PosixMemalign,
            Mmap,
            Free,
            Munmap,
            Mremap,
        ];
        all[number as usize % all.len()]
    }
}

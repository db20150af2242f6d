//! The procedures in place of which the tool's routines run.

/// What a procedure of the allocator is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Does {
    /// `(size)`
    Malloc,
    /// `(n, size)`
    Calloc,
    /// `(block, size)`
    Realloc,
    /// `(block, n, size)`
    ReallocArray,
    /// `(alignment, size)`
    Aligned,
    Memalign,
    /// `(&block, alignment, size)`
    PosixMemalign,
    /// `(size)`, for whole pages
    Valloc,
    /// `(size)`, of whole pages
    Pvalloc,
    /// `(block)`
    UsableSize,
    /// `(size)`, fails with an exception or with null
    New,
    NewArray,
    /// `(size, alignment)`
    NewAligned,
    NewArrayAligned,
    /// `(block)`
    Free,
    Delete,
    DeleteArray,
    /// `(block, size)`, and perhaps an alignment
    DeleteSized,
    DeleteArraySized,
    /// A client request for a block of another allocator, or for a chunk of a pool.
    Request,
    PoolRequest,
}

use Does as D;

/// How a block was allocated, or is freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    Malloc,
    New,
    NewArray,
    Custom,
}

/// All, in the order of their numbers, with their names and symbols.
const ALL: [(Does, &str, &str); 21] = [
    (D::Malloc, "malloc", "malloc"),
    (D::Calloc, "calloc", "calloc"),
    (D::Realloc, "realloc", "realloc"),
    (D::ReallocArray, "reallocarray", "reallocarray"),
    (D::Aligned, "aligned_alloc", "aligned_alloc"),
    (D::Memalign, "memalign", "memalign"),
    (D::PosixMemalign, "posix_memalign", "posix_memalign"),
    (D::Valloc, "valloc", "valloc"),
    (D::Pvalloc, "pvalloc", "pvalloc"),
    (D::UsableSize, "malloc_usable_size", "malloc_usable_size"),
    (D::New, "operator new", "_Znwm"),
    (D::NewArray, "operator new[]", "_Znam"),
    (D::NewAligned, "operator new", "_ZnwmSt11align_val_t"),
    (D::NewArrayAligned, "operator new[]", "_ZnamSt11align_val_t"),
    (D::Free, "free", "free"),
    (D::Delete, "operator delete", "_ZdlPv"),
    (D::DeleteArray, "operator delete[]", "_ZdaPv"),
    (D::DeleteSized, "operator delete", "_ZdlPvm"),
    (D::DeleteArraySized, "operator delete[]", "_ZdaPvm"),
    (D::Request, "client request", ""),
    (D::PoolRequest, "client request", ""),
];

impl Does {
    /// The value of a number, which one has.
    #[inline]
    pub fn from_number(number: u32) -> Self {
        match ALL.get(number as usize) {
            Some((does, _, _)) => *does,
            None => Self::Malloc,
        }
    }

    /// The name of the function.
    pub fn name(self) -> &'static str {
        ALL[self as usize].1
    }

    /// Its symbol.
    pub fn symbol(self) -> &'static str {
        ALL[self as usize].2
    }

    #[inline]
    pub fn family(self) -> Family {
        match self {
            D::New | D::NewAligned | D::Delete | D::DeleteSized => Family::New,
            D::NewArray | D::NewArrayAligned | D::DeleteArray | D::DeleteArraySized => {
                Family::NewArray
            }
            D::Request | D::PoolRequest => Family::Custom,
            _ => Family::Malloc,
        }
    }
}

/// Names of objects whose references are not checked: their string routines read too far on purpose.
pub fn is_libc(name: &str) -> bool {
    ["libc.so", "libc-", "ld-linux", "ld-musl"]
        .iter()
        .any(|start| name.starts_with(start))
}

/// The procedures by their symbols.
pub const PROCEDURES: [(&str, Does); 45] = [
    ("malloc", D::Malloc),
    ("__libc_malloc", D::Malloc),
    ("calloc", D::Calloc),
    ("__libc_calloc", D::Calloc),
    ("realloc", D::Realloc),
    ("__libc_realloc", D::Realloc),
    ("reallocarray", D::ReallocArray),
    ("__libc_reallocarray", D::ReallocArray),
    ("aligned_alloc", D::Aligned),
    ("memalign", D::Memalign),
    ("__libc_memalign", D::Memalign),
    ("posix_memalign", D::PosixMemalign),
    ("__posix_memalign", D::PosixMemalign),
    ("valloc", D::Valloc),
    ("__libc_valloc", D::Valloc),
    ("pvalloc", D::Pvalloc),
    ("__libc_pvalloc", D::Pvalloc),
    ("malloc_usable_size", D::UsableSize),
    ("__malloc_usable_size", D::UsableSize),
    ("free", D::Free),
    ("cfree", D::Free),
    ("__libc_free", D::Free),
    ("__free", D::Free),
    ("_Znwm", D::New),
    ("_ZnwmRKSt9nothrow_t", D::New),
    ("_Znam", D::NewArray),
    ("_ZnamRKSt9nothrow_t", D::NewArray),
    ("_ZnwmSt11align_val_t", D::NewAligned),
    ("_ZnwmSt11align_val_tRKSt9nothrow_t", D::NewAligned),
    ("_ZnamSt11align_val_t", D::NewArrayAligned),
    ("_ZnamSt11align_val_tRKSt9nothrow_t", D::NewArrayAligned),
    ("_ZdlPv", D::Delete),
    ("_ZdlPvm", D::DeleteSized),
    ("_ZdlPvSt11align_val_t", D::Delete),
    ("_ZdlPvmSt11align_val_t", D::DeleteSized),
    ("_ZdlPvRKSt9nothrow_t", D::Delete),
    ("_ZdlPvSt11align_val_tRKSt9nothrow_t", D::Delete),
    ("_ZdaPv", D::DeleteArray),
    ("_ZdaPvm", D::DeleteArraySized),
    ("_ZdaPvSt11align_val_t", D::DeleteArray),
    ("_ZdaPvmSt11align_val_t", D::DeleteArraySized),
    ("_ZdaPvRKSt9nothrow_t", D::DeleteArray),
    ("_ZdaPvSt11align_val_tRKSt9nothrow_t", D::DeleteArray),
    ("__calloc", D::Calloc),
    ("__realloc", D::Realloc),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lead_to_their_values() {
        for (number, (does, _, _)) in ALL.iter().enumerate() {
            assert_eq!(*does as usize, number);
        }
    }
}

//! The process's memory.

/// Gives memory that is free, but kept for later allocations, back to the
/// system. What a stage leaves behind in small pieces is not what the next one
/// asks for, so the most that is in use at a time is less with it.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes a number and only looks at the allocator's own lists,
    // under their locks.
    unsafe {
        libc::malloc_trim(0);
    }
}

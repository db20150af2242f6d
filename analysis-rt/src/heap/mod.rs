//! The heap of analysis routines.
//!
//! Its one hard requirement: an allocation must never wait. The holder of a
//! lock may be the very thread that asks (interrupted by a signal whose handler
//! enters analysis code), may have left by `siglongjmp`, or may not exist any
//! more (another thread, seen from a forked child). So the heap is a set of
//! arenas, each with a lock that is only ever *tried*: an allocation takes the
//! first arena that is free, and more arenas are made if none is. A block that
//! goes back to a busy arena is pushed on that arena's lock-free list; the next holder of the arena
//! collects it. Nothing depends on knowing which
//! thread asks. The price is that an arena whose holder vanished is lost.
//!
//! Layout: each block is preceded by a [`Header`](arena::Header) of 16 bytes. Small blocks come
//! in size classes, four to each doubling; bigger ones are mappings.

pub(crate) mod alloc;
pub(crate) mod arena;

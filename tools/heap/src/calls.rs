//! Calls of the allocator: what is known at the entry, and the note at the exit.
//!
//! The size is known at an allocator's entry, the block at its exit. Only the outermost of nested calls counts: `operator
//! new` calls `malloc`, or jumps to it. An execution is known by rsp at its entry, which its `ret` has again, also if
//! the allocator ends in a jump to another procedure, which then returns.
//!
//! A call that frees is noted at the entry, since another thread may have the memory before the exit.

use std::sync::atomic::{AtomicBool, Ordering};

use atom_tool::Uninterrupted;
use atom_tool::clocks;
use atom_tool::notes::{self, NoteBuffer};
use atom_tool::paths::PathState;
use atom_tool::prelude::*;

use crate::live::Thread;

/// Number of notes of a buffer.
const ROOM: usize = 4096;

/// Kinds of notes: an allocation, a reallocation, a block that is freed.
pub const ALLOCATED: u32 = 0;
pub const REALLOCATED: u32 = 1;
pub const FREED: u32 = 2;

/// Words of a note: kind, time, block, size in bytes, address of the node of the call path, old block.
pub const WORDS: usize = 6;
/// A note.
pub type Note = [u64; WORDS];

/// Largest number of signal handlers that interrupt each other between a look at the room and a reservation.
const HANDLERS: u64 = 64;
/// Size of a note in bytes.
const NOTE: u64 = size_of::<Note>() as u64;

thread_state! {
    /// The outermost call of the allocator that a thread is in.
    pub struct Open {
        /// rsp at its entry; 0 if there is none.
        sp: ThreadCell<u64>,
        /// Kind of its note, or [`NO_NOTE`].
        kind: ThreadCell<u32>,
        /// Number of the allocator's procedure.
        proc: ThreadCell<u32>,
        size: ThreadCell<u64>,
        /// The old block, or for `posix_memalign` where the block's address will be.
        other: ThreadCell<u64>,
        /// Address of the call path's node.
        node: ThreadCell<u64>,
    }
}

/// The call has been noted at its entry.
const NO_NOTE: u32 = 9;
/// The block's address is in memory at the exit.
const BY_ADDRESS: u32 = 8;

/// The call that the thread is in, and its notes.
#[derive(Clone, Copy)]
struct Here {
    open: PerThread<Open>,
    path: PerThread<PathState>,
    buffer: PerThread<NoteBuffer>,
}

impl Here {
    /// True if a call of this procedure with this rsp at its entry is inside of an open one.
    #[inline(always)]
    fn is_nested(self, proc: u32, sp: u64) -> bool {
        let outer = self.open.sp.get();
        outer > sp || outer == sp && self.open.proc.get() != proc
    }

    /// Keeps what is known at the entry.
    #[inline(always)]
    fn begin(self, [kind, proc]: [u32; 2], [sp, rbp]: [u64; 2], size: u64, other: u64) {
        if self.is_nested(proc, sp) {
            return;
        }
        let open = &self.open;
        open.kind.set(kind);
        open.proc.set(proc);
        open.size.set(size);
        open.other.set(other);
        open.node.set(
            std::ptr::from_ref(self.path.called_here(proc, sp, rbp)).expose_provenance() as u64,
        );
        open.sp.set(sp);
    }

    /// Makes a note.
    #[inline(always)]
    fn note(self, kind: u32, block: u64, [size, other, node]: [u64; 3]) {
        let word = notes::word(kind);
        let note = [word, clocks::time_stamp(), block, size, node, other];
        let buffer = self.buffer;
        if buffer.has_room(HANDLERS * NOTE) && buffer.thread() == buffer.thread_number() {
            let at = buffer.reserve(NOTE);
            // SAFETY: the reserved space belongs to this note only and lies before the limit.
            unsafe { (at as *mut Note).write(note) };
        } else {
            slow(buffer, note);
        }
    }
}

/// Makes a note that finds no room.
#[cold]
#[inline(never)]
fn slow(buffer: PerThread<NoteBuffer>, note: Note) {
    let _signals_wait = Uninterrupted::begin();
    if notes::make_room(buffer, ROOM * NOTE as usize, Thread::new) {
        let at = buffer.reserve(NOTE);
        // SAFETY: the reserved space belongs to this note only; the buffer has just been emptied.
        unsafe { (at as *mut Note).write(note) };
    } else if !buffer.is_attached() {
        static TOLD: AtomicBool = AtomicBool::new(false);
        if !TOLD.swap(true, Ordering::Relaxed) {
            eprintln!("heap: no memory for a thread's notes (or a kernel older than Linux 4.14)");
        }
    }
}

macro_rules! entries {
    ($($(#[$doc:meta])* $name:ident $kind:ident $size:expr, $other:expr;)*) => {$(
        $(#[$doc])*
        #[analysis]
        pub fn $name(
            open: PerThread<Open>,
            path: PerThread<PathState>,
            buffer: PerThread<NoteBuffer>,
            proc: u32,
            sp: u64,
            rbp: u64,
            a: u64,
            b: u64,
            c: u64,
        ) {
            let here = Here { open, path, buffer };
            let size: fn(u64, u64, u64) -> u64 = $size;
            let other: fn(u64, u64, u64) -> u64 = $other;
            here.begin([$kind, proc], [sp, rbp], size(a, b, c), other(a, b, c));
        }
    )*};
}
entries! {
    /// `(size)`
    malloc ALLOCATED |a, _, _| a, |_, _, _| 0;
    /// `(n, size)`
    calloc ALLOCATED |a, b, _| a.saturating_mul(b), |_, _, _| 0;
    /// `(alignment, size)`, and allocators of the user's with the size in second place
    second ALLOCATED |_, b, _| b, |_, _, _| 0;
    /// Allocators of the user's with the size in third place
    third ALLOCATED |_, _, c| c, |_, _, _| 0;
    /// `(block, size)`
    realloc REALLOCATED |_, b, _| b, |a, _, _| a;
    /// `(block, n, size)`
    reallocarray REALLOCATED |_, b, c| b.saturating_mul(c), |a, _, _| a;
    /// `(&block, alignment, size)`
    posix_memalign BY_ADDRESS |_, _, c| c, |a, _, _| a;
}

/// `(block)`
#[analysis]
pub fn free(
    open: PerThread<Open>,
    path: PerThread<PathState>,
    buffer: PerThread<NoteBuffer>,
    proc: u32,
    sp: u64,
    rbp: u64,
    block: u64,
) {
    let here = Here { open, path, buffer };
    if here.is_nested(proc, sp) {
        return;
    }
    here.begin([NO_NOTE, proc], [sp, rbp], 0, 0);
    if block != 0 {
        let node = open.node.get();
        here.note(FREED, block, [0, 0, node]);
    }
}

/// A procedure returns that may be an allocator's, or one that an allocator jumped to.
#[analysis]
pub fn leave(
    open: PerThread<Open>,
    path: PerThread<PathState>,
    buffer: PerThread<NoteBuffer>,
    sp: u64,
    result: u64,
) {
    if open.sp.get() == sp {
        let here = Here { open, path, buffer };
        returned(here, result);
    }
}

/// Behind a call that may have led to an allocator of a library that is not seen.
#[analysis]
pub fn after(
    open: PerThread<Open>,
    path: PerThread<PathState>,
    buffer: PerThread<NoteBuffer>,
    sp: u64,
    result: u64,
) {
    const RETURN_ADDRESS: u64 = 8;
    if open.sp.get() == sp.wrapping_sub(RETURN_ADDRESS) {
        let here = Here { open, path, buffer };
        returned(here, result);
    }
}

/// A jump out of an allocator to a place that is not known.
#[analysis]
pub fn lose(open: PerThread<Open>, sp: u64) {
    if open.sp.get() == sp {
        open.sp.set(0);
    }
}

#[inline(always)]
fn returned(here: Here, result: u64) {
    let open = here.open;
    open.sp.set(0);
    let (kind, block) = match open.kind.get() {
        NO_NOTE => return,
        // `posix_memalign` answers 0 and has stored the address.
        BY_ADDRESS if result == 0 => {
            let at = open.other.get() as usize;
            // SAFETY: the allocator has just written it there.
            (ALLOCATED, unsafe {
                *std::ptr::with_exposed_provenance::<u64>(at)
            })
        }
        BY_ADDRESS => (ALLOCATED, 0),
        kind => (kind, result),
    };
    here.note(
        kind,
        block,
        [open.size.get(), open.other.get(), open.node.get()],
    );
}

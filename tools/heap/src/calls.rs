//! Calls of the allocator: what is known at the entry, and the note at the exit.
//!
//! The size is known at an allocator's entry, the block at its exit. Only the outermost of nested calls counts: `operator
//! new` calls `malloc`, or jumps to it. An execution is known by rsp at its entry, which its `ret` has again, also if
//! the allocator ends in a jump to another procedure, which then returns.
//!
//! A call that frees is noted at the entry, since another thread may have the memory before the exit.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use atom_tool::ThreadCell;
use atom_tool::Uninterrupted;
use atom_tool::clocks;
use atom_tool::forks;
use atom_tool::notes::{self, NoteBuffer};
use atom_tool::paths::{PathNode, PathState};
use atom_tool::prelude::*;

use crate::live::Thread;
use crate::note::{ALLOCATED, FREED, Note, REALLOCATED};

/// Number of notes of a buffer.
const ROOM: usize = 1024;

/// Largest number of signal handlers that interrupt each other between a look at the room and a reservation.
const HANDLERS: u64 = 64;
/// Size of a return address on the stack.
const RETURN_ADDRESS: u64 = 8;
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
        /// The block, where it is kept for [`late`].
        block: ThreadCell<u64>,
        /// What [`late`] has to do: [`FIND`] and [`NOTE`].
        late: ThreadCell<u32>,
    }
}

/// The call path is to be found.
const FIND: u32 = 1;
/// A note is to be made.
const NOTE_LATE: u32 = 2;

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
    fn begin(self, [kind, proc]: [u32; 2], sp: u64, size: u64, other: u64) {
        let open = &self.open;
        open.kind.set(kind);
        open.proc.set(proc);
        open.size.set(size);
        open.other.set(other);
        open.sp.set(sp);
    }

    /// Finds the call path, or leaves that to [`late`], with what else is to be done then.
    #[inline(always)]
    fn find(self, proc: u32, sp: u64, rbp: u64, more: u32) -> bool {
        let found = self.path.called_here_if_known(proc, sp, rbp);
        let node = found.unwrap_or_else(|| self.path.root());
        self.set_node(node);
        if found.is_none() {
            self.open.late.set(FIND | more);
        }
        found.is_some()
    }

    #[inline(always)]
    fn set_node(self, node: &PathNode) {
        let node = std::ptr::from_ref(node).expose_provenance();
        self.open.node.set(node as u64);
    }

    /// The note of the open call.
    #[inline(always)]
    fn words(self, kind: u32, block: u64) -> Note {
        let open = &self.open;
        let [size, node, other] = [&open.size, &open.node, &open.other].map(ThreadCell::get);
        let word = notes::word(kind);
        [word, clocks::time_stamp(), block, size, node, other]
    }

    /// Makes a note, or leaves that to [`late`].
    #[inline(always)]
    fn note(self, kind: u32, block: u64) -> bool {
        let buffer = self.buffer;
        let has_room =
            buffer.has_room(HANDLERS * NOTE) && buffer.thread() == buffer.thread_number();
        if has_room {
            let note = self.words(kind, block);
            let at = buffer.reserve(NOTE);
            let at = at as *mut u64;
            // A handler that ends the process here finds a note that was never written: its first word comes last.
            // SAFETY: the reserved space belongs to this note only and is before the limit.
            unsafe {
                for (i, word) in note.into_iter().enumerate().skip(1) {
                    at.add(i).write_volatile(word);
                }
                at.write_volatile(note[0]);
            }
        } else {
            self.open.block.set(block);
            self.open.late.set(NOTE_LATE);
        }
        has_room
    }
}

/// After each of the other routines: does what these have left. They call nothing, so that their points need not save
/// vector registers; this one is called rarely.
#[analysis]
pub fn late(
    open: PerThread<Open>,
    path: PerThread<PathState>,
    buffer: PerThread<NoteBuffer>,
    sp: u64,
    rbp: u64,
) {
    if open.late.get() != 0 {
        finish(Here { open, path, buffer }, sp, rbp);
    }
}

/// As [`late`], after [`after`].
#[analysis]
pub fn late_after(
    open: PerThread<Open>,
    path: PerThread<PathState>,
    buffer: PerThread<NoteBuffer>,
    sp: u64,
) {
    if open.late.get() != 0 {
        finish(
            Here { open, path, buffer },
            sp.wrapping_sub(RETURN_ADDRESS),
            0,
        );
    }
}

/// What [`late`] does. `sp` is rsp where the call was entered.
#[cold]
#[inline(never)]
fn finish(here: Here, sp: u64, rbp: u64) {
    let open = here.open;
    // A signal handler may have interrupted the call in which something was left.
    if open.sp.get() != sp {
        return;
    }
    let late = open.late.get();
    open.late.set(0);
    if late & FIND != 0 {
        here.set_node(here.path.called_here(open.proc.get(), sp, rbp));
    }
    if late & NOTE_LATE != 0 {
        let is_free = open.kind.get() == NO_NOTE;
        let kind = if is_free { FREED } else { open.kind.get() };
        slow(here.buffer, here.words(kind, open.block.get()));
        if !is_free {
            open.sp.set(0);
        }
    }
}

/// Makes a note that finds no room.
fn slow(buffer: PerThread<NoteBuffer>, note: Note) {
    Uninterrupted::run(|_| {
        if notes::make_room(buffer, ROOM * NOTE as usize, None, Thread::new) {
            let at = buffer.reserve(NOTE);
            // SAFETY: the reserved space belongs to this note only; the buffer has just been emptied.
            unsafe { (at as *mut Note).write(note) };
        } else if !buffer.is_attached() {
            notes::report_lack("heap: no memory for a thread's notes");
        }
    })
}

/// Address of [`LIVE_PLACES`] words for blocks that are certainly live: each has been noted, and no free of it since. A free of
/// such a block needs no call path, since it is no bad one. The place of a block is its address in units of 32 bytes,
/// modulo the number of places; a block that has lost its place to another one is freed with its path. 0 without memory.
static LIVE: AtomicU64 = AtomicU64::new(0);
const LIVE_PLACES: u64 = 1 << 20;

/// At the program's start.
pub fn begin() {
    let size = LIVE_PLACES as usize * size_of::<u64>();
    if let Some(memory) = forks::memory(size) {
        let start = memory.as_ptr().expose_provenance() + forks::WIPED;
        LIVE.store(start as u64, Relaxed);
    }
}

/// The place of a block.
#[inline(always)]
fn live(block: u64) -> Option<&'static AtomicU64> {
    const UNIT: u64 = 32;
    let at = LIVE.load(Relaxed);
    let place = at + block / UNIT % LIVE_PLACES * size_of::<u64>() as u64;
    // SAFETY: one of the words, which stay.
    (at != 0).then(|| unsafe { &*std::ptr::with_exposed_provenance(place as usize) })
}

/// A block is live no more. True if it certainly was live.
#[inline(always)]
fn end_life(block: u64) -> bool {
    // Of two threads that free a block at the same time, one finds it live.
    live(block).is_some_and(|place| {
        place.load(Relaxed) == block && place.compare_exchange(block, 0, Relaxed, Relaxed).is_ok()
    })
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
            if here.is_nested(proc, sp) {
                return;
            }
            here.begin([$kind, proc], sp, size(a, b, c), other(a, b, c));
            here.find(proc, sp, rbp, 0);
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
    here.begin([NO_NOTE, proc], sp, 0, 0);
    if block == 0 {
        return;
    }
    if end_life(block) {
        here.set_node(path.root());
        here.note(FREED, block);
        return;
    }
    open.block.set(block);
    if here.find(proc, sp, rbp, NOTE_LATE) {
        here.note(FREED, block);
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

/// After a call that may have led to an allocator of a library that is not seen.
#[analysis]
pub fn after(
    open: PerThread<Open>,
    path: PerThread<PathState>,
    buffer: PerThread<NoteBuffer>,
    sp: u64,
    result: u64,
) {
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

/// Where control comes back by an exception or `longjmp`, maybe out of an allocator.
#[analysis]
pub fn landed(open: PerThread<Open>, sp: u64) {
    if open.sp.get() < sp {
        open.sp.set(0);
    }
}

#[inline(always)]
fn returned(here: Here, result: u64) {
    let open = here.open;
    let (kind, block) = match open.kind.get() {
        NO_NOTE => return open.sp.set(0),
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
    open.kind.set(kind);
    let old = open.other.get();
    if kind == REALLOCATED && old != 0 && (block != 0 || open.size.get() == 0) {
        end_life(old);
    }
    if let Some(place) = live(block).filter(|_| block != 0) {
        place.store(block, Relaxed);
    }
    if here.note(kind, block) {
        open.sp.set(0);
    }
}

//! Who empties buffers of notes: the cases that every tool with notes has to tell apart.
//!
//! A note that finds no room is the rare case of a routine, which calls [`slow`]. The reason is one of these: the thread
//! has no buffer yet, the buffer is full, the process is a forked child, another thread goes on with the buffer of one
//! that has ended.

use std::sync::atomic::{AtomicBool, Ordering};

use analysis_rt::Uninterrupted;

use super::{NoteBuffer, Notes};
use crate::thread_data::{AllThreads, PerThread};

/// What a tool makes of the notes of one thread. A note has `N` words; the first is [`word`](super::word)'s.
pub trait Consumer<const N: usize>: Sized + 'static {
    /// Number of notes of a buffer.
    const ROOM: usize;
    /// Name of the tool, for messages.
    const TOOL: &'static str;

    /// For a thread's first note.
    fn new() -> Self;

    /// Takes the notes of a buffer, in the order in which they were made.
    fn take(&mut self, notes: impl Iterator<Item = [u64; N]>);

    /// The notes so far belong to the parent of this forked child, or to a thread that has ended.
    fn forget(&mut self);
}

/// The memory of a thread's notes, and the consumer.
struct Owner<C> {
    notes: Notes,
    consumer: C,
}

/// Makes a note that finds no room. Notes that lie in the buffer are taken first.
#[cold]
#[inline(never)]
pub fn slow<C: Consumer<N>, const N: usize>(buffer: PerThread<NoteBuffer>, note: [u64; N]) {
    let _signals_wait = Uninterrupted::begin();
    if !buffer.is_attached() && !attach::<C, N>(&buffer) {
        return;
    }
    // SAFETY: `attach` has stored the address of an owner, which is never freed.
    let owner = unsafe { &mut *buffer.state::<Owner<C>>() };
    if !owner.notes.lock.try_lock() {
        // The process ends, and another thread takes these notes.
        return;
    }
    let noted = owner.notes.end(&buffer);
    if owner.notes.is_inherited() {
        // The parent takes its own notes.
        owner.read::<N>(noted).for_each(drop);
        owner.consumer.forget();
        owner.notes.renew();
    } else {
        owner.take::<N>(noted);
        if buffer.thread() != buffer.thread_number() {
            owner.consumer.forget();
        }
    }
    buffer.set_thread(buffer.thread_number());
    let first = owner.notes.reserve_first(&buffer);
    // SAFETY: the space of the buffer's first note, which has just been reserved.
    unsafe { (first as *mut [u64; N]).write(note) };
    owner.notes.lock.unlock();
}

/// Takes the notes of all threads, at ProgramAfter.
pub fn take_all<C: Consumer<N>, const N: usize>(all: AllThreads<NoteBuffer>) {
    for buffer in all.iter() {
        // The limit is 0 without a buffer, and in a forked child unless the thread has made a note there.
        if buffer.limit() == 0 {
            continue;
        }
        // SAFETY: a thread with a buffer has an owner.
        let owner = unsafe { &mut *buffer.state::<Owner<C>>() };
        if !owner.notes.lock_at_end() {
            continue;
        }
        owner.take::<N>(owner.notes.end(buffer));
        owner.notes.rewind(buffer);
        owner.notes.lock.unlock();
    }
}

impl<C> Owner<C> {
    /// The notes up to `end`, without those that were begun and never written. Each is empty afterwards.
    fn read<const N: usize>(&self, end: u64) -> impl Iterator<Item = [u64; N]> + use<C, N> {
        self.notes.addresses(end).filter_map(|at| {
            // SAFETY: a note in the buffer, all bytes of which are initialised. The accesses are volatile, because
            // the thread may write to it while another thread ends the process.
            let note = unsafe {
                let note = (at as *const [u64; N]).read_volatile();
                (at as *mut u64).write_volatile(0);
                note
            };
            (note[0] != 0).then_some(note)
        })
    }

    fn take<const N: usize>(&mut self, end: u64)
    where
        C: Consumer<N>,
    {
        let notes = self.read::<N>(end);
        self.consumer.take(notes);
    }
}

/// Gives a thread a buffer. False if there is no memory.
fn attach<C: Consumer<N>, const N: usize>(buffer: &NoteBuffer) -> bool {
    let size = size_of::<[u64; N]>();
    let Some(notes) = Notes::new(size, C::ROOM * size) else {
        static TOLD: AtomicBool = AtomicBool::new(false);
        if !TOLD.swap(true, Ordering::Relaxed) {
            let tool = C::TOOL;
            eprintln!("{tool}: no memory for a thread's notes (or a kernel older than Linux 4.14)");
        }
        return false;
    };
    let consumer = C::new();
    let owner = Box::leak(Box::new(Owner { notes, consumer }));
    let at = std::ptr::from_mut(owner);
    owner.notes.attach(buffer, at);
    true
}

//! Turns the notes of a thread into entries of the trace.

use std::sync::atomic::{AtomicBool, Ordering};

use atom_tool::notes::{self, NoteBuffer, Notes};
use atom_tool::{AllThreads, PerThread, Uninterrupted};
use mem_trace::{Encoder, Entry};

use crate::sink::{self, Run, Totals};
use crate::{FIRST, GROUP, NOTE, Note, SECOND};

/// Size of a thread's buffer of notes in bytes.
const SIZE: usize = (32 << 10) * NOTE as usize;

/// State of a thread that is kept from one buffer to the next.
struct State {
    /// The buffer; its lock is held while this state is used.
    notes: Notes,
    /// The thread's number in the trace; 0 before its first chunk.
    number: u64,
    encoder: Encoder,
    /// Repeated instructions with notes that are not complete.
    open: Vec<Entry>,
    /// Groups that are new in this thread's entries.
    new_groups: Vec<u32>,
    /// Bit set of the groups in this thread's entries.
    seen: Vec<u64>,
    references: u64,
    /// Number of notes that were begun and never written.
    lost: u64,
}

/// Writes a note that does not simply go to the buffer: there is no buffer, it is full, the process has forked or the
/// thread is another one. `word` is the number of its group and its kind.
#[cold]
#[inline(never)]
pub fn slow(buffer: PerThread<NoteBuffer>, word: u32, value: u64) {
    let _signals_wait = Uninterrupted::begin();
    // Code that runs before the program's start is not traced.
    let Some(run) = sink::run() else { return };
    if !make(&buffer) {
        return;
    }
    // SAFETY: `make` has stored the address of a state, which is never freed.
    let state = unsafe { &mut *buffer.state::<State>() };
    if !state.notes.lock.try_lock() {
        // The process ends, and another thread processes this state.
        return;
    }
    let noted = state.notes.end(&buffer);
    if state.notes.is_inherited() {
        // This is a forked child. The parent writes its own notes.
        state.clear(noted);
        state.forget();
        buffer.set_thread(buffer.thread_number());
        state.notes.renew();
    } else {
        state.flush(run, noted);
    }
    if buffer.thread() != buffer.thread_number() {
        // Another thread goes on with the buffer of one that has ended.
        state.forget();
        buffer.set_thread(buffer.thread_number());
    }
    let first = state.notes.reserve_first(&buffer);
    let word = notes::word(word);
    let note = Note { word, value };
    // SAFETY: the space of the buffer's first note, which has just been reserved.
    unsafe { (first as *mut Note).write(note) };
    state.notes.lock.unlock();
}

impl State {
    /// Begins a thread that has no entries yet.
    fn forget(&mut self) {
        self.number = 0;
        self.open.clear();
        self.new_groups.clear();
        self.seen.clear();
        (self.references, self.lost) = (0, 0);
    }

    /// Empties the notes up to `noted`.
    fn clear(&mut self, noted: u64) {
        for at in self.notes.addresses(noted) {
            // SAFETY: a note in the buffer.
            unsafe { (at as *mut u64).write_volatile(0) };
        }
    }

    /// Turns the notes up to `noted` into entries.
    fn consume(&mut self, run: &Run, noted: u64) {
        for at in self.notes.addresses(noted) {
            // SAFETY: a note in the buffer, all bytes of which are initialised. The accesses are volatile, because
            // the thread may write to it while another thread ends the process.
            let note = unsafe {
                let note = (at as *const Note).read_volatile();
                (at as *mut u64).write_volatile(0);
                note
            };
            if note.word == 0 {
                self.lost += 1;
                continue;
            }
            self.take(run, note);
        }
    }

    #[inline]
    fn take(&mut self, run: &Run, note: Note) {
        let group = notes::number(note.word);
        let mut entry = Entry {
            group,
            address: note.value,
            ..Entry::default()
        };
        match notes::kind(note.word) {
            GROUP => {}
            FIRST => return self.open.push(entry),
            kind => {
                // A signal handler's notes may stand between the notes of one instruction.
                let Some(place) = self.open.iter().rposition(|open| open.group == group) else {
                    self.lost += 1;
                    return;
                };
                if kind == SECOND {
                    self.open[place].second = note.value;
                    return;
                }
                entry = self.open.remove(place);
                (entry.times, entry.down) = (Some(note.value >> 1), note.value & 1 != 0);
            }
        }
        let (word, bit) = (group as usize / 64, 1 << (group % 64));
        if self.seen.get(word).is_none_or(|w| w & bit == 0) {
            if self.seen.len() <= word {
                self.seen.resize(word + 1, 0);
            }
            self.seen[word] |= bit;
            self.new_groups.push(group);
        }
        // The description's second byte is the number of references, which is below 128.
        let start = run.starts[group as usize] as usize;
        let members = u64::from(run.descriptions[start + 1]);
        self.references += members * entry.times.unwrap_or(1);
        self.encoder.push(entry);
    }

    fn flush(&mut self, run: &'static Run, noted: u64) {
        if run.is_nowhere() {
            return self.clear(noted);
        }
        self.consume(run, noted);
        if self.encoder.is_empty() {
            return;
        }
        if let Some(mut sink) = sink::lock(run) {
            if self.number == 0 {
                self.number = sink.begin_thread();
            }
            sink.totals.references += std::mem::take(&mut self.references);
            sink.totals.lost += std::mem::take(&mut self.lost);
            sink.take(self.number, &mut self.encoder, &mut self.new_groups);
        }
    }
}

/// Gives the thread a buffer if it has none. False if there is no memory.
fn make(buffer: &NoteBuffer) -> bool {
    if buffer.is_attached() {
        return true;
    }
    let Some(notes) = Notes::new(NOTE as usize, SIZE) else {
        static TOLD: AtomicBool = AtomicBool::new(false);
        if !TOLD.swap(true, Ordering::Relaxed) {
            eprintln!(
                "memtrace: no memory for a thread's trace (or a kernel older than Linux 4.14)"
            );
        }
        return false;
    };
    let state = Box::leak(Box::new(State {
        notes,
        number: 0,
        encoder: Encoder::default(),
        open: Vec::new(),
        new_groups: Vec::new(),
        seen: Vec::new(),
        references: 0,
        lost: 0,
    }));
    let at = std::ptr::from_mut(state);
    state.notes.attach(buffer, at);
    true
}

/// Writes the rest of the trace when the process ends or calls `exec`.
pub fn end(run: &'static Run, all: AllThreads<NoteBuffer>) -> Option<Totals> {
    for buffer in all.iter() {
        // The limit is 0 without a buffer, and in a forked child unless the thread has made a note there.
        if buffer.limit() == 0 {
            continue;
        }
        // SAFETY: a thread with a buffer has a state.
        let state = unsafe { &mut *buffer.state::<State>() };
        if !state.notes.lock_at_end() {
            continue;
        }
        state.flush(run, state.notes.end(buffer));
        state.notes.rewind(buffer);
        state.notes.lock.unlock();
    }
    let mut sink = sink::lock(run)?;
    sink.write();
    Some(sink.totals)
}

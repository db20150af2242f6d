//! Turns the notes of a thread into entries of the trace.

use std::sync::atomic::{AtomicBool, Ordering};

use atom_tool::notes::{self, Consume, NoteBuffer, Taken};
use atom_tool::simulate::batched::{self, Note};
use atom_tool::{AllThreads, PerThread, Uninterrupted};
use mem_trace::{Encoder, Source, Streams};

use crate::filter::{Filter, Filtered};
use crate::sink::{self, Run, Totals};

/// Size of a thread's buffer of notes in bytes: small enough for a processor's second cache.
const SIZE: usize = 128 << 10;

/// State of a thread that is kept from one buffer to the next.
struct State {
    run: &'static Run,
    /// The thread's number in the trace; 0 before its first chunk.
    number: u64,
    encoder: Encoder,
    streams: Streams,
    /// Batches that are new in this thread's entries.
    new: Vec<u32>,
    filter: Filter,
}

/// Makes a note that does not simply go to the buffer.
#[cold]
#[inline(never)]
pub fn slow<const N: usize>(buffer: PerThread<NoteBuffer>, word: u32, values: [u64; N]) {
    let _signals_wait = Uninterrupted::begin();
    // Code that runs before the program's start is not traced.
    let Some(run) = sink::run() else { return };
    if notes::make_room(buffer, SIZE, || State::new(run)) {
        batched::write(&buffer, word, values);
    } else if !buffer.is_attached() {
        static TOLD: AtomicBool = AtomicBool::new(false);
        if !TOLD.swap(true, Ordering::Relaxed) {
            eprintln!(
                "memtrace: no memory for a thread's trace (or a kernel older than Linux 4.14)"
            );
        }
    }
}

impl State {
    fn new(run: &'static Run) -> Self {
        Self {
            run,
            number: 0,
            encoder: Encoder::default(),
            streams: Streams::default(),
            new: Vec::new(),
            filter: Filter::default(),
        }
    }
}

/// Notes as entries of the trace.
pub struct Noted<'s> {
    pub run: &'static Run,
    notes: Taken<1>,
    new: &'s mut Vec<u32>,
    /// Number of references of repeated instructions.
    pub repeated: u64,
    lost: u64,
}

impl Source for Noted<'_> {
    type Entry = Note;

    #[inline(always)]
    fn next(&mut self) -> Option<(u32, usize, Note)> {
        let note = batched::next(&mut self.notes, &mut self.lost)?;
        if note.is_repeated {
            self.count_repeated(note);
        }
        Some((note.number, note.len, note))
    }

    #[inline(always)]
    fn values<const N: usize>(note: Note) -> [u64; N] {
        note.values()
    }

    fn first_time(&mut self, number: u32) -> u32 {
        self.is_new(number);
        self.run.references(number)
    }
}

impl Noted<'_> {
    /// The next note.
    pub fn next_note(&mut self) -> Option<Note> {
        batched::next(&mut self.notes, &mut self.lost)
    }

    /// Says that a batch is new in this thread's entries.
    pub fn is_new(&mut self, number: u32) {
        self.new.push(number);
    }

    #[cold]
    fn count_repeated(&mut self, note: Note) {
        let [_, _, times] = note.values();
        self.repeated += (times >> 1) * self.run.repeated(note.number);
    }
}

impl Consume<1> for State {
    fn take(&mut self, notes: Taken<1>) {
        if self.run.is_nowhere() {
            return notes.clear();
        }
        let all = notes.copy();
        let mut noted = Noted {
            run: self.run,
            notes,
            new: &mut self.new,
            repeated: 0,
            lost: 0,
        };
        if self.run.addresses.is_empty() {
            self.encoder.encode(&mut self.streams, &mut noted);
        } else {
            let filter = &mut self.filter;
            let mut filtered = Filtered { noted, filter };
            self.encoder.encode(&mut self.streams, &mut filtered);
            noted = filtered.noted;
        }
        let (repeated, lost) = (noted.repeated, noted.lost);
        all.clear();
        if self.streams.is_empty() {
            return;
        }
        if let Some(mut sink) = sink::lock(self.run) {
            if self.number == 0 {
                self.number = sink.begin_thread();
            }
            sink.totals.references += repeated + self.encoder.take_weight();
            sink.totals.lost += lost;
            sink.take(self.number, &mut self.streams, &mut self.new);
        }
    }

    fn take_inherited(&mut self, notes: Taken<1>) {
        // The parent writes its own notes.
        notes.clear();
        self.change_thread();
    }

    fn change_thread(&mut self) {
        *self = Self::new(self.run);
    }
}

/// Writes the rest of the trace when the process ends or calls `exec`.
pub fn end(run: &'static Run, all: AllThreads<NoteBuffer>) -> Option<Totals> {
    notes::at_end(all, |_: &mut State| {});
    let mut sink = sink::lock(run)?;
    sink.write();
    Some(sink.totals)
}

//! Turns the notes of a thread into entries of the trace.

use atom_tool::notes::{self, Consume, NoteBuffer, Taken};
use atom_tool::simulate::batched;
use atom_tool::{AllThreads, PerThread, Uninterrupted};
use mem_trace::{Encoder, Stream};

use crate::filter::Filter;
use crate::sink::{self, Run, Totals};

/// Size of a thread's buffer of notes in bytes: small enough for a processor's second cache.
const SIZE: usize = 128 << 10;

/// State of a thread that is kept from one buffer to the next.
struct State {
    run: &'static Run,
    /// The thread's number in the trace; 0 before its first chunk.
    number: u64,
    encoder: Encoder,
    stream: Stream,
    /// Notes that were begun and never written, beside those that the encoder has seen.
    lost: u64,
    /// Batches that are new in this thread's entries.
    new: Vec<u32>,
    filter: Filter,
}

/// Makes a note that does not simply go to the buffer.
#[cold]
#[inline(never)]
pub fn slow<const N: usize>(buffer: PerThread<NoteBuffer>, word: u32, values: [u64; N]) {
    Uninterrupted::run(|_| {
        // Code that runs before the program's start is not traced.
        let Some(run) = sink::run() else {
            return buffer.park();
        };
        let lack = "memtrace: no memory for a thread's trace";
        batched::write_slowly(buffer, (word, values), SIZE, || State::new(run), lack)
    })
}

impl State {
    fn new(run: &'static Run) -> Self {
        Self {
            run,
            number: 0,
            encoder: Encoder::default(),
            stream: Stream::default(),
            lost: 0,
            new: Vec::new(),
            filter: Filter::default(),
        }
    }
}

// What a note looks like is what the trace's words look like.
const _: () = assert!(batched::word(5, 3) as i32 as u64 == mem_trace::begin(5, 3));

impl Consume<1> for State {
    fn take(&mut self, mut notes: Taken<1>) {
        if self.run.is_nowhere() {
            // Nobody looks at notes, so they need not be cleared.
            return;
        }
        let (run, new) = (self.run, &mut self.new);
        if run.addresses.is_empty() {
            let mut first_time = |number| {
                new.push(number);
                run.shape(number)
            };
            self.encoder
                .encode(&mut self.stream, notes.words(), &mut first_time);
            notes.clear();
        } else {
            let all = notes.copy();
            self.lost += self.filter.keep(run, &mut notes);
            all.clear();
            let (words, shapes) = self.filter.kept();
            let mut first_time = |number: u32| {
                new.push(number);
                shapes.get(&number).copied()
            };
            self.encoder
                .encode(&mut self.stream, words, &mut first_time);
        }
        if self.stream.is_empty() {
            return;
        }
        if let Some(mut sink) = sink::lock(run) {
            if self.number == 0 {
                self.number = sink.begin_thread();
            }
            let counts = self.encoder.take_counts();
            sink.totals.references += counts.references;
            sink.totals.entries += counts.entries;
            sink.totals.lost += counts.lost + std::mem::take(&mut self.lost);
            sink.take(self.number, &mut self.stream, &mut self.new);
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

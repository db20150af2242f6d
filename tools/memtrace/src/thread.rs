//! Turns the notes of a thread into entries of the trace.

use std::sync::atomic::{AtomicBool, Ordering};

use atom_tool::notes::{self, Consume, NoteBuffer, Taken};
use atom_tool::simulate::noted::{self, Entries, NOTE};
use atom_tool::{AllThreads, PerThread, Uninterrupted};
use mem_trace::{Encoder, Entry};

use crate::sink::{self, Run, Totals};

/// Size of a thread's buffer of notes in bytes.
const SIZE: usize = (32 << 10) * NOTE as usize;

/// State of a thread that is kept from one buffer to the next.
struct State {
    run: &'static Run,
    /// The thread's number in the trace; 0 before its first chunk.
    number: u64,
    encoder: Encoder,
    entries: Entries,
    /// Groups that are new in this thread's entries.
    new_groups: Vec<u32>,
    /// Bit set of the groups in this thread's entries.
    seen: Vec<u64>,
    references: u64,
}

/// Makes a note that does not simply go to the buffer.
#[cold]
#[inline(never)]
pub fn slow(buffer: PerThread<NoteBuffer>, word: u32, value: u64) {
    let _signals_wait = Uninterrupted::begin();
    // Code that runs before the program's start is not traced.
    let Some(run) = sink::run() else { return };
    if notes::make_room(buffer, SIZE, || State::new(run)) {
        noted::write(&buffer, word, value);
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
            entries: Entries::default(),
            new_groups: Vec::new(),
            seen: Vec::new(),
            references: 0,
        }
    }

    #[inline]
    fn push(&mut self, entry: Entry) {
        let group = entry.group;
        let (word, bit) = (group as usize / 64, 1 << (group % 64));
        if self.seen.get(word).is_none_or(|w| w & bit == 0) {
            if self.seen.len() <= word {
                self.seen.resize(word + 1, 0);
            }
            self.seen[word] |= bit;
            self.new_groups.push(group);
        }
        // The description's second byte is the number of references, which is below 128.
        let start = self.run.starts[group as usize] as usize;
        let members = u64::from(self.run.descriptions[start + 1]);
        self.references += members * entry.times.unwrap_or(1);
        self.encoder.push(entry);
    }
}

impl Consume<2> for State {
    fn take(&mut self, notes: Taken<2>) {
        if self.run.is_nowhere() {
            return notes.for_each(drop);
        }
        for note in notes {
            if let Some(done) = self.entries.take(note) {
                self.push(Entry {
                    group: done.group,
                    address: done.address,
                    second: done.second,
                    times: done.times,
                    down: done.down,
                });
            }
        }
        if self.encoder.is_empty() {
            return;
        }
        if let Some(mut sink) = sink::lock(self.run) {
            if self.number == 0 {
                self.number = sink.begin_thread();
            }
            sink.totals.references += std::mem::take(&mut self.references);
            sink.totals.lost += std::mem::take(&mut self.entries.lost);
            sink.take(self.number, &mut self.encoder, &mut self.new_groups);
        }
    }

    fn take_inherited(&mut self, notes: Taken<2>) {
        // The parent writes its own notes.
        notes.for_each(drop);
        self.change_thread();
    }

    fn change_thread(&mut self) {
        self.number = 0;
        self.entries.clear();
        self.new_groups.clear();
        self.seen.clear();
        self.references = 0;
    }
}

/// Writes the rest of the trace when the process ends or calls `exec`.
pub fn end(run: &'static Run, all: AllThreads<NoteBuffer>) -> Option<Totals> {
    notes::at_end(all, |_: &mut State| {});
    let mut sink = sink::lock(run)?;
    sink.write();
    Some(sink.totals)
}

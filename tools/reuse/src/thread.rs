//! A thread's references, in their order: distances, working sets, and whose they are.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use atom_tool::notes::{self, Consume, NoteBuffer, Taken};
use atom_tool::simulate::batched::{self, Note};
use atom_tool::simulate::batches::MOST_SOURCES;
use atom_tool::{AllThreads, Array, PerThread, Uninterrupted, lines_of, repeated};

use crate::data::{Data, Memory};
use crate::histogram::Histogram;
use crate::stack::{Stack, mixed};
use crate::{Cache, Group, Part};

/// Size of a thread's buffer of notes in bytes: small enough for a processor's second cache.
const SIZE: usize = 128 << 10;

/// Number of parts of a sample, by whose differences its error is estimated.
pub const PARTS: usize = 8;

/// What stays the same during a run, but for tables that become longer when a library is added.
pub struct Run {
    pub groups: Array<Group>,
    pub parts: Array<Part>,
    pub memory: Memory,
    /// Binary logarithm of a line's size.
    pub line: u32,
    /// One of this number of lines is looked at; 1 for all.
    pub sample: u64,
    /// Number of references of an interval; 0 for none.
    pub interval: u64,
    /// The caches for whose misses tables have columns.
    pub caches: Vec<Cache>,
}

// SAFETY: all of it is data that never changes, or that is replaced as a whole.
unsafe impl Send for Run {}
// SAFETY: as above.
unsafe impl Sync for Run {}

static RUN: OnceLock<Run> = OnceLock::new();

/// Prepares the analysis at the program's start.
pub fn begin(run: Run) {
    // ProgramBefore comes once.
    let _ = RUN.set(run);
}

/// What stays the same during a run; `None` before the program's start.
pub fn run() -> Option<&'static Run> {
    RUN.get()
}

/// What was touched in an interval.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Interval {
    /// Different lines.
    pub lines: u64,
    /// Lines that were never touched before.
    pub new: u64,
}

/// Histograms by number.
#[derive(Default)]
pub struct ByNumber(Vec<Option<Histogram>>);

impl ByNumber {
    #[inline]
    fn of(&mut self, number: u32) -> &mut Histogram {
        let number = number as usize;
        if self.0.len() <= number {
            self.0.resize_with(number + 1, || None);
        }
        self.0[number].get_or_insert_with(Histogram::new)
    }

    fn merge(&mut self, other: &Self) {
        for (number, histogram) in other.iter() {
            self.of(number).merge(histogram);
        }
    }

    /// All histograms with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Histogram)> {
        let all = self.0.iter().enumerate();
        all.filter_map(|(number, found)| Some((number as u32, found.as_ref()?)))
    }
}

/// Everything that is counted.
pub struct Counts {
    /// All references, looked at or not.
    pub references: u64,
    pub all: Histogram,
    /// By number of the procedure's site.
    pub procs: ByNumber,
    /// By number of the variable or the blocks, see [`Data`].
    pub data: ByNumber,
    /// The parts of a sample.
    pub sampled: Vec<Histogram>,
    pub intervals: Vec<Interval>,
    /// Different lines.
    pub lines: u64,
    /// Notes that were begun and never written.
    pub lost: u64,
}

impl Counts {
    pub fn new() -> Self {
        Self {
            references: 0,
            all: Histogram::new(),
            procs: ByNumber::default(),
            data: ByNumber::default(),
            sampled: vec![Histogram::new(); PARTS],
            intervals: Vec::new(),
            lines: 0,
            lost: 0,
        }
    }

    /// Adds another thread's counts, but for its intervals.
    pub fn merge(&mut self, other: &Self) {
        self.references += other.references;
        self.all.merge(&other.all);
        self.procs.merge(&other.procs);
        self.data.merge(&other.data);
        for (own, other) in self.sampled.iter_mut().zip(&other.sampled) {
            own.merge(other);
        }
        self.lines += other.lines;
        self.lost += other.lost;
    }
}

/// State of a thread that is kept from one buffer of notes to the next.
struct State {
    run: &'static Run,
    stack: Stack,
    data: Data,
    counts: Counts,
    /// Number of the interval, from 1; the stamp of lines that are touched in it.
    interval: u32,
    /// Number of references until the next interval.
    left: u64,
    current: Interval,
}

/// Makes a note that does not simply go to the buffer.
#[cold]
#[inline(never)]
pub fn slow<const N: usize>(buffer: PerThread<NoteBuffer>, word: u32, values: [u64; N]) {
    Uninterrupted::run(|_| {
        // Code that runs before the program's start is not analysed.
        let Some(run) = RUN.get() else {
            return buffer.park();
        };
        let lack = "reuse: no memory for a thread's references";
        batched::write_slowly(buffer, (word, values), SIZE, || State::new(run), lack)
    })
}

/// Number of threads that have made notes.
static THREADS: AtomicU32 = AtomicU32::new(0);

/// True if only one thread has made notes so far.
pub fn is_alone() -> bool {
    THREADS.load(Ordering::Relaxed) <= 1
}

/// Looks at all references that a thread has noted. Signals must be blocked.
pub fn catch_up(buffer: PerThread<NoteBuffer>) {
    if let Some(run) = RUN.get()
        && buffer.is_attached()
    {
        notes::make_room(buffer, SIZE, None, || State::new(run));
    }
}

impl State {
    fn new(run: &'static Run) -> Self {
        THREADS.fetch_add(1, Ordering::Relaxed);
        Self {
            run,
            stack: Stack::new(),
            data: Data::new(),
            counts: Counts::new(),
            interval: 1,
            left: run.interval,
            current: Interval::default(),
        }
    }

    /// The references of a group.
    fn execute(&mut self, note: Note) {
        let run = self.run;
        let number = note.number as usize;
        let groups = run.groups.as_slice();
        let (Some(group), Some(next)) = (groups.get(number), groups.get(number + 1)) else {
            return;
        };
        let parts = run
            .parts
            .as_slice()
            .get(group.first as usize..next.first as usize);
        let parts = parts.unwrap_or_default();
        let mut values = [0; MOST_SOURCES];
        note.copy_values(&mut values);
        if group.is_repeated == 0 {
            for part in parts {
                let value = values[part.source as usize % MOST_SOURCES];
                let address = value.wrapping_add(part.offset as u64);
                self.refer(group.site, address, part.size.into(), 1);
            }
            return;
        }
        let size = parts.first().map_or(1, |part| u64::from(part.size));
        let [first, second, times, _] = values;
        repeated(
            [first, second],
            times >> 1,
            size,
            times & 1,
            1 << run.line,
            |address, times| {
                self.refer(group.site, address, size, times);
            },
        );
    }

    /// A reference that is made `times` times in succession.
    #[inline]
    fn refer(&mut self, site: u32, address: u64, size: u64, times: u64) {
        let shift = self.run.line;
        for line in lines_of(address, size.max(1), 1 << shift) {
            self.touch(site, line >> shift, address.max(line), times);
        }
    }

    fn touch(&mut self, site: u32, line: u64, address: u64, times: u64) {
        self.counts.references += times;
        let sample = self.run.sample;
        let hash = if sample == 1 { 0 } else { mixed(line) };
        if hash % sample == 0 {
            let touched = self.stack.touch(line, self.interval);
            if self.run.interval != 0 && touched.stamp != self.interval {
                self.current.lines += 1;
                self.current.new += u64::from(touched.distance.is_none());
            }
            // The sample has one of `sample` lines, so the distance in the sample stands for `sample` times as many lines.
            let distance = touched.distance.map(|distance| distance * sample);
            let counts = &mut self.counts;
            counts.all.add(distance, times);
            counts.lines += u64::from(touched.distance.is_none());
            counts.procs.of(site).add(distance, times);
            let variable = self.data.of(&self.run.memory, address);
            counts.data.of(variable).add(distance, times);
            if sample != 1 {
                let part = (hash / sample) as usize % PARTS;
                counts.sampled[part].add(distance, times);
            }
        }
        if self.run.interval != 0 {
            self.advance(times);
        }
    }

    /// Counts references of the interval. All of a repeated instruction that are in one line are of one interval.
    fn advance(&mut self, times: u64) {
        self.left = self.left.saturating_sub(times);
        if self.left == 0 {
            self.counts
                .intervals
                .push(std::mem::take(&mut self.current));
            self.interval += 1;
            self.left = self.run.interval;
        }
    }
}

impl Consume<1> for State {
    fn take(&mut self, mut notes: Taken<1>) {
        let all = notes.copy();
        let mut lost = 0;
        while let Some(note) = batched::next(&mut notes, &mut lost) {
            self.execute(note);
        }
        self.counts.lost += lost;
        all.clear();
    }

    fn take_inherited(&mut self, notes: Taken<1>) {
        // The stack continues from what the parent did before the fork; the parent counts it.
        self.take(notes);
        self.counts = Counts::new();
    }
}

/// Gives the counts of each thread to `each`, with the interval that has not ended.
pub fn end(all: AllThreads<NoteBuffer>, mut each: impl FnMut(&Counts, Interval)) {
    notes::at_end(all, |state: &mut State| each(&state.counts, state.current));
}

//! The trace of a process: chunks in memory, which are written to the file above some size.

use std::collections::HashMap;
use std::io;
use std::sync::{MutexGuard, OnceLock};

use atom_tool::forks::PerProcess;
use atom_tool::{Array, Strings, output};
use mem_trace::{MAGIC, Shape, Stream};

use crate::batches::Description;
use crate::phases::Windows;
use crate::spans::Addresses;

/// Number of bytes that are kept in memory before they are written.
const MEMORY: usize = 256 << 10;

/// What stays the same during a run, but for tables that become longer when a library is added.
pub struct Run {
    /// Name of the trace.
    pub file: &'static str,
    /// Name of the program.
    pub program: &'static str,
    /// Name, path and build-id of each object; the latter as digits.
    pub objects: Strings,
    /// The descriptions of batches, one after the other.
    pub bytes: Array<u8>,
    /// For each number of a batch where its description is.
    pub descriptions: Array<Description>,
    /// To which addresses references are written; empty for all.
    pub addresses: &'static [Addresses],
    /// True if the profile is wanted, which has the numbers of references.
    pub has_profile: bool,
    /// When references are noted.
    pub windows: &'static Windows,
}

// SAFETY: all of it is data that never changes, or that is replaced as a whole.
unsafe impl Send for Run {}
// SAFETY: as above.
unsafe impl Sync for Run {}

impl Run {
    /// The description of a batch.
    pub fn description(&self, number: u32) -> Option<&'static [u8]> {
        let at = self.descriptions.get(number as usize)?;
        let start = at.start as usize;
        self.bytes.as_slice().get(start..start + at.len as usize)
    }

    /// What the encoder has to know of a batch.
    pub fn shape(&self, number: u32) -> Option<Shape> {
        let at = self.descriptions.get(number as usize)?;
        (at.len > 0).then_some(Shape {
            values: usize::from(at.values),
            references: at.references.into(),
            is_repeated: at.is_repeated != 0,
        })
    }

    /// True if nobody reads the trace: it need not be made.
    pub fn is_nowhere(&self) -> bool {
        self.file == "/dev/null" && !self.has_profile
    }
}

static RUN: OnceLock<Run> = OnceLock::new();
static SINK: PerProcess<Sink> = PerProcess::new();

/// Prepares the trace at the program's start.
pub fn begin(run: Run) {
    // ProgramBefore comes once.
    let _ = RUN.set(run);
    SINK.begin();
}

/// What stays the same during a run; `None` before the program's start.
pub fn run() -> Option<&'static Run> {
    RUN.get()
}

/// Locks this process's trace. Signals must be blocked while it is locked.
pub fn lock(run: &'static Run) -> Option<MutexGuard<'static, Sink>> {
    SINK.lock(|| Sink::new(run))
}

/// Sums for the profile.
#[derive(Clone, Copy, Default)]
pub struct Totals {
    pub references: u64,
    pub entries: u64,
    /// Notes that were begun and never written.
    pub lost: u64,
    pub threads: u64,
    /// Size of the trace in bytes.
    pub bytes: u64,
}

/// The trace of a process.
pub struct Sink {
    run: &'static Run,
    bytes: Vec<u8>,
    /// Number of objects that the trace names.
    named_objects: usize,
    /// For each number of a batch, whether the trace describes it.
    is_described: Vec<bool>,
    /// Variants of batches, by the batch and the references that are kept: their numbers, and their descriptions by number.
    /// A trace of variants has no other batches.
    variants: HashMap<(u32, u128), u32>,
    described_variants: HashMap<u32, Vec<u8>>,
    /// The number of the next variant. 0 stays free.
    next_variant: u32,
    is_created: bool,
    has_failed: bool,
    pub totals: Totals,
}

impl Sink {
    fn new(run: &'static Run) -> Self {
        let mut sink = Self {
            run,
            bytes: MAGIC.to_vec(),
            named_objects: 0,
            is_described: Vec::new(),
            variants: HashMap::new(),
            described_variants: HashMap::new(),
            next_variant: 1,
            is_created: false,
            has_failed: false,
            totals: Totals::default(),
        };
        sink.name_objects();
        sink
    }

    /// Names the objects that the trace does not name yet: all at first, then those that were added.
    fn name_objects(&mut self) {
        let run = self.run;
        let texts: Vec<&str> = run.objects.iter().skip(3 * self.named_objects).collect();
        if texts.is_empty() {
            return;
        }
        let build_ids = texts.iter().skip(2).step_by(3);
        let build_ids: Vec<Vec<u8>> = build_ids.map(|id| bytes_of(id)).collect();
        let objects = texts.chunks_exact(3).zip(&build_ids);
        let objects: Vec<_> = objects.map(|(o, id)| (o[0], o[1], &id[..])).collect();
        mem_trace::objects(&mut self.bytes, &objects);
        self.named_objects += objects.len();
    }

    /// The number of a new thread.
    pub fn begin_thread(&mut self) -> u64 {
        self.totals.threads += 1;
        self.totals.threads
    }

    /// The number of a variant of a batch: of the batch and the kept references, the number of values and the description.
    pub fn variant(&mut self, which: (u32, u128), values: u32, description: Vec<u8>) -> u32 {
        let next = &mut self.next_variant;
        *self.variants.entry(which).or_insert_with(|| {
            let number = *next;
            self.described_variants.insert(number, description);
            *next += values + 1;
            number
        })
    }

    /// Adds a thread's entries, which may have batches that are new in the thread.
    pub fn take(&mut self, thread: u64, stream: &mut Stream, new: &mut Vec<u32>) {
        self.name_objects();
        let is_described = &mut self.is_described;
        let is_new = |number: &u32| {
            let number = *number as usize;
            if is_described.len() <= number {
                is_described.resize(number + 1, false);
            }
            !std::mem::replace(&mut is_described[number], true)
        };
        let new = new.drain(..).filter(is_new);
        let run = self.run;
        let variants = &self.described_variants;
        let described: Vec<(u32, &[u8])> = new
            .filter_map(|number| {
                let variant = variants.get(&number).map(|bytes| &bytes[..]);
                Some((number, variant.or_else(|| run.description(number))?))
            })
            .collect();
        if !described.is_empty() {
            mem_trace::descriptions(&mut self.bytes, &described);
        }
        mem_trace::chunk(&mut self.bytes, thread, stream, false);
        if self.bytes.len() > MEMORY {
            self.write();
        }
    }

    /// Writes what is in memory.
    pub fn write(&mut self) {
        self.totals.bytes += self.bytes.len() as u64;
        let written = self.try_write();
        self.bytes.clear();
        if let (Err(error), false) = (written, self.has_failed) {
            self.has_failed = true;
            output::cannot_write("memtrace", format!("{error}; the trace ends here"));
        }
    }

    fn try_write(&mut self) -> io::Result<()> {
        if self.has_failed {
            return Ok(());
        }
        output::extend(self.run.file, &mut self.is_created, &self.bytes)
    }
}

/// The bytes that hexadecimal digits stand for.
fn bytes_of(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks_exact(2);
    let text = pairs.filter_map(|pair| std::str::from_utf8(pair).ok());
    text.filter_map(|pair| u8::from_str_radix(pair, 16).ok())
        .collect()
}

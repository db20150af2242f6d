//! The trace of a process: chunks in memory, which are written to the file above some size.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::sync::{MutexGuard, OnceLock};

use atom_tool::forks::PerProcess;
use atom_tool::{Strings, output};
use mem_trace::{Encoder, MAGIC};

/// Number of bytes that are kept in memory before they are written.
const MEMORY: usize = 4 << 20;

/// What stays the same during a run.
pub struct Run {
    /// Name of the trace.
    pub file: &'static str,
    /// Name of the program.
    pub program: &'static str,
    /// Names of the objects.
    pub objects: Strings,
    /// The descriptions of groups, one after the other.
    pub descriptions: &'static [u8],
    /// For each group where its description begins, and where the last one ends.
    pub starts: &'static [u32],
}

// SAFETY: all of it is data that never changes.
unsafe impl Send for Run {}
// SAFETY: as above.
unsafe impl Sync for Run {}

impl Run {
    /// The description of a group.
    pub fn description(&self, group: u32) -> Option<&'static [u8]> {
        let at = group as usize;
        let [start, end] = [self.starts.get(at)?, self.starts.get(at + 1)?];
        self.descriptions.get(*start as usize..*end as usize)
    }

    /// True if nobody reads the trace: it need not be made.
    pub fn is_nowhere(&self) -> bool {
        self.file == "/dev/null"
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
    /// For each group, whether the trace describes it.
    is_described: Vec<bool>,
    is_created: bool,
    has_failed: bool,
    pub totals: Totals,
}

impl Sink {
    fn new(run: &'static Run) -> Self {
        let mut bytes = MAGIC.to_vec();
        let names: Vec<&str> = run.objects.iter().collect();
        mem_trace::objects(&mut bytes, &names);
        Self {
            run,
            bytes,
            is_described: vec![false; run.starts.len()],
            is_created: false,
            has_failed: false,
            totals: Totals::default(),
        }
    }

    /// The number of a new thread.
    pub fn begin_thread(&mut self) -> u64 {
        self.totals.threads += 1;
        self.totals.threads
    }

    /// Adds a thread's entries, which may have groups that are new in the thread.
    pub fn take(&mut self, thread: u64, encoder: &mut Encoder, groups: &mut Vec<u32>) {
        let is_described = &mut self.is_described;
        let is_new = |group: &u32| {
            let is_described = is_described.get_mut(*group as usize);
            is_described.is_some_and(|is| !std::mem::replace(is, true))
        };
        let groups = groups.drain(..).filter(is_new);
        let run = self.run;
        let described: Vec<(u32, &[u8])> = groups
            .filter_map(|group| Some((group, run.description(group)?)))
            .collect();
        if !described.is_empty() {
            mem_trace::descriptions(&mut self.bytes, &described);
        }
        self.totals.entries += encoder.len();
        mem_trace::chunk(&mut self.bytes, thread, encoder);
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
        if !std::mem::replace(&mut self.is_created, true) {
            let mut file = output::create(self.run.file)?;
            return file.write_all(&self.bytes).and_then(|()| file.flush());
        }
        // The file does not stay open: the program may close all descriptors, and the process that reports in place of
        // one that was killed has none of them.
        let path = output::path(self.run.file);
        let file = OpenOptions::new().append(true).open(&path);
        file.and_then(|mut file| file.write_all(&self.bytes))
            .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))
    }
}

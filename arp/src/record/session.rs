//! A session: what all threads share, from the start to the finished file.
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::{Error, ErrorKind, Result};
use crate::file::convert;
use crate::file::sink::Sink;
use crate::file::{Heading, blocks};
use crate::histogram::Histogram;
use crate::problem::{Problem, Severity};
use crate::record::block::Encoder;
use crate::record::playback::Index;
use crate::record::{Meter, SessionBuilder, ThreadRecorder};
use crate::stats::Stats;
use crate::types::{Format, Mode, Section, Sid, Tid, ValueSet};
use crate::unrecorded;
use crate::value::Area;

/// Makes a set of callbacks for one thread.
pub(super) type Factory = Box<dyn Fn(Tid) -> Box<dyn Meter> + Send + Sync>;
/// Called with each problem.
pub(super) type Handler = Box<dyn Fn(&Problem) + Send + Sync>;

/// Number of problems of each sort that are printed if there is no handler.
const PRINTED: u32 = 10;

/// Sums of one call path.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Aggregate {
    Stats(Vec<Stats>),
    Histograms(Vec<Histogram>),
}

impl Aggregate {
    pub fn merge(&mut self, other: Self) {
        match (self, other) {
            (Self::Stats(mine), Self::Stats(other)) => {
                mine.iter_mut().zip(&other).for_each(|(a, b)| a.merge(b));
            }
            (Self::Histograms(mine), Self::Histograms(other)) => {
                mine.iter_mut().zip(&other).for_each(|(a, b)| a.merge(b));
            }
            _ => {}
        }
    }
}

/// Sums by thread and call path.
pub(crate) type Collected = BTreeMap<(Tid, Vec<Sid>), Aggregate>;

pub(crate) struct Shared {
    pub mode: Mode,
    pub sets: Vec<ValueSet>,
    pub max_sid: Sid,
    pub fold: bool,
    pub playback: Option<Arc<Index>>,
    pub(super) factories: Vec<Option<Factory>>,
    pub(super) handler: Option<Handler>,
    pub(super) printed: [AtomicU32; Problem::SORTS],
    pub(super) problems: AtomicU64,
    pub(super) samples: AtomicU64,
    /// Destination of records in mode `RecordAll`, and the name of the file.
    pub(super) sink: Mutex<Output>,
    pub(super) collected: Mutex<Collected>,
    /// Executions that were not recorded, by section.
    pub(super) left_out: Mutex<unrecorded::All>,
}

pub(super) struct Output {
    pub(super) path: PathBuf,
    pub(super) format: Format,
    pub(super) gzip: bool,
    pub(super) info: Vec<(String, String)>,
    pub(super) sections: Vec<Section>,
    pub(super) sink: Option<Sink>,
    /// The completed file, after the end.
    pub(super) done: Option<Sink>,
    pub(super) finished: bool,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Passes the problem to the handler, or prints it.
    pub fn report(&self, problem: &Problem) {
        self.problems.fetch_add(1, Ordering::Relaxed);
        if let Some(handler) = &self.handler {
            return handler(problem);
        }
        let before = self.printed[problem.sort()].fetch_add(1, Ordering::Relaxed);
        if before < PRINTED {
            let what = match problem.severity() {
                Severity::Warning => "warning",
                _ => "error",
            };
            eprintln!("arp: {what}: {problem}");
            if before + 1 == PRINTED {
                eprintln!("arp: more of this sort are not shown");
            }
        }
    }

    /// Writes a thread's block.
    pub fn write_samples(&self, tid: Tid, encoder: &mut Encoder) {
        let mut payload = Vec::with_capacity(64 << 10);
        let records = encoder.take(&mut payload);
        let block = crate::file::blocks::samples(tid, records, &payload);
        let mut output = lock(&self.sink);
        if output.finished {
            return;
        }
        let result = output.open_sink(self).and_then(|()| {
            let sink = output.sink.as_mut().expect("just opened");
            sink.write(&block)
        });
        match result {
            Ok(()) => {
                self.samples
                    .fetch_add(u64::from(records), Ordering::Relaxed);
            }
            Err(error) => {
                // A failed write leaves a gap in the file, so nothing more is recorded.
                output.finished = true;
                drop(output);
                self.report(&error.into());
            }
        }
    }

    pub fn collect(&self, tid: Tid, paths: Vec<(Vec<Sid>, Aggregate)>) {
        if paths.is_empty() {
            return;
        }
        let mut collected = lock(&self.collected);
        for (path, aggregate) in paths {
            match collected.entry((tid, path)) {
                std::collections::btree_map::Entry::Vacant(slot) => {
                    slot.insert(aggregate);
                }
                std::collections::btree_map::Entry::Occupied(mut slot) => {
                    slot.get_mut().merge(aggregate);
                }
            }
        }
    }

    /// Counts executions that were not recorded: section, whether it is a kernel within a kernel, number.
    pub fn leave_out(&self, executions: impl Iterator<Item = (Sid, bool, u64)>) {
        let mut all = None;
        for (sid, nested, n) in executions {
            let all = all.get_or_insert_with(|| lock(&self.left_out));
            all.entry(sid).or_default().add(nested, n);
        }
    }

    fn heading(&self, output: &Output) -> Heading {
        Heading {
            mode: self.mode,
            sets: self.sets.clone(),
            info: output.info.clone(),
            sections: output.sections.clone(),
        }
    }
}

impl Output {
    pub(super) fn open_sink(&mut self, shared: &Shared) -> Result<()> {
        if self.sink.is_none() {
            let heading = shared.heading(self);
            self.sink = Some(Sink::create(&self.path, &heading)?);
        }
        Ok(())
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let severity = match error.kind {
            ErrorKind::Io => Severity::Io,
            ErrorKind::Usage => Severity::Fatal,
            ErrorKind::Syntax | ErrorKind::Truncated => Severity::Syntax,
        };
        Problem::File {
            severity,
            message: error.to_string(),
        }
    }
}

/// A running recording or playback. Clones share the session.
#[derive(Clone)]
pub struct Session {
    pub(crate) shared: Arc<Shared>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("mode", &self.shared.mode)
            .finish_non_exhaustive()
    }
}

/// Result of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The file that was written; `None` in playback.
    pub file: Option<PathBuf>,
    /// Number of records in the file.
    pub records: u64,
    /// Number of reported problems.
    pub problems: u64,
}

impl Session {
    /// Default options of a session in this mode.
    pub fn builder(mode: Mode) -> SessionBuilder {
        SessionBuilder::new(mode)
    }

    /// The mode.
    pub fn mode(&self) -> Mode {
        self.shared.mode
    }

    /// Makes the recorder of thread `tid`, with its own callbacks.
    /// A set that was declared without callbacks records zeros.
    pub fn thread(&self, tid: Tid) -> ThreadRecorder {
        let make = |factory: &Option<Factory>| match factory {
            Some(make) => make(tid),
            None => Box::new(NoMeter) as Box<dyn Meter>,
        };
        let meters = self.shared.factories.iter().map(make).collect();
        ThreadRecorder::new(Arc::clone(&self.shared), tid, meters)
    }

    /// Makes the recorder of thread `tid` with these callbacks, one for each set of values.
    pub fn thread_with(&self, tid: Tid, mut meters: Vec<Box<dyn Meter>>) -> ThreadRecorder {
        meters.resize_with(self.shared.sets.len(), || Box::new(NoMeter));
        ThreadRecorder::new(Arc::clone(&self.shared), tid, meters)
    }

    /// Whether no recorder has handed over any records yet.
    pub fn is_empty(&self) -> bool {
        self.shared.samples.load(Ordering::Relaxed) == 0 && lock(&self.shared.collected).is_empty()
    }

    /// Locks the session while the process forks.
    pub fn fork_guard(&self) -> ForkGuard<'_> {
        ForkGuard {
            shared: &self.shared,
            output: lock(&self.shared.sink),
            collected: lock(&self.shared.collected),
        }
    }

    /// Reports a problem that the caller found.
    pub fn report(&self, problem: &Problem) {
        self.shared.report(problem);
    }

    /// Adds descriptions of sections. A later description of a section replaces the earlier one.
    pub fn add_sections(&self, sections: &[Section]) -> Result<()> {
        let mut output = lock(&self.shared.sink);
        for section in sections {
            match output.sections.iter_mut().find(|s| s.sid == section.sid) {
                Some(old) => *old = section.clone(),
                None => output.sections.push(section.clone()),
            }
        }
        match &mut output.sink {
            Some(sink) => sink.write(&crate::file::blocks::sections(sections)),
            None => Ok(()),
        }
    }

    /// Makes the session, in the child after a `fork`, record into `path`. Earlier records belong to the
    /// parent. Each recorder of the child needs [`ThreadRecorder::forget`].
    /// The file is made when there is something to write.
    pub fn forked(&self, path: impl Into<PathBuf>) {
        self.fork_guard().forked(path);
    }

    /// Writes the remaining records and completes the file. Recorders must have ended; records that arrive
    /// later are lost. A second call does nothing.
    pub fn finish(&self) -> Result<Summary> {
        let shared = &*self.shared;
        let mut output = lock(&shared.sink);
        let mut summary = Summary {
            file: None,
            records: 0,
            problems: shared.problems.load(Ordering::Relaxed),
        };
        if std::mem::replace(&mut output.finished, true) {
            return Ok(summary);
        }
        if shared.mode == Mode::Playback {
            return Ok(summary);
        }
        let notes = unrecorded::notes(&lock(&shared.left_out));
        match shared.mode {
            Mode::Playback => {}
            Mode::RecordAll => {
                output.open_sink(shared)?;
                summary.records = shared.samples.load(Ordering::Relaxed);
                let mut sink = output.sink.take().expect("just opened");
                sink.write(&blocks::notes(&notes))?;
                sink.finish(summary.records)?;
                if output.format != Format::Binary || output.gzip {
                    convert::file(&sink.path(), &output.path, output.format, output.gzip)?;
                    sink.loses_name();
                }
                // The file stays open, as the process may continue; see `Session::go_on`.
                output.done = Some(sink);
            }
            Mode::RecordAverage | Mode::RecordHistogram => {
                output.info.extend(notes);
                let heading = shared.heading(&output);
                let collected = std::mem::take(&mut *lock(&shared.collected));
                summary.records = collected.len() as u64;
                convert::aggregates(
                    &output.path,
                    output.format,
                    output.gzip,
                    &heading,
                    collected,
                )?;
            }
        }
        summary.file = Some(output.path.clone());
        Ok(summary)
    }
}

/// Locks of a session, made by [`Session::fork_guard`]. A program with threads takes them before it forks and drops
/// them in both processes, so that the child does not inherit locks held by threads that it does not have.
pub struct ForkGuard<'a> {
    shared: &'a Shared,
    output: MutexGuard<'a, Output>,
    collected: MutexGuard<'a, Collected>,
}

impl fmt::Debug for ForkGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForkGuard").finish_non_exhaustive()
    }
}

impl ForkGuard<'_> {
    /// Name of the data file.
    pub fn path(&self) -> PathBuf {
        self.output.path.clone()
    }

    /// Does the same as [`Session::forked`], with the locks held.
    pub fn forked(mut self, path: impl Into<PathBuf>) {
        self.output.path = path.into();
        self.output.sink = None;
        self.output.done = None;
        self.collected.clear();
        lock(&self.shared.left_out).clear();
        self.shared.samples.store(0, Ordering::Relaxed);
    }
}

/// Measures nothing.
struct NoMeter;

impl Meter for NoMeter {
    fn enter(&mut self, _: Sid, _: &mut Area) {}
    fn leave(&mut self, _: Sid, _: &mut Area) {}
}

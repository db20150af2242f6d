//! A session, from the start to the finished file.
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

use crate::convert::convert;
use crate::error::Result;
use crate::file::blocks;
use crate::problem::Problem;
use crate::record::collected::{self, Collected};
use crate::record::shared::{Factory, Output, Shared, lock};
use crate::record::{Meter, ThreadRecorder};
use crate::types::{Format, Mode, Section, Sid, Tid};
use crate::unrecorded;
use crate::value::Area;

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
                    convert(&sink.path(), &output.path, output.format, output.gzip)?;
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
                collected::write(
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

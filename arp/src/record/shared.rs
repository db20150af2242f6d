//! What all threads of a session share.
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::encoder::Encoder;
use crate::error::{Error, ErrorKind, Result};
use crate::file::Heading;
use crate::file::sink::Sink;
use crate::problem::{Problem, Severity};
use crate::record::Meter;
use crate::record::collected::{Aggregate, Collected};
use crate::record::playback::Index;
use crate::types::{Format, Mode, Section, Sid, Tid, ValueSet};
use crate::unrecorded;

/// Makes a set of callbacks for one thread.
pub(super) type Factory = Box<dyn Fn(Tid) -> Box<dyn Meter> + Send + Sync>;
/// Called with each problem.
pub(super) type Handler = Box<dyn Fn(&Problem) + Send + Sync>;

/// Number of problems of each sort that are printed if there is no handler.
const PRINTED: u32 = 10;

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

    pub(super) fn heading(&self, output: &Output) -> Heading {
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

//! A log for exports: with names, and times in microseconds from its start.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::indat::Listed;
use crate::reader::Log;
use crate::{Event, Procedure, Result};

/// A log that was read once, for its clock and names, and whose events can be read again.
pub struct Timeline {
    file: PathBuf,
    /// Name of the program, or of the log's file.
    pub title: String,
    /// The procedures that occur, by number.
    pub procs: Vec<Procedure>,
    /// Index in `procs` by number.
    places: HashMap<u32, usize>,
    /// Number in the system of each thread.
    pub tids: Vec<u32>,
    /// Number of the process; 0 if it is not known.
    pub process: u32,
    /// First and last value of the clock.
    origin: u64,
    last: u64,
    ticks_per_second: f64,
}

impl Timeline {
    /// Reads a log. A log without names gets the listed ones.
    ///
    /// # Errors
    /// Says what is wrong with the log.
    pub fn open(file: &Path, listed: &[Listed]) -> Result<Self> {
        let mut log = Log::open(file)?;
        let mut events = Vec::new();
        let (mut origin, mut last) = (u64::MAX, 0);
        let mut tids = Vec::new();
        let mut seen: HashMap<u32, Procedure> = HashMap::new();
        while let Some(thread) = log.next_events(&mut events)? {
            if tids.len() <= thread as usize {
                tids.resize(thread as usize + 1, 0);
            }
            tids[thread as usize] = log.tid(thread);
            for event in &events {
                seen.entry(event.proc).or_insert_with(|| {
                    let named = log.procedure(event.proc).cloned();
                    named.unwrap_or_else(|| Procedure {
                        number: event.proc,
                        name: name(event.proc, listed),
                        ..Procedure::default()
                    })
                });
            }
            if let (Some(first), Some(end)) = (events.first(), events.last()) {
                origin = origin.min(first.clock);
                last = last.max(end.clock);
            }
        }
        let mut procs: Vec<_> = seen.into_values().collect();
        procs.sort_by_key(|p| p.number);
        let places = procs.iter().map(|p| p.number).zip(0..).collect();
        let header = log.header();
        Ok(Self {
            file: file.to_path_buf(),
            title: header.map_or_else(|| file.display().to_string(), |h| h.program.clone()),
            procs,
            places,
            tids,
            process: header.map_or(0, |h| h.process),
            origin: origin.min(last),
            last,
            ticks_per_second: log.ticks_per_second()?,
        })
    }

    /// Passes the events of all threads, or of one, to `take`, with the thread's number in the log.
    ///
    /// # Errors
    /// The outer error is about reading the log, the inner one comes from `take`.
    pub fn each(
        &self,
        only: Option<u32>,
        mut take: impl FnMut(u32, Event) -> std::io::Result<()>,
    ) -> Result<std::io::Result<()>> {
        let mut log = Log::open(&self.file)?;
        let mut events = Vec::new();
        while let Some(thread) = log.next_events(&mut events)? {
            if only.is_some_and(|only| only != thread) {
                continue;
            }
            for event in &events {
                if let Err(error) = take(thread, *event) {
                    return Ok(Err(error));
                }
            }
        }
        Ok(Ok(()))
    }

    /// Time in microseconds from the log's start.
    pub fn micros(&self, clock: u64) -> f64 {
        clock.saturating_sub(self.origin) as f64 * 1e6 / self.ticks_per_second
    }

    /// Time in microseconds from its start to its end.
    pub fn length(&self) -> f64 {
        self.micros(self.last)
    }

    /// A duration in microseconds.
    pub fn span(&self, ticks: u64) -> f64 {
        ticks as f64 * 1e6 / self.ticks_per_second
    }

    /// The last value of the clock.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// True for the main thread: the one with the process's number, or the first if none is known to have it.
    pub fn is_main(&self, thread: u32) -> bool {
        let main = self
            .tids
            .iter()
            .position(|tid| *tid == self.process && *tid != 0);
        thread as usize == main.unwrap_or(0)
    }

    /// Index of a procedure in `procs`.
    pub fn place(&self, proc: u32) -> usize {
        self.places.get(&proc).copied().unwrap_or(0)
    }

    /// Name of a thread in reports.
    pub fn thread_name(&self, thread: u32) -> String {
        match self.tids.get(thread as usize) {
            Some(0) | None => format!("thread {thread}"),
            Some(tid) => format!("thread {thread} ({tid})"),
        }
    }
}

/// The listed name of a procedure, or a made-up one.
fn name(number: u32, listed: &[Listed]) -> String {
    let listed = listed.iter().find(|p| p.number == number);
    listed.map_or_else(|| format!("procedure {number}"), |p| p.name.clone())
}

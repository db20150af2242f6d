//! Reads a log in either format, block by block.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use crate::clock::Clock;
use crate::{Error, Event, EventKind, Procedure, Result, compact, exercise};

/// The reader of the log's format.
enum Source {
    Compact(compact::Reader<BufReader<File>>),
    Exercise(exercise::Reader<BufReader<File>>),
}

/// An open log.
pub struct Log {
    file: PathBuf,
    source: Source,
    /// Events that close the procedures that a killed process left open, by thread; `None` before the end.
    unclosed: Option<Vec<(u32, Vec<Event>)>>,
}

/// True if the file begins as a log in the compact format does.
///
/// # Errors
/// Says why the file cannot be read.
pub fn is_compact(file: &Path) -> Result<bool> {
    let from = File::open(file).map_err(|e| Error::new(file, e.to_string()))?;
    let mut from = BufReader::new(from);
    let start = from
        .fill_buf()
        .map_err(|e| Error::new(file, e.to_string()))?;
    Ok(start.starts_with(compact::MAGIC))
}

impl Log {
    /// Opens a file. A file that is not in the compact format is taken for records of the exercise.
    ///
    /// # Errors
    /// Says why the file cannot be read, or what is wrong with its header.
    pub fn open(file: &Path) -> Result<Self> {
        let compact = is_compact(file)?;
        let from = File::open(file).map_err(|e| Error::new(file, e.to_string()))?;
        let from = BufReader::with_capacity(1 << 16, from);
        let source = if compact {
            Source::Compact(compact::Reader::new(from, file)?)
        } else {
            Source::Exercise(exercise::Reader::new(from, file))
        };
        Ok(Self {
            file: file.to_path_buf(),
            source,
            unclosed: None,
        })
    }

    /// The file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Reads the next events of one thread; returns the thread's number in the log, from 0, or
    /// `None` at the end. Every procedure that was opened is closed by then.
    ///
    /// # Errors
    /// Says where the log is damaged.
    pub fn next_events(&mut self, events: &mut Vec<Event>) -> Result<Option<u32>> {
        match &mut self.source {
            Source::Exercise(reader) => Ok(reader.next_events(events)?.then_some(0)),
            Source::Compact(reader) => {
                if self.unclosed.is_none() {
                    if let Some(thread) = reader.next_events(events)? {
                        return Ok(Some(thread));
                    }
                    self.unclosed = Some(close(reader));
                }
                let next = self.unclosed.as_mut().and_then(Vec::pop);
                Ok(next.map(|(thread, closing)| {
                    *events = closing;
                    thread
                }))
            }
        }
    }

    /// The procedure with a number, if the log has named it so far.
    pub fn procedure(&self, number: u32) -> Option<&Procedure> {
        match &self.source {
            Source::Compact(reader) => reader.procedures().get(&number),
            Source::Exercise(_) => None,
        }
    }

    /// The procedures that the log has named so far, by number.
    pub fn procedures(&self) -> Vec<&Procedure> {
        let mut all: Vec<_> = match &self.source {
            Source::Compact(reader) => reader.procedures().values().collect(),
            Source::Exercise(_) => Vec::new(),
        };
        all.sort_by_key(|p| p.number);
        all
    }

    /// The facts at the log's beginning; `None` in the other format.
    pub fn header(&self) -> Option<&compact::Header> {
        match &self.source {
            Source::Compact(reader) => Some(reader.header()),
            Source::Exercise(_) => None,
        }
    }

    /// The facts at its end. Known when all events are read.
    pub fn tail(&self) -> Option<&compact::Tail> {
        match &self.source {
            Source::Compact(reader) => reader.tail(),
            Source::Exercise(_) => None,
        }
    }

    /// The clock.
    pub fn clock(&self) -> Clock {
        self.header().map_or(Clock::Unknown, |h| h.clock)
    }

    /// The number in the system of a thread of the log; 0 if it is not known.
    pub fn tid(&self, thread: u32) -> u32 {
        match &self.source {
            Source::Compact(reader) => reader.tid(thread),
            Source::Exercise(_) => 0,
        }
    }

    /// The clock's value at the start of the log; `None` if the log does not say.
    pub fn start(&self) -> Option<u64> {
        Some(self.header()?.start)
    }

    /// False if the process was killed before the log's end. Known when all events are read.
    pub fn is_ended(&self) -> bool {
        match &self.source {
            Source::Compact(reader) => reader.is_ended(),
            Source::Exercise(_) => true,
        }
    }

    /// Ticks of the clock per second. Known when all events are read.
    ///
    /// # Errors
    /// Says that the log does not tell.
    pub fn ticks_per_second(&self) -> Result<f64> {
        let Source::Compact(reader) = &self.source else {
            return Ok(exercise::TICKS as f64);
        };
        let tail = reader.tail().map(|t| t.ticks_per_second);
        [tail.unwrap_or(0.0), reader.header().ticks_per_second]
            .into_iter()
            .find(|f| *f > 0.0)
            .ok_or_else(|| {
                let error = Error::new(&self.file, "the log does not tell how fast its clock runs");
                error.advice("the program was killed early; log with --clock monotonic")
            })
    }
}

/// Events that close the procedures that a killed process has left open, by thread.
fn close(reader: &compact::Reader<BufReader<File>>) -> Vec<(u32, Vec<Event>)> {
    let open = reader.open().filter(|(_, _, open)| !open.is_empty());
    let threads = open.map(|(thread, clock, open)| {
        let kind = EventKind::Left;
        let events = open.iter().rev().map(|&proc| Event { proc, kind, clock });
        (thread, events.collect())
    });
    threads.collect()
}

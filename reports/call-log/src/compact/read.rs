//! Reading the compact format. A file may hold anything: the answer is a value
//! or an error, and memory is bounded by the file's own size.

use std::collections::HashMap;
use std::io::{BufRead, Read};
use std::path::{Path, PathBuf};

use super::{CHECKPOINT, END, EVENTS, HEADER, KINDS, MAGIC, PROCEDURES, VERSION};
use crate::bytes::Bytes;
use crate::clock::Clock;
use crate::{Error, Event, Location, Procedure, Result};

/// The facts at a log's beginning.
#[derive(Clone, PartialEq, Debug)]
pub struct Header {
    /// The clock.
    pub clock: Clock,
    /// Number of the process.
    pub process: u32,
    /// Number of the process in which the program started if this one was forked, else 0.
    pub parent: u32,
    /// The clock when the program, or the forked child, started.
    pub start: u64,
    /// Ticks per second; 0 if that is not known at the start.
    pub ticks_per_second: f64,
    /// Time of the start in nanoseconds since 1970.
    pub unix_nanos: u64,
    /// Name of the program.
    pub program: String,
}

/// The facts at a log's end.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Tail {
    /// The clock at the end.
    pub end: u64,
    /// Ticks per second.
    pub ticks_per_second: f64,
    /// Number of events in the log.
    pub events: u64,
    /// Number of exits of procedures that were not open.
    pub unmatched: u64,
    /// Number of procedures that were left without passing an exit.
    pub left: u64,
    /// Number of points that are missing in the log.
    pub lost: u64,
}

/// Largest size of a block in bytes; real ones are much smaller.
const LARGEST: u64 = 1 << 30;

/// What is known of a thread so far.
struct Thread {
    /// Its number in the system.
    tid: u32,
    /// Open procedures, innermost last.
    open: Vec<u32>,
    /// Clock of its last event.
    last: u64,
}

/// Reads a file in the compact format.
pub struct Reader<R> {
    from: R,
    file: PathBuf,
    /// Number of bytes read.
    at: u64,
    header: Header,
    procs: HashMap<u32, Procedure>,
    threads: Vec<Thread>,
    tail: Option<Tail>,
    is_ended: bool,
    /// True if the file ends within a block.
    is_cut: bool,
    /// Contents of the last block.
    bytes: Vec<u8>,
}

impl<R: BufRead> Reader<R> {
    /// Reads the header; `file` is the name in errors.
    ///
    /// # Errors
    /// Says that this is no log of this version, or that reading failed.
    pub fn new(from: R, file: &Path) -> Result<Self> {
        let mut reader = Self {
            from,
            file: file.to_path_buf(),
            at: 0,
            header: Header {
                clock: Clock::Unknown,
                process: 0,
                parent: 0,
                start: 0,
                ticks_per_second: 0.0,
                unix_nanos: 0,
                program: String::new(),
            },
            procs: HashMap::new(),
            threads: Vec::new(),
            tail: None,
            is_ended: false,
            is_cut: false,
            bytes: Vec::new(),
        };
        let mut magic = [0; MAGIC.len()];
        if reader.fill(&mut magic)? != magic.len() || magic != *MAGIC {
            return Err(reader.error("this is not a call log"));
        }
        match reader.next_letter()? {
            Some(HEADER) => {}
            _ => return Err(reader.error("the header is missing")),
        }
        let bytes = std::mem::take(&mut reader.bytes);
        reader.header = parse_header(&bytes).map_err(|e| reader.error(e))?;
        Ok(reader)
    }

    /// The facts at the beginning.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The facts at the end, or of the last checkpoint so far.
    pub fn tail(&self) -> Option<&Tail> {
        self.tail.as_ref()
    }

    /// True if the process ended the log itself. Known when all events are read.
    pub fn is_ended(&self) -> bool {
        self.is_ended && !self.is_cut
    }

    /// For each thread: its number in the log, the clock of its last event, its open procedures, innermost last.
    pub fn open(&self) -> impl Iterator<Item = (u32, u64, &[u32])> {
        (0..)
            .zip(&self.threads)
            .map(|(n, t)| (n, t.last, t.open.as_slice()))
    }

    /// The procedures that were named so far.
    pub fn procedures(&self) -> &HashMap<u32, Procedure> {
        &self.procs
    }

    /// The number in the system of a thread of the log; 0 if it is not known.
    pub fn tid(&self, thread: u32) -> u32 {
        self.threads.get(thread as usize).map_or(0, |t| t.tid)
    }

    /// Reads the next events of one thread; returns the thread's number in the log, or `None` at the end.
    ///
    /// # Errors
    /// Names the byte where the log is damaged.
    pub fn next_events(&mut self, events: &mut Vec<Event>) -> Result<Option<u32>> {
        events.clear();
        loop {
            let start = self.at;
            let Some(letter) = self.next_letter()? else {
                return Ok(None);
            };
            let bytes = std::mem::take(&mut self.bytes);
            let result = match letter {
                EVENTS => self.events(&bytes, events).map(Some),
                PROCEDURES => self.name(&bytes).map(|()| None),
                CHECKPOINT | END => parse_tail(&bytes).map(|tail| {
                    self.tail = Some(tail);
                    self.is_ended = letter == END;
                    None
                }),
                HEADER => Err("a second header".into()),
                _ => Ok(None),
            };
            self.bytes = bytes;
            match result {
                Ok(Some(thread)) => return Ok(Some(thread)),
                Ok(None) => {}
                Err(reason) => return Err(self.error(reason).at(Location::Offset(start))),
            }
        }
    }

    /// An error at the current position.
    fn error(&self, reason: impl Into<String>) -> Error {
        Error::new(&self.file, reason).at(Location::Offset(self.at))
    }

    /// Reads bytes until `to` is full or the file ends; returns their number.
    fn fill(&mut self, to: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while done < to.len() {
            match self.from.read(&mut to[done..]) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.error(e.to_string())),
            }
        }
        self.at += done as u64;
        Ok(done)
    }

    /// Reads the next block, its contents to `self.bytes`; returns its letter, or `None` at the end.
    fn next_letter(&mut self) -> Result<Option<u8>> {
        let mut byte = [0];
        if self.fill(&mut byte)? == 0 {
            return Ok(None);
        }
        let letter = byte[0];
        let mut failure = None;
        let length = leb128::read(|| match self.fill(&mut byte) {
            Ok(0) => None,
            Ok(_) => Some(byte[0]),
            Err(error) => {
                failure = Some(error);
                None
            }
        });
        if let Some(error) = failure {
            return Err(error);
        }
        if length == Err(leb128::Error::Truncated) {
            self.is_cut = true;
            return Ok(None);
        }
        let length = length.ok().filter(|n| *n <= LARGEST);
        let length = length.ok_or_else(|| self.error("a block has no sensible length"))?;
        self.bytes.clear();
        // The memory grows with the bytes that are really there.
        let mut limited = (&mut self.from).take(length);
        let read = limited.read_to_end(&mut self.bytes);
        read.map_err(|e| self.error(e.to_string()))?;
        self.at += self.bytes.len() as u64;
        if (self.bytes.len() as u64) < length {
            self.is_cut = true;
            return Ok(None);
        }
        Ok(Some(letter))
    }

    /// Takes the names of a block of procedures.
    fn name(&mut self, bytes: &[u8]) -> Result<(), String> {
        let mut from = Bytes::new(bytes);
        while !from.is_empty() {
            let mut next = || {
                Some(Procedure {
                    number: from.small()?,
                    pc: from.number()?,
                    name: from.text()?,
                    file: from.text()?,
                    line: from.small()?,
                })
            };
            let proc = next().ok_or("the list of procedures is damaged")?;
            self.procs.insert(proc.number, proc);
        }
        Ok(())
    }

    /// Reads a block of events; returns the thread's number in the log.
    fn events(&mut self, bytes: &[u8], events: &mut Vec<Event>) -> Result<u32, String> {
        let damaged = || "a block of events is damaged".to_owned();
        let mut from = Bytes::new(bytes);
        let thread = from.small().ok_or_else(damaged)?;
        let tid = from.small().ok_or_else(damaged)?;
        let count = from.number().ok_or_else(damaged)?;
        let mut clock = from.number().ok_or_else(damaged)?;
        // Threads are numbered in the order of their first blocks.
        if thread as usize == self.threads.len() {
            self.threads.push(Thread {
                tid,
                open: Vec::new(),
                last: clock,
            });
        }
        let state = self.threads.get_mut(thread as usize).ok_or_else(damaged)?;
        if clock < state.last {
            return Err(format!("the clock of thread {thread} goes backwards"));
        }
        for _ in 0..count {
            let word = from.number().ok_or_else(damaged)?;
            clock = clock.checked_add(word >> 2).ok_or_else(damaged)?;
            let kind = KINDS[(word & 3) as usize];
            let proc = if kind.opens() {
                let proc = from.small().ok_or_else(damaged)?;
                if !self.procs.contains_key(&proc) {
                    return Err(format!("procedure {proc} has no name"));
                }
                state.open.push(proc);
                proc
            } else {
                let open = state.open.pop();
                open.ok_or_else(|| {
                    format!("thread {thread} leaves more procedures than it enters")
                })?
            };
            events.push(Event { proc, kind, clock });
        }
        if !from.is_empty() {
            return Err(damaged());
        }
        state.last = clock;
        Ok(thread)
    }
}

fn parse_header(bytes: &[u8]) -> Result<Header, String> {
    let mut from = Bytes::new(bytes);
    if from.number() != Some(VERSION) {
        return Err("this is a call log of another version".into());
    }
    let mut next = || {
        Some(Header {
            clock: Clock::from_number(from.byte()?)?,
            process: from.small()?,
            parent: from.small()?,
            start: from.number()?,
            ticks_per_second: from.float().filter(|f| f.is_finite() && *f >= 0.0)?,
            unix_nanos: from.number()?,
            program: from.text()?,
        })
    };
    next().ok_or_else(|| "the header is damaged".into())
}

fn parse_tail(bytes: &[u8]) -> Result<Tail, String> {
    let mut from = Bytes::new(bytes);
    let mut next = || {
        Some(Tail {
            end: from.number()?,
            ticks_per_second: from.float().filter(|f| f.is_finite() && *f >= 0.0)?,
            events: from.number()?,
            unmatched: from.number()?,
            left: from.number()?,
            lost: from.number()?,
        })
    };
    next().ok_or_else(|| "the end is damaged".into())
}

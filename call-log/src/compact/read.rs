//! Reading it. Files come from anywhere: whatever they hold, the answer is a value
//! or an error, and memory is bounded by the file's own size.

use std::collections::HashMap;
use std::io::{BufRead, Read};
use std::path::{Path, PathBuf};

use super::{CHECKPOINT, END, EVENTS, HEADER, KINDS, MAGIC, PROCEDURES, VERSION};
use crate::bytes::Bytes;
use crate::clock::Clock;
use crate::{Error, Event, Location, Procedure, Result};

/// What stands at the beginning.
#[derive(Clone, PartialEq, Debug)]
pub struct Header {
    /// The clock.
    pub clock: Clock,
    /// The process.
    pub process: u32,
    /// The process in which the program started, if this one was forked.
    pub parent: u32,
    /// The clock when the program, or the forked child, started.
    pub start: u64,
    /// Ticks in a second; 0 if that is not known at the start.
    pub ticks_per_second: f64,
    /// When that was: nanoseconds since 1970.
    pub unix_nanos: u64,
    /// The program.
    pub program: String,
}

/// What stands at the end.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Tail {
    /// The clock at the end.
    pub end: u64,
    /// Ticks in a second.
    pub ticks_per_second: f64,
    /// Events in the log.
    pub events: u64,
    /// Exits of procedures that were not open.
    pub unmatched: u64,
    /// Procedures that were left without passing an exit.
    pub left: u64,
    /// Points of which the log does not tell.
    pub lost: u64,
}

/// The largest block that is believed; a writer's are much smaller.
const LARGEST: u64 = 1 << 30;

struct Thread {
    tid: u32,
    open: Vec<u32>,
    last: u64,
}

/// Reads a file in the compact format.
pub struct Reader<R> {
    from: R,
    file: PathBuf,
    at: u64,
    header: Header,
    procs: HashMap<u32, Procedure>,
    threads: Vec<Thread>,
    tail: Option<Tail>,
    is_ended: bool,
    is_cut: bool,
    bytes: Vec<u8>,
}

impl<R: BufRead> Reader<R> {
    /// Reads the header. `file` is what errors name.
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

    /// What stands at the beginning.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// What stands at the end, or last told how far the log had come.
    pub fn tail(&self) -> Option<&Tail> {
        self.tail.as_ref()
    }

    /// True if the process came to its end in order. Known when all events are read.
    pub fn is_ended(&self) -> bool {
        self.is_ended && !self.is_cut
    }

    /// Procedures of a thread that are still open, innermost last.
    pub fn open(&self) -> impl Iterator<Item = (u32, u64, &[u32])> {
        (0..)
            .zip(&self.threads)
            .map(|(n, t)| (n, t.last, t.open.as_slice()))
    }

    /// The procedures that were named so far.
    pub fn procedures(&self) -> &HashMap<u32, Procedure> {
        &self.procs
    }

    /// The system's number of a thread of the log.
    pub fn tid(&self, thread: u32) -> u32 {
        self.threads.get(thread as usize).map_or(0, |t| t.tid)
    }

    /// Events of one thread that follow, and the thread's number; `None` at the end.
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

    fn error(&self, reason: impl Into<String>) -> Error {
        Error::new(&self.file, reason).at(Location::Offset(self.at))
    }

    /// Reads as much as there is; gives how much that was.
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

    /// The next block's letter, its contents in `bytes`; `None` at the end.
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
        // Grows with what is really there.
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

    fn events(&mut self, bytes: &[u8], events: &mut Vec<Event>) -> Result<u32, String> {
        let damaged = || "a block of events is damaged".to_owned();
        let mut from = Bytes::new(bytes);
        let thread = from.small().ok_or_else(damaged)?;
        let tid = from.small().ok_or_else(damaged)?;
        let count = from.number().ok_or_else(damaged)?;
        let mut clock = from.number().ok_or_else(damaged)?;
        // Threads are numbered as they come.
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

//! The log of a process: bytes in memory, which are written to files above some size.
//!
//! Each process has its own log, a [`PerProcess`] value, because a forked child must neither write bytes that its parent
//! has not written yet nor wait for a lock that another thread of the parent held.

use std::io::{self, Write};
use std::sync::MutexGuard;

use atom_tool::forks::PerProcess;
use atom_tool::{clocks, output};
use call_log::Procedure;
use call_log::compact::{self, Header, Tail};

use crate::events::Events;
use crate::settings::{self, Run};

/// The log of this process.
static SINK: PerProcess<Sink> = PerProcess::new();

/// Prepares the log at the program's start.
pub fn begin() {
    SINK.begin();
}

/// Locks this process's log. Signals must be blocked while it is locked.
pub fn lock() -> Option<MutexGuard<'static, Sink>> {
    let run = settings::run()?;
    SINK.lock(|| Sink::new(run))
}

/// The log of a process.
pub struct Sink {
    run: &'static Run,
    /// The file of the compact format, or a file of records for each thread.
    files: Vec<Stream>,
    /// Number of bytes in memory.
    size: u64,
    /// Number of threads with events.
    threads: u32,
    /// For each procedure, whether the log has its name.
    named: Vec<bool>,
    /// Number of events in the compact format.
    events: u64,
    is_complete: bool,
}

/// A file and the bytes that have not been written to it.
struct Stream {
    name: String,
    bytes: Vec<u8>,
    is_created: bool,
    failed: bool,
}

impl Stream {
    fn new(name: String) -> Self {
        Self {
            name,
            bytes: Vec::new(),
            is_created: false,
            failed: false,
        }
    }

    fn write(&mut self) {
        let result = self.try_write();
        self.bytes.clear();
        if let (Err(error), false) = (result, self.failed) {
            self.failed = true;
            output::cannot_write("calllog", format!("{error}; the log ends here"));
        }
    }

    fn try_write(&mut self) -> io::Result<()> {
        if self.failed {
            return Ok(());
        }
        output::extend(&self.name, &mut self.is_created, &self.bytes)
    }
}

impl Sink {
    fn new(run: &'static Run) -> Self {
        let mut first = Stream::new(run.settings.file.clone());
        let process = std::process::id();
        if !run.settings.is_exercise {
            let settings = &run.settings;
            let header = Header {
                clock: settings.clock,
                process,
                parent: if process == run.pid { 0 } else { run.pid },
                start: if process == run.pid {
                    run.start.0
                } else {
                    settings::now(settings.clock).0
                },
                ticks_per_second: settings.clock.ticks_per_second(),
                unix_nanos: clocks::since_1970(),
                program: settings.program.clone(),
            };
            compact::header_block(&mut first.bytes, &header);
        }
        Self {
            run,
            files: vec![first],
            size: 0,
            threads: 0,
            named: vec![false; run.procs.len()],
            events: 0,
            is_complete: false,
        }
    }

    /// Adds a thread's events.
    pub fn take(&mut self, events: &mut Events, tid: u32) {
        self.name(std::mem::take(&mut events.new_procs));
        if events.encoder.count() == 0 && events.records.is_empty() {
            return;
        }
        let number = *events.number.get_or_insert_with(|| {
            self.threads += 1;
            self.threads - 1
        });
        let mut file = 0;
        if self.run.settings.is_exercise {
            // Records do not contain their thread, so each thread has its own file.
            file = number as usize;
            while self.files.len() <= file {
                let name = format!("{}.thread{}", self.run.settings.file, self.files.len() + 1);
                self.files.push(Stream::new(name));
            }
        }
        let bytes = &mut self.files[file].bytes;
        let before = bytes.len();
        self.events += events.encoder.count();
        bytes.append(&mut events.records);
        events.encoder.take_block(number, tid, bytes);
        self.size += (bytes.len() - before) as u64;
        if self.size > self.run.settings.memory {
            self.write(false, Tail::default());
        }
    }

    /// Adds the names of procedures that the log does not have yet.
    fn name(&mut self, numbers: Vec<u32>) {
        let known = self.run.procs.len();
        if self.named.len() < known {
            self.named.resize(known, false);
        }
        let is_new = |number: &u32| {
            let named = self.named.get_mut(*number as usize);
            named.is_some_and(|named| !std::mem::replace(named, true))
        };
        let numbers: Vec<u32> = numbers.into_iter().filter(is_new).collect();
        if numbers.is_empty() || self.run.settings.is_exercise {
            return;
        }
        let procs = numbers.into_iter().filter_map(|number| {
            let site = self.run.procs.get(number as usize)?;
            Some(Procedure {
                number,
                pc: site.pc,
                name: site.proc_of_process().into_owned(),
                file: site.file.to_owned(),
                line: site.line,
            })
        });
        let procs: Vec<_> = procs.collect();
        compact::procedures_block(&mut self.files[0].bytes, &procs);
    }

    /// Writes the end of the log at the end of the process.
    pub fn finish(&mut self, tail: Tail) {
        self.write(true, tail);
        let is_first = !std::mem::replace(&mut self.is_complete, true);
        if is_first && !self.run.settings.indat.is_empty() {
            self.describe()
                .unwrap_or_else(|error| output::cannot_write("calllog", error));
        }
    }

    fn write(&mut self, is_end: bool, tail: Tail) {
        if !self.run.settings.is_exercise {
            let tail = Tail {
                end: if is_end {
                    tail.end
                } else {
                    settings::now(self.run.settings.clock).0
                },
                ticks_per_second: self.run.ticks_per_second(),
                events: self.events,
                ..tail
            };
            compact::end_block(&mut self.files[0].bytes, &tail, is_end);
        }
        self.files.iter_mut().for_each(Stream::write);
        self.size = 0;
    }

    /// Writes the description for `atom analyze`: one report for each file.
    fn describe(&self) -> io::Result<()> {
        let mut to = output::create(&self.run.settings.indat)?;
        for (i, file) in self.files.iter().enumerate() {
            let blank = if i == 0 { "" } else { "\n" };
            let data = output::path(&file.name);
            writeln!(to, "{blank}{}", data.display())?;
            writeln!(to, "Procedures of {}", self.run.settings.program)?;
            for (number, site) in self.run.procs.iter().enumerate() {
                if self.named.get(number) == Some(&true) {
                    writeln!(to, "{number} {} 1", site.proc_of_process())?;
                }
            }
        }
        to.flush()
    }
}

//! The vectors of a process, on their way to files.
//!
//! A vector is a line of text in the format of SimPoint: `T`, then for each executed block `:id:count` and a
//! blank, where the count is the number of executions times the number of the block's instructions. Each thread
//! has a file. A forked child has its own files, and so its own [`Sink`].

use std::fmt::Write as _;
use std::io;
use std::sync::MutexGuard;

use atom_tool::forks::{self, PerProcess};
use atom_tool::report::{By, Column, Sum};
use atom_tool::{Cell, Files, Report, output};

use crate::blocks;
use crate::settings::Run;

/// Number of bytes of vectors that a thread keeps in memory before it writes them.
const MEMORY: usize = 1 << 20;

static SINK: PerProcess<Sink> = PerProcess::new();

/// Prepares for vectors at the program's start.
pub fn begin() {
    SINK.begin();
}

/// Locks the vectors of this process. Signals must be blocked while they are locked.
pub fn lock() -> Option<MutexGuard<'static, Sink>> {
    if forks::is_snapshot() {
        return SINK.copy();
    }
    SINK.lock(|| Sink {
        streams: Vec::new(),
        is_executed: Vec::new(),
        intervals: Vec::new(),
    })
}

/// The vectors of a process.
pub struct Sink {
    /// The file of each thread.
    streams: Vec<Stream>,
    /// For each block, whether a vector has it.
    is_executed: Vec<bool>,
    intervals: Vec<Interval>,
}

/// A file, and text that has not been written to it.
#[derive(Default)]
struct Stream {
    text: String,
    is_created: bool,
    has_failed: bool,
    /// Number of intervals.
    intervals: u64,
}

/// Facts about an interval, for the report.
struct Interval {
    thread: u64,
    /// Number of the interval in its thread, from 1 on.
    number: u64,
    insts: u64,
    /// Number of blocks that were executed, each counted once.
    blocks: u64,
    /// Position of the block with the most executed instructions, and these.
    hottest: (usize, u64),
}

impl Sink {
    /// The number of a new thread.
    pub fn begin_thread(&mut self) -> u64 {
        self.streams.push(Stream::default());
        self.streams.len() as u64
    }

    /// Ends a thread's interval: the executions of blocks become a vector.
    pub fn end_interval(&mut self, run: &Run, thread: u64, executions: &[(u32, u64)]) {
        // A child of a fork that was not seen has a thread with a number, and no file.
        while self.streams.len() < thread as usize {
            self.begin_thread();
        }
        let stream = &mut self.streams[thread as usize - 1];
        let mut interval = Interval {
            thread,
            number: stream.intervals + 1,
            insts: 0,
            blocks: 0,
            hottest: (0, 0),
        };
        for (block, count) in executions {
            let block = *block as usize;
            if self.is_executed.len() <= block {
                self.is_executed.resize(block + 1, false);
            }
            self.is_executed[block] = true;
            let insts = count * u64::from(run.blocks.blocks[block].insts);
            interval.insts += insts;
            interval.blocks += 1;
            if insts > interval.hottest.1 {
                interval.hottest = (block, insts);
            }
            let start = if interval.blocks == 1 { "T" } else { "" };
            // Writing to a string cannot fail.
            let _ = write!(stream.text, "{start}:{}:{insts} ", blocks::id(block));
        }
        if interval.blocks == 0 {
            return;
        }
        stream.text.push('\n');
        stream.intervals += 1;
        self.intervals.push(interval);
        if stream.text.len() > MEMORY {
            stream.write(run, thread);
        }
    }

    /// Writes what is left, the file of blocks and the report. A report on the way has no vectors: the process
    /// continues to write them.
    pub fn finish(&mut self, run: &Run, files: Files) {
        if forks::is_snapshot() {
            return self.report(run, files);
        }
        for (stream, thread) in self.streams.iter_mut().zip(1..) {
            stream.write(run, thread);
        }
        self.write_blocks(run);
        self.report(run, files);
    }

    /// Writes what the numbers of the blocks in the vectors mean.
    fn write_blocks(&self, run: &Run) {
        let mut text = String::from("id\tobject\taddress\tbytes\tinstructions\tprocedure\n");
        for (block, _) in self.is_executed.iter().enumerate().filter(|(_, is)| **is) {
            if let Some(line) = run.blocks.line(block, run.program) {
                text.push_str(&line);
                text.push('\n');
            }
        }
        output::write_file("bbv", run.blocks_file, |to| to.write_all(text.as_bytes()));
    }

    fn report(&self, run: &Run, files: Files) {
        let insts: u64 = self.intervals.iter().map(|i| i.insts).sum();
        let blocks = self.is_executed.iter().filter(|is| **is).count();
        let mut report = Report::new("bbv", run.program);
        report
            .typed_fact(Column::count("instructions", "instructions"), insts)
            .typed_fact(
                Column::count("intervals", "intervals"),
                self.intervals.len() as u64,
            )
            .typed_fact(
                Column::count("threads", "threads"),
                self.streams.len() as u64,
            )
            .typed_fact(
                Column::count("interval", "instructions").sum(Sum::Max),
                run.interval,
            )
            .typed_fact(
                Column::count("blocks", "blocks").sum(Sum::Max),
                blocks as u64,
            )
            .fact("vectors", run.vectors)
            .fact("block numbers", run.blocks_file);
        let columns = [
            Column::count("thread", "").key(),
            Column::count("interval", "").key(),
            Column::count("instructions", "instructions"),
            Column::count("blocks", "blocks"),
            Column::count("hottest", "instructions"),
            Column::percent_of("%", "hottest", "instructions"),
            Column::address("hottest block").label(),
            Column::text("procedure"),
        ];
        let table = report.typed_table(By::Other, "intervals", columns);
        for interval in &self.intervals {
            let (block, most) = interval.hottest;
            let proc = run.blocks.proc(block).map_or("", |site| site.proc);
            table.row([
                interval.thread.into(),
                interval.number.into(),
                interval.insts.into(),
                interval.blocks.into(),
                most.into(),
                Cell::percent(most, interval.insts),
                Cell::Address(run.blocks.blocks[block].pc),
                proc.into(),
            ]);
        }
        report.write(files);
    }
}

impl Stream {
    fn write(&mut self, run: &Run, thread: u64) {
        let written = self.try_write(run, thread);
        self.text.clear();
        if let (Err(error), false) = (written, self.has_failed) {
            self.has_failed = true;
            output::cannot_write("bbv", format!("{error}; the vectors end here"));
        }
    }

    fn try_write(&mut self, run: &Run, thread: u64) -> io::Result<()> {
        if self.has_failed || self.text.is_empty() {
            return Ok(());
        }
        let name = match thread {
            1 => run.vectors.to_owned(),
            _ => format!("{}.thread{thread}", run.vectors),
        };
        output::extend(&name, &mut self.is_created, self.text.as_bytes())
    }
}

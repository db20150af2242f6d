//! `atom trace`: traces of the tool memtrace as text, or in the formats of simulators.
//!
//! The text has all threads. The formats of simulators have one thread in a file and need executed instructions, whose
//! properties come from the objects' files (`code`); `stream` puts instructions and their references together.

mod champsim;
mod code;
mod drmemtrace;
mod stream;

use std::fs::File;
use std::io::{BufReader, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use atom_core::{Error, Result};
use clap::{Args, ValueEnum};
use mem_trace::{EXECUTED, READ, Reader, WRITE};

/// Arguments of `atom trace`.
#[derive(Args)]
pub struct Trace {
    /// A trace that the tool memtrace has written
    pub file: PathBuf,
    /// What to make of it
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
    /// The thread, for the formats of simulators; threads are numbered from 1
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub thread: u64,
    /// Where it is written, instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Formats of traces.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A line for each reference: thread, instruction, access, address, size
    Text,
    /// Records of 64 bytes for ChampSim
    Champsim,
    /// Entries of DynamoRIO's drmemtrace
    Drmemtrace,
}

/// A trace that is being read.
type Input = Reader<BufReader<File>>;

/// Runs the command.
pub fn run(args: &Trace) -> Result<()> {
    let failed = |file: &Path, error: &dyn std::fmt::Display| {
        Error::new("converting a trace", format!("{}: {error}", file.display()))
    };
    let unread = |error: mem_trace::Error| failed(&args.file, &error);
    let file = File::open(&args.file).map_err(|error| failed(&args.file, &error))?;
    let mut reader = Reader::new(BufReader::new(file)).map_err(unread)?;
    if let Some(output) = &args.output {
        output::file::check_target(output, &[(&args.file, "the trace")])?;
    }
    let target = args.output.clone().unwrap_or_else(|| "-".into());
    let mut to: Box<dyn Write> = match &args.output {
        Some(output) => Box::new(File::create(output).map_err(|error| failed(output, &error))?),
        None => Box::new(std::io::stdout().lock()),
    };
    let mut to = BufWriter::with_capacity(1 << 16, &mut to);
    let done = match args.format {
        Format::Text => text(&mut reader, &mut to),
        Format::Champsim => champsim::write(&mut reader, args.thread, &mut to),
        Format::Drmemtrace => drmemtrace::write(&mut reader, args.thread, &mut to),
    };
    match done.and_then(|()| Ok(to.flush()?)) {
        // A reader such as `head` need not read all.
        Err(Failure::Write(error)) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        Err(Failure::Write(error)) => Err(failed(&target, &error)),
        Err(Failure::Read(error)) => Err(unread(error)),
        Err(Failure::Other(error)) => Err(error),
        Ok(()) => Ok(()),
    }
}

/// Why a trace was not converted.
enum Failure {
    Read(mem_trace::Error),
    Write(std::io::Error),
    Other(Error),
}

impl From<mem_trace::Error> for Failure {
    fn from(error: mem_trace::Error) -> Self {
        Self::Read(error)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::Write(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

/// A line for each reference.
fn text(reader: &mut Input, to: &mut impl Write) -> Result<(), Failure> {
    while let Some(references) = reader.next_chunk()? {
        for r in references {
            let access = match r.access {
                READ => "R",
                WRITE => "W",
                EXECUTED => "X",
                _ => "RW",
            };
            let place = reader.place(r.pc);
            writeln!(
                to,
                "{} {place} {access} {:#x} {}",
                r.thread, r.address, r.size
            )?;
        }
    }
    Ok(())
}

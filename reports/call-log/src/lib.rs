//! Logs of procedure entries and exits: writing and reading them, and the reports that are
//! computed from them.
//!
//! Three parties must agree about a log: the tool that writes it inside an
//! instrumented program, programs that write it by themselves (`profile.h`), and
//! the command that makes reports of it. So the formats are described and implemented here only.
//!
//! - [`exercise`]: records of fixed size without names, at most 256 procedures;
//! - [`compact`]: a few bytes for each event, with names, threads and clock;
//! - [`balance`]: pairs entries and exits of the points that a running program passes;
//! - [`reader`]: either format, block by block;
//! - [`account`]: gives each instant of a thread to one procedure.
#![deny(missing_docs)]

pub mod account;
pub mod balance;
mod bytes;
pub mod chrome;
pub mod clock;
pub mod compact;
mod error;
pub mod exercise;
pub mod gmon;
pub mod gprof;
pub mod indat;
pub mod reader;
pub mod speedscope;
pub mod table;
pub mod tally;
pub mod timeline;

pub use error::{Error, Location, Result};

/// Kind of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum EventKind {
    /// A procedure is called.
    Entry,
    /// A procedure returns, or continues in another one that it jumps to.
    Exit,
    /// A procedure is left by other means: `longjmp`, an exception, the end of its
    /// thread or process, a change to another stack.
    Left,
    /// A procedure that has been called before continues: no call.
    Resumed,
}

impl EventKind {
    /// True if the procedure runs from here on, false if it ends.
    pub fn opens(self) -> bool {
        matches!(self, Self::Entry | Self::Resumed)
    }
}

/// An event in the life of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// The procedure's number in the log.
    pub proc: u32,
    /// What happened.
    pub kind: EventKind,
    /// The clock's value.
    pub clock: u64,
}

/// A procedure that is named in a log.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Procedure {
    /// Its number in the log.
    pub number: u32,
    /// Its address in the original program; 0 if it is not known.
    pub pc: u64,
    /// Its name.
    pub name: String,
    /// Its source file; empty if it is not known.
    pub file: String,
    /// Its source line; 0 if it is not known.
    pub line: u32,
}

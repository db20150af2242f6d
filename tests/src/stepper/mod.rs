//! Ground truth: how often each instruction of a program really ran.
//!
//! A tool that counts is judged by comparing its figures with the processor's own. This module runs a program under ptrace, one instruction at a time
//! and without address randomisation, and counts every instruction that is in
//! the program's own executable segments. It shares no code with the rewriter.
//!
//! What counts as one execution:
//! - an instruction that completed, or that began and faulted;
//! - a `rep` string instruction once, although the processor reports each of
//!   its iterations, and also when a signal handler ran in its middle;
//! - an instruction at which a signal was delivered only when it really ran;
//! - code of other files (dynamic loader, libraries, vDSO) never.
//!
//! Counts belong to an address space, as a counter in memory would: threads and
//! a `vfork` child count together, a `fork` child starts with a copy.

mod gate;
pub(crate) mod ptrace;
mod refs;
mod text;
mod trace;
pub mod values;

pub use refs::{Reference, Step};
pub use text::{Branch, Text};
pub use trace::{Options, run, watch};
pub(crate) use trace::{begin_traced, entry_point};

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use crate::error::{Error, Result};
use crate::source::End;

/// How often a conditional branch was executed with each outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BranchCount {
    /// The branch went to its target.
    pub taken: u64,
    /// Control continued with the next instruction.
    pub not_taken: u64,
}

/// The counts of one address space.
#[derive(Clone, Debug, Default)]
pub struct Process {
    /// Process id of the process that began this address space.
    pub pid: i32,
    /// Process id of the process that forked it; none for the program itself.
    pub parent: Option<i32>,
    /// Executions by address in the file; addresses that never ran are absent.
    pub counts: BTreeMap<u64, u64>,
    /// Outcomes of conditional branches by address in the file.
    pub branches: BTreeMap<u64, BranchCount>,
}

/// Result of a run.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// The program itself first, then forked children in the order in which they began.
    pub processes: Vec<Process>,
    /// Status of the program itself as `waitpid` reports it.
    pub wait_status: i32,
    /// Steps taken, libraries included.
    pub steps: u64,
    /// Standard output, where [`Options::capture`] asked for it.
    pub stdout: Vec<u8>,
}

impl Profile {
    /// The program itself.
    pub fn main(&self) -> &Process {
        &self.processes[0]
    }

    /// Fails unless the program ended as expected: counts of a program that died are no truth.
    pub fn ended_as(&self, end: End) -> Result<()> {
        let got = End::from(ExitStatus::from_raw(self.wait_status));
        if got == end {
            return Ok(());
        }
        let reason = format!("it ended with {got:?} instead of {end:?}");
        Err(Error::new("stepping the program", reason))
    }
}

impl Process {
    /// The counts as lines: `address count`, and `address taken not-taken` for branches.
    pub fn to_text(&self) -> String {
        use std::fmt::Write;
        let mut text = String::new();
        for (address, n) in &self.counts {
            let _ = writeln!(text, "{address} {n}");
        }
        for (address, n) in &self.branches {
            let _ = writeln!(text, "{address} {} {}", n.taken, n.not_taken);
        }
        text
    }

    /// Reads what [`Process::to_text`] wrote.
    pub fn from_text(text: &str) -> Option<Process> {
        let mut process = Process::default();
        for line in text.lines() {
            let numbers: Vec<u64> = line
                .split(' ')
                .map(str::parse)
                .collect::<Result<_, _>>()
                .ok()?;
            match numbers[..] {
                [address, n] => drop(process.counts.insert(address, n)),
                [address, taken, not_taken] => {
                    process
                        .branches
                        .insert(address, BranchCount { taken, not_taken });
                }
                _ => return None,
            }
        }
        Some(process)
    }
}

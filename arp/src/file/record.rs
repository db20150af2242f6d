//! Records of data files, whatever their format.

use crate::histogram::Histogram;
use crate::stats::Stats;
use crate::types::{Step, Tid};
use crate::value::Value;

/// A record, borrowed from its reader.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Record<'a> {
    /// The thread; `None` in an ASCII file, which has no threads.
    pub thread: Option<Tid>,
    /// The open sections from the outermost to the measured one. The counters are 0 in modes without single values.
    pub stack: &'a [Step],
    /// Measured values or sums.
    pub data: Data<'a>,
}

impl Record<'_> {
    /// Number of executions that it stands for.
    pub fn count(&self) -> u64 {
        match self.data {
            Data::Sample(_) => 1,
            Data::Stats(stats) => stats.first().map_or(0, Stats::count),
            Data::Histograms(all) => all.first().map_or(0, |h| h.stats.count()),
        }
    }
}

/// Measured values or sums: one entry for each set of callbacks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Data<'a> {
    /// Values of one execution.
    Sample(&'a [Value]),
    /// Sums over all executions of a call path.
    Stats(&'a [Stats]),
    /// Histograms over all executions of a call path.
    Histograms(&'a [Histogram]),
}

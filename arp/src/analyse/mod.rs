//! Sums of a data file by section and by context.
//!
//! Records are about single executions or call paths. [`Analysis`] reads a file once, record by record, and
//! keeps the tree of contexts with their sums, and a histogram of each section. Memory grows with the number
//! of contexts and not with the number of records.
//!
//! - [`Analysis::sections`]: figures by section;
//! - [`Analysis::contexts`]: the tree, folded or with the counters;
//! - [`Comparison`]: two recordings side by side;
//! - [`combine`]: several data files in one.
mod compare;
mod contexts;
mod merge;
mod number;
mod sections;

pub use compare::{Comparison, Difference, Side};
pub use contexts::{Context, Label};
pub use merge::{Combine, combine};
pub use number::Number;
pub use sections::{Figures, SectionRow};

use std::collections::BTreeMap;

use contexts::Builder;

use crate::error::{Error, Result};
use crate::file::reader::Reader;
use crate::histogram::Histogram;
use crate::stats::Stats;
use crate::types::{Format, Mode, Section, Sid, Tid, ValueSet};
use crate::unrecorded::{self, Unrecorded};

/// Options of an analysis.
#[derive(Clone, Debug)]
pub struct Options {
    /// Keep executions with different counters apart.
    pub counters: bool,
    /// Keep threads apart: each is the root of a tree of its own.
    pub by_thread: bool,
    /// Threads to read; all if the list is empty.
    pub threads: Vec<Tid>,
    /// Limit of contexts if `counters` is set. Executions beyond it share one context for each section
    /// and enclosing context.
    pub max_contexts: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            counters: false,
            by_thread: false,
            threads: Vec::new(),
            max_contexts: 1 << 20,
        }
    }
}

/// Sums of a data file.
#[derive(Debug)]
pub struct Analysis {
    mode: Mode,
    format: Format,
    gzip: bool,
    sets: Vec<ValueSet>,
    described: Vec<Section>,
    info: Vec<(String, String)>,
    records: u64,
    threads: BTreeMap<Option<Tid>, u64>,
    contexts: Vec<Context>,
    /// For each context and set: statistics of the values measured there.
    own: Vec<Stats>,
    /// For each context and set: the sum of its values, including executions inside it.
    totals: Vec<Number>,
    selves: Vec<Number>,
    /// The sections that occur; `histograms` has one entry for each section and set.
    sids: Vec<Sid>,
    histograms: Vec<Histogram>,
    shared: u64,
    damage: Option<Error>,
}

impl Analysis {
    /// Reads the remaining records of a file. If it is damaged, the analysis has the records before the damage.
    pub fn read(mut reader: Reader, options: &Options) -> Result<Self> {
        // The names of the sets may come later; their types do not change.
        let sets = reader.sets().to_vec();
        let mut builder = Builder::new(&sets, reader.mode(), options);
        let damage = loop {
            match reader.next_record() {
                Ok(Some(record)) => builder.add(&record)?,
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
        };
        let (totals, selves) = builder.sums();
        Ok(Self {
            mode: reader.mode(),
            format: reader.format(),
            gzip: reader.is_gzip(),
            described: reader.sections().to_vec(),
            info: reader.info().to_vec(),
            sets: reader.sets().to_vec(),
            records: builder.records,
            threads: builder.threads,
            contexts: builder.contexts,
            own: builder.own,
            totals,
            selves,
            sids: builder.sids,
            histograms: builder.histograms,
            shared: builder.shared,
            damage,
        })
    }

    /// The recording's mode.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The file's format, without regard to gzip.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Whether the file is compressed with gzip.
    pub fn is_gzip(&self) -> bool {
        self.gzip
    }

    /// The sets of values.
    pub fn sets(&self) -> &[ValueSet] {
        &self.sets
    }

    /// Notes about the recording.
    pub fn info(&self) -> &[(String, String)] {
        &self.info
    }

    /// Unrecorded executions, by section.
    pub fn unrecorded(&self) -> BTreeMap<Sid, Unrecorded> {
        let mut all = BTreeMap::new();
        unrecorded::take(&mut self.info.clone(), &mut all);
        all
    }

    /// Number of records of the chosen threads.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// The threads with their numbers of records. The thread is `None` in ASCII files.
    pub fn threads(&self) -> &BTreeMap<Option<Tid>, u64> {
        &self.threads
    }

    /// Number of executions that share a context because of the limit.
    pub fn shared(&self) -> u64 {
        self.shared
    }

    /// The error that ended reading, if the file was damaged.
    pub fn damage(&self) -> Option<&Error> {
        self.damage.as_ref()
    }

    /// Takes the error that ended reading.
    pub fn take_damage(&mut self) -> Option<Error> {
        self.damage.take()
    }

    /// Description of a section.
    pub fn section(&self, sid: Sid) -> Option<&Section> {
        let at = self.described.binary_search_by_key(&sid, |s| s.sid).ok()?;
        Some(&self.described[at])
    }

    /// The contexts; each comes after its enclosing context.
    pub fn contexts(&self) -> &[Context] {
        &self.contexts
    }

    /// The figures of a context.
    pub fn figures(&self, context: usize, set: usize) -> Figures {
        let at = context * self.sets.len() + set;
        Figures {
            own: self.own[at],
            total: self.totals[at],
            self_value: self.selves[at],
        }
    }

    /// Number of executions of a context, and whether it is exact. It is exact for measured contexts. For others it is
    /// the number of executions in which something was measured; `None` if single executions were not recorded.
    pub fn count(&self, context: usize) -> Option<(u64, bool)> {
        let own = self.own[context * self.sets.len()].count();
        let label = self.contexts[context].label;
        if own > 0 || matches!(label, Label::Thread(_)) {
            return (own > 0).then_some((own, true));
        }
        (self.mode == Mode::RecordAll).then_some((self.contexts[context].visits, false))
    }

    /// The sum of set `set` over the whole recording.
    pub fn total(&self, set: usize) -> Number {
        let roots = self.contexts.iter().enumerate();
        let roots = roots.filter(|(_, c)| c.parent.is_none());
        let mut total = Number::zero(self.sets[set].data_type);
        for (index, _) in roots {
            total += self.totals[index * self.sets.len() + set];
        }
        total
    }
}

//! What people want to know of a data file: sums by section and by context.
//!
//! Records tell of single executions and call paths. [`Analysis`] reads a file once, record by record, and
//! keeps the tree of contexts with sums in it, and a histogram of each section. Memory grows with the number
//! of contexts, not with that of records.
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

/// How records are put together.
#[derive(Clone, Debug)]
pub struct Options {
    /// Keep executions with different counters apart.
    pub counters: bool,
    /// Keep threads apart: each is the root of a tree of its own.
    pub by_thread: bool,
    /// Take only these threads; all if there are none.
    pub threads: Vec<Tid>,
    /// With counters: so many contexts at most. Executions beyond it share one context for each section
    /// and surrounding context.
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

/// What a data file says, added up.
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
    /// For each context and set.
    own: Vec<Stats>,
    /// For each context and set: the values of an execution, those of executions within it not taken off.
    totals: Vec<Number>,
    selves: Vec<Number>,
    /// The sections that occur, and for each section and set the values.
    sids: Vec<Sid>,
    histograms: Vec<Histogram>,
    shared: u64,
    damage: Option<Error>,
}

impl Analysis {
    /// Reads the rest of a file. If it is damaged, this gives what comes before the damage.
    pub fn read(mut reader: Reader, options: &Options) -> Result<Self> {
        // Their names may come later; the types do not change.
        let sets = reader.sets().to_vec();
        let mut builder = Builder::new(&sets, reader.mode(), options);
        let damage = loop {
            match reader.next() {
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

    /// What was entered and is not recorded, by section.
    pub fn unrecorded(&self) -> BTreeMap<Sid, Unrecorded> {
        let mut all = BTreeMap::new();
        unrecorded::take(&mut self.info.clone(), &mut all);
        all
    }

    /// How many records there are, of the threads that were asked for.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// The threads and how many records each has. The thread is `None` in ASCII files.
    pub fn threads(&self) -> &BTreeMap<Option<Tid>, u64> {
        &self.threads
    }

    /// Executions that share a context because there were too many.
    pub fn shared(&self) -> u64 {
        self.shared
    }

    /// What was wrong with the file, if anything was.
    pub fn damage(&self) -> Option<&Error> {
        self.damage.as_ref()
    }

    /// The same, to be passed on.
    pub fn take_damage(&mut self) -> Option<Error> {
        self.damage.take()
    }

    /// What the file says about a section.
    pub fn section(&self, sid: Sid) -> Option<&Section> {
        let at = self.described.binary_search_by_key(&sid, |s| s.sid).ok()?;
        Some(&self.described[at])
    }

    /// The contexts; each comes after the one around it.
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

    /// How often the context was entered, and whether that is exact. It is for what was measured. Else it is the number of
    /// executions in which something was measured, if single executions were recorded.
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

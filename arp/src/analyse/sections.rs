//! Figures by section, over all contexts.
use super::{Analysis, Number};
use crate::histogram::Histogram;
use crate::stats::Stats;
use crate::types::{Mode, Sid};

/// Figures of a section or of a context in one set of values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// Statistics of the values measured there; of no values if nothing was.
    pub own: Stats,
    /// Their sum; if nothing was measured there, the sum of the totals inside it.
    pub total: Number,
    /// The total without the measured sections inside it. At least 0 for values that add up,
    /// such as times.
    pub self_value: Number,
}

impl Figures {
    /// Mean of the values measured there.
    pub fn mean(&self) -> Option<f64> {
        (self.own.count() > 0).then(|| self.own.mean())
    }

    /// Minimum and maximum of the values measured there.
    pub fn range(&self) -> Option<(Number, Number)> {
        (self.own.count() > 0).then(|| Number::range_of(&self.own))
    }
}

/// Figures of one section.
#[derive(Clone, Debug)]
pub struct SectionRow<'a> {
    /// Its number.
    pub sid: Sid,
    /// Number of executions and whether it is exact; see [`Analysis::count`].
    pub count: Option<(u64, bool)>,
    /// Figures for each set of values. The total leaves out executions inside executions of the same section.
    pub figures: Vec<Figures>,
    /// Histogram for each set of values; empty if only averages are known.
    pub histograms: &'a [Histogram],
}

impl SectionRow<'_> {
    /// Whether values were measured for it.
    pub fn is_measured(&self) -> bool {
        self.figures.iter().any(|f| f.own.count() > 0)
    }

    /// The `q`-quantile of the values of a set: the fraction `q` of all values is at most this.
    pub fn quantile(&self, set: usize, q: f64) -> Option<f64> {
        let histogram = self.histograms.get(set)?;
        (histogram.stats.count() > 0).then(|| histogram.quantile(q))
    }
}

impl Analysis {
    /// The sections that occur in records, in the order of their first occurrence.
    pub fn sections(&self) -> Vec<SectionRow<'_>> {
        let sets = self.sets.len();
        let mut rows: Vec<SectionRow<'_>> = Vec::with_capacity(self.sids.len());
        for (at, sid) in self.sids.iter().enumerate() {
            let values = &self.histograms[at * sets..][..sets];
            let figures = values.iter().zip(&self.sets).map(|(values, set)| Figures {
                own: values.stats,
                total: Number::zero(set.data_type),
                self_value: Number::zero(set.data_type),
            });
            rows.push(SectionRow {
                sid: *sid,
                count: None,
                figures: figures.collect(),
                histograms: match self.mode {
                    Mode::RecordAverage => &[],
                    _ => values,
                },
            });
        }
        let mut visits = vec![0u64; rows.len()];
        let repeats = self.repeats();
        for (index, context) in self.contexts.iter().enumerate() {
            let Some(section) = context.section else {
                continue;
            };
            visits[section as usize] += context.visits;
            let figures = &mut rows[section as usize].figures;
            for (set, figures) in figures.iter_mut().enumerate() {
                figures.self_value += self.selves[index * sets + set];
                if !repeats[index] {
                    figures.total += self.totals[index * sets + set];
                }
            }
        }
        for (row, visits) in rows.iter_mut().zip(visits) {
            let own = row.figures.first().map_or(0, |f| f.own.count());
            row.count = match own {
                0 => (self.mode == Mode::RecordAll).then_some((visits, false)),
                n => Some((n, true)),
            };
        }
        rows
    }

    /// For each context whether it is inside a context of the same section.
    fn repeats(&self) -> Vec<bool> {
        // A depth-first walk through the tree, with the sections open on the path.
        let count = self.contexts.len();
        let (mut first, mut next) = (vec![u32::MAX; count + 1], vec![u32::MAX; count]);
        for (index, context) in self.contexts.iter().enumerate().rev() {
            let parent = context.parent.map_or(count, |p| p as usize);
            next[index] = first[parent];
            first[parent] = index as u32;
        }
        let mut repeats = vec![false; count];
        let mut open = vec![0u32; self.sids.len()];
        let mut path: Vec<u32> = Vec::new();
        let mut at = first[count];
        while at != u32::MAX || !path.is_empty() {
            if at == u32::MAX {
                let done = path.pop().expect("not empty") as usize;
                if let Some(section) = self.contexts[done].section {
                    open[section as usize] -= 1;
                }
                at = next[done];
                continue;
            }
            if let Some(section) = self.contexts[at as usize].section {
                repeats[at as usize] = open[section as usize] > 0;
                open[section as usize] += 1;
            }
            path.push(at);
            at = first[at as usize];
        }
        repeats
    }
}

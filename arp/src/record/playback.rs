//! Index of a recording for playback: from counter tuples to values.
//!
//! Executions form a tree, as sections do; an *instance* is one execution, and a
//! step leads from an instance to one within it. Executions that follow
//! each other in the file usually have neighbouring counters and numbers, so
//! the steps of a section within an instance are kept as runs.
use std::collections::HashMap;
use std::path::Path;

use crate::error::Result;
use crate::file::reader::Reader;
use crate::file::record::Data;
use crate::tree::{NONE, ROOT};
use crate::types::{Mode, Sid, Step, ValueSet};
use crate::value::{Area, Value};

/// Counters `first..first + len` are instances `instance..instance + len`.
#[derive(Clone, Copy, Debug)]
struct Run {
    first: i64,
    len: u32,
    instance: u32,
}

/// Tree of instances with their values; see the head of the module.
#[derive(Debug, Default)]
pub(crate) struct Index {
    pub sets: Vec<ValueSet>,
    /// Whether counters tell executions apart: false if the file has one value for each path.
    counters: bool,
    runs: HashMap<(u32, Sid), Vec<Run>>,
    /// For each instance the index of its values, or [`NONE`].
    values_at: Vec<u32>,
    values: Vec<Area>,
}

impl Index {
    /// Reads a data file. From a file without single values the mean is played back.
    pub fn load(path: &Path) -> Result<Self> {
        let mut reader = Reader::open(path)?;
        let mut index = Self {
            sets: reader.sets().to_vec(),
            counters: reader.mode() == Mode::RecordAll,
            runs: HashMap::new(),
            values_at: vec![NONE],
            values: Vec::new(),
        };
        let mut chain: Vec<u32> = vec![ROOT];
        let mut last: Vec<Step> = Vec::new();
        while let Some(record) = reader.next_record()? {
            let same = record
                .stack
                .iter()
                .zip(&last)
                .take_while(|(a, b)| a == b)
                .count();
            chain.truncate(same + 1);
            last.truncate(same);
            for step in &record.stack[same..] {
                let parent = chain[chain.len() - 1];
                chain.push(index.instance(parent, *step));
                last.push(*step);
            }
            let instance = chain[chain.len() - 1] as usize;
            let at = index.values.len() as u32;
            match record.data {
                Data::Sample(values) => index.store(values.iter().copied()),
                Data::Stats(stats) => {
                    let types: Vec<_> = index.sets.iter().map(|s| s.data_type).collect();
                    index.store(stats.iter().zip(types).map(|(s, ty)| s.mean_value(ty)));
                }
                Data::Histograms(all) => {
                    let types: Vec<_> = index.sets.iter().map(|s| s.data_type).collect();
                    index.store(all.iter().zip(types).map(|(h, ty)| h.stats.mean_value(ty)));
                }
            }
            index.values_at[instance] = at;
        }
        Ok(index)
    }

    fn store(&mut self, values: impl Iterator<Item = Value>) {
        for (value, set) in values.zip(&self.sets) {
            let mut area = Area::default();
            area.set(set.data_type, value);
            self.values.push(area);
        }
    }

    /// The instance at `step` within `parent`, made if it is new.
    fn instance(&mut self, parent: u32, step: Step) -> u32 {
        let found = self.child(parent, step);
        if found != NONE {
            return found;
        }
        let counter = if self.counters { step.counter } else { 0 };
        let instance = self.values_at.len() as u32;
        self.values_at.push(NONE);
        let runs = self.runs.entry((parent, step.sid)).or_default();
        let at = runs.partition_point(|run| run.first <= counter);
        if let Some(run) = at.checked_sub(1).map(|at| &mut runs[at])
            && run.first.checked_add(i64::from(run.len)) == Some(counter)
            && run.instance + run.len == instance
        {
            run.len += 1;
        } else {
            runs.insert(
                at,
                Run {
                    first: counter,
                    len: 1,
                    instance,
                },
            );
        }
        instance
    }

    /// The instance at `step` within `parent`, or [`NONE`].
    pub fn child(&self, parent: u32, step: Step) -> u32 {
        let counter = if self.counters { step.counter } else { 0 };
        let Some(runs) = self.runs.get(&(parent, step.sid)) else {
            return NONE;
        };
        let at = runs.partition_point(|run| run.first <= counter);
        let Some(run) = at.checked_sub(1).map(|at| runs[at]) else {
            return NONE;
        };
        match counter.checked_sub(run.first) {
            Some(offset) if offset < i64::from(run.len) => run.instance + offset as u32,
            _ => NONE,
        }
    }

    /// The values of an instance.
    pub fn values(&self, instance: u32) -> Option<&[Area]> {
        let at = *self.values_at.get(instance as usize)?;
        (at != NONE).then(|| &self.values[at as usize..at as usize + self.sets.len()])
    }
}

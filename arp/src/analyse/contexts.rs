//! The tree of contexts: the sections that were open when something was measured.
use std::collections::{BTreeMap, HashMap};

use super::{Number, Options};
use crate::error::{Error, Result};
use crate::file::record::{Data, Record};
use crate::histogram::Histogram;
use crate::stats::Stats;
use crate::types::{Mode, Sid, Step, Tid, ValueSet};

/// A node of the tree.
#[derive(Clone, Debug)]
pub struct Context {
    /// The enclosing context.
    pub parent: Option<u32>,
    /// Thread, section or execution.
    pub label: Label,
    /// Number of enclosing contexts.
    pub depth: u32,
    /// Number of times it was entered, as far as records tell.
    pub(super) visits: u64,
    /// Index of its section in the list of sections.
    pub(super) section: Option<u32>,
}

/// Meaning of a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Label {
    /// A thread, if the file knows it.
    Thread(Option<Tid>),
    /// All executions of a section.
    Section(Sid),
    /// The execution with this counter.
    Execution(Step),
    /// Executions beyond the limit of contexts, which are not kept apart.
    Rest(Sid),
}

impl Label {
    /// The section; `None` for a thread.
    pub fn sid(self) -> Option<Sid> {
        match self {
            Self::Thread(_) => None,
            Self::Section(sid) | Self::Rest(sid) => Some(sid),
            Self::Execution(step) => Some(step.sid),
        }
    }
}

/// Position of a thread's last record in the tree.
struct Cursor {
    thread: Option<Tid>,
    base: Option<u32>,
    stack: Vec<Step>,
    chain: Vec<u32>,
}

/// Builds the tree from records and adds up their values.
pub(super) struct Builder<'a> {
    options: &'a Options,
    counters: bool,
    sets: &'a [ValueSet],
    pub records: u64,
    pub threads: BTreeMap<Option<Tid>, u64>,
    pub contexts: Vec<Context>,
    pub own: Vec<Stats>,
    pub sids: Vec<Sid>,
    pub histograms: Vec<Histogram>,
    pub shared: u64,
    children: HashMap<(Option<u32>, Label), u32>,
    sections: HashMap<Sid, u32>,
    cursors: Vec<Cursor>,
    current: usize,
}

impl<'a> Builder<'a> {
    pub fn new(sets: &'a [ValueSet], mode: Mode, options: &'a Options) -> Self {
        Self {
            options,
            // Other modes have no counters.
            counters: options.counters && mode == Mode::RecordAll,
            sets,
            records: 0,
            threads: BTreeMap::new(),
            contexts: Vec::new(),
            own: Vec::new(),
            sids: Vec::new(),
            histograms: Vec::new(),
            shared: 0,
            children: HashMap::new(),
            sections: HashMap::new(),
            cursors: Vec::new(),
            current: 0,
        }
    }

    pub fn add(&mut self, record: &Record<'_>) -> Result<()> {
        let wanted = &self.options.threads;
        if !wanted.is_empty() && !record.thread.is_some_and(|t| wanted.contains(&t)) {
            return Ok(());
        }
        self.records += 1;
        self.switch_to(record.thread)?;
        let mut cursor = std::mem::replace(
            &mut self.cursors[self.current],
            Cursor {
                thread: None,
                base: None,
                stack: Vec::new(),
                chain: Vec::new(),
            },
        );
        let moved = self.follow(&mut cursor, record.stack);
        let leaf = cursor.chain.last().copied();
        self.cursors[self.current] = cursor;
        moved?;
        let Some(leaf) = leaf else {
            return Ok(());
        };
        let sets = self.sets.len();
        let own = &mut self.own[leaf as usize * sets..][..sets];
        let section = self.contexts[leaf as usize].section.unwrap_or(0) as usize;
        let histograms = &mut self.histograms[section * sets..][..sets];
        match record.data {
            Data::Sample(values) => {
                for (set, value) in values.iter().enumerate() {
                    own[set].add(*value);
                    histograms[set].add(*value);
                }
            }
            Data::Stats(stats) => {
                for (set, more) in stats.iter().enumerate() {
                    own[set].merge(more);
                    histograms[set].stats.merge(more);
                }
            }
            Data::Histograms(all) => {
                for (set, more) in all.iter().enumerate() {
                    own[set].merge(&more.stats);
                    histograms[set].merge(more);
                }
            }
        }
        Ok(())
    }

    fn switch_to(&mut self, thread: Option<Tid>) -> Result<()> {
        let known = self.cursors.get(self.current);
        if known.is_none_or(|c| c.thread != thread) {
            let known = self.cursors.iter().position(|c| c.thread == thread);
            self.current = match known {
                Some(at) => at,
                None => {
                    let base = if self.options.by_thread {
                        Some(self.child(None, Label::Thread(thread))?)
                    } else {
                        None
                    };
                    self.cursors.push(Cursor {
                        thread,
                        base,
                        stack: Vec::new(),
                        chain: Vec::new(),
                    });
                    self.cursors.len() - 1
                }
            };
        }
        *self.threads.entry(thread).or_insert(0) += 1;
        Ok(())
    }

    /// Moves to the context of `stack`.
    fn follow(&mut self, cursor: &mut Cursor, stack: &[Step]) -> Result<()> {
        let pairs = stack.iter().zip(&cursor.stack);
        let same = pairs.take_while(|(a, b)| a == b).count();
        // Without counters, equal sections mean equal contexts.
        let mut parallel = !self.counters;
        for (depth, &step) in stack.iter().enumerate().skip(same) {
            parallel &= cursor.stack.get(depth).is_some_and(|s| s.sid == step.sid);
            if parallel {
                cursor.stack[depth] = step;
            } else {
                cursor.stack.truncate(depth);
                cursor.chain.truncate(depth);
                let parent = cursor.chain.last().copied().or(cursor.base);
                let node = self.step(parent, step)?;
                cursor.stack.push(step);
                cursor.chain.push(node);
            }
            self.contexts[cursor.chain[depth] as usize].visits += 1;
        }
        cursor.stack.truncate(stack.len());
        cursor.chain.truncate(stack.len());
        Ok(())
    }

    fn step(&mut self, parent: Option<u32>, step: Step) -> Result<u32> {
        if !self.counters {
            return self.child(parent, Label::Section(step.sid));
        }
        let label = Label::Execution(step);
        let full = self.contexts.len() >= self.options.max_contexts;
        if full && !self.children.contains_key(&(parent, label)) {
            self.shared += 1;
            return self.child(parent, Label::Rest(step.sid));
        }
        self.child(parent, label)
    }

    fn child(&mut self, parent: Option<u32>, label: Label) -> Result<u32> {
        if let Some(known) = self.children.get(&(parent, label)) {
            return Ok(*known);
        }
        let index = u32::try_from(self.contexts.len())
            .map_err(|_| Error::usage("add up", "there are too many contexts"))?;
        let section = label.sid().map(|sid| {
            *self.sections.entry(sid).or_insert_with(|| {
                self.sids.push(sid);
                let new = self.sets.iter().map(|set| Histogram::new(set.data_type));
                self.histograms.extend(new);
                self.sids.len() as u32 - 1
            })
        });
        self.children.insert((parent, label), index);
        self.contexts.push(Context {
            parent,
            label,
            depth: parent.map_or(0, |p| self.contexts[p as usize].depth + 1),
            visits: 0,
            section,
        });
        let new = self.sets.iter().map(|set| Stats::new(set.data_type));
        self.own.extend(new);
        Ok(index)
    }

    /// Total and self value of each context and set. The total of a context that was not measured is the sum of the
    /// measured executions inside it. The self value is the total without them.
    pub fn sums(&self) -> (Vec<Number>, Vec<Number>) {
        let sets = self.sets.len();
        let zeros = |n: usize| -> Vec<Number> {
            let zeros = self.sets.iter().map(|set| Number::zero(set.data_type));
            zeros.cycle().take(n * sets).collect()
        };
        let mut within = zeros(self.contexts.len());
        let mut selves = zeros(self.contexts.len());
        // From the leaves to the roots: `within` is first the sum of the children, then the total.
        for index in (0..self.contexts.len()).rev() {
            for set in 0..sets {
                let at = index * sets + set;
                if self.own[at].count() > 0 {
                    let total = Number::sum_of(&self.own[at]);
                    selves[at] = total - within[at];
                    within[at] = total;
                }
                if let Some(parent) = self.contexts[index].parent {
                    let total = within[at];
                    within[parent as usize * sets + set] += total;
                }
            }
        }
        (within, selves)
    }
}

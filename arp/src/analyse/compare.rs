//! Two recordings side by side.
//!
//! Two sections are the same if they have the same number and their names do not differ. A section whose number has
//! another name in the other recording is looked for there by name and file.
use std::collections::HashMap;

use super::{Analysis, Number};
use crate::types::{Section, Sid};

/// Comparison of two recordings in one set of values.
#[derive(Debug)]
pub struct Comparison {
    /// By section.
    pub sections: Vec<Difference>,
    /// By context, without counters and threads.
    pub contexts: Vec<Difference>,
}

/// A section or context in two recordings.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The section: `true` with its number in the first recording, or `false` with its number in the second
    /// recording if only that has the section.
    pub section: (Sid, bool),
    /// Index of the enclosing context in the list of contexts.
    pub parent: Option<u32>,
    /// Figures in the first recording; `None` if it does not occur there.
    pub a: Option<Side>,
    /// Figures in the second recording; `None` if it does not occur there.
    pub b: Option<Side>,
}

/// Figures of a section or context in one recording.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Side {
    /// Number of executions, if that is known.
    pub count: Option<u64>,
    /// The sum of its values.
    pub total: Number,
    /// The sum without measured sections inside it.
    pub self_value: Number,
    /// Mean of its values, if it was measured.
    pub mean: Option<f64>,
}

impl Difference {
    /// The figure in the second recording minus the figure in the first; a missing side counts as 0.
    pub fn change(&self, figure: impl Fn(&Side) -> Number) -> Number {
        match (&self.a, &self.b) {
            (Some(a), Some(b)) => figure(b) - figure(a),
            (None, Some(b)) => figure(b),
            (Some(a), None) => figure(a).negated(),
            (None, None) => Number::Integer(0),
        }
    }
}

/// A section of either recording.
type Key = (Sid, bool);

struct Matching {
    /// From section numbers of the second recording to common keys.
    b: HashMap<Sid, Key>,
}

impl Matching {
    fn new(a: &Analysis, b: &Analysis) -> Self {
        let named = |s: Option<&Section>| {
            s.filter(|s| !s.name.is_empty())
                .map(|s| (s.name.clone(), s.file.clone()))
        };
        let mut map = HashMap::new();
        let mut left = Vec::new();
        for sid in &b.sids {
            let (mine, other) = (named(a.section(*sid)), named(b.section(*sid)));
            if a.sids.contains(sid) && (mine.is_none() || other.is_none() || mine == other) {
                map.insert(*sid, (*sid, true));
            } else {
                left.push((*sid, other));
            }
        }
        // Sections of the first recording without a counterpart so far, by name and file.
        let mut free: HashMap<(String, String), Vec<Sid>> = HashMap::new();
        for sid in a.sids.iter().filter(|sid| !map.contains_key(sid)) {
            if let Some(name) = named(a.section(*sid)) {
                free.entry(name).or_default().push(*sid);
            }
        }
        for (sid, name) in left {
            let found = name.and_then(|name| free.get(&name));
            let key = match found.map(Vec::as_slice) {
                Some([one]) => (*one, true),
                _ => (sid, false),
            };
            map.insert(sid, key);
        }
        Self { b: map }
    }

    fn key(&self, sid: Sid, is_a: bool) -> Key {
        if is_a {
            (sid, true)
        } else {
            self.b.get(&sid).copied().unwrap_or((sid, false))
        }
    }
}

impl Comparison {
    /// The sections from the outermost one to the section of context `index`.
    pub fn path(&self, index: usize) -> Vec<(Sid, bool)> {
        let mut path = Vec::new();
        let mut at = Some(index);
        while let Some(context) = at.and_then(|at| self.contexts.get(at)) {
            path.push(context.section);
            at = context.parent.map(|parent| parent as usize);
        }
        path.reverse();
        path
    }

    /// Compares set `set` of two recordings.
    pub fn new(a: &Analysis, b: &Analysis, set: usize) -> Self {
        let matching = Matching::new(a, b);
        let mut sections: Vec<Difference> = Vec::new();
        let mut known: HashMap<Key, usize> = HashMap::new();
        for (analysis, is_a) in [(a, true), (b, false)] {
            for row in analysis.sections() {
                let key = matching.key(row.sid, is_a);
                let at = *known.entry(key).or_insert_with(|| {
                    sections.push(Difference {
                        section: key,
                        parent: None,
                        a: None,
                        b: None,
                    });
                    sections.len() - 1
                });
                let figures = &row.figures[set];
                let side = Side {
                    count: row.count.map(|c| c.0),
                    total: figures.total,
                    self_value: figures.self_value,
                    mean: figures.mean(),
                };
                let slot = if is_a {
                    &mut sections[at].a
                } else {
                    &mut sections[at].b
                };
                // Two sections of the second recording may map to one by name.
                match slot {
                    Some(old) => old.add(&side),
                    None => *slot = Some(side),
                }
            }
        }
        Self {
            sections,
            contexts: contexts(a, b, set, &matching),
        }
    }
}

impl Side {
    fn add(&mut self, more: &Self) {
        let weight = |s: &Self| s.count.unwrap_or(0) as f64;
        let sum = weight(self) + weight(more);
        self.mean = match (self.mean, more.mean) {
            (Some(a), Some(b)) if sum > 0.0 => Some((a * weight(self) + b * weight(more)) / sum),
            (a, b) => a.or(b),
        };
        self.count = match (self.count, more.count) {
            (Some(a), Some(b)) => Some(a.saturating_add(b)),
            (a, b) => a.or(b),
        };
        self.total += more.total;
        self.self_value += more.self_value;
    }
}

fn contexts(a: &Analysis, b: &Analysis, set: usize, matching: &Matching) -> Vec<Difference> {
    // Common contexts: enclosing context and section.
    let mut nodes: Vec<(Option<u32>, Key)> = Vec::new();
    let mut sides: Vec<(Option<Side>, Option<Side>)> = Vec::new();
    let mut known: HashMap<(Option<u32>, Key), u32> = HashMap::new();
    for (analysis, is_a) in [(a, true), (b, false)] {
        let mut common: Vec<Option<u32>> = Vec::with_capacity(analysis.contexts.len());
        for (index, context) in analysis.contexts.iter().enumerate() {
            let parent = context.parent.and_then(|p| common[p as usize]);
            let Some(sid) = context.label.sid() else {
                common.push(parent);
                continue;
            };
            let node = (parent, matching.key(sid, is_a));
            let at = *known.entry(node).or_insert_with(|| {
                nodes.push(node);
                sides.push((None, None));
                nodes.len() as u32 - 1
            });
            common.push(Some(at));
            let figures = analysis.figures(index, set);
            let side = Side {
                count: analysis.count(index).map(|c| c.0),
                total: figures.total,
                self_value: figures.self_value,
                mean: figures.mean(),
            };
            let (of_a, of_b) = &mut sides[at as usize];
            let slot = if is_a { of_a } else { of_b };
            match slot {
                Some(old) => old.add(&side),
                None => *slot = Some(side),
            }
        }
    }
    let pairs = nodes.into_iter().zip(sides);
    let differences = pairs.map(|((parent, section), (a, b))| Difference {
        section,
        parent,
        a,
        b,
    });
    differences.collect()
}

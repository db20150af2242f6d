//! Rows for sections and contexts, and their order.

use std::cmp::Ordering;

use ::arp::analyse::{Analysis, Figures, Label, Number, SectionRow};

use super::names;
use super::numbers;

/// The figure by which rows are sorted. The greatest comes first; ids and names ascend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Order {
    /// Sum of the values
    Total,
    /// Sum of the values without measured sections within
    #[value(name = "self")]
    Own,
    /// Number of executions
    Count,
    /// Mean
    Mean,
    /// Least value
    Min,
    /// Greatest value
    Max,
    /// Number of the section
    Id,
    /// Name of the section
    Name,
}

/// What of a row is compared.
struct Key {
    number: Option<Number>,
    id: u32,
    name: String,
}

impl Order {
    fn key(self, figures: &Figures, count: Option<u64>, id: u32, name: String) -> Key {
        let range = figures.range();
        let number = match self {
            Self::Total => Some(figures.total),
            Self::Own => Some(figures.self_value),
            Self::Count => count.map(|n| Number::Integer(n.into())),
            Self::Mean => figures.mean().map(Number::Float),
            Self::Min => range.map(|r| r.0),
            Self::Max => range.map(|r| r.1),
            Self::Id | Self::Name => None,
        };
        let name = if self == Self::Name {
            name
        } else {
            String::new()
        };
        Key { number, id, name }
    }

    fn compare(a: &Key, b: &Key) -> Ordering {
        let numbers = match (a.number, b.number) {
            (Some(a), Some(b)) => b.order(a),
            (a, b) => b.is_some().cmp(&a.is_some()),
        };
        numbers
            .then_with(|| a.name.cmp(&b.name))
            .then(a.id.cmp(&b.id))
    }

    /// Sorts sections by their figures in set `set`.
    pub fn sort(self, analysis: &Analysis, rows: &mut [SectionRow<'_>], set: usize) {
        rows.sort_by_cached_key(|row| {
            let name = names::of_section(analysis.section(row.sid), row.sid);
            let count = row.count.map(|c| c.0);
            Sortable(self.key(&row.figures[set], count, row.sid.0, name))
        });
    }

    /// The children of each context, by its index; the last list holds the roots. Executions stay in
    /// the order in which they took place.
    pub fn children(self, analysis: &Analysis, set: usize) -> Vec<Vec<u32>> {
        let contexts = analysis.contexts();
        let mut children = vec![Vec::new(); contexts.len() + 1];
        for (index, context) in contexts.iter().enumerate() {
            let parent = context.parent.map_or(contexts.len(), |p| p as usize);
            children[parent].push(index as u32);
        }
        for list in children.iter_mut().filter(|list| list.len() > 1) {
            let label = contexts[list[0] as usize].label;
            if matches!(label, Label::Execution(_) | Label::Rest(_)) {
                continue;
            }
            list.sort_by_cached_key(|index| {
                let index = *index as usize;
                let label = contexts[index].label;
                let id = match label {
                    Label::Thread(tid) => tid.map_or(0, |t| t.0),
                    label => label.sid().map_or(0, |s| s.0),
                };
                let count = analysis.count(index).map(|c| c.0);
                let figures = analysis.figures(index, set);
                Sortable(self.key(&figures, count, id, names::of_context(analysis, label)))
            });
        }
        children
    }
}

struct Sortable(Key);

impl PartialEq for Sortable {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Sortable {}

impl PartialOrd for Sortable {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Sortable {
    fn cmp(&self, other: &Self) -> Ordering {
        Order::compare(&self.0, &other.0)
    }
}

/// Walks the tree from top to bottom. `each` gets the index of a context and returns whether to visit
/// its children.
pub fn walk(children: &[Vec<u32>], mut each: impl FnMut(usize) -> bool) {
    let Some(roots) = children.last() else {
        return;
    };
    let mut left: Vec<u32> = roots.iter().rev().copied().collect();
    while let Some(index) = left.pop() {
        if each(index as usize) {
            left.extend(children[index as usize].iter().rev());
        }
    }
}

/// A count as text, with `+` if it is only a lower bound.
pub fn count(count: Option<(u64, bool)>) -> String {
    match count {
        None => numbers::NONE.into(),
        Some((n, true)) => output::message::number(n),
        Some((n, false)) => format!("{}+", output::message::number(n)),
    }
}

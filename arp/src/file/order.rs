//! From the order in which executions end to the order in which they begin.
//!
//! A recorder writes a record when the execution ends, so the records of inner executions precede it. In ASCII
//! files they follow it. The counters tell the position of a record: before the first of the preceding
//! records whose stacks start with its own stack.
use crate::types::Step;

/// Follows the records of one thread.
#[derive(Debug, Default)]
pub(crate) struct Order {
    last: Vec<Step>,
    /// For each length `n` of a prefix of `last`: the number of the first record since which the prefix of
    /// length `n` has not changed.
    starts: Vec<u64>,
    count: u64,
}

/// Sort key of a record in the order of begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SortKey {
    /// Number of a record in the order of recording.
    pub index: u64,
    /// True for that record itself; false for a record that belongs before it.
    pub own: bool,
    /// Length of the stack: of the records before it, those with shorter stacks come first.
    pub depth: u32,
}

impl Order {
    /// Takes the stack of the next record and returns its sort key.
    pub fn key(&mut self, stack: &[Step]) -> SortKey {
        let same = stack
            .iter()
            .zip(&self.last)
            .take_while(|(a, b)| a == b)
            .count();
        let index = self.count;
        self.count += 1;
        self.starts.truncate(same);
        self.last.truncate(same);
        let contains = same == stack.len() && same > 0;
        let key = match self.starts.last() {
            Some(start) if contains => SortKey {
                index: *start,
                own: false,
                depth: stack.len() as u32,
            },
            _ => SortKey {
                index,
                own: true,
                depth: 0,
            },
        };
        self.last.extend_from_slice(&stack[same..]);
        self.starts.resize(stack.len(), index);
        key
    }
}

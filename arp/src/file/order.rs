//! From the order in which executions end to the order in which they begin.
//!
//! A recorder writes a record when the execution ends, so what it contains comes before it. ASCII
//! files have it the other way round. The counters tell where a record belongs: before the first of
//! those that precede it and have its stack as the start of theirs.
use crate::types::Step;

/// Follows the records of one thread.
#[derive(Debug, Default)]
pub(crate) struct Order {
    last: Vec<Step>,
    /// For each length of the last stack, the first record since its start of that length is the same.
    starts: Vec<u64>,
    count: u64,
}

/// Where a record belongs. Places compare like the records' order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// The number of a record in the original order.
    pub index: u64,
    /// Not before but at that record: it is this one.
    pub own: bool,
    /// Of those before it, shallower ones come first.
    pub depth: u32,
}

impl Order {
    /// Takes the next record.
    pub fn place(&mut self, stack: &[Step]) -> Place {
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
        let place = match self.starts.last() {
            Some(start) if contains => Place {
                index: *start,
                own: false,
                depth: stack.len() as u32,
            },
            _ => Place {
                index,
                own: true,
                depth: 0,
            },
        };
        self.last.extend_from_slice(&stack[same..]);
        self.starts.resize(stack.len(), index);
        place
    }
}

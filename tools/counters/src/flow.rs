//! Moves the counting of constants within a procedure, so that fewer blocks count.
//!
//! The amount that a block counts can move to all its successors if they have no other
//! predecessors, or to all its predecessors if they have no other successors. Nothing may read the
//! counters in between: an amount never moves past a point where control leaves the procedure, a
//! call, or an edge that is not known. An `if` with an `else` then counts once on each side, and a
//! loop once in each iteration.

use atom_tool::{EdgeKind, Proc, Status, Way};

/// The control flow of a procedure, with the amounts that its blocks count.
pub struct Graph {
    pub weights: Vec<Vec<u64>>,
    /// Successors of each block; none if not all of them are known.
    after: Vec<Option<Vec<usize>>>,
    /// Predecessors of each block; none if not all of them are known.
    before: Vec<Option<Vec<usize>>>,
    /// For each block that ends in a conditional branch the successor if it is taken, and if not.
    sides: Vec<[Option<usize>; 2]>,
}

/// A side of a conditional branch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    Taken = 0,
    Falling = 1,
}

impl Graph {
    /// The graph of a procedure, without weights.
    pub fn new(proc: Proc<'_>) -> Self {
        let count = proc.blocks().len();
        let mut graph = Self {
            weights: vec![Vec::new(); count],
            after: vec![None; count],
            before: vec![None; count],
            sides: vec![[None; 2]; count],
        };
        if proc.status() != Status::Full || !proc.blocks().all(|b| b.is_selected()) {
            return graph;
        }
        let first = proc.first_block().map_or(0, |b| b.index());
        let entries: Vec<usize> = proc.starts().iter().map(|b| b.index()).collect();
        for (i, block) in proc.blocks().enumerate() {
            let inside = |edges: Vec<atom_tool::Edge<'_>>| -> Option<Vec<usize>> {
                let to = |edge: atom_tool::Edge<'_>| {
                    let is_plain = matches!(
                        edge.kind,
                        EdgeKind::Fall | EdgeKind::Taken | EdgeKind::Table
                    );
                    let place = edge.block?.index().checked_sub(first)?;
                    (is_plain && place < count).then_some(place)
                };
                let mut all: Vec<usize> = edges.into_iter().map(to).collect::<Option<_>>()?;
                all.sort_unstable();
                all.dedup();
                (!all.is_empty()).then_some(all)
            };
            graph.after[i] = inside(block.successors());
            for edge in block.successors() {
                let side = match edge.kind {
                    EdgeKind::Taken => Side::Taken,
                    EdgeKind::Fall => Side::Falling,
                    _ => continue,
                };
                let to = edge.block.and_then(|b| b.index().checked_sub(first));
                graph.sides[i][side as usize] = to.filter(|to| *to < count);
            }
            let is_entered = entries.contains(&block.index())
                || block.is_address_taken()
                || block.has_way(Way::Entry);
            graph.before[i] = inside(block.predecessors()).filter(|_| !is_entered);
        }
        graph
    }

    /// Adds 1 to the cell each time that a block's conditional branch goes to this side. False if
    /// constants cannot do that, because both sides have other predecessors.
    pub fn count_side(&mut self, block: usize, side: Side, cell: usize) -> bool {
        let [taken, falling] = self.sides[block];
        let (wanted, other) = match side {
            Side::Taken => (taken, falling),
            Side::Falling => (falling, taken),
        };
        let only_from_here = |to: Option<usize>| {
            to.filter(|to| {
                *to != block && taken != falling && self.before[*to].as_deref() == Some(&[block])
            })
        };
        if let Some(wanted) = only_from_here(wanted) {
            self.add(wanted, cell, 1);
        } else if let Some(other) = only_from_here(other) {
            // Counts at each execution of the block, and subtracts at the other side.
            self.add(block, cell, 1);
            self.add(other, cell, u64::MAX);
        } else {
            return false;
        }
        true
    }

    /// Lets a block add `n` to the cell, modulo 2^64.
    pub fn add(&mut self, block: usize, cell: usize, n: u64) {
        let sum = &mut self.weights[block][cell];
        *sum = sum.wrapping_add(n);
    }

    /// Moves weights so that fewer blocks have some.
    pub fn settle(&mut self) {
        // Each round is correct by itself; more than a few gain nothing.
        for _ in 0..3 {
            for block in (0..self.weights.len()).rev() {
                self.lift(block);
            }
            for block in 0..self.weights.len() {
                self.sink(block);
            }
        }
    }

    /// Moves a block's weight to its predecessors, if they have no other successors.
    fn lift(&mut self, block: usize) {
        let Some(from) = self.before[block].clone().filter(|from| from.len() > 1) else {
            return;
        };
        let only_here =
            |other: &usize| *other != block && self.after[*other].as_deref() == Some(&[block]);
        if from.iter().all(only_here) {
            self.share(block, &from);
        }
    }

    /// Moves a block's weight to its successors, if they have no other predecessors.
    fn sink(&mut self, block: usize) {
        let Some(to) = self.after[block].clone() else {
            return;
        };
        let only_from_here =
            |other: &usize| *other != block && self.before[*other].as_deref() == Some(&[block]);
        if to.iter().all(only_from_here) {
            self.share(block, &to);
        }
    }

    fn share(&mut self, block: usize, others: &[usize]) {
        let weights = std::mem::take(&mut self.weights[block]);
        for other in others {
            for (cell, n) in weights.iter().enumerate() {
                self.add(*other, cell, *n);
            }
        }
        self.weights[block] = vec![0; weights.len()];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Edges, and blocks whose end (or beginning) is not in sight.
    fn graph(count: usize, edges: &[(usize, usize)], ends: &[usize], starts: &[usize]) -> Graph {
        let list = |of: &dyn Fn(usize) -> Vec<usize>, open: &[usize]| {
            let one = |i: usize| Some(of(i)).filter(|l| !l.is_empty() && !open.contains(&i));
            (0..count).map(one).collect::<Vec<_>>()
        };
        let after = |i| edges.iter().filter(|e| e.0 == i).map(|e| e.1).collect();
        let before = |i| edges.iter().filter(|e| e.1 == i).map(|e| e.0).collect();
        Graph {
            weights: (0..count).map(|i| vec![1 << (4 * i)]).collect(),
            after: list(&after, ends),
            before: list(&before, starts),
            sides: (0..count)
                .map(|i| {
                    let mut to = edges.iter().filter(|e| e.0 == i).map(|e| e.1);
                    [to.next(), to.next()]
                })
                .collect(),
        }
    }

    fn weights(graph: &Graph) -> Vec<u64> {
        graph.weights.iter().map(|w| w[0]).collect()
    }

    #[test]
    fn both_sides_of_a_condition_count_all() {
        let mut both = graph(4, &[(0, 1), (0, 2), (1, 3), (2, 3)], &[3], &[0]);
        both.settle();
        assert_eq!(weights(&both), [0, 0x1011, 0x1101, 0]);
        // Before a call on one side, exactly the blocks before it must have counted.
        let mut call = graph(4, &[(0, 1), (0, 2), (1, 3), (2, 3)], &[1, 3], &[0]);
        call.settle();
        assert_eq!(weights(&call), [0, 0x11, 0x101, 0x1000]);
    }

    #[test]
    fn a_loop_counts_once_a_round() {
        // 0 -> 1 (head) -> 2 -> 1, 1 -> 3
        let mut all = graph(4, &[(0, 1), (1, 2), (2, 1), (1, 3)], &[3], &[0]);
        all.settle();
        // The ways of 0 and 2 lead to the head alone, so they count for it.
        assert_eq!(weights(&all), [0x11, 0, 0x110, 0x1000]);
        // A round of the loop and its end: the same as block by block.
        let rounds = 0x11 + 2 * 0x110 + 0x1000;
        assert_eq!(rounds, 1 + 3 * 0x10 + 2 * 0x100 + 0x1000);
    }

    #[test]
    fn sides_are_counted_by_constants() {
        // 0 goes to 1 if its branch is taken, else to 2; 1 goes to 2.
        let mut one = graph(3, &[(0, 1), (0, 2), (1, 2)], &[2], &[0]);
        assert!(one.count_side(0, Side::Taken, 0));
        assert_eq!(weights(&one), [1, 0x11, 0x100]);
        // The other side is reached from 1 too: all executions without those of this one.
        assert!(one.count_side(0, Side::Falling, 0));
        assert_eq!(weights(&one), [2, 0x10, 0x100]);
        // Both sides are reached from elsewhere.
        let both = [(0, 1), (0, 2), (3, 1), (3, 2)];
        let mut none = graph(4, &both, &[1, 2], &[0, 3]);
        assert!(!none.count_side(0, Side::Taken, 0));
        assert_eq!(weights(&none), [1, 0x10, 0x100, 0x1000]);
        // A loop of one block.
        let mut own = graph(2, &[(0, 0), (0, 1)], &[1], &[]);
        assert!(own.count_side(0, Side::Taken, 0));
        assert_eq!(weights(&own), [2, 0xf]);
    }

    #[test]
    fn what_is_not_in_sight_stays() {
        let mut entered = graph(3, &[(0, 1), (1, 2)], &[2], &[0, 1]);
        entered.settle();
        assert_eq!(weights(&entered), [1, 0, 0x110]);
        let mut own = graph(2, &[(0, 0), (0, 1)], &[1], &[]);
        own.settle();
        assert_eq!(weights(&own), [1, 0x10]);
    }
}

//! Times of references, without a clock that advances at each reference.
//!
//! A simulation that needs to know which of two references came last stores a time at each
//! reference. A clock in memory that advances at each reference is a chain of additions, each of which
//! waits for the one before. Here the clock advances much less often, and each reference has a number
//! below [`STEP`]. The sum of clock and number grows from reference to reference.
//!
//! Numbers grow along all edges of a procedure's control flow graph except back edges. So the clock
//! makes a step
//!
//! - at back edges, and where control may come from elsewhere: entries, landing pads;
//! - before control leaves the procedure: at returns, at jumps to other procedures, and at calls of code
//!   that is not known to make such steps. So the clock has advanced wherever control comes back to, by a
//!   return, by a longjmp, or at the end of a signal handler;
//! - after system calls, since one of them returns twice (vfork).
//!
//! A leaf procedure has lower numbers than a procedure that makes calls, so it needs no step when it
//! returns, unless it may have interrupted another procedure.

use std::collections::HashMap;

use atom_abi::query::EdgeKind;

use crate::InstType;
use crate::navigation::flow::Edge;
use crate::navigation::handle::{Block, Inst, Proc, Status};
use crate::navigation::program::Program;
use crate::navigation::references::References;

/// Amount by which a step advances the clock. Numbers of references are smaller.
pub const STEP: u64 = 1 << 12;
/// The first number of a leaf. A smaller constant would become part of the out-of-line stub of a rare call,
/// and few calls with the same number would share that stub.
const FIRST: u64 = 256;
/// The first number of a procedure that calls others.
const CALLERS: u64 = 512;
/// Number of numbers for such a procedure.
const SPAN: u64 = STEP - CALLERS;

/// A block, and its instructions that refer to memory.
pub(super) type BlockReferences<'a, 'b> = (Block<'a>, &'b [(Inst<'a>, References)]);

/// For each procedure, by number, whether it makes all steps that it should.
#[derive(Default)]
pub(super) struct Known(Vec<bool>);

impl Known {
    pub(super) fn new(program: &Program<'_>) -> Self {
        Self(program.procs().map(is_known).collect())
    }

    fn contains(&self, proc: Proc<'_>) -> bool {
        self.0.get(proc.index()).is_some_and(|known| *known)
    }

    /// Whether a step must be made before a call.
    fn may_lead_elsewhere(&self, call: Inst<'_>) -> bool {
        !call
            .directly_called_proc()
            .is_some_and(|proc| self.contains(proc))
    }
}

fn is_known(proc: Proc<'_>) -> bool {
    proc.status() == Status::Full && proc.blocks().all(|block| block.is_selected())
}

/// Numbers of the references of one block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Numbers {
    first: u64,
    /// Whether a step is made at the block's start.
    pub steps: bool,
    /// Whether a step is made at the block's last instruction.
    pub steps_at_end: bool,
}

impl Numbers {
    /// The number of a reference, and whether a step is made before it because all numbers were used.
    pub(super) fn of(&self, reference: usize) -> (u64, bool) {
        let number = self.first + reference as u64;
        match number.checked_sub(STEP) {
            None => (number, false),
            Some(over) => (CALLERS + over % SPAN, over % SPAN == 0),
        }
    }
}

/// Numbers of all blocks of a procedure. `counts` has the number of references, or groups, of each block.
pub(super) fn number<'a>(
    proc: Proc<'a>,
    blocks: &[BlockReferences<'a, '_>],
    counts: &[usize],
    known: &Known,
) -> Vec<Numbers> {
    if counts.iter().all(|count| *count == 0) {
        return vec![Numbers::default(); blocks.len()];
    }
    let indices = blocks.iter().map(|(block, _)| block.index());
    let nodes: HashMap<usize, usize> = indices.zip(0..).collect();
    let node = |block: Block<'_>| nodes.get(&block.index()).copied();
    let edges: Vec<Vec<Edge<'_>>> = blocks.iter().map(|(block, _)| block.successors()).collect();
    let inside = |from: usize| edges[from].iter().filter_map(|edge| node(edge.block?));
    let entries = proc.entries();
    let begun = proc.starts();
    let roots = entries.iter().filter_map(|block| node(*block));
    let order = order(roots, blocks.len(), inside);

    let last = |at: usize| blocks[at].0.last_inst();
    let calls = |at: usize| last(at).is_type(InstType::Call);
    let leaves = |edge: &Edge<'_>| edge.block.and_then(node).is_none();
    let returns = |edge: &Edge<'_>| !leaves(edge) || edge.kind == EdgeKind::Return;
    let is_leaf = counts.iter().sum::<usize>() as u64 <= CALLERS - FIRST
        && edges.iter().flatten().all(returns)
        && !(0..blocks.len()).any(calls)
        && !entries.iter().any(|entry| entry.is_address_taken());
    let dealt = deal(&order, counts, if is_leaf { FIRST } else { CALLERS });

    let mut position = vec![0; blocks.len()];
    order.iter().zip(0..).for_each(|(at, n)| position[*at] = n);
    // Control reaches a block without incoming edges in an unknown way, so such a block makes a step.
    let mut steps = vec![true; blocks.len()];
    let inner_edges = || (0..blocks.len()).flat_map(|from| inside(from).map(move |to| (from, to)));
    inner_edges().for_each(|(_, to)| steps[to] = !known.contains(proc));
    for (from, to) in inner_edges() {
        steps[to] |= position[to] <= position[from] || dealt[to].round != dealt[from].last_round;
    }
    let unwound = edges
        .iter()
        .flatten()
        .filter(|edge| edge.kind == EdgeKind::Unwind);
    let landing_pads = unwound.filter_map(|edge| edge.block);
    let starts = landing_pads.chain(begun);
    for start in starts.filter_map(node) {
        steps[start] = true;
    }
    let at_end = |at: usize| {
        if calls(at) {
            known.may_lead_elsewhere(last(at))
        } else {
            !is_leaf && edges[at].iter().any(leaves)
        }
    };
    let numbers = |at: usize| Numbers {
        first: dealt[at].first,
        steps: steps[at],
        steps_at_end: at_end(at),
    };
    (0..blocks.len()).map(numbers).collect()
}

/// The numbers that a block was dealt. When all numbers are used, another round begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Dealt {
    first: u64,
    /// The round of the first number.
    round: u64,
    /// The round of the last number.
    last_round: u64,
}

/// Deals numbers from `first` on to blocks in the order `order`, to each block the number of numbers in `counts`. The
/// numbers of a block are of one round unless it needs more than a round has.
fn deal(order: &[usize], counts: &[usize], first: u64) -> Vec<Dealt> {
    let mut dealt = vec![Dealt::default(); counts.len()];
    let (mut next, mut round) = (first, 0);
    for &at in order {
        let count = counts[at] as u64;
        if next + count > STEP {
            (next, round) = (CALLERS, round + 1);
        }
        let over = (next + count).saturating_sub(STEP);
        dealt[at] = Dealt {
            first: next,
            round,
            last_round: round + over.div_ceil(SPAN),
        };
        round = dealt[at].last_round;
        next = match over {
            0 => next + count,
            _ => CALLERS + (over - 1) % SPAN + 1,
        };
    }
    dealt
}

/// Nodes of a graph in an order in which only edges that close a cycle lead back: reverse postorder.
fn order<I: Iterator<Item = usize>>(
    roots: impl Iterator<Item = usize>,
    nodes: usize,
    next: impl Fn(usize) -> I,
) -> Vec<usize> {
    let mut seen = vec![false; nodes];
    let mut done = Vec::with_capacity(nodes);
    let mut path: Vec<(usize, I)> = Vec::new();
    for root in roots.chain(0..nodes) {
        if std::mem::replace(&mut seen[root], true) {
            continue;
        }
        path.push((root, next(root)));
        while let Some((node, edges)) = path.last_mut() {
            match edges.next() {
                Some(to) if !seen[to] => {
                    seen[to] = true;
                    path.push((to, next(to)));
                }
                Some(_) => {}
                None => {
                    done.push(*node);
                    path.pop();
                }
            }
        }
    }
    done.reverse();
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_edge_leads_back_but_in_a_cycle() {
        // A diamond whose one side is a loop, and a root of its own that leads into it.
        let edges = [vec![1, 4], vec![2], vec![3, 1], vec![], vec![3], vec![2]];
        let order = order([0, 5].into_iter(), 6, |from| edges[from].iter().copied());
        let place = |node: usize| order.iter().position(|n| *n == node);
        for (from, to) in [(0, 1), (0, 4), (1, 2), (2, 3), (4, 3), (5, 2)] {
            assert!(place(from) < place(to), "{from} to {to} in {order:?}");
        }
        assert_eq!(order.len(), 6);
    }

    #[test]
    fn numbers_grow_until_a_round_ends() {
        let dealt = deal(&[0, 2, 1], &[3, 5, SPAN as usize], CALLERS);
        let of = |first, round, last_round| Dealt {
            first,
            round,
            last_round,
        };
        assert_eq!(dealt[0], of(CALLERS, 0, 0));
        // All of a round, and none is left for the next block.
        assert_eq!(dealt[2], of(CALLERS, 1, 1));
        assert_eq!(dealt[1], of(CALLERS, 2, 2));
    }

    #[test]
    fn a_block_with_many_references_steps_within() {
        let many = 2 * SPAN as usize + 7;
        let dealt = deal(&[0, 1], &[many, 1], CALLERS);
        assert_eq!((dealt[0].round, dealt[0].last_round), (1, 3));
        let numbers = Numbers {
            first: dealt[0].first,
            ..Numbers::default()
        };
        let (mut clock, mut last) = (0, 0);
        for reference in 0..many {
            let (number, steps) = numbers.of(reference);
            clock += if steps { STEP } else { 0 };
            assert!(number < STEP && clock + number > last, "{reference}");
            last = clock + number;
        }
        assert_eq!(clock / STEP, 2);
        assert_eq!(dealt[1].first, last % STEP + 1);
    }
}

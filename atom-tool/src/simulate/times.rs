//! Times of references, without a clock that each of them sets forward.
//!
//! Who must know which of two references came last notes a time at each. A clock in memory that
//! goes on at each is a chain of additions, each of which waits for the one before. Here the
//! clock goes on much less often, and each reference has a number of its own, below
//! [`STEP`]: clock and number together grow from reference to reference.
//!
//! Numbers grow along all ways through a procedure but those that lead back to where control
//! was before. So the clock makes a step
//!
//! - where a way leads back, and where control may come from elsewhere: entries, landing pads;
//! - before control leaves: returns, jumps to other procedures, calls of code that is not
//!   known to do the same. So it has gone on wherever control comes back to, by a return, by a
//!   longjmp, or as a signal handler has ended;
//! - behind system calls, of which one returns twice (vfork).
//!
//! A leaf has lower numbers than whoever calls something, so that it need not make a step when
//! it returns, unless it may have interrupted another.

use std::collections::HashMap;

use atom_abi::query::EdgeKind;

use crate::InstType;
use crate::flow::Edge;
use crate::handle::{Block, Inst, Proc, Status};
use crate::program::Program;

/// What the clock goes on by. Numbers are smaller.
pub const STEP: u64 = 1 << 12;
/// The first number. Small constants would be taken for such as few calls share.
const FIRST: u64 = 256;
/// The first number of a procedure that calls others.
const CALLERS: u64 = 512;
const SPAN: u64 = STEP - CALLERS;

/// Procedures that make all the steps that they should, by number.
pub(super) struct Known(Vec<bool>);

impl Known {
    pub(super) fn new(program: &Program<'_>) -> Self {
        Self(program.procs().map(is_known).collect())
    }

    /// Whether a step must be made before a call, or another way out of its procedure.
    fn may_lead_elsewhere(&self, call: Inst<'_>) -> bool {
        let callee = call.called_proc();
        callee.is_none_or(|proc| !self.0.get(proc.index()).is_some_and(|known| *known))
    }
}

fn is_known(proc: Proc<'_>) -> bool {
    proc.status() == Status::Full && proc.blocks().all(|block| block.is_selected())
}

/// Numbers of the references of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Numbers {
    first: u64,
    /// Whether a step is made at its start.
    pub steps: bool,
    /// Whether one is made at its last instruction.
    pub steps_at_end: bool,
}

impl Numbers {
    /// The number of a reference, and whether a step is made before it, as numbers were used up.
    pub(super) fn of(&self, reference: usize) -> (u64, bool) {
        let number = self.first + reference as u64;
        match number.checked_sub(STEP) {
            None => (number, false),
            Some(over) => (CALLERS + over % SPAN, over % SPAN == 0),
        }
    }
}

/// Numbers of all blocks of a procedure, in the order of `blocks`. Given is how many references
/// need one in each.
pub(super) fn number<'a>(
    proc: Proc<'a>,
    blocks: &[Block<'a>],
    many: &[usize],
    known: &Known,
) -> Vec<Numbers> {
    let places: HashMap<usize, usize> = blocks.iter().map(|b| b.index()).zip(0..).collect();
    let place = |block: Block<'_>| places.get(&block.index()).copied();
    let entries = proc.entries();
    let ways: Vec<Vec<Edge<'_>>> = blocks.iter().map(|block| block.successors()).collect();
    let inside = |from: usize| ways[from].iter().filter_map(|way| place(way.block?));
    let roots = entries.iter().filter_map(|block| place(*block));
    let order = order(roots, blocks.len(), inside);

    let mut steps = vec![!is_known(proc); blocks.len()];
    let pads = ways
        .iter()
        .flatten()
        .filter(|way| way.kind == EdgeKind::Unwind);
    for start in pads
        .filter_map(|way| way.block)
        .chain(entries.iter().copied())
    {
        if let Some(at) = place(start) {
            steps[at] = true;
        }
    }
    let calls = |at: usize| blocks[at].last_inst().is_type(InstType::Call);
    let returns = |way: &Edge<'_>| way.block.is_some() || way.kind == EdgeKind::Return;
    let is_leaf = many.iter().sum::<usize>() as u64 <= CALLERS - FIRST
        && ways.iter().flatten().all(returns)
        && !(0..blocks.len()).any(calls)
        && !entries.iter().any(|entry| entry.is_address_taken());

    let first = if is_leaf { FIRST } else { CALLERS };
    let (firsts, rounds) = deal(&order, many, first);
    // In which order control may come, by what is known: where it may be otherwise, a step.
    let mut position = vec![0; blocks.len()];
    order.iter().zip(0..).for_each(|(at, n)| position[*at] = n);
    let mut is_reached = vec![false; blocks.len()];
    for from in 0..blocks.len() {
        for to in inside(from) {
            is_reached[to] = true;
            steps[to] |= position[to] <= position[from] || rounds[to].0 != rounds[from].1;
        }
    }
    let at_end = |at: usize| match calls(at) {
        true => known.may_lead_elsewhere(blocks[at].last_inst()),
        false => !is_leaf && ways[at].iter().any(|way| way.block.is_none()),
    };
    let numbers = |at: usize| Numbers {
        first: firsts[at],
        steps: steps[at] || !is_reached[at],
        steps_at_end: at_end(at),
    };
    (0..blocks.len()).map(numbers).collect()
}

/// Deals numbers to blocks in an order; the first one of each, and which round of numbers it is,
/// at its start and at its end.
fn deal(order: &[usize], many: &[usize], first: u64) -> (Vec<u64>, Vec<(u64, u64)>) {
    let mut firsts = vec![0; many.len()];
    let mut rounds = vec![(0, 0); many.len()];
    let (mut next, mut round) = (first, 0);
    for &at in order {
        let many = many[at] as u64;
        if next + many > STEP {
            (next, round) = (CALLERS, round + 1);
        }
        firsts[at] = next;
        let over = (next + many).saturating_sub(STEP);
        let start = round;
        if over > 0 {
            round += over.div_ceil(SPAN);
        }
        next = match over {
            0 => next + many,
            _ => CALLERS + (over - 1) % SPAN + 1,
        };
        rounds[at] = (start, round);
    }
    (firsts, rounds)
}

/// Nodes of a graph so that no edge but those that close a cycle leads back.
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
        while let Some((node, ways)) = path.last_mut() {
            match ways.next() {
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

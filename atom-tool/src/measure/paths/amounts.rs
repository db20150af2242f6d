//! Adding up what blocks do with few additions.
//!
//! The graph of a procedure has two vertices for each block, its start and its end, and one for all that is outside. Its edges
//! are the blocks and the ways between them. A spanning tree of the graph gets no additions: for each vertex it says by
//! how much the sum is after there (its *debt*). Each other edge pays: it adds the debt of its start, plus its own amount, minus
//! the debt of its end. Then the sum is right wherever control goes outside, which has no debt: at calls, returns and jumps
//! to places that are not known, and before system calls, since the process may end there.
//!
//! Additions may be negative. The tree takes the edges that are probably most frequent.

use std::collections::HashMap;

use crate::navigation::edges::Way;
use crate::navigation::handle::{Block, Proc};
use crate::{EdgeKind, InstType};

/// Where an amount is added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spot<'a> {
    /// Before the block.
    Block(Block<'a>),
    /// On this way out of the block.
    Edge(Block<'a>, Way),
}

/// Where to add what, for the sum over the blocks of a procedure of their amounts, one for each execution. Amounts are added modulo
/// 2^64.
///
/// The sum is right when a procedure is called, returns or makes a system call. In between it may be after or ahead by the
/// amounts of some blocks, which matters if a fault ends the process, or a signal handler leaves by `longjmp`.
pub fn amounts<'a>(proc: Proc<'a>, of: impl Fn(Block<'a>) -> u64) -> Vec<(Spot<'a>, u64)> {
    let blocks: Vec<Block<'a>> = proc.blocks().collect();
    if blocks.iter().any(|block| !block.is_selected()) {
        let all = blocks.iter().map(|block| (Spot::Block(*block), of(*block)));
        return all.collect();
    }
    let graph = Graph::new(proc, &blocks, &of);
    let mut debts = Debts::new(2 * blocks.len() + 1);
    let mut edges = graph.edges;
    edges.sort_by(|a, b| b.cost.total_cmp(&a.cost));
    let mut spots = Vec::new();
    for edge in &edges {
        let left = debts.join(edge.from, edge.to, edge.amount);
        if left != 0
            && let Some(spot) = edge.spot
        {
            spots.push((spot, left));
        }
    }
    spots
}

/// An edge of the graph.
struct Step<'a> {
    from: usize,
    to: usize,
    amount: u64,
    /// Where an addition would be; `None` if there is no place, and the edge is in the tree in any case.
    spot: Option<Spot<'a>>,
    /// Estimated cost of an addition.
    cost: f64,
}

struct Graph<'a> {
    edges: Vec<Step<'a>>,
}

/// The vertex for what is outside.
const OUTSIDE: usize = 0;
/// An addition on a branch that is taken needs a jump of its own.
const JUMP: f64 = 1.7;
/// Part of the executions of a branch that stay in its loop.
const STAYS: f64 = 0.88;
/// How often frequencies are passed on along all edges.
const ROUNDS: usize = 16;

fn start(block: usize) -> usize {
    1 + 2 * block
}

fn end(block: usize) -> usize {
    2 + 2 * block
}

/// A way between two blocks of the procedure.
struct Link {
    from: usize,
    to: usize,
    way: Way,
}

impl<'a> Graph<'a> {
    fn new(proc: Proc<'a>, blocks: &[Block<'a>], of: &impl Fn(Block<'a>) -> u64) -> Self {
        let numbers: HashMap<usize, usize> = (blocks.iter().enumerate())
            .map(|(i, block)| (block.index(), i))
            .collect();
        let mut links = Vec::new();
        // Blocks to which control comes from outside, and blocks from which it goes there.
        let mut is_entry = vec![false; blocks.len()];
        let mut is_exit = vec![false; blocks.len()];
        for block in proc.starts() {
            if let Some(i) = numbers.get(&block.index()) {
                is_entry[*i] = true;
            }
        }
        for (i, block) in blocks.iter().enumerate() {
            is_entry[i] |= block.is_address_taken();
            let from_outside = |kind| {
                matches!(
                    kind,
                    EdgeKind::Table | EdgeKind::CallReturn | EdgeKind::Unwind
                )
            };
            let is_own = |other: Option<Block<'_>>| other.is_some_and(|b| b.proc() == proc);
            for edge in block.predecessors() {
                is_entry[i] |= from_outside(edge.kind) || !is_own(edge.block);
            }
            let next = block.successors();
            is_exit[i] = next.is_empty() || block.last_inst().is_type(InstType::Call);
            for edge in next {
                let to = edge.block.and_then(|b| numbers.get(&b.index()).copied());
                let way = match edge.kind {
                    EdgeKind::Fall => Way::Falling,
                    EdgeKind::Taken => Way::Taken,
                    _ => {
                        is_exit[i] = true;
                        continue;
                    }
                };
                match to {
                    Some(to) => links.push(Link { from: i, to, way }),
                    None => is_exit[i] = true,
                }
            }
        }
        let frequencies = frequencies(proc, blocks, &links, &is_entry);
        let mut graph = Self { edges: Vec::new() };
        for (i, block) in blocks.iter().enumerate() {
            let has_call = block.insts().any(|inst| inst.is_syscall());
            if is_entry[i] {
                graph.fixed(OUTSIDE, start(i));
            }
            if is_exit[i] {
                graph.fixed(end(i), OUTSIDE);
            }
            if has_call {
                graph.fixed(OUTSIDE, end(i));
            }
            graph.edges.push(Step {
                from: start(i),
                to: if has_call { OUTSIDE } else { end(i) },
                amount: of(*block),
                spot: Some(Spot::Block(*block)),
                cost: frequencies.blocks[i],
            });
        }
        for (link, frequency) in links.iter().zip(&frequencies.links) {
            let block = blocks[link.from];
            let is_branch = block.last_inst().is_type(InstType::CondBr);
            let is_far = link.way == Way::Taken && is_branch;
            graph.edges.push(Step {
                from: end(link.from),
                to: start(link.to),
                amount: 0,
                spot: Some(Spot::Edge(block, link.way)),
                cost: frequency * if is_far { JUMP } else { 1.0 },
            });
        }
        graph
    }

    /// An edge that is in the tree. Such edges meet at the vertex outside only, so they form no circle.
    fn fixed(&mut self, from: usize, to: usize) {
        self.edges.push(Step {
            from,
            to,
            amount: 0,
            spot: None,
            cost: f64::INFINITY,
        });
    }
}

/// Estimated numbers of executions.
struct Frequencies {
    blocks: Vec<f64>,
    links: Vec<f64>,
}

/// Estimates how often blocks are executed: branches go both ways equally often, but seldom out of a loop.
fn frequencies(
    proc: Proc<'_>,
    blocks: &[Block<'_>],
    links: &[Link],
    is_entry: &[bool],
) -> Frequencies {
    let loops = proc.loops();
    let depth = |block: &Block<'_>| {
        let innermost = block.innermost_loop().and_then(|i| loops.get(i));
        innermost.map_or(0, |found| found.depth)
    };
    let depths: Vec<u32> = blocks.iter().map(depth).collect();
    let mut ways = vec![0.0f64; blocks.len()];
    let weight = |link: &Link| {
        if depths[link.to] < depths[link.from] {
            1.0 - STAYS
        } else {
            STAYS
        }
    };
    for link in links {
        ways[link.from] += weight(link);
    }
    let outside = |i: usize| if is_entry[i] { 1.0 } else { 0.0 };
    let mut now: Vec<f64> = (0..blocks.len()).map(outside).collect();
    let mut flows = vec![0.0; links.len()];
    for _ in 0..ROUNDS {
        // Links are in the order of their blocks, so that one round passes on what goes forwards.
        for (flow, link) in flows.iter_mut().zip(links) {
            let new = now[link.from] * weight(link) / ways[link.from];
            now[link.to] += new - *flow;
            *flow = new;
        }
    }
    Frequencies {
        blocks: now,
        links: flows,
    }
}

/// The debts of vertices, as far as they are connected by the tree.
struct Debts {
    /// For each vertex another one of its part of the tree, or itself, and by how much its debt is larger than that one's.
    parents: Vec<(usize, u64)>,
}

impl Debts {
    fn new(count: usize) -> Self {
        Self {
            parents: (0..count).map(|i| (i, 0)).collect(),
        }
    }

    /// The representative of a vertex's part, and by how much the vertex's debt is larger.
    fn find(&mut self, vertex: usize) -> (usize, u64) {
        let (mut root, mut debt) = (vertex, 0u64);
        while self.parents[root].0 != root {
            debt = debt.wrapping_add(self.parents[root].1);
            root = self.parents[root].0;
        }
        // Shorter ways for later.
        let (mut at, mut rest) = (vertex, debt);
        while at != root {
            let (next, step) = std::mem::replace(&mut self.parents[at], (root, rest));
            (at, rest) = (next, rest.wrapping_sub(step));
        }
        (root, debt)
    }

    /// Takes an edge into the tree if it connects two parts; returns what the edge has to pay else.
    fn join(&mut self, from: usize, to: usize, amount: u64) -> u64 {
        let (from_root, from_debt) = self.find(from);
        let (to_root, to_debt) = self.find(to);
        let behind = from_debt.wrapping_add(amount).wrapping_sub(to_debt);
        if from_root == to_root {
            return behind;
        }
        self.parents[to_root] = (from_root, behind);
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A branch and a loop: 0 goes to 1 or 2, both go to 3, which goes back to 0 or outside.
    #[test]
    fn sums_are_right_outside() {
        let amounts = [5u64, 7, 11, 3];
        let mut edges = vec![(OUTSIDE, start(0), 0), (end(3), OUTSIDE, 0)];
        let blocks = (0..4).map(|i| (start(i), end(i), amounts[i]));
        edges.extend(blocks);
        edges.extend([(0, 1), (0, 2), (1, 3), (2, 3), (3, 0)].map(|(a, b)| (end(a), start(b), 0)));
        // Any order of the edges after the fixed ones does.
        for turn in 0..edges.len() - 2 {
            let mut order = edges.clone();
            order[2..].rotate_left(turn);
            let mut debts = Debts::new(9);
            let pay: HashMap<(usize, usize), u64> = (order.iter())
                .map(|(a, b, amount)| ((*a, *b), debts.join(*a, *b, *amount)))
                .collect();
            let path = [0usize, 1, 3, 0, 2, 3, 0, 1, 3];
            let mut sum = pay[&(OUTSIDE, start(0))];
            for (i, block) in path.iter().enumerate() {
                sum = sum.wrapping_add(pay[&(start(*block), end(*block))]);
                let next = path.get(i + 1).map_or(OUTSIDE, |next| start(*next));
                sum = sum.wrapping_add(pay[&(end(*block), next)]);
            }
            assert_eq!(sum, path.iter().map(|block| amounts[*block]).sum::<u64>());
            assert!(pay.values().filter(|pay| **pay != 0).count() <= 3);
        }
    }
}

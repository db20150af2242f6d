//! Loops of a procedure, with how often they were entered and went round.
//!
//! A profile counts blocks, and branches with some tools, but not edges. An edge's count follows from these if the edge
//! is the only one of its block, or belongs to a branch whose directions were counted. The number of entries is given
//! where it follows from such edges, and is left out elsewhere: a guess would look like a count.

use atom_core::BlockId;
use atom_core::cfg::Cfg;
use atom_core::cfg::graph::{Edge, EdgeKind, FlowGraph};

use super::counts::Branch;

/// A natural loop.
#[derive(Clone, Debug)]
pub struct Loop {
    /// Address of the block through which it is entered.
    pub header: u64,
    /// 1 for an outermost loop.
    pub depth: u32,
    /// Index of the innermost loop around it.
    pub parent: Option<u32>,
    /// Number of executions of its header; `None` if the profile does not count executions.
    pub rounds: Option<u64>,
    /// Number of times that control came to the header from outside.
    pub entries: Option<u64>,
}

/// The loops of a graph. `executions` is the count of a block, `branch` the directions of the branch at a block's end.
pub fn of(
    cfg: &Cfg,
    graph: &FlowGraph,
    executions: impl Fn(BlockId) -> Option<u64>,
    branch: impl Fn(BlockId) -> Option<Branch>,
) -> Vec<Loop> {
    let all = graph.loops();
    let make = |found: &atom_core::cfg::graph::Loop| {
        let inside = all.blocks(found);
        let rounds = executions(found.header);
        // Executions of all edges to the header from blocks that `wanted` chooses.
        let sum = |wanted: &dyn Fn(BlockId) -> bool| {
            let from = graph.predecessors(found.header).iter();
            let mut from: Vec<BlockId> = from.map(|p| p.0).filter(|p| wanted(*p)).collect();
            from.sort_unstable();
            from.dedup();
            from.into_iter()
                .map(|p| along(graph.successors(p), found.header, executions(p)?, branch(p)))
                .sum::<Option<u64>>()
        };
        let is_entry = graph.entries().any(|e| e == found.header);
        let back = sum(&|p| inside.contains(&p));
        let entries = match (rounds, back) {
            (Some(rounds), Some(back)) => rounds.checked_sub(back),
            (Some(_), None) if !is_entry => sum(&|p| !inside.contains(&p)),
            _ => None,
        };
        Loop {
            header: cfg.block_pc(found.header),
            depth: found.depth,
            parent: found.parent,
            rounds,
            entries,
        }
    };
    all.list().iter().map(make).collect()
}

/// Executions of the edges to `to` of a block that was executed `executions` times.
fn along(edges: &[Edge], to: BlockId, executions: u64, branch: Option<Branch>) -> Option<u64> {
    if edges.iter().all(|edge| edge.block == Some(to)) {
        return Some(executions);
    }
    let branch = branch?;
    let kinds: Vec<EdgeKind> = edges.iter().map(|e| e.kind).collect();
    let sum = edges.iter().filter(|e| e.block == Some(to));
    match kinds.len() {
        2 => sum
            .map(|edge| match edge.kind {
                EdgeKind::Taken => Some(branch.taken),
                EdgeKind::Fall => Some(branch.not_taken),
                _ => None,
            })
            .sum(),
        _ => None,
    }
}

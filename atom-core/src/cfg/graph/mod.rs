//! Control flow within a procedure as tools ask for it: edges with their
//! kinds, dominators, loops.
//!
//! Rewriting needs every edge that *may* be taken, and
//! the [`Cfg`] has just these. Questions of structure are answered better by a
//! graph with more facts:
//! - parts that the compiler put elsewhere (`foo.cold`) belong to their procedure;
//! - a call whose callee never returns is not followed by anything;
//! - an exception leads from a call to its landing pad.
//!
//! Facts of the whole program are collected once in [`FlowFacts`]; a
//! [`FlowGraph`] is made for one procedure when it is needed.

mod dominators;
mod loops;
mod no_return;

use std::cell::OnceCell;

use super::{Cfg, ProcKind, Succ};
use crate::ids::{BlockId, ProcId};
use crate::image::Image;
use crate::unwind::UnwindTable;
use crate::x86::ControlFlow;
use dominators::{Adjacency, Tree};
pub use loops::{Loop, Loops};
pub(crate) use no_return::is_never;

/// How control goes along an edge.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum EdgeKind {
    /// To the next instruction: no branch, or one that is not taken.
    Fall,
    /// By a direct branch.
    Taken,
    /// By an indirect jump whose targets are known.
    Table,
    /// To the instruction after a call.
    CallReturn,
    /// From a call to a landing pad, by an exception.
    Unwind,
    /// To another procedure, by a jump.
    Tail,
    /// To the caller.
    Return,
    /// To a place that is not known.
    Unknown,
}

/// An edge from a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Edge {
    /// How control goes along the edge.
    pub kind: EdgeKind,
    /// Target block, if it belongs to the same procedure.
    pub block: Option<BlockId>,
    /// Target address; 0 if it is not known.
    pub address: u64,
}

/// A range of code in which an exception leads to a landing pad.
#[derive(Clone, Copy, Debug)]
struct Try {
    start: u64,
    end: u64,
    pad: u64,
}

/// Facts of the whole program that the graphs of procedures need.
#[derive(Default)]
pub struct FlowFacts {
    /// Parts put elsewhere: (procedure, part), sorted.
    parts: Vec<(ProcId, ProcId)>,
    /// Ranges with landing pads, sorted, not overlapping.
    tries: Vec<Try>,
    /// By block: true if it ends with a call that never returns.
    never_goes_on: Vec<bool>,
}

impl FlowFacts {
    /// Reads the whole program once.
    pub fn new(image: &Image, cfg: &Cfg, unwind: &UnwindTable<'_>) -> Self {
        let mut tries: Vec<Try> = unwind
            .try_ranges()
            .map(|(start, end, pad)| Try { start, end, pad })
            .collect();
        tries.sort_unstable_by_key(|t| t.start);
        Self {
            tries,
            ..Self::without_exceptions(image, cfg)
        }
    }

    /// Facts without exception tables, for a program whose tables cannot be read. Each landing pad
    /// then is an entry.
    pub fn without_exceptions(image: &Image, cfg: &Cfg) -> Self {
        let mut parts: Vec<_> = (0..cfg.procs.len())
            .map(ProcId::from_index)
            .filter_map(|part| match cfg.proc(part).kind {
                ProcKind::Fragment(Some(of)) => Some((of, part)),
                _ => None,
            })
            .collect();
        parts.sort_unstable();
        let never_goes_on = no_return::never_goes_on(image, cfg, &parts);
        Self {
            parts,
            tries: Vec::new(),
            never_goes_on,
        }
    }

    /// A procedure and its parts, in address order.
    fn with_fragments(&self, whole: ProcId) -> Vec<ProcId> {
        let first = self.parts.partition_point(|p| p.0 < whole);
        let parts = self.parts[first..].iter().take_while(|p| p.0 == whole);
        let mut all: Vec<_> = parts.map(|p| p.1).chain([whole]).collect();
        all.sort_unstable();
        all
    }

    /// True if the block ends with a call that never returns.
    pub fn never_goes_on(&self, block: BlockId) -> bool {
        self.never_goes_on[block.index()]
    }

    /// The landing pad for an exception thrown by a call that ends at `end`.
    fn landing_pad(&self, end: u64) -> Option<u64> {
        // As in the unwinder, the byte before the return address decides.
        let at = end - 1;
        let i = self.tries.partition_point(|t| t.start <= at);
        let found = self.tries[..i].last()?;
        (at < found.end).then_some(found.pad)
    }
}

/// The control flow of one procedure with its parts.
pub struct FlowGraph {
    /// For each part: first block, number of blocks, node number of the first block.
    ranges: Vec<(BlockId, u32, u32)>,
    /// Edges, in the order of source nodes.
    edges: Vec<Edge>,
    edge_start: Vec<u32>,
    /// Sources and kinds of edges, in the order of target nodes.
    preds: Vec<(BlockId, EdgeKind)>,
    pred_start: Vec<u32>,
    roots: Vec<u32>,
    succs: Adjacency,
    reverse: Adjacency,
    dominators: OnceCell<Tree>,
    post_dominators: OnceCell<Tree>,
    loops: OnceCell<Loops>,
}

impl FlowGraph {
    /// The graph of a procedure that is no part of another one, see [`Cfg::whole`].
    pub fn new(cfg: &Cfg, facts: &FlowFacts, whole: ProcId) -> Self {
        let mut ranges = Vec::new();
        let mut n = 0;
        for proc in facts.with_fragments(whole) {
            let proc = cfg.proc(proc);
            if proc.block_count > 0 {
                ranges.push((proc.first_block, proc.block_count, n));
                n += proc.block_count;
            }
        }
        let mut graph = Self {
            ranges,
            edges: Vec::new(),
            edge_start: Vec::with_capacity(n as usize + 1),
            preds: Vec::new(),
            pred_start: Vec::new(),
            roots: Vec::new(),
            succs: Adjacency::default(),
            reverse: Adjacency::default(),
            dominators: OnceCell::new(),
            post_dominators: OnceCell::new(),
            loops: OnceCell::new(),
        };
        for node in 0..n {
            graph.edge_start.push(graph.edges.len() as u32);
            graph.add_edges(cfg, facts, graph.block(node));
        }
        graph.edge_start.push(graph.edges.len() as u32);
        graph.link(n as usize);
        graph.find_roots(cfg);
        graph
    }

    fn add_edges(&mut self, cfg: &Cfg, facts: &FlowFacts, id: BlockId) {
        let last = cfg.block(id).last();
        let flow = cfg.inst(last).flow;
        let end = cfg.inst_end(last);
        let is_call = matches!(flow, ControlFlow::Call | ControlFlow::IndirectCall);
        let next = if is_call {
            EdgeKind::CallReturn
        } else {
            EdgeKind::Fall
        };
        let jump = match flow {
            ControlFlow::IndirectJump => EdgeKind::Table,
            _ => EdgeKind::Taken,
        };
        let succs = cfg.succs(id);
        for (i, succ) in succs.iter().enumerate() {
            // The successor that is reached without a jump is last.
            let falls = !flow.ends_flow() && i + 1 == succs.len();
            let edge = match *succ {
                Succ::Fall(_) if is_call && facts.never_goes_on(id) => continue,
                Succ::Fall(to) => self.inner(cfg, next, to),
                Succ::Branch(to) => self.inner(cfg, jump, to),
                Succ::Tail(_) if falls && is_call && facts.never_goes_on(id) => continue,
                Succ::Tail(address) => {
                    let address = address.get();
                    let inside = cfg.block_at(address).filter(|b| self.node(*b).is_some());
                    match (inside, falls) {
                        (Some(to), true) => self.inner(cfg, next, to),
                        (Some(to), false) => self.inner(cfg, jump, to),
                        (None, _) => Edge {
                            kind: if falls { next } else { EdgeKind::Tail },
                            block: None,
                            address,
                        },
                    }
                }
                Succ::Unknown => Edge {
                    kind: match flow {
                        ControlFlow::Return => EdgeKind::Return,
                        _ => EdgeKind::Unknown,
                    },
                    block: None,
                    address: 0,
                },
            };
            self.edges.push(edge);
        }
        if is_call && let Some(pad) = facts.landing_pad(end) {
            let block = cfg.block_at(pad).filter(|b| self.node(*b).is_some());
            self.edges.push(Edge {
                kind: EdgeKind::Unwind,
                block,
                address: pad,
            });
        }
    }

    fn inner(&self, cfg: &Cfg, kind: EdgeKind, to: BlockId) -> Edge {
        Edge {
            kind,
            block: Some(to),
            address: cfg.block_pc(to),
        }
    }

    fn link(&mut self, n: usize) {
        let pairs: Vec<(u32, u32, EdgeKind)> = (0..n as u32)
            .flat_map(|from| self.edges_of(from).iter().map(move |e| (from, e)))
            .filter_map(|(from, e)| Some((from, self.node(e.block?)?, e.kind)))
            .collect();
        let both = pairs.iter().map(|p| (p.0, p.1));
        self.succs = Adjacency::new(n, both.clone());
        self.reverse = Adjacency::new(n, both.map(|(from, to)| (to, from)));
        self.pred_start = vec![0; n + 1];
        for p in &pairs {
            self.pred_start[p.1 as usize + 1] += 1;
        }
        for i in 0..n {
            self.pred_start[i + 1] += self.pred_start[i];
        }
        let mut next = self.pred_start.clone();
        self.preds = vec![(BlockId(0), EdgeKind::Fall); pairs.len()];
        for (from, to, kind) in pairs {
            let slot = &mut next[to as usize];
            self.preds[*slot as usize] = (self.block(from), kind);
            *slot += 1;
        }
    }

    /// Finds the blocks at which control can enter: targets of other procedures, and blocks
    /// reached in a way that no edge shows.
    fn find_roots(&mut self, cfg: &Cfg) {
        let n = self.succs.len() as u32;
        self.roots = (0..n)
            .filter(|&node| {
                let block = cfg.block(self.block(node));
                let starts_part = matches!(cfg.proc(block.proc).kind, ProcKind::Fragment(_))
                    && cfg.proc(block.proc).first_block == self.block(node);
                let has = |kind| self.preds_of(node).iter().any(|p| p.1 == kind);
                block.is_entry
                    || block.is_landing_pad && !has(EdgeKind::Unwind)
                    || block.is_indirect_target && !starts_part && !has(EdgeKind::Table)
                    || starts_part && self.preds_of(node).is_empty()
                    || cfg.proc(block.proc).kind == ProcKind::Fragment(None) && starts_part
            })
            .collect();
    }

    fn node(&self, block: BlockId) -> Option<u32> {
        self.ranges
            .iter()
            .find(|r| block >= r.0 && block.0 - r.0.0 < r.1)
            .map(|r| r.2 + (block.0 - r.0.0))
    }

    fn block(&self, node: u32) -> BlockId {
        let i = self.ranges.partition_point(|r| r.2 <= node) - 1;
        let (first, _, start) = self.ranges[i];
        BlockId(first.0 + (node - start))
    }

    fn edges_of(&self, node: u32) -> &[Edge] {
        let node = node as usize;
        &self.edges[self.edge_start[node] as usize..self.edge_start[node + 1] as usize]
    }

    fn preds_of(&self, node: u32) -> &[(BlockId, EdgeKind)] {
        let node = node as usize;
        &self.preds[self.pred_start[node] as usize..self.pred_start[node + 1] as usize]
    }

    /// All blocks of the procedure and its parts.
    pub fn blocks(&self) -> impl Iterator<Item = BlockId> + '_ {
        (0..self.succs.len() as u32).map(|node| self.block(node))
    }

    /// The edges from a block.
    pub fn successors(&self, block: BlockId) -> &[Edge] {
        self.node(block).map_or(&[], |node| self.edges_of(node))
    }

    /// The blocks of this procedure that lead to a block, each with the kind of the edge.
    pub fn predecessors(&self, block: BlockId) -> &[(BlockId, EdgeKind)] {
        self.node(block).map_or(&[], |node| self.preds_of(node))
    }

    /// Blocks at which control can enter the procedure.
    pub fn entries(&self) -> impl Iterator<Item = BlockId> + '_ {
        self.roots.iter().map(|node| self.block(*node))
    }

    fn tree(&self) -> &Tree {
        self.dominators
            .get_or_init(|| Tree::new(&self.succs, &self.reverse, &self.roots))
    }

    fn post_tree(&self) -> &Tree {
        self.post_dominators.get_or_init(|| {
            let ends = |node: &u32| {
                let edges = self.edges_of(*node);
                edges.is_empty() || edges.iter().any(|e| e.block.is_none())
            };
            let ends: Vec<u32> = (0..self.succs.len() as u32).filter(ends).collect();
            Tree::new(&self.reverse, &self.succs, &ends)
        })
    }

    fn among(&self, tree: &Tree, block: BlockId) -> Option<BlockId> {
        Some(self.block(tree.idom(self.node(block)?)?))
    }

    fn ask(&self, tree: &Tree, a: BlockId, b: BlockId) -> bool {
        match (self.node(a), self.node(b)) {
            (Some(a), Some(b)) => tree.dominates(a, b),
            _ => false,
        }
    }

    /// True if some entry leads to the block.
    pub fn is_reachable(&self, block: BlockId) -> bool {
        self.node(block)
            .is_some_and(|node| self.tree().is_reachable(node))
    }

    /// The last block before this one that every path from an entry passes.
    pub fn immediate_dominator(&self, block: BlockId) -> Option<BlockId> {
        self.among(self.tree(), block)
    }

    /// True if every path from an entry to `b` passes `a`; a block dominates itself.
    pub fn dominates(&self, a: BlockId, b: BlockId) -> bool {
        self.ask(self.tree(), a, b)
    }

    /// The first block after this one that every path to an end of the procedure
    /// passes. Blocks that lead to no end have none.
    pub fn immediate_post_dominator(&self, block: BlockId) -> Option<BlockId> {
        self.among(self.post_tree(), block)
    }

    /// True if every path from `b` to an end of the procedure passes `a`.
    pub fn post_dominates(&self, a: BlockId, b: BlockId) -> bool {
        self.ask(self.post_tree(), a, b)
    }

    /// The natural loops.
    pub fn loops(&self) -> &Loops {
        self.loops.get_or_init(|| {
            Loops::new(&self.succs, &self.reverse, self.tree(), |node| {
                self.block(node)
            })
        })
    }

    /// Index in [`FlowGraph::loops`] of the innermost loop that contains a block.
    pub fn innermost_loop(&self, block: BlockId) -> Option<u32> {
        self.loops().innermost(self.node(block)?)
    }
}

impl std::fmt::Debug for FlowGraph {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.blocks().map(|b| (b, self.successors(b))))
            .finish()
    }
}

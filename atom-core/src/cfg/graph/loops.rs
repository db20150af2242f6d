//! Natural loops, nested.
//!
//! A back edge leads to a block that dominates its source; the natural loop of
//! that header is the header with all blocks that reach a back edge's source
//! without passing it. Back edges to one header make one loop. Two natural
//! loops are disjoint or nested, so they form a forest; the blocks of each loop
//! are kept as one slice of a single vector in which inner loops are inside
//! outer ones, which keeps deep nests linear in memory.
//!
//! A cycle that is entered at several blocks has no header and is no natural
//! loop; [`Loops::irreducible`] is true if there is one.

use std::ops::Range;

use super::dominators::{Adjacency, NONE, Tree};
use crate::ids::BlockId;

/// A natural loop.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Loop {
    /// The block through which it is entered.
    pub header: BlockId,
    /// Index of the innermost loop around it.
    pub parent: Option<u32>,
    /// 1 for an outermost loop.
    pub depth: u32,
    /// Blocks from which a back edge leads to the header, in address order.
    pub latches: Vec<BlockId>,
    /// Its blocks, as a range of [`Loops::blocks`].
    blocks: Range<u32>,
}

/// The loops of a procedure, outer ones before inner ones.
#[derive(Clone, Default, Debug)]
pub struct Loops {
    list: Vec<Loop>,
    blocks: Vec<BlockId>,
    /// By node: the innermost loop, or [`NONE`].
    innermost: Vec<u32>,
    /// True if there are cycles that are no natural loops.
    pub irreducible: bool,
}

impl Loops {
    pub(super) fn new(
        succs: &Adjacency,
        preds: &Adjacency,
        tree: &Tree,
        block_of: impl Fn(u32) -> BlockId,
    ) -> Self {
        let n = succs.len();
        let mut irreducible = false;
        // (time at which a walk over the tree enters the header, header, latch): inner headers come last.
        let mut back_edges: Vec<(u32, u32, u32)> = Vec::new();
        for node in (0..n as u32).filter(|node| tree.is_reachable(*node)) {
            for &target in succs.of(node) {
                if tree.dominates(target, node) {
                    back_edges.push((tree.enter(target), target, node));
                } else if tree.order(target) <= tree.order(node) {
                    irreducible = true;
                }
            }
        }
        back_edges.sort_unstable();
        back_edges.dedup();
        let groups: Vec<&[(u32, u32, u32)]> = back_edges.chunk_by(|a, b| a.0 == b.0).collect();

        // Inner loops first, since an outer loop takes an inner one as a whole.
        let count = groups.len();
        let mut innermost = vec![NONE; n];
        let mut parent = vec![NONE; count];
        // Like `parent`, but may lead to a loop further out, for short ways.
        let mut skip = vec![NONE; count];
        for (i, group) in groups.iter().enumerate().rev() {
            let header = group[0].1;
            let mut work: Vec<u32> = group.iter().map(|edge| edge.2).collect();
            if innermost[header as usize] == NONE {
                innermost[header as usize] = i as u32;
            }
            while let Some(node) = work.pop() {
                if innermost[node as usize] == NONE {
                    innermost[node as usize] = i as u32;
                    work.extend(preds.of(node).iter().filter(|p| tree.is_reachable(**p)));
                    continue;
                }
                let outermost = climb(&mut skip, innermost[node as usize]);
                if outermost != i as u32 {
                    parent[outermost as usize] = i as u32;
                    skip[outermost as usize] = i as u32;
                    let header = groups[outermost as usize][0].1;
                    let outside = preds.of(header).iter();
                    work.extend(outside.filter(|p| tree.is_reachable(**p)));
                }
            }
        }
        let mut loops = Self {
            list: Vec::with_capacity(count),
            blocks: Vec::new(),
            innermost,
            irreducible,
        };
        loops.lay_out(&groups, &parent, block_of);
        loops
    }

    /// Orders all blocks so that the blocks of each loop are side by side.
    fn lay_out(
        &mut self,
        groups: &[&[(u32, u32, u32)]],
        parent: &[u32],
        block_of: impl Fn(u32) -> BlockId,
    ) {
        let count = groups.len();
        let mut size = vec![0u32; count];
        for i in self.innermost.iter().filter(|i| **i != NONE) {
            size[*i as usize] += 1;
        }
        let own = size.clone();
        // An outer loop has a lower index than the loops in it.
        for i in (0..count).rev() {
            if parent[i] != NONE {
                size[parent[i] as usize] += size[i];
            }
        }
        let mut next_child = vec![0u32; count];
        let mut next_own = vec![0u32; count];
        let mut end = 0;
        for i in 0..count {
            let (start, depth) = match parent[i] {
                NONE => {
                    end += size[i];
                    (end - size[i], 1)
                }
                p => {
                    let start = next_child[p as usize];
                    next_child[p as usize] += size[i];
                    (start, self.list[p as usize].depth + 1)
                }
            };
            next_own[i] = start;
            next_child[i] = start + own[i];
            let mut latches: Vec<BlockId> = groups[i].iter().map(|e| block_of(e.2)).collect();
            latches.sort_unstable();
            self.list.push(Loop {
                header: block_of(groups[i][0].1),
                parent: (parent[i] != NONE).then_some(parent[i]),
                depth,
                latches,
                blocks: start..start + size[i],
            });
        }
        self.blocks = vec![BlockId(NONE); end as usize];
        for (node, i) in self.innermost.iter().enumerate().filter(|x| *x.1 != NONE) {
            let slot = &mut next_own[*i as usize];
            self.blocks[*slot as usize] = block_of(node as u32);
            *slot += 1;
        }
    }

    /// All loops, outer ones before inner ones.
    pub fn list(&self) -> &[Loop] {
        &self.list
    }

    /// The blocks of a loop, with the blocks of inner loops last.
    pub fn blocks(&self, of: &Loop) -> &[BlockId] {
        &self.blocks[of.blocks.start as usize..of.blocks.end as usize]
    }

    /// Index of the innermost loop of a node.
    pub(super) fn innermost(&self, node: u32) -> Option<u32> {
        let i = self.innermost[node as usize];
        (i != NONE).then_some(i)
    }
}

/// The outermost loop found so far around loop `i`. Shortens the way in `skip` for later calls.
fn climb(skip: &mut [u32], mut i: u32) -> u32 {
    while skip[i as usize] != NONE {
        let up = skip[i as usize];
        if skip[up as usize] != NONE {
            skip[i as usize] = skip[up as usize];
        }
        i = up;
    }
    i
}

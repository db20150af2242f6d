//! Edges, dominators, loops and entries.

use std::ffi::c_int;

use atom_tool::{Block, Edge, Proc};

use super::handles::{block, nth, of_block, primitives};

/// An edge, seen from one of its ends.
#[repr(C)]
pub struct BlockEdge {
    kind: c_int,
    block: usize,
    address: i64,
}

fn edge(edge: Edge) -> BlockEdge {
    BlockEdge {
        kind: edge.kind as c_int,
        block: of_block(edge.block),
        address: edge.address.unwrap_or(0) as i64,
    }
}

/// A natural loop.
#[repr(C)]
pub struct ProcLoop {
    header: usize,
    parent: c_int,
    depth: c_int,
    latches: c_int,
    blocks: c_int,
    irreducible: c_int,
}

/// Block `n` of a list of a loop; NULL if there is none.
fn of_loop(
    of: Proc<'static>,
    number: c_int,
    block: impl Fn(&atom_tool::Loop<'static>) -> Option<Block<'static>>,
) -> usize {
    let loops = of.loops();
    let found = usize::try_from(number).ok().and_then(|n| loops.get(n));
    of_block(found.and_then(block))
}

primitives! {
    fn GetBlockSuccessor(b: block, n: c_int) gives BlockEdge { nth(b.successors(), n).map(edge) }
    fn GetBlockPredecessor(b: block, n: c_int) gives BlockEdge { nth(b.predecessors(), n).map(edge) }
    fn GetBlockDominator(b: block) -> usize { of_block(b.immediate_dominator()) }
    fn GetBlockPostDominator(b: block) -> usize { of_block(b.immediate_post_dominator()) }
    fn IsBlockReachable(b: block) -> usize { b.is_reachable().into() }
    fn IsBlockAddressTaken(b: block) -> usize { b.is_address_taken().into() }
    fn BlockDominates(b: block, other: usize) -> c_int { b.dominates(block(other, NAME)).into() }
    fn BlockPostDominates(b: block, other: usize) -> c_int { b.post_dominates(block(other, NAME)).into() }
    fn GetBlockLoop(b: block) -> c_int { b.innermost_loop().map_or(-1, |n| n as c_int) }
    fn GetProcEntry(p: proc, n: c_int) -> usize { of_block(nth(p.entries(), n)) }
    fn GetProcStart(p: proc, n: c_int) -> usize { of_block(nth(p.starts(), n)) }
    fn GetLoopBlock(p: proc, number: c_int, n: c_int) -> usize { of_loop(p, number, |l| nth(l.blocks.clone(), n)) }
    fn GetLoopLatch(p: proc, number: c_int, n: c_int) -> usize { of_loop(p, number, |l| nth(l.latches.clone(), n)) }

    fn GetProcLoop(p: proc, n: c_int) gives ProcLoop {
        let loops = p.loops();
        let item = usize::try_from(n).ok().and_then(|n| loops.get(n));
        item.map(|item| ProcLoop {
            header: of_block(Some(item.header)),
            parent: item.parent.map_or(-1, |parent| parent as c_int),
            depth: item.depth as c_int,
            latches: item.latches.len() as c_int,
            blocks: item.blocks.len() as c_int,
            irreducible: loops.irreducible.into(),
        })
    }
}

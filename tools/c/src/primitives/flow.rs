//! Edges, dominators, loops and entries.

use std::ffi::c_int;

use atom_tool::{Block, Edge};

use super::handles::{block, give, nth, of_block, proc};

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

/// # Safety
/// `to` may be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn GetBlockSuccessor(handle: usize, n: c_int, to: *mut BlockEdge) -> c_int {
    const NAME: &str = "GetBlockSuccessor";
    let item = nth(block(handle, NAME).successors(), n).map(edge);
    // SAFETY: the caller's promise.
    unsafe { give(item, to, NAME) }
}

/// # Safety
/// `to` may be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn GetBlockPredecessor(handle: usize, n: c_int, to: *mut BlockEdge) -> c_int {
    const NAME: &str = "GetBlockPredecessor";
    let item = nth(block(handle, NAME).predecessors(), n).map(edge);
    // SAFETY: the caller's promise.
    unsafe { give(item, to, NAME) }
}

macro_rules! of_blocks {
    ($($name:ident => $what:expr;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name(handle: usize) -> usize {
            ($what)(block(handle, stringify!($name)))
        }
    )*};
}

of_blocks! {
    GetBlockDominator => |b: Block<'static>| of_block(b.immediate_dominator());
    GetBlockPostDominator => |b: Block<'static>| of_block(b.immediate_post_dominator());
    IsBlockReachable => |b: Block<'static>| b.is_reachable().into();
    IsBlockAddressTaken => |b: Block<'static>| b.is_address_taken().into();
}

#[unsafe(no_mangle)]
extern "C" fn BlockDominates(handle: usize, other: usize) -> c_int {
    const NAME: &str = "BlockDominates";
    block(handle, NAME).dominates(block(other, NAME)).into()
}

#[unsafe(no_mangle)]
extern "C" fn BlockPostDominates(handle: usize, other: usize) -> c_int {
    const NAME: &str = "BlockPostDominates";
    block(handle, NAME)
        .post_dominates(block(other, NAME))
        .into()
}

#[unsafe(no_mangle)]
extern "C" fn GetProcEntry(handle: usize, n: c_int) -> usize {
    of_block(nth(proc(handle, "GetProcEntry").entries(), n))
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

/// # Safety
/// `to` may be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn GetProcLoop(handle: usize, n: c_int, to: *mut ProcLoop) -> c_int {
    const NAME: &str = "GetProcLoop";
    let loops = proc(handle, NAME).loops();
    let item = usize::try_from(n).ok().and_then(|n| loops.get(n));
    let item = item.map(|item| ProcLoop {
        header: of_block(Some(item.header)),
        parent: item.parent.map_or(-1, |parent| parent as c_int),
        depth: item.depth as c_int,
        latches: item.latches.len() as c_int,
        blocks: item.blocks.len() as c_int,
        irreducible: loops.irreducible.into(),
    });
    // SAFETY: the caller's promise.
    unsafe { give(item, to, NAME) }
}

/// Block `n` of a list of a loop; NULL if there is none.
fn of_loop(
    handle: usize,
    number: c_int,
    primitive: &str,
    block: impl Fn(&atom_tool::Loop<'static>) -> Option<Block<'static>>,
) -> usize {
    let loops = proc(handle, primitive).loops();
    let found = usize::try_from(number).ok().and_then(|n| loops.get(n));
    of_block(found.and_then(block))
}

#[unsafe(no_mangle)]
extern "C" fn GetLoopBlock(handle: usize, number: c_int, n: c_int) -> usize {
    of_loop(handle, number, "GetLoopBlock", |l| nth(l.blocks.clone(), n))
}

#[unsafe(no_mangle)]
extern "C" fn GetLoopLatch(handle: usize, number: c_int, n: c_int) -> usize {
    of_loop(handle, number, "GetLoopLatch", |l| {
        nth(l.latches.clone(), n)
    })
}

#[unsafe(no_mangle)]
extern "C" fn GetBlockLoop(handle: usize) -> c_int {
    let found = block(handle, "GetBlockLoop").innermost_loop();
    found.map_or(-1, |n| n as c_int)
}

//! A thread's place in its tree of call paths, and the stack of the open procedures.
//!
//! The tree has a node for each call path. A node is named by its *place*: its address minus the address of the
//! thread's state, which works as an argument of an inlined routine and makes 0 the root, which is in the state.
//!
//! The open procedures are a stack of [`Frame`]s. A frame keeps what an entry replaced: the node and the stack pointer of the
//! procedure around. The order of the stores in [`PathState::push`] and [`PathState::pop`] lets a signal handler run
//! between any two of them: it enters and leaves procedures of its own, and leaves everything as it was.

use std::mem::offset_of;
use std::sync::atomic::{Ordering, compiler_fence};

use crate::data::thread_data::ThreadCell;
use crate::thread_state;

/// Number of entries in a thread's cache of nodes, a power of two.
pub(super) const CACHED: u64 = 1 << 15;
/// Size of a cache entry in bytes.
const ENTRY: u64 = 8;
/// The bits of an offset in the cache.
const OFFSETS: u64 = (CACHED - 1) * ENTRY;
/// Distance of two nodes in bytes, as a shift.
const NODE_BITS: u32 = 6;

/// Spreads the numbers of procedures over the cache.
pub(super) const fn spread(proc: u32) -> u32 {
    proc.wrapping_mul(0x9e35 * ENTRY as u32) & OFFSETS as u32
}

/// The stack pointer of no procedure: it is above all stacks.
pub(super) const NO_SP: u64 = u64::MAX;

thread_state! {
    /// A node of a thread's tree of call paths. Its children are found by the parent's place, their procedure and,
    /// where call sites count, the call site.
    pub struct PathNode {
        /// What the tool adds up by [`PathState::count`].
        pub(super) own: ThreadCell<u64>,
        /// Number of entries by this way.
        pub(super) calls: ThreadCell<u64>,
        /// Place of the node of the calling procedure.
        pub(super) parent: ThreadCell<u64>,
        /// Place of the node that counts. It is the node itself, or of a recursive call the node to which the
        /// call leads back.
        pub(super) target: ThreadCell<u64>,
        /// Number of the call site, from 1 on; 0 where call sites do not count, or if the call was not seen.
        pub(super) site: ThreadCell<u64>,
        /// Number of the procedure, from 1 on; 0 for the root.
        pub(super) proc: ThreadCell<u32>,
        /// Number of nodes above.
        pub(super) depth: ThreadCell<u32>,
        /// Place of the node that was made before this one.
        pub(super) older: ThreadCell<u64>,
        /// For the tool.
        pub(super) tool: ThreadCell<u64>,
    }
}

thread_state! {
    /// A thread's call path and the tree of its call paths so far.
    pub struct PathState {
        /// The root: what runs before the first procedure is entered.
        pub(super) root: PathNode,
        /// Place of the node of the running procedure.
        pub(super) node: ThreadCell<u64>,
        /// rsp at the entry of the innermost open procedure; [`NO_SP`] if none is open, 0 before the first entry.
        pub(super) sp: ThreadCell<u64>,
        /// Address of the next frame.
        pub(super) top: ThreadCell<u64>,
        /// Address after the last frame.
        pub(super) limit: ThreadCell<u64>,
        /// Address of the cache: for a hash of a node and the procedure that it calls, a place.
        pub(super) cache: ThreadCell<u64>,
        /// Place of the node that was made last.
        pub(super) newest: ThreadCell<u64>,
        /// Lowest address of the stack that the thread runs on, and the address after the highest. Both are 0 until
        /// they are needed.
        pub(super) low: ThreadCell<u64>,
        pub(super) high: ThreadCell<u64>,
        /// Address of the table of all nodes.
        pub(super) table: ThreadCell<u64>,
        /// Address of the [`Arena`](super::nodes::Arena); 0 before the first entry.
        pub(super) arena: ThreadCell<u64>,
        /// Address of the [`Stacks`](super::slow::Stacks).
        pub(super) stacks: ThreadCell<u64>,
        /// Where call sites count: memory for silent calls, and the address after those that a search has found.
        pub(super) room: ThreadCell<u64>,
        pub(super) found: ThreadCell<u64>,
        /// rsp of the procedure for which a search continues, or 0.
        pub(super) search_sp: ThreadCell<u64>,
        /// The silent calls that are kept: the address after them, and rsp and node of the call above which they are.
        pub(super) kept_end: ThreadCell<u64>,
        pub(super) kept_key: ThreadCell<u64>,
        pub(super) kept_node: ThreadCell<u64>,
        /// [`walk::changes`](super::walk::changes) at that time.
        pub(super) kept_changes: ThreadCell<u64>,
    }
}

// Tools in C see these fields: `include/atom.paths.h`.
const _: () = {
    assert!(offset_of!(PathNode, own) == 0 && offset_of!(PathNode, calls) == 8);
    assert!(offset_of!(PathNode, tool) == 56 && size_of::<PathNode>() == 64);
    assert!(offset_of!(PathState, root) == 0 && offset_of!(PathState, node) == 64);
};

impl PathNode {
    /// Number of the call site, as [`CallPaths::calls`](super::CallPaths) has it.
    pub(super) fn call(&self) -> Option<usize> {
        (self.site.get() as usize).checked_sub(1)
    }

    /// What the tool has kept at the node; 0 at first.
    pub fn tool(&self) -> u64 {
        self.tool.get()
    }

    /// Keeps a number at the node for the tool. [`Tree::kept`](super::Tree::kept) has it at the end.
    pub fn set_tool(&self, value: u64) {
        self.tool.set(value);
    }
}

/// What the entry of a procedure replaced.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Frame {
    pub sp: u64,
    pub node: u64,
}

/// Size of a frame in bytes.
pub(super) const FRAME: u64 = size_of::<Frame>() as u64;

/// Keeps the compiler from changing the order of stores. It is no instruction.
#[inline(always)]
pub(super) fn in_this_order() {
    compiler_fence(Ordering::SeqCst);
}

impl PathState {
    /// Address of the state, from which places count.
    #[inline(always)]
    pub(super) fn base(&self) -> u64 {
        std::ptr::from_ref(self).expose_provenance() as u64
    }

    /// The node at a place.
    ///
    /// # Safety
    /// The place is 0, or was made for a node of this state, which lives for ever.
    #[inline(always)]
    pub(super) unsafe fn at(&self, place: u64) -> &'static PathNode {
        let address = self.base().wrapping_add(place) as usize;
        // SAFETY: the caller's promise; states live for ever, too.
        unsafe { &*std::ptr::with_exposed_provenance(address) }
    }

    /// The node of a thread's start.
    #[inline(always)]
    pub fn root(&self) -> &PathNode {
        &self.root
    }

    /// The callers of a node of this thread, the innermost first: for each the call, as
    /// [`CallPaths::calls`](super::CallPaths) has it where call sites count and the call was seen, and the procedure, as
    /// [`CallPaths::procs`](super::CallPaths) has it. The last one has no procedure: it is what begins the thread.
    pub fn callers(
        &self,
        node: &'static PathNode,
    ) -> impl Iterator<Item = (Option<usize>, Option<usize>)> {
        let mut at = Some(node);
        std::iter::from_fn(move || {
            let node = at.take().filter(|node| node.depth.get() != 0)?;
            // SAFETY: the parent's place.
            let caller = unsafe { self.at(node.parent.get()) };
            at = Some(caller);
            Some((node.call(), (caller.proc.get() as usize).checked_sub(1)))
        })
    }

    /// Adds to what the running call path has counted.
    #[inline(always)]
    pub fn count(&self, n: u64) {
        // SAFETY: the place of a node, or 0.
        let node = unsafe { self.at(self.node.get()) };
        node.own.add(n);
    }

    /// The node of the running call path.
    #[inline(always)]
    pub fn here(&self) -> &'static PathNode {
        // SAFETY: as in `count`.
        unsafe { self.at(self.node.get()) }
    }

    /// Offset in the cache of the place for a procedure that is called from a node. `spread` is [`spread`] of the
    /// procedure's number.
    #[inline(always)]
    pub(super) fn offset(node: u64, spread: u32, site: u64) -> u64 {
        let nodes = node >> (NODE_BITS - ENTRY.trailing_zeros());
        let sites = site.wrapping_mul(ENTRY);
        nodes.wrapping_add(spread.into()).wrapping_add(sites) & OFFSETS
    }

    /// Puts a node into the cache.
    pub(super) fn remember(&self, child: u64) {
        // SAFETY: the place of a node.
        let node = unsafe { self.at(child) };
        let spread = spread(node.proc.get());
        let offset = Self::offset(node.parent.get(), spread, node.site.get());
        let entry = (self.cache.get() + offset) as usize;
        // SAFETY: an entry of the cache. A handler may write another place there, which is a valid one, too.
        unsafe { std::ptr::with_exposed_provenance_mut::<u64>(entry).write_volatile(child) };
    }

    /// Puts a frame on the stack and makes `node` the running one.
    #[inline(always)]
    pub(super) fn push(&self, sp: u64, node: u64) {
        let top = self.top.get();
        self.top.set(top + FRAME);
        in_this_order();
        let frame = std::ptr::with_exposed_provenance_mut::<Frame>(top as usize);
        // SAFETY: the frame is below the limit, which the caller has checked, in memory of this thread.
        unsafe {
            (&raw mut (*frame).sp).write(self.sp.get());
            (&raw mut (*frame).node).write(self.node.get());
        }
        in_this_order();
        self.sp.set(sp);
        self.node.set(node);
    }

    /// A frame of this thread.
    #[inline(always)]
    pub(super) fn frame_at(&self, at: u64) -> Frame {
        // SAFETY: the callers pass places of frames that have been pushed, in memory that is never unmapped.
        unsafe { std::ptr::with_exposed_provenance::<Frame>(at as usize).read() }
    }

    /// Takes the uppermost frame from the stack, and goes back to what it kept.
    #[inline(always)]
    pub(super) fn pop(&self) {
        let top = self.top.get().wrapping_sub(FRAME);
        let around = self.frame_at(top);
        in_this_order();
        self.top.set(top);
        in_this_order();
        self.sp.set(around.sp);
        self.node.set(around.node);
    }
}

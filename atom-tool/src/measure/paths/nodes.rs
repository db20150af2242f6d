//! The nodes of a thread's tree of call paths: finding one by its parent, procedure and call site, and making new ones.
//!
//! Searching for a node needs no lock: the table of nodes only grows, and a signal handler that adds nodes
//! meanwhile does no harm. Signals wait only while nodes are made.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

use analysis_rt::Uninterrupted;

use super::state::{CACHED, PathNode, PathState, spread};
use crate::data::thread_data::{ThreadCell, ThreadState};

/// Number of nodes for which memory is taken at a time.
const CHUNK: usize = 512;
/// Number of places in the first table of nodes, a power of two.
const TABLE: usize = 1 << 11;

/// The procedure number of the node below which calls continue when there are too many call paths.
pub(super) const MORE: u32 = u32::MAX;

/// How often a procedure may be on a call path; 0 for any number.
pub(super) static REPEATS: AtomicU32 = AtomicU32::new(1);
/// Number of nodes of a thread from which on there are no new call paths.
pub(super) static MOST: AtomicU64 = AtomicU64::new(1 << 20);

/// A node with the alignment that the cache's hash assumes.
#[repr(align(64))]
struct Aligned(PathNode);

/// What a thread needs to make nodes. The thread itself uses it, while signals wait.
pub(super) struct Arena {
    /// Number of nodes.
    nodes: u64,
    /// Memory for further nodes.
    free: std::slice::Iter<'static, Aligned>,
    /// Place of the node for what is too much, or 0.
    more: u64,
}

/// The nodes of a thread by hash: their places, or 0 where there is none. A table that has become too small stays,
/// since a handler may have interrupted a search in it.
struct Table {
    cells: &'static [ThreadCell<u64>],
}

/// A table of cells on the heap that is never freed.
fn cells(count: usize) -> &'static [ThreadCell<u64>] {
    let cells: Vec<ThreadCell<u64>> = (0..count).map(|_| ThreadCell::new(0)).collect();
    cells.leak()
}

impl Table {
    /// Makes an empty table.
    fn new(size: usize) -> &'static Self {
        Box::leak(Box::new(Self { cells: cells(size) }))
    }

    fn of(state: &PathState) -> &'static Self {
        // SAFETY: the caller has seen that there is an arena, and with it a table. Tables live for ever.
        unsafe { &*std::ptr::with_exposed_provenance(state.table.get() as usize) }
    }

    fn publish(&'static self, state: &PathState) {
        state
            .table
            .set(std::ptr::from_ref(self).expose_provenance() as u64);
    }

    /// The cells in which a node with this hash may be, in the order of the search.
    fn search(&self, hash: u64) -> impl Iterator<Item = &ThreadCell<u64>> {
        let mask = self.cells.len() - 1;
        (hash as usize..).map(move |at| &self.cells[at & mask])
    }

    fn insert(&self, place: u64, hash: u64) {
        if let Some(cell) = self.search(hash).find(|cell| cell.get() == 0) {
            cell.set(place);
        }
    }
}

fn arena(state: &PathState) -> Option<&'static mut Arena> {
    let arena = state.arena.get() as usize;
    // SAFETY: null, or a leaked arena. Signals wait, so nothing else of this thread uses it, and no other thread does.
    unsafe { std::ptr::with_exposed_provenance_mut::<Arena>(arena).as_mut() }
}

/// Prepares for a thread's first node, while signals wait.
pub(super) fn begin(state: &PathState) {
    let arena = Arena {
        nodes: 0,
        free: [].iter(),
        more: 0,
    };
    let cache = cells(CACHED as usize).as_ptr().expose_provenance();
    state.cache.set(cache as u64);
    let arena = std::ptr::from_mut(Box::leak(Box::new(arena))).expose_provenance();
    Table::new(TABLE).publish(state);
    state.arena.set(arena as u64);
}

/// The place of the node that counts for a procedure, given the places of its caller's node and the call site; see
/// [`make`] for `caller`.
pub(super) fn child(state: &PathState, from: [u64; 2], proc: u32, caller: Option<u64>) -> u64 {
    if let Some(known) = known_child(state, from, proc) {
        return known;
    }
    let [node, site] = from;
    let place = match find(state, node, proc, site) {
        Some(place) => place,
        None => make(state, [node, site], proc, caller),
    };
    state.remember(place);
    // SAFETY: the place of a node.
    unsafe { state.at(place) }.target.get()
}

/// As [`child`], for a node that has been asked for lately. The state has an arena.
#[inline(always)]
pub(super) fn known_child(state: &PathState, [node, site]: [u64; 2], proc: u32) -> Option<u64> {
    let entry = state.cache.get() + PathState::offset(node, spread(proc), site);
    // SAFETY: the offset is in the cache, whose entries are places.
    let known = unsafe {
        let place = std::ptr::with_exposed_provenance::<u64>(entry as usize).read_volatile();
        state.at(place)
    };
    let is_it = known.parent.get() == node && known.proc.get() == proc && known.site.get() == site;
    is_it.then(|| known.target.get())
}

fn hash(node: u64, proc: u32, site: u64) -> u64 {
    let mix = (node >> 6) ^ u64::from(proc) << 40 ^ site << 8;
    let mixed = mix.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 29
}

/// The place of a node's child.
pub(super) fn find(state: &PathState, node: u64, proc: u32, site: u64) -> Option<u64> {
    for cell in Table::of(state).search(hash(node, proc, site)) {
        let place = cell.get();
        if place == 0 {
            break;
        }
        // SAFETY: the place of a node.
        let found = unsafe { state.at(place) };
        if found.parent.get() == node && found.proc.get() == proc && found.site.get() == site {
            return Some(place);
        }
    }
    None
}

/// Makes a child of a node, given the node's place and the call site; returns its place. A procedure that is jumped to
/// has the place of the node whose procedure called the first one that jumped: among those since then each is once,
/// since there is no limit to such jumps.
pub(super) fn make(
    state: &PathState,
    [node, site]: [u64; 2],
    proc: u32,
    caller: Option<u64>,
) -> u64 {
    Uninterrupted::run(|_| {
        // A handler may have made it since it was looked for.
        if let Some(child) = find(state, node, proc, site) {
            return child;
        }
        let Some(arena) = arena(state) else { return 0 };
        let jumped = caller.and_then(|caller| above(state, [node, caller], proc, 1));
        let most = REPEATS.load(Relaxed);
        let repeated = || match most {
            0 => None,
            _ => above(state, [node, 0], proc, most),
        };
        let mut target = jumped.or_else(repeated);
        if target.is_none() && arena.nodes >= MOST.load(Relaxed) {
            if arena.more == 0 {
                arena.more = arena.node(state, [0, 0], MORE, None);
            }
            let more = arena.more;
            let known = find(state, more, proc, 0);
            target = Some(known.unwrap_or_else(|| arena.node(state, [more, 0], proc, None)));
        }
        arena.node(state, [node, site], proc, target)
    })
}

/// The place of a procedure's innermost node from a node up to before another one, if it has `most` of them there.
fn above(state: &PathState, [node, end]: [u64; 2], proc: u32, most: u32) -> Option<u64> {
    let (mut count, mut nearest, mut place) = (0, None, node);
    while place != end && place != 0 {
        // SAFETY: places of nodes.
        let on_path = unsafe { state.at(place) };
        if on_path.proc.get() == proc {
            count += 1;
            let nearest = *nearest.get_or_insert(place);
            if count == most {
                return Some(nearest);
            }
        }
        place = on_path.parent.get();
    }
    None
}

impl Arena {
    /// Makes a node; returns its place. Without `target` it counts itself.
    fn node(
        &mut self,
        state: &PathState,
        [parent, site]: [u64; 2],
        proc: u32,
        target: Option<u64>,
    ) -> u64 {
        let fresh = loop {
            match self.free.next() {
                Some(fresh) => break &fresh.0,
                None => {
                    let chunk = (0..CHUNK).map(|_| Aligned(PathNode::zero()));
                    self.free = chunk.collect::<Vec<_>>().leak().iter();
                }
            }
        };
        let address = std::ptr::from_ref(fresh).expose_provenance() as u64;
        let place = address.wrapping_sub(state.base());
        // SAFETY: the place of a node.
        let depth = unsafe { state.at(parent) }.depth.get() + 1;
        fresh.parent.set(parent);
        fresh.target.set(target.unwrap_or(place));
        fresh.site.set(site);
        fresh.proc.set(proc);
        fresh.depth.set(depth);
        fresh.older.set(state.newest.get());
        state.newest.set(place);
        self.nodes += 1;
        let mut table = Table::of(state);
        if self.nodes as usize * 2 > table.cells.len() {
            let larger = Table::new(table.cells.len() * 2);
            let places = table.cells.iter().map(ThreadCell::get);
            for place in places.filter(|place| *place != 0) {
                // SAFETY: the place of a node.
                let node = unsafe { state.at(place) };
                let hash = hash(node.parent.get(), node.proc.get(), node.site.get());
                larger.insert(place, hash);
            }
            larger.publish(state);
            table = larger;
        }
        table.insert(place, hash(parent, proc, site));
        place
    }
}

const _: () = assert!(size_of::<Aligned>() == 64);

//! What happens rarely: the first entry of a thread, a call path that is new, procedures that did not return, another
//! stack.
//!
//! Searching for a node needs no lock: the table of nodes only grows, and a signal handler that adds nodes
//! meanwhile does no harm. Signals wait only while nodes are made and stacks are changed.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use analysis_rt::Uninterrupted;

use super::search;
use super::sites::{self, CALL, call};
use super::state::{CACHED, FRAME, NO_SP, PathNode, PathState, spread};
use crate::data::forks;
use crate::data::thread_data::{ThreadCell, ThreadState};
use crate::measure::stack::stack_around;

/// Most frames of a thread's first stack, and of each further one.
const FRAMES: usize = 1 << 19;
const FRAMES_OF_OTHERS: usize = 1 << 14;
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

/// Call sites count; [`sites`] then has the frames.
pub(super) static BY_SITE: AtomicBool = AtomicBool::new(false);

pub(super) fn is_by_site() -> bool {
    BY_SITE.load(Relaxed)
}

/// rsp at the entry of the innermost open procedure.
fn sp_of(state: &PathState) -> u64 {
    if is_by_site() {
        sites::sp(state)
    } else {
        state.sp.get()
    }
}

/// rsp of the outermost open procedure or call in frames from `start` on; [`NO_SP`] if none is open. A signal handler may
/// run on another stack than the procedures around it, but the thread began on its first one.
fn outermost_sp(state: &PathState, start: u64) -> u64 {
    let (first, top) = (first_above(start), state.top.get());
    if is_by_site() {
        let mut calls = (first..top).step_by(CALL as usize).map(|at| call(at).key);
        return calls.find(|key| *key != 0).unwrap_or(NO_SP);
    }
    // A frame has what was open before its procedure.
    match (top - first) / FRAME {
        0 => NO_SP,
        1 => state.sp.get(),
        _ => state.frame_at(first + FRAME).sp,
    }
}

/// A node with the alignment that the cache's hash assumes.
#[repr(align(64))]
struct Aligned(PathNode);

/// What a thread needs besides its state. The thread itself uses it, while signals wait.
pub(super) struct Arena {
    /// Number of nodes.
    nodes: u64,
    /// Memory for further nodes.
    free: std::slice::Iter<'static, Aligned>,
    stacks: Vec<Stack>,
    /// Index of the stack that the thread runs on.
    current: usize,
    /// Place of the node for what is too much, or 0.
    more: u64,
}

/// The nodes of a thread by hash: their places, or 0 where there is none. A table that has become too small stays,
/// since a handler may have interrupted a search in it.
struct Table {
    cells: &'static [ThreadCell<u64>],
}

/// A stack that the thread does not run on.
struct Stack {
    low: u64,
    high: u64,
    /// Address of the first frame.
    start: u64,
    /// [`PathState::top`], `limit`, `sp` and `node`.
    top: u64,
    limit: u64,
    sp: u64,
    node: u64,
}

/// Memory for frames; `None` if there is none.
fn frames(count: usize) -> Option<(u64, u64)> {
    let size = count * CALL as usize;
    // A child continues with the open procedures, so they are after the part that a fork empties.
    let start = forks::memory(size)?.as_ptr().expose_provenance() + forks::WIPED;
    Some((start as u64, (start + size) as u64))
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

/// Prepares for a thread's first entry. False before the program's start, or if there is no memory; the thread's root then
/// counts everything.
fn begin(state: &PathState) -> bool {
    Uninterrupted::run(|_| {
        if state.arena.get() != 0 {
            return true;
        }
        if !super::has_begun() {
            return false;
        }
        let Some((start, limit)) = frames(FRAMES) else {
            return false;
        };
        if is_by_site() {
            let Some(room) = forks::memory(search::ROOM as usize) else {
                return false;
            };
            let room = room.as_ptr().expose_provenance() + forks::WIPED;
            state.room.set(room as u64);
        }
        let arena = Arena {
            nodes: 0,
            free: [].iter(),
            stacks: vec![Stack {
                low: 0,
                high: 0,
                start,
                top: start,
                limit,
                sp: NO_SP,
                node: 0,
            }],
            current: 0,
            more: 0,
        };
        let top = first(start, [0, 0]);
        let cache = cells(CACHED as usize).as_ptr().expose_provenance();
        state.cache.set(cache as u64);
        let arena = std::ptr::from_mut(Box::leak(Box::new(arena))).expose_provenance();
        Table::new(TABLE).publish(state);
        state.arena.set(arena as u64);
        state.sp.set(NO_SP);
        state.top.set(top);
        state.limit.set(limit);
        true
    })
}

/// Address of the first frame of a stack of frames that is empty. What runs on it is called by the given node and call
/// site.
fn first(start: u64, [node, site]: [u64; 2]) -> u64 {
    if is_by_site() {
        sites::base(start, node, site)
    } else {
        start
    }
}

/// Address of the first frame that procedures have on a stack of frames.
fn first_above(start: u64) -> u64 {
    if is_by_site() { start + CALL } else { start }
}

/// Prepares for a thread's first entry, if it is one. False if that cannot be done.
pub(super) fn is_ready(state: &PathState) -> bool {
    state.arena.get() != 0 || begin(state)
}

/// A procedure is entered, in a case that is not the usual one.
#[cold]
#[inline(never)]
pub(super) fn enter(state: &PathState, proc: u32, sp: u64) {
    if !is_ready(state) {
        return;
    }
    // Procedures with a lower stack pointer did not return. The one with the same has jumped to this one.
    if state.sp.get() < sp {
        settle(state, sp);
    }
    // The innermost frame has the node of what called the jumping procedure.
    let is_jump = state.sp.get() == sp;
    let caller = is_jump.then(|| state.frame_at(state.top.get().wrapping_sub(FRAME)).node);
    let node = state.node.get();
    let child = match find(state, node, proc, 0) {
        Some(child) => child,
        None => make(state, [node, 0], proc, caller),
    };
    // SAFETY: the place of a node.
    let entered = unsafe { state.at(child) };
    state.remember(child);
    entered.calls.add(1);
    let target = entered.target.get();
    if is_jump {
        state.node.set(target);
    } else if state.top.get() < state.limit.get() {
        state.push(sp, target);
    } else {
        // Too deep: the entry is counted, and what runs belongs to the node until the next exit.
        state.node.set(target);
    }
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

/// A procedure is left that is not the innermost open one.
#[cold]
#[inline(never)]
pub(super) fn leave(state: &PathState, sp: u64) {
    if state.arena.get() == 0 {
        return;
    }
    let is_near = (state.low.get()..state.high.get()).contains(&sp);
    if sp_of(state) < sp || !is_near {
        settle(state, sp);
    }
    if is_by_site() {
        sites::leave_exactly(state, sp);
    } else if state.sp.get() == sp {
        state.pop();
    }
}

/// Control comes back to a procedure whose stack pointer is `sp` now.
#[cold]
#[inline(never)]
pub(super) fn back(state: &PathState, sp: u64) {
    if state.arena.get() != 0 {
        settle(state, sp);
    }
}

/// As [`back`], where call sites count: it may be that no procedure has been left.
#[cold]
#[inline(never)]
pub(super) fn back_by_site(state: &PathState, sp: u64) {
    if sites::sp(state) < sp {
        back(state, sp);
    }
}

/// The thread ends, and another one may continue with its state.
#[cold]
#[inline(never)]
pub(super) fn end_thread(state: &PathState) {
    Uninterrupted::run(|_| {
        let Some(arena) = arena(state) else { return };
        arena.go(state, 0);
        let first = &arena.stacks[0];
        state.top.set(self::first(first.start, [0, 0]));
        state.sp.set(NO_SP);
        state.node.set(0);
        state.low.set(0);
        state.high.set(0);
        for stack in &mut arena.stacks {
            stack.empty();
            (stack.low, stack.high) = (0, 0);
        }
    })
}

/// Goes to the stack of `sp`, and forgets its procedures whose stack pointer at the entry was lower.
fn settle(state: &PathState, sp: u64) {
    Uninterrupted::run(|_| {
        let Some(arena) = arena(state) else { return };
        let outermost = outermost_sp(state, arena.stacks[arena.current].start);
        if state.high.get() == 0 && outermost != NO_SP {
            let (low, high) = stack_around(outermost).unwrap_or((0, NO_SP));
            state.low.set(low);
            state.high.set(high);
        }
        if !(state.low.get()..state.high.get()).contains(&sp) {
            arena.find_stack(state, sp);
        }
        if is_by_site() {
            return sites::drop_below(state, sp);
        }
        while state.sp.get() < sp {
            state.pop();
        }
    })
}

impl Stack {
    fn empty(&mut self) {
        self.top = self.start;
        self.sp = NO_SP;
        self.node = 0;
    }

    fn has(&self, sp: u64) -> bool {
        (self.low..self.high).contains(&sp)
    }
}

impl Arena {
    /// Goes to the stack on which `sp` is, which is not the current one as far as is known.
    fn find_stack(&mut self, state: &PathState, sp: u64) {
        if let Some(known) = self.stacks.iter().position(|stack| stack.has(sp)) {
            return self.go(state, known);
        }
        let Some((low, high)) = stack_around(sp) else {
            // The best guess is the current stack.
            return;
        };
        let overlaps = |a: u64, b: u64| a < high && low < b;
        if state.high.get() == 0 || overlaps(state.low.get(), state.high.get()) {
            // The stack has grown, or was not known.
            state.low.set(low);
            return state.high.set(high);
        }
        let old = self
            .stacks
            .iter()
            .position(|stack| overlaps(stack.low, stack.high) || stack.high == 0);
        let next = match old.filter(|i| *i != self.current) {
            Some(old) => old,
            None => {
                let Some((start, limit)) = frames(FRAMES_OF_OTHERS) else {
                    return;
                };
                self.stacks.push(Stack {
                    low,
                    high,
                    start,
                    top: start,
                    limit,
                    sp: NO_SP,
                    node: 0,
                });
                self.stacks.len() - 1
            }
        };
        (self.stacks[next].low, self.stacks[next].high) = (low, high);
        self.go(state, next);
    }

    /// Makes a stack the current one. If no procedure is open there, what runs on it was called from here.
    fn go(&mut self, state: &PathState, next: usize) {
        if next == self.current {
            return;
        }
        let now = &mut self.stacks[self.current];
        (now.low, now.high) = (state.low.get(), state.high.get());
        (now.top, now.sp, now.node) = (state.top.get(), state.sp.get(), state.node.get());
        let next_stack = &self.stacks[next];
        let is_empty = next_stack.top <= first_above(next_stack.start);
        if !is_empty {
            state.node.set(next_stack.node);
        }
        let top = if is_empty && is_by_site() {
            let from = [search::innermost(state), sites::last_site(state)];
            first(next_stack.start, from)
        } else {
            next_stack.top
        };
        state.sp.set(next_stack.sp);
        state.top.set(top);
        state.limit.set(next_stack.limit);
        state.low.set(next_stack.low);
        state.high.set(next_stack.high);
        self.current = next;
    }
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
fn make(state: &PathState, [node, site]: [u64; 2], proc: u32, caller: Option<u64>) -> u64 {
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

const _: () = assert!(size_of::<Aligned>() == 64 && FRAME <= CALL);

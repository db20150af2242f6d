//! What happens rarely: the first entry of a thread, procedures that did not return, another stack. Signals wait while
//! stacks are changed.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use analysis_rt::Uninterrupted;

use super::nodes;
use super::open_calls::{self, CALL, call};
use super::search;
use super::state::{FRAME, NO_SP, PathState};
use crate::data::forks;
use crate::measure::stack::stack_around;

/// Most frames of a thread's first stack, and of each further one.
const FRAMES: usize = 1 << 19;
const FRAMES_OF_OTHERS: usize = 1 << 14;

/// Call sites count; [`open_calls`] then has the frames.
pub(super) static BY_SITE: AtomicBool = AtomicBool::new(false);

pub(super) fn is_by_site() -> bool {
    BY_SITE.load(Relaxed)
}

/// rsp at the entry of the innermost open procedure.
fn sp_of(state: &PathState) -> u64 {
    if is_by_site() {
        open_calls::sp(state)
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

/// The stacks of a thread. The thread itself uses them, while signals wait.
pub(super) struct Stacks {
    all: Vec<Stack>,
    /// Index of the stack that the thread runs on.
    current: usize,
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

fn stacks(state: &PathState) -> Option<&'static mut Stacks> {
    let stacks = state.stacks.get() as usize;
    // SAFETY: null, or leaked stacks. Signals wait, so nothing else of this thread uses them, and no other thread does.
    unsafe { std::ptr::with_exposed_provenance_mut::<Stacks>(stacks).as_mut() }
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
        let stacks = Stacks {
            all: vec![Stack {
                low: 0,
                high: 0,
                start,
                top: start,
                limit,
                sp: NO_SP,
                node: 0,
            }],
            current: 0,
        };
        let top = first(start, [0, 0]);
        let stacks = std::ptr::from_mut(Box::leak(Box::new(stacks))).expose_provenance();
        state.stacks.set(stacks as u64);
        nodes::begin(state);
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
        open_calls::base(start, node, site)
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
    let child = match nodes::find(state, node, proc, 0) {
        Some(child) => child,
        None => nodes::make(state, [node, 0], proc, caller),
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
        open_calls::pop_if(state, sp);
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
    if open_calls::sp(state) < sp {
        back(state, sp);
    }
}

/// The thread ends, and another one may continue with its state.
#[cold]
#[inline(never)]
pub(super) fn end_thread(state: &PathState) {
    Uninterrupted::run(|_| {
        let Some(stacks) = stacks(state) else { return };
        stacks.go(state, 0);
        let first = &stacks.all[0];
        state.top.set(self::first(first.start, [0, 0]));
        state.sp.set(NO_SP);
        state.node.set(0);
        state.low.set(0);
        state.high.set(0);
        for stack in &mut stacks.all {
            stack.empty();
            (stack.low, stack.high) = (0, 0);
        }
    })
}

/// Goes to the stack of `sp`, and forgets its procedures whose stack pointer at the entry was lower.
fn settle(state: &PathState, sp: u64) {
    Uninterrupted::run(|_| {
        let Some(stacks) = stacks(state) else { return };
        let outermost = outermost_sp(state, stacks.all[stacks.current].start);
        if state.high.get() == 0 && outermost != NO_SP {
            let (low, high) = stack_around(outermost).unwrap_or((0, NO_SP));
            state.low.set(low);
            state.high.set(high);
        }
        if !(state.low.get()..state.high.get()).contains(&sp) {
            stacks.find_stack(state, sp);
        }
        if is_by_site() {
            return open_calls::drop_below(state, sp);
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

impl Stacks {
    /// Goes to the stack on which `sp` is, which is not the current one as far as is known.
    fn find_stack(&mut self, state: &PathState, sp: u64) {
        if let Some(known) = self.all.iter().position(|stack| stack.has(sp)) {
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
            .all
            .iter()
            .position(|stack| overlaps(stack.low, stack.high) || stack.high == 0);
        let next = match old.filter(|i| *i != self.current) {
            Some(old) => old,
            None => {
                let Some((start, limit)) = frames(FRAMES_OF_OTHERS) else {
                    return;
                };
                self.all.push(Stack {
                    low,
                    high,
                    start,
                    top: start,
                    limit,
                    sp: NO_SP,
                    node: 0,
                });
                self.all.len() - 1
            }
        };
        (self.all[next].low, self.all[next].high) = (low, high);
        self.go(state, next);
    }

    /// Makes a stack the current one. If no procedure is open there, what runs on it was called from here.
    fn go(&mut self, state: &PathState, next: usize) {
        if next == self.current {
            return;
        }
        let now = &mut self.all[self.current];
        (now.low, now.high) = (state.low.get(), state.high.get());
        (now.top, now.sp, now.node) = (state.top.get(), state.sp.get(), state.node.get());
        let next_stack = &self.all[next];
        let is_empty = next_stack.top <= first_above(next_stack.start);
        if !is_empty {
            state.node.set(next_stack.node);
        }
        let top = if is_empty && is_by_site() {
            let from = [search::innermost(state), open_calls::last_site(state)];
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

const _: () = assert!(FRAME <= CALL);

//! Call paths by call site, whose nodes are found only where a tool asks for one.
//!
//! Most calls come back before anything is measured below them. So procedures are not noted at all, and calls only where the stack
//! does not tell of them ([`silent`](super::silent)): such a call notes its call site, rsp and rbp, and after it the note is
//! taken away. A call site stands for its procedure, and for the one that it calls if that is
//! known. The nodes of the open calls are looked for when a tool asks ([`search`](super::search)), with
//! [`PathState::called_here`].
//!
//! ABI: before a call and after it, rsp is the same, and calls that a call leads to are made with a lower one.

use super::open_calls::{CALL, call_at, pop_if, push, sp};
use super::search::Search;
use super::slow;
use super::state::{PathNode, PathState};
use super::walk::Frame;
use crate::analysis;
use crate::calls::params::RegV;
use crate::data::thread_data::PerThread;

/// How often a search begins anew without calls that did not come back. Each time takes away all of those of one stack.
const ATTEMPTS: usize = 4;

impl PathState {
    /// The node of the running call path, where call sites count, in a procedure that was just entered with this rsp and
    /// rbp. The number is [`CallPaths::number`](super::CallPaths::number)'s.
    pub fn called_here(&self, proc: u32, sp: u64, rbp: u64) -> &'static PathNode {
        // SAFETY: the place of a node, or 0.
        unsafe { self.at(find(self, proc, Frame { slot: sp, rbp })) }
    }

    /// As [`PathState::called_here`], but `None` if that takes long. It calls nothing.
    #[inline(always)]
    pub fn called_here_if_known(&self, proc: u32, sp: u64, rbp: u64) -> Option<&'static PathNode> {
        let top = self.top.get();
        if top == 0 {
            return None;
        }
        // SAFETY: below the top is a frame, and be it the base.
        let last = unsafe { (&raw const (*call_at(top.wrapping_sub(CALL))).key).read() };
        if last <= sp {
            return None;
        }
        let place = Search::begin(self, sp).run::<true>(proc, Some(Frame { slot: sp, rbp }));
        // SAFETY: the place of a node.
        place.ok().map(|place| unsafe { self.at(place) })
    }
}

/// A call is made.
#[analysis]
pub(super) fn site_call(state: PerThread<PathState>, site: u32, sp: RegV, rbp: RegV) {
    let top = state.top.get();
    // This is false before the first call, too.
    // SAFETY: no other thread writes to this thread's state.
    if top < unsafe { state.limit.get_in_place() } {
        // SAFETY: below the top is a frame.
        let last = unsafe { (&raw const (*call_at(top.wrapping_sub(CALL))).key).read() };
        if last > sp.0 {
            return push(&state, top, site, [sp.0, rbp.0]);
        }
    }
    enter(&state, site, sp.0, rbp.0);
}

/// A call is made, in a case that is not the usual one.
#[cold]
#[inline(never)]
fn enter(state: &PathState, site: u32, sp: u64, rbp: u64) {
    if !slow::is_ready(state) {
        return;
    }
    drop_at(state, sp);
    let top = state.top.get();
    if top < state.limit.get() {
        push(state, top, site, [sp, rbp]);
    }
}

/// A call has come back.
#[analysis]
pub(super) fn site_returned(state: PerThread<PathState>, sp: RegV) {
    if !pop_if(&state, sp.0) {
        slow::leave(&state, sp.0);
    }
}

/// Control comes back to a procedure, perhaps past calls that did not come back.
#[analysis]
pub(super) fn site_back(state: PerThread<PathState>, sp: RegV) {
    slow::back_by_site(&state, sp.0.wrapping_add(1));
}

/// The place of the node of a procedure that was just entered.
#[inline(never)]
fn find(state: &PathState, proc: u32, frame: Frame) -> u64 {
    if !slow::is_ready(state) {
        return 0;
    }
    drop_at(state, frame.slot);
    for _ in 0..ATTEMPTS {
        match Search::begin(state, frame.slot).run::<false>(proc, Some(frame)) {
            Ok(node) => return node,
            // The frames lead past a call that did not come back.
            Err(dead) => slow::back(state, dead + 1),
        }
    }
    0
}

/// Takes away calls with the same or a lower stack pointer: they did not come back. A frame that is not in use is one that was
/// interrupted.
fn drop_at(state: &PathState, sp: u64) {
    if (1..=sp).contains(&self::sp(state)) {
        slow::back(state, sp + 1);
    }
}

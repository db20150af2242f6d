//! Call paths by call site, whose nodes are found only where a tool asks for one.
//!
//! Most calls come back before anything is measured below them. So a call notes its call site and rsp, and behind it the note is
//! taken away; procedures are not noted at all. A call site stands for its procedure, and for the one that it calls if that is
//! known. [`PathState::called_here`] looks for the nodes of the open calls, and each keeps its own for the next time.
//!
//! The open calls are a stack of [`Call`]s above a base. A signal handler may run between any two stores. So a
//! frame that is not in use has the key 0, from the start on: a call takes the frame first and writes its key last, and
//! behind the call the key is cleared first. A frame without a key is no part of a path.
//!
//! ABI: before a call and behind it, rsp is the same, and calls that a call leads to are made with a lower one.

use std::sync::OnceLock;

use super::slow;
use super::state::{NO_SP, PathNode, PathState, in_this_order};
use crate::analysis;
use crate::params::{Array, RegV};
use crate::thread_data::PerThread;

/// A call that has not come back.
#[repr(C)]
pub(super) struct Call {
    /// rsp before the call; 0 if the frame is not in use, [`NO_SP`] in the base.
    pub key: u64,
    /// Number of the call site, from 1 on. In the base, of the one that led to the stack; 0 if there was none.
    pub site: u64,
    /// Place of the node of the calling procedure, or [`UNKNOWN`]. In the base, of the node that called what runs on the stack.
    pub node: u64,
    _unused: u64,
}

/// Size of a frame in bytes.
pub(super) const CALL: u64 = size_of::<Call>() as u64;
/// It is no place of a node, as these are multiples of 64.
const UNKNOWN: u64 = 1;

/// For each call site the numbers of its procedure and of the procedure that it certainly calls; 0 if that is not known.
static PROCS: OnceLock<Array<u32>> = OnceLock::new();

/// Analysis side: the procedures of call sites, at the start.
pub(super) fn begin(procs: Array<u32>) {
    // A second table would be the same.
    let _ = PROCS.set(procs);
}

/// Numbers of a call site's procedure and of the called one.
fn procs_of(site: u64) -> [u32; 2] {
    let procs = PROCS.get().map_or(&[][..], |procs| procs.as_slice());
    let at = (site as usize).wrapping_sub(1).wrapping_mul(2);
    [at, at.wrapping_add(1)].map(|at| procs.get(at).copied().unwrap_or(0))
}

#[inline(always)]
fn call_at(address: u64) -> *mut Call {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

/// The frame at an address, for the slow routines.
fn call(address: u64) -> &'static mut Call {
    // SAFETY: the callers pass addresses of frames of this thread's stacks, which are never unmapped, and keep no other reference.
    unsafe { &mut *call_at(address) }
}

/// Makes the base of a stack of open calls; returns the address of the first frame above.
pub(super) fn base(start: u64, node: u64, site: u64) -> u64 {
    *call(start) = Call {
        key: NO_SP,
        site,
        node,
        _unused: 0,
    };
    start + CALL
}

/// rsp before the innermost open call; [`NO_SP`] if none is open, 0 if the frame is not in use.
pub(super) fn sp(state: &PathState) -> u64 {
    match state.top.get() {
        0 => 0,
        top => call(top - CALL).key,
    }
}

/// Number of the call site of the innermost open call.
pub(super) fn last_site(state: &PathState) -> u64 {
    call(state.top.get() - CALL).site
}

/// Takes away the calls whose stack pointer was lower than `sp`, and frames that are not in use: a signal handler that
/// interrupted the making of such a frame has left by `longjmp`.
pub(super) fn drop_below(state: &PathState, sp: u64) {
    while self::sp(state) < sp {
        let at = state.top.get() - CALL;
        call(at).key = 0;
        state.top.set(at);
    }
}

/// Puts a call on the stack.
#[inline(always)]
fn push(state: &PathState, site: u32, sp: u64) {
    let at = state.top.get();
    state.top.set(at + CALL);
    in_this_order();
    let frame = call_at(at);
    // SAFETY: the frame lies below the limit, which the caller has checked, in memory of this thread.
    unsafe {
        (&raw mut (*frame).site).write(site.into());
        (&raw mut (*frame).node).write(UNKNOWN);
        in_this_order();
        (&raw mut (*frame).key).write(sp);
    }
}

/// Takes the innermost call from the stack if it was made with this rsp.
#[inline(always)]
fn pop_if(state: &PathState, sp: u64) -> bool {
    let top = state.top.get();
    if top == 0 {
        return false;
    }
    let at = top.wrapping_sub(CALL);
    let frame = call_at(at);
    // SAFETY: below the top lies a frame, and be it the base, whose key is no rsp.
    unsafe {
        if (&raw const (*frame).key).read() != sp {
            return false;
        }
        (&raw mut (*frame).key).write(0);
    }
    in_this_order();
    state.top.set(at);
    true
}

/// A call is made.
#[analysis]
pub(super) fn site_call(state: PerThread<PathState>, site: u32, sp: RegV) {
    let top = state.top.get();
    // This is false before the first call, too.
    // SAFETY: no other thread writes to this thread's state.
    if top < unsafe { state.limit.get_in_place() } {
        // SAFETY: below the top lies a frame.
        let last = unsafe { (&raw const (*call_at(top.wrapping_sub(CALL))).key).read() };
        if last > sp.0 {
            return push(&state, site, sp.0);
        }
    }
    enter(&state, site, sp.0);
}

/// A call is made, in a case that is not the usual one.
#[cold]
#[inline(never)]
fn enter(state: &PathState, site: u32, sp: u64) {
    if !slow::is_ready(state) {
        return;
    }
    // Calls with the same or a lower stack pointer did not come back. A frame that is not in use is one that was
    // interrupted.
    if (1..=sp).contains(&self::sp(state)) {
        slow::back(state, sp + 1);
    }
    if state.top.get() < state.limit.get() {
        push(state, site, sp);
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

/// Takes the innermost call away for the slow routines.
pub(super) fn leave_exactly(state: &PathState, sp: u64) {
    pop_if(state, sp);
}

impl PathState {
    /// The node of the running call path, where call sites count, in a procedure that was just entered. The number is
    /// [`CallPaths::number`](super::CallPaths::number)'s.
    #[inline(always)]
    pub fn called_here(&self, proc: u32) -> &'static PathNode {
        // SAFETY: the place of a node, or 0.
        unsafe { self.at(resolve(self, proc)) }
    }
}

/// Finds the nodes of all open calls; returns the place of the node of the running procedure. Its number is 0 if it is
/// not known.
#[inline(never)]
pub(super) fn resolve(state: &PathState, proc: u32) -> u64 {
    let top = state.top.get();
    if top == 0 {
        return 0;
    }
    let mut at = top - CALL;
    while call(at).key == 0 || call(at).node == UNKNOWN {
        at -= CALL;
    }
    let mut node = call(at).node;
    loop {
        let from = call(at);
        at += CALL;
        while at < top && call(at).key == 0 {
            at += CALL;
        }
        let is_last = at >= top;
        let is_base = from.key == NO_SP;
        let [_, called] = if is_base { [0; 2] } else { procs_of(from.site) };
        let running = match is_last {
            true => proc,
            false => procs_of(call(at).site)[0],
        };
        // The called procedure has jumped to the running one, or a signal handler runs, or a library has called back.
        let is_other = called != 0 && called != running;
        if is_other {
            node = slow::child(state, [node, from.site], called, false);
        }
        // What the called procedure did is not known to be a call.
        let site = if is_other { 0 } else { from.site };
        if running != 0 {
            node = slow::child(state, [node, site], running, is_other);
        }
        if is_last {
            return node;
        }
        call(at).node = node;
    }
}

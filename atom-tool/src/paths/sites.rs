//! Call paths by call site, whose nodes are found only where a tool asks for one.
//!
//! Most calls come back before anything is measured below them. So procedures are not noted at all, and calls only where the stack
//! does not tell of them ([`silent`](super::silent)): such a call notes its call site, rsp and rbp, and behind it the note is
//! taken away. A call site stands for its procedure, and for the one that it calls if that is
//! known. [`PathState::called_here`] looks for the nodes of the open calls, and each that has a note keeps its own for the next
//! time. Silent calls between two notes are found by their return addresses, from the inner note outwards
//! ([`walk`]). Where a return address is not known, as in a signal handler, the search goes on with the note.
//!
//! The open calls with notes are a stack of [`Call`]s above a base. A signal handler may run between any two stores. So a
//! frame that is not in use has the key 0, from the start on: a call takes the frame first and writes its key last, and
//! behind the call the key is cleared first. A frame without a key is no part of a path.
//!
//! ABI: before a call and behind it, rsp is the same, and calls that a call leads to are made with a lower one.

use super::slow;
use super::state::{NO_SP, PathNode, PathState, in_this_order};
use super::walk::{self, Frame, WORD};
use crate::analysis;
use crate::params::RegV;
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
    /// rbp before the call.
    pub rbp: u64,
}

/// Size of a frame in bytes.
pub(super) const CALL: u64 = size_of::<Call>() as u64;
/// It is no place of a node, as these are multiples of 64.
const UNKNOWN: u64 = 1;

/// How often a search begins anew without calls that did not come back. Each time takes all of those of one stack away.
const ATTEMPTS: usize = 4;

/// Numbers of a call site's procedure and of the called one.
fn procs_of(site: u64) -> [u32; 2] {
    walk::site(site).map_or([0; 2], |site| site.procs)
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
        rbp: 0,
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
fn push(state: &PathState, site: u32, [sp, rbp]: [u64; 2]) {
    let at = state.top.get();
    state.top.set(at + CALL);
    in_this_order();
    let frame = call_at(at);
    // SAFETY: the frame lies below the limit, which the caller has checked, in memory of this thread.
    unsafe {
        (&raw mut (*frame).site).write(site.into());
        (&raw mut (*frame).node).write(UNKNOWN);
        (&raw mut (*frame).rbp).write(rbp);
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
pub(super) fn site_call(state: PerThread<PathState>, site: u32, sp: RegV, rbp: RegV) {
    let top = state.top.get();
    // This is false before the first call, too.
    // SAFETY: no other thread writes to this thread's state.
    if top < unsafe { state.limit.get_in_place() } {
        // SAFETY: below the top lies a frame.
        let last = unsafe { (&raw const (*call_at(top.wrapping_sub(CALL))).key).read() };
        if last > sp.0 {
            return push(&state, site, [sp.0, rbp.0]);
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
    if state.top.get() < state.limit.get() {
        push(state, site, [sp, rbp]);
    }
}

/// Takes away calls with the same or a lower stack pointer: they did not come back. A frame that is not in use is one that was
/// interrupted.
fn drop_at(state: &PathState, sp: u64) {
    if (1..=sp).contains(&self::sp(state)) {
        slow::back(state, sp + 1);
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
    /// The node of the running call path, where call sites count, in a procedure that was just entered with this rsp and
    /// rbp. The number is [`CallPaths::number`](super::CallPaths::number)'s.
    #[inline(always)]
    pub fn called_here(&self, proc: u32, sp: u64, rbp: u64) -> &'static PathNode {
        // SAFETY: the place of a node, or 0.
        unsafe { self.at(resolve(self, proc, sp, rbp)) }
    }
}

/// Finds the nodes of all open calls; returns the place of the node of the running procedure, which was just entered with
/// this rsp and rbp.
#[inline(never)]
fn resolve(state: &PathState, proc: u32, sp: u64, rbp: u64) -> u64 {
    if !slow::is_ready(state) {
        return 0;
    }
    drop_at(state, sp);
    let outer = state.walk_sp.get();
    // Another search goes on that a signal handler has interrupted, unless its frame is gone.
    let is_nested = outer != 0 && outer > sp;
    if !is_nested {
        state.walked.set(state.walks.get());
    }
    let before = state.walked.get();
    state.walk_sp.set(sp);
    let frame = Frame { slot: sp, rbp };
    let mut node = search(state, proc, Some(frame));
    for _ in 0..ATTEMPTS {
        // A call that did not come back is known by the frames, which lead past it.
        let Err(dead) = node else { break };
        slow::back(state, dead + 1);
        node = search(state, proc, Some(frame));
    }
    state.walked.set(before);
    state.walk_sp.set(if is_nested { outer } else { 0 });
    node.unwrap_or(0)
}

/// The place of the node of what the innermost open call with a note leads to, as far as is known.
pub(super) fn innermost(state: &PathState) -> u64 {
    if state.top.get() == 0 {
        return 0;
    }
    state.walked.set(state.walks.get());
    // Without a frame the search does not fail at the innermost call. It may at outer ones, which then are of no use.
    search(state, 0, None).unwrap_or(0)
}

/// Finds the nodes of all open calls. `frame` is the running procedure's. An error is rsp before an open call that has not
/// come back.
fn search(state: &PathState, proc: u32, frame: Option<Frame>) -> Result<u64, u64> {
    let top = state.top.get();
    let mut at = top - CALL;
    while call(at).key == 0 || call(at).node == UNKNOWN {
        at -= CALL;
    }
    loop {
        let from = call(at);
        at += CALL;
        while at < top && call(at).key == 0 {
            at += CALL;
        }
        let is_last = at >= top;
        let (running, inner) = match is_last {
            true => (proc, frame),
            false => {
                let next = call(at);
                let site = walk::site(next.site);
                let inner = site.and_then(|site| site.outwards(next.key, next.rbp));
                (site.map_or(0, |site| site.procs[0]), inner)
            }
        };
        let node = silent_calls(state, from, inner, running)?;
        if is_last {
            return Ok(node);
        }
        call(at).node = node;
    }
}

/// The place of the node of the running procedure, given the innermost call with a note whose node is known, and the running
/// procedure's frame.
fn silent_calls(
    state: &PathState,
    from: &Call,
    inner: Option<Frame>,
    running: u32,
) -> Result<u64, u64> {
    let start = state.walked.get();
    let last = from.key.wrapping_sub(WORD);
    let mut frame = inner;
    while let Some(here) = frame {
        // SAFETY: by the exception tables it is a frame of this thread.
        let found = walk::site_behind(unsafe { here.back() });
        let is_other = || found.is_some_and(|(number, _)| u64::from(number) != from.site);
        if here.slot > last || here.slot == last && is_other() {
            state.walked.set(start);
            return Err(from.key);
        }
        let found = found.filter(|_| here.slot != last);
        let Some((_, site)) = found.filter(|(number, _)| note_walked(state, *number)) else {
            break;
        };
        frame = site.outwards(here.slot + WORD, here.rbp);
    }
    let [_, called] = match from.key {
        NO_SP => [0; 2],
        _ => procs_of(from.site),
    };
    let mut path = Path {
        node: from.node,
        site: from.site,
        called,
    };
    let mut end = state.walked.get();
    while end > start {
        end -= size_of::<u32>() as u64;
        // SAFETY: `note_walked` has written there.
        let number = unsafe { std::ptr::with_exposed_provenance::<u32>(end as usize).read() };
        let [caller, called] = procs_of(number.into());
        let node = path.running(state, caller);
        path = Path {
            node,
            site: number.into(),
            called,
        };
    }
    state.walked.set(start);
    Ok(path.running(state, running))
}

/// A call: the place of its procedure's node, its site, and the number of the procedure that it certainly calls.
struct Path {
    node: u64,
    site: u64,
    called: u32,
}

impl Path {
    /// The place of the node of a procedure that runs below the call; 0 stands for one that is not known.
    #[inline(always)]
    fn running(&self, state: &PathState, proc: u32) -> u64 {
        let mut node = self.node;
        // The called procedure has jumped to the running one, or a signal handler runs, or a library has called back.
        let is_other = self.called != 0 && self.called != proc;
        if is_other {
            node = slow::child(state, [node, self.site], self.called, false);
        }
        if proc != 0 {
            // What the called procedure did is not known to be a call.
            let site = if is_other { 0 } else { self.site };
            node = slow::child(state, [node, site], proc, is_other);
        }
        node
    }
}

/// Notes a silent call; false if there is no room.
#[inline(always)]
fn note_walked(state: &PathState, number: u32) -> bool {
    let at = state.walked.get();
    if at >= state.walks.get() + slow::WALKS {
        return false;
    }
    state.walked.set(at + size_of::<u32>() as u64);
    in_this_order();
    // SAFETY: room of this thread's, which a signal handler leaves as it is.
    unsafe { std::ptr::with_exposed_provenance_mut::<u32>(at as usize).write(number) };
    true
}

//! Call paths by call site, whose nodes are found only where a tool asks for one.
//!
//! Most calls come back before anything is measured below them. So procedures are not noted at all, and calls only where the stack
//! does not tell of them ([`silent`](super::silent)): such a call notes its call site, rsp and rbp, and after it the note is
//! taken away. A call site stands for its procedure, and for the one that it calls if that is
//! known. The nodes of the open calls are looked for when a tool asks ([`search`](super::search)).
//!
//! The open calls with notes are a stack of [`Call`]s above a base. A signal handler may run between any two stores. So a
//! frame that is not in use has the key 0, from the start on: a call takes the frame first and writes its key last, and
//! after the call the key is cleared first. A frame without a key is no part of a path.
//!
//! ABI: before a call and after it, rsp is the same, and calls that a call leads to are made with a lower one.

use super::slow;
use super::state::{NO_SP, PathState, in_this_order};
use crate::analysis;
use crate::calls::params::RegV;
use crate::data::thread_data::PerThread;

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
pub(super) const UNKNOWN: u64 = 1;

#[inline(always)]
pub(super) fn call_at(address: u64) -> *mut Call {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

/// The frame at an address, for the slow routines.
pub(super) fn call(address: u64) -> &'static mut Call {
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

/// Puts a call on the stack, whose top is `at`.
#[inline(always)]
fn push(state: &PathState, at: u64, site: u32, [sp, rbp]: [u64; 2]) {
    let mut end = at + CALL;
    // SAFETY: no instruction at all. The frame is addressed from its end, so that its start needs no register.
    unsafe {
        std::arch::asm!("/* {end} */", end = inout(reg) end, options(pure, nomem, nostack, preserves_flags));
    }
    state.top.set(end);
    in_this_order();
    let frame = call_at(end.wrapping_sub(CALL));
    // SAFETY: the frame is below the limit, which the caller has checked, in memory of this thread.
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
    // SAFETY: below the top is a frame, and be it the base, whose key is no rsp.
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

/// Takes away calls with the same or a lower stack pointer: they did not come back. A frame that is not in use is one that was
/// interrupted.
pub(super) fn drop_at(state: &PathState, sp: u64) {
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

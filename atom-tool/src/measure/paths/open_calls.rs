//! The open calls with notes, where call sites count.
//!
//! They are a stack of [`Call`]s above a base. A signal handler may run between any two stores. So a frame that is not
//! in use has the key 0, from the start on: a call takes the frame first and writes its key last, and after the call the
//! key is cleared first. A frame without a key is no part of a path.

use super::state::{NO_SP, PathState, in_this_order};

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
pub(super) fn push(state: &PathState, at: u64, site: u32, [sp, rbp]: [u64; 2]) {
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
pub(super) fn pop_if(state: &PathState, sp: u64) -> bool {
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

//! Call paths by procedure: the routines that note entries and exits.
//!
//! ABI: at a procedure's entry and before its `ret`, rsp is the address of the return address. So an execution is
//! known by rsp, and a procedure that another one jumps to (a tail call) has the rsp of the jumping one.

use super::slow;
use super::state::PathState;
use crate::analysis;
use crate::calls::params::{RegV, Value};
use crate::data::thread_data::PerThread;

/// A procedure is entered.
#[analysis]
pub(super) fn path_enter(state: PerThread<PathState>, proc: u32, spread: u32, sp: RegV) {
    let sp = sp.0;
    // This is false before the first entry, too: there is no cache then.
    // SAFETY: no other thread writes to this thread's state.
    if state.sp.get() >= sp && state.top.get() < unsafe { state.limit.get_in_place() } {
        let node = state.node.get();
        let entry = state.cache.get() + PathState::offset(node, spread, 0);
        // SAFETY: the offset is in the cache, whose entries are places.
        let child = unsafe {
            let place = std::ptr::with_exposed_provenance::<u64>(entry as usize).read();
            state.at(place)
        };
        if child.parent.get() == node && child.proc.get() == proc {
            child.calls.add(1);
            let target = child.target.get();
            // A procedure that is jumped to takes the place of the jumping one, and returns in its stead.
            return if state.sp.get() == sp {
                state.node.set(target)
            } else {
                state.push(sp, target)
            };
        }
    }
    slow::enter(&state, proc, sp);
}

/// A procedure returns, or jumps to code that is not seen.
#[analysis]
pub(super) fn path_leave(state: PerThread<PathState>, sp: RegV) {
    if state.sp.get() == sp.0 {
        state.pop();
    } else {
        slow::leave(&state, sp.0);
    }
}

/// A jump to a place that is not known: it leaves the procedure if rsp is what it was at the entry.
#[analysis]
pub(super) fn path_leave_by(state: PerThread<PathState>, sp: RegV) {
    pop_if(&state, sp.0);
}

/// A conditional jump to code that is not seen.
#[analysis]
pub(super) fn path_leave_if(state: PerThread<PathState>, sp: RegV, taken: Value) {
    if taken.is_true() {
        pop_if(&state, sp.0);
    }
}

/// Control comes back to a procedure, perhaps past others that did not return.
#[analysis]
pub(super) fn path_back(state: PerThread<PathState>, sp: RegV) {
    if state.sp.get() < sp.0 {
        slow::back(&state, sp.0);
    }
}

/// A system call that may end the thread, or a signal handler: the code that does the latter is entered by the
/// handler's return, and does not return.
#[analysis]
pub(super) fn path_system_call(state: PerThread<PathState>, number: RegV, sp: RegV) {
    const SYS_RT_SIGRETURN: u64 = 15;
    const SYS_EXIT: u64 = 60;
    const SYS_EXECVE: u64 = 59;
    const SYS_EXIT_GROUP: u64 = 231;
    const SYS_EXECVEAT: u64 = 322;
    match number.0 {
        SYS_RT_SIGRETURN if slow::is_by_site() => {}
        SYS_RT_SIGRETURN => pop_if(&state, sp.0),
        SYS_EXIT => slow::end_thread(&state),
        // The next child in its parent's memory continues with the state, and the stack is gone then.
        SYS_EXECVE | SYS_EXECVEAT | SYS_EXIT_GROUP if analysis_rt::is_in_parents_memory() => {
            slow::end_thread(&state);
        }
        _ => {}
    }
}

/// Leaves the innermost procedure if rsp is what it was at its entry.
#[inline(always)]
fn pop_if(state: &PathState, sp: u64) {
    if state.sp.get() == sp {
        state.pop();
    }
}

/// A call of a library's function that ends the thread.
#[analysis]
pub(super) fn path_end(state: PerThread<PathState>) {
    slow::end_thread(&state);
}

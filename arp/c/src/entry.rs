//! Entering and leaving sections.
//!
//! The C functions are a few instructions in front of the Rust functions: they add the caller's
//! stack pointer, which shows whether the function that entered a section still runs or was left by a `longjmp`.
use std::arch::naked_asm;
use std::sync::atomic::Ordering;

use arp_core::{Caller, Problem, SectionKind, Tid};

use crate::active::{Active, State, active, out_of_order, section};
use crate::end::{self, end_if_due};
use crate::report::Errors;
use crate::slot::{CLOSED, FREE, Refusal, Slot};
use crate::system::{NoCancel, thread_pointer};

macro_rules! enter {
    ($name:ident, $inner:ident, $kind:expr) => {
        /// Enters a section; see the header.
        ///
        /// The arguments are in di, si and edx, and stay there; the caller's stack pointer and the
        /// return address become the fourth and fifth.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        extern "C" fn $name(_tid: u16, _sid: u16, _start: i32) {
            naked_asm!("lea rcx, [rsp + 8]", "mov r8, [rsp]", "jmp {}", sym $inner)
        }

        extern "C" fn $inner(tid: u16, sid: u16, start: i32, stack_pointer: usize, site: usize) {
            let caller = Caller { stack_pointer, site };
            enter($kind, tid, sid, start, caller);
        }
    };
}

macro_rules! leave {
    ($name:ident, $inner:ident, $kind:expr) => {
        /// Leaves a section; see the header.
        ///
        /// The arguments are in di and si, and stay there; the caller's stack pointer becomes the third.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        extern "C" fn $name(_tid: u16, _sid: u16) {
            naked_asm!("lea rdx, [rsp + 8]", "jmp {}", sym $inner)
        }

        extern "C" fn $inner(tid: u16, sid: u16, stack_pointer: usize) {
            let caller = Caller { stack_pointer, site: 0 };
            leave($kind, tid, sid, caller);
        }
    };
}

enter!(arp_enter, enter_plain, SectionKind::Plain);
enter!(arp_enter_kernel, enter_kernel, SectionKind::Kernel);
enter!(arp_enter_profiled, enter_profiled, SectionKind::Profiled);
leave!(arp_leave, leave_plain, SectionKind::Plain);
leave!(arp_leave_kernel, leave_kernel, SectionKind::Kernel);
leave!(arp_leave_profiled, leave_profiled, SectionKind::Profiled);

#[inline]
fn enter(kind: SectionKind, tid: u16, sid: u16, start: i32, caller: Caller) {
    let work = |recorder: &mut arp_core::ThreadRecorder| {
        recorder.enter_at(kind, section(sid), start.into(), caller);
    };
    if let Some(active) = active()
        && let Some(slot) = active.slot(tid)
        && slot.with(thread_pointer(), work).is_ok()
    {
        return end_if_due();
    }
    while let Some((slot, me)) = slow(tid, sid, "arp_enter") {
        match slot.with(me, work) {
            // Another thread has taken the recorder once more.
            Err(Refusal::NotOwner) => {}
            _ => break,
        }
    }
    end_if_due();
}

#[inline]
fn leave(kind: SectionKind, tid: u16, sid: u16, caller: Caller) {
    // Returns the number of open sections after the call.
    let work = |recorder: &mut arp_core::ThreadRecorder| {
        recorder.leave_at(kind, section(sid), caller);
        if recorder.is_nearly_full() {
            let _guard = NoCancel::new();
            recorder.flush();
        }
        recorder.recorded_depth()
    };
    if let Some(active) = active()
        && let Some(slot) = active.slot(tid)
        && let Ok(depth) = slot.with(thread_pointer(), work)
    {
        if slot.children.load(Ordering::Relaxed) != 0 {
            check_children(tid, sid, depth);
        }
        return end_if_due();
    }
    while let Some((slot, me)) = slow(tid, sid, "arp_leave") {
        match slot.with(me, work) {
            Err(Refusal::NotOwner) => {}
            _ => break,
        }
    }
    end_if_due();
}

/// Handles a thread's first call, an invalid one, and one while another thread holds the recorder. Returns the
/// slot with which to try again.
#[cold]
fn slow(tid: u16, sid: u16, function: &'static str) -> Option<(&'static Slot, usize)> {
    let Some(active) = active() else {
        if let Some(reason) = out_of_order() {
            end::tell(&Errors::NONE, &Problem::OutOfOrder { function, reason });
        }
        return None;
    };
    if !crate::active::is_running() {
        // Threads that outlive the recording were reported at its end.
        return None;
    }
    if !active.knows(tid, Some(section(sid))) {
        return None;
    }
    let me = thread_pointer();
    let (thread, sid) = (Tid(tid.into()), section(sid));
    if let Some(slot) = active.slot(tid)
        && slot.owner() == me
        && let Err(Refusal::Busy) = slot.with(me, |_| ())
    {
        active.report(&Problem::Reentered { thread, sid });
        return None;
    }
    let (problem, is_owner) = claim(active, tid, me, sid);
    if let Some(problem) = problem {
        active.report(&problem);
    }
    active.slot(tid).filter(|_| is_owner).map(|slot| (slot, me))
}

/// Makes the calling thread the owner of a thread number, if no other thread has it. Returns what is to be
/// reported, and whether the thread is the owner now.
fn claim(active: &Active, tid: u16, me: usize, sid: arp_core::Sid) -> (Option<Problem>, bool) {
    let mut table = active.table();
    let thread = Tid(tid.into());
    let slot = active.make_slot(tid);
    let first = table.states.iter().all(Option::is_none);
    let state = &mut table.states[usize::from(tid)];
    let mut problem = None;
    match slot.owner() {
        FREE => {
            if !matches!(state, Some(State::Running { .. })) {
                if !first && *state != Some(State::Root) {
                    problem = Some(Problem::NotSpawned { thread });
                }
                *state = Some(State::Root);
            }
            slot.claim(me);
        }
        // The table's lock is held, so the recorder is not taken for a moment: it is closed for good.
        CLOSED => return (None, false),
        owner if owner == me => {}
        _ => return (Some(Problem::SharedThread { thread, sid }), false),
    }
    (problem, true)
}

/// Reports the threads that were spawned in a section that is left and were not joined.
#[cold]
fn check_children(tid: u16, sid: u16, depth: usize) {
    let Some(active) = active() else {
        return;
    };
    let mut problems = Vec::new();
    for (child, state) in active.table().states.iter_mut().enumerate() {
        if let Some(State::Running {
            parent,
            depth: spawned,
            warned,
        }) = state
            && *parent == Tid(tid.into())
            && *spawned > depth
            && !*warned
        {
            *warned = true;
            let (thread, parent, sid) = (Tid(child as u32), *parent, section(sid));
            problems.push(Problem::NotJoined {
                thread,
                parent,
                sid,
            });
        }
    }
    problems.iter().for_each(|problem| active.report(problem));
}

/// Number of sections that thread `tid` has open; see the header.
#[unsafe(no_mangle)]
extern "C" fn arp_depth(tid: u16) -> u32 {
    let slot = active().and_then(|active| active.slot(tid));
    let depth = slot.and_then(|slot| slot.with(thread_pointer(), |r| r.depth()).ok());
    depth.unwrap_or(0) as u32
}

/// Closes all but the outermost `depth` sections of thread `tid` without recording them; see the header.
#[unsafe(no_mangle)]
extern "C" fn arp_unwind(tid: u16, depth: u32) {
    if let Some(slot) = active().and_then(|active| active.slot(tid)) {
        let _ = slot.with(thread_pointer(), |recorder| {
            recorder.unwind_to_depth(depth as usize);
        });
    }
}

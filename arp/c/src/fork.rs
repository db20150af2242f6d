//! The handlers of `fork`: a child records into a file of its own.
use std::cell::UnsafeCell;
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicBool, Ordering};

use arp_core::ForkGuard;

use crate::active::{Active, State, Table, active, is_running};
use crate::system::thread_pointer;

static CHILD: AtomicBool = AtomicBool::new(false);

/// Whether this process was forked from one that recorded.
pub(crate) fn is_child() -> bool {
    CHILD.load(Ordering::Relaxed)
}

/// Locks held across a fork.
struct Held(UnsafeCell<Option<(MutexGuard<'static, Table>, ForkGuard<'static>)>>);

// SAFETY: the handlers below run in the thread that forks, one after the other, and forks exclude
// each other by the lock that is held in between.
unsafe impl Sync for Held {}

static HELD: Held = Held(UnsafeCell::new(None));

/// Registers the handlers.
pub(crate) fn prepare() {
    // SAFETY: the handlers live as long as the process.
    unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
}

extern "C" fn before() {
    if let Some(active) = active().filter(|_| is_running()) {
        let locks = (active.table(), active.session.fork_guard());
        // SAFETY: see `Held`; the table's lock is held now.
        unsafe { *HELD.0.get() = Some(locks) };
    }
}

extern "C" fn in_parent() {
    // SAFETY: see `Held`.
    drop(unsafe { (*HELD.0.get()).take() });
}

extern "C" fn in_child() {
    // SAFETY: see `Held`.
    let Some((mut table, guard)) = (unsafe { (*HELD.0.get()).take() }) else {
        return;
    };
    CHILD.store(true, Ordering::Relaxed);
    let mut name = guard.path().into_os_string();
    name.push(format!(".{}", std::process::id()));
    guard.forked(name);
    if let Some(active) = active() {
        forget(active, &mut table);
    }
}

/// Drops the recorders of the threads that a child does not have.
fn forget(active: &Active, table: &mut Table) {
    let me = thread_pointer();
    for tid in 0..=active.max_tid {
        let Some(slot) = active.slot(tid) else {
            continue;
        };
        if slot.owner() == me {
            // A recorder that is in use, because a callback forked, keeps its records.
            let _ = slot.with(me, |recorder| recorder.forget());
            slot.children.store(0, Ordering::Relaxed);
            slot.claim(me);
            table.states[usize::from(tid)] = Some(State::Root);
        } else {
            active.forget_slot(tid);
            table.states[usize::from(tid)] = None;
        }
    }
}

//! Start and end of threads.
use std::ffi::c_void;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arp_core::{Problem, Tid};

use crate::active::{Active, State, active, is_running, out_of_order};
use crate::context::SpawnJoin;
use crate::end::{self, end_if_due};
use crate::report::Errors;
use crate::slot::{FREE, PATIENCE};
use crate::system::NoCancel;

/// Longest wait for a parent that is in a callback when a thread is spawned.
const SPAWN_PATIENCE: Duration = Duration::from_secs(60);

/// The running recording; reports the call of `function` if there is none.
fn running(function: &'static str) -> Option<&'static Active> {
    let active = active().filter(|_| is_running());
    if active.is_none()
        && let Some(reason) = out_of_order()
    {
        end::tell(&Errors::NONE, &Problem::OutOfOrder { function, reason });
    }
    active
}

/// Announces a spawned thread; see the header.
#[unsafe(no_mangle)]
extern "C" fn arp_spawned(parent: u16, child: u16) {
    let _guard = NoCancel::new();
    if let Some(active) = running("arp_spawned")
        && active.knows(parent, None)
        && active.knows(child, None)
    {
        active.locked(|| spawn(active, parent, child));
    }
    end_if_due();
}

fn spawn(active: &Active, parent: u16, child: u16) {
    let thread = Tid(child.into());
    let mut table = active.table();
    let busy = matches!(
        table.states[usize::from(child)],
        Some(State::Running { .. } | State::Root)
    );
    if busy || parent == child {
        drop(table);
        return active.report(&Problem::SpawnedTwice { thread });
    }
    table.states[usize::from(parent)].get_or_insert(State::Root);
    let from = active.slot(parent);
    // The parent may be recording, so its recorder is taken for a moment.
    let stack = match from.filter(|slot| slot.owner() != FREE) {
        Some(slot) => slot.take(slot.owner(), SPAWN_PATIENCE, |recorder| recorder.stack()),
        None => Some(Vec::new()),
    };
    let Some(stack) = stack else {
        drop(table);
        let (function, reason) = ("arp_spawned", "the parent is in a callback");
        return active.report(&Problem::OutOfOrder { function, reason });
    };
    let slot = active.make_slot(child);
    for (index, context) in slot.contexts.iter().enumerate() {
        let inherited = match from {
            Some(parent) => parent.contexts[index].load(Ordering::Relaxed),
            None => active.sets[index].context.0,
        };
        context.store(inherited, Ordering::Relaxed);
    }
    let started = slot.take(FREE, PATIENCE, |recorder| recorder.restart(&stack));
    if started.is_none() {
        drop(table);
        return active.report(&Problem::SpawnedTwice { thread });
    }
    let state = State::Running {
        parent: Tid(parent.into()),
        depth: stack.len(),
        warned: false,
    };
    table.states[usize::from(child)] = Some(state);
    if let Some(from) = from {
        from.children.fetch_add(1, Ordering::Relaxed);
    }
    drop(table);
    call(active, child, |set| set.spawn);
}

/// Announces the end of a thread; see the header.
#[unsafe(no_mangle)]
extern "C" fn arp_join(child: u16) {
    let _guard = NoCancel::new();
    if let Some(active) = running("arp_join")
        && active.knows(child, None)
    {
        active.locked(|| join(active, child));
    }
    end_if_due();
}

fn join(active: &Active, child: u16) {
    let thread = Tid(child.into());
    let mut table = active.table();
    let state = table.states[usize::from(child)];
    let (Some(State::Running { parent, .. }), Some(slot)) = (state, active.slot(child)) else {
        drop(table);
        return active.report(&Problem::JoinWithoutSpawn { thread });
    };
    let open = slot.take(FREE, PATIENCE, |recorder| recorder.close_open());
    table.states[usize::from(child)] = Some(State::Joined);
    drop(table);
    match open {
        Some(open) if open.is_empty() => {}
        Some(open) => active.report(&Problem::OpenAtEnd { thread, open }),
        None => active.report(&Problem::StillRunning {
            threads: vec![thread],
        }),
    }
    if let Some(parent) = active.slot(parent.0 as u16) {
        parent.children.fetch_sub(1, Ordering::Relaxed);
    }
    call(active, child, |set| set.join);
}

/// Calls the spawn or join callbacks of thread `tid`.
fn call(active: &Active, tid: u16, which: fn(&crate::context::CallbackSet) -> Option<SpawnJoin>) {
    let Some(slot) = active.slot(tid) else {
        return;
    };
    for (set, cell) in active.sets.iter().zip(&slot.contexts) {
        if let Some(callback) = which(set) {
            let mut context: *mut c_void = cell.load(Ordering::Relaxed);
            callback(tid, &mut context);
            cell.store(context, Ordering::Relaxed);
        }
    }
}

/// Ends the recording; see the header.
#[unsafe(no_mangle)]
extern "C" fn arp_finish() {
    if running("arp_finish").is_some() {
        end::finish();
    }
    end_if_due();
}

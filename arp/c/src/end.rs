//! The end of the recording, and of the program after an error.
use std::sync::atomic::Ordering;

use arp_core::{Mode, Problem, Tid};

use crate::active::{Active, State, active, is_running};
use crate::fork;
use crate::report::{ENDING, Errors};
use crate::slot::{CLOSED, FREE, PATIENCE};
use crate::system::{NoCancel, is_alive, thread_id};

/// Ends the program if [`ENDING`] is set. The calling thread must not use a recorder.
#[inline]
pub(crate) fn end_if_due() {
    if ENDING.load(Ordering::Relaxed) {
        end();
    }
}

#[cold]
fn end() -> ! {
    // Finish here, as `exit` would call `arp_finish` while this call is still in it.
    finish_quietly();
    std::process::exit(1);
}

/// Reports a problem outside of a recording, and ends the program if that is due.
pub(crate) fn tell(errors: &Errors, problem: &Problem) {
    if errors.tell(problem) {
        end();
    }
}

/// Ends the recording, if there is one, when the program ends.
pub(crate) fn finish_quietly() {
    if is_running() {
        finish();
    }
}

/// Ends the recording, if it has not ended.
pub(crate) fn finish() {
    let _guard = NoCancel::new();
    let Some(active) = active() else {
        return;
    };
    if !Active::stop() {
        return;
    }
    let (mut alive, mut unjoined) = (Vec::new(), Vec::new());
    for (tid, slot) in active.slots() {
        let state = active.table().states[usize::from(tid)];
        let thread = slot.system_thread();
        let there = slot.owner() != FREE && thread != thread_id() && is_alive(thread);
        match state {
            Some(State::Running { .. } | State::Root) if there => alive.push(Tid(tid.into())),
            Some(State::Running { .. }) => unjoined.push(Tid(tid.into())),
            _ => {}
        }
    }
    // First stop all threads, then report: a callback may take long.
    let table = active.table();
    let mut stopped = Vec::new();
    for (tid, slot) in active.slots() {
        if slot.take(CLOSED, PATIENCE, |_| ()).is_some() {
            stopped.push(slot);
        } else if !alive.contains(&Tid(tid.into())) {
            alive.push(Tid(tid.into()));
        }
    }
    drop(table);
    if !alive.is_empty() {
        active.report(&Problem::StillRunning { threads: alive });
    }
    for thread in unjoined {
        active.report(&Problem::NeverJoined { thread });
    }
    for slot in stopped {
        slot.take(CLOSED, PATIENCE, |recorder| recorder.finish());
    }
    if fork::is_child() && active.session.is_empty() {
        return;
    }
    match active.session.finish() {
        Ok(summary) => {
            if let Some(file) = summary
                .file
                .filter(|_| active.session.mode() != Mode::Playback)
            {
                eprintln!(
                    "Note: The data gathered during this run are stored in the file '{}'.",
                    file.display()
                );
            }
        }
        Err(error) => active.report(&error.into()),
    }
}

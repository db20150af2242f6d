//! Windows: parts of a run outside of which nothing is noted.
//!
//! Each thread counts its instructions for itself, at the beginning of each block. A phase ends with the first block that
//! begins after its last instruction.

use atom_tool::notes::NoteBuffer;
use atom_tool::prelude::*;
use atom_tool::{ThreadData, Uninterrupted};

use crate::phases::NOTED;
use crate::sink;

thread_state! {
    /// Where a thread is.
    pub struct Phase {
        /// Number of instructions until the phase ends; not above 0 when it has ended.
        left: ThreadCell<i64>,
        /// Its phase, by a number of [`crate::phases`].
        phase: ThreadCell<u32>,
    }
}

/// Counts the execution of a block.
#[analysis]
fn count(buffer: PerThread<NoteBuffer>, phase: PerThread<Phase>, insts: u64) {
    // SAFETY: only the thread itself accesses its phase.
    let left = unsafe { phase.left.get_in_place() };
    if left > 0 {
        // One instruction subtracts in memory, so a signal handler's subtraction is never lost.
        phase.left.set(phase.left.get().wrapping_sub(insts as i64));
    } else {
        turn(buffer, phase, insts);
    }
}

/// Begins the next phase.
#[cold]
#[inline(never)]
fn turn(buffer: PerThread<NoteBuffer>, phase: PerThread<Phase>, insts: u64) {
    Uninterrupted::run(|_| {
        // Code that runs before the program's start is not counted.
        let Some(run) = sink::run() else { return };
        let mut left = phase.left.get();
        while left <= 0 {
            let (next, len) = run.windows.next(phase.phase.get());
            phase.phase.set(next);
            left += len;
        }
        buffer.set_paused(phase.phase.get() != NOTED);
        phase.left.set(left - insts as i64);
    })
}

/// Adds the calls that count.
pub fn add(program: &Program<'_>, buffer: ThreadData<NoteBuffer>) {
    let phase = program.thread_data(Phase::zero());
    for block in program.procs().flat_map(|proc| proc.blocks()) {
        let insts = block.insts().len() as u64;
        block.add_call(Before, count, (buffer, phase, insts));
    }
}

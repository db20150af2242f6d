//! Windows: parts of a run outside of which nothing is noted.
//!
//! Each thread counts its instructions for itself, at the beginning of each block. A phase ends with the first block that
//! begins after its last instruction.

use atom_tool::notes::NoteBuffer;
use atom_tool::prelude::*;
use atom_tool::{Options, ThreadData, Uninterrupted};

use crate::sink;

/// Number of instructions of a phase that never ends.
const ALWAYS: i64 = i64::MAX / 2;

plain_data! {
    /// The options, as numbers of instructions.
    #[derive(Default)]
    pub struct Windows {
        /// Before the first window.
        pub skip: u64,
        /// Length of a window; 0 if it never ends.
        pub window: u64,
        /// From the beginning of one window to the next; 0 if there is only one.
        pub every: u64,
    }
}

thread_state! {
    /// Where a thread is.
    pub struct Phase {
        /// Number of instructions until the phase ends; not above 0 when it has ended.
        left: ThreadCell<i64>,
        /// One of the phases below.
        phase: ThreadCell<u32>,
    }
}

/// The thread has not begun.
const NEW: u32 = 0;
/// Before the first window.
const SKIPPED: u32 = 1;
/// In a window.
const NOTED: u32 = 2;
/// Between windows.
const BETWEEN: u32 = 3;

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

impl Windows {
    /// The options of a run; `None` if everything is noted.
    pub fn from_options(options: &Options<'_>) -> Result<Option<Self>> {
        let windows = Self {
            skip: options.size("--skip", 0)?,
            window: options.size("--window", 0)?,
            every: options.size("--every", 0)?,
        };
        if windows.every != 0 && (windows.window == 0 || windows.every < windows.window) {
            let text =
                "--every needs a --window that is not longer than the distance between windows";
            return Err(text.into());
        }
        let most = [windows.skip, windows.window, windows.every]
            .into_iter()
            .max();
        if most > Some(ALWAYS as u64) {
            return Err("a number of instructions is too large".into());
        }
        let is_all = windows.skip == 0 && windows.window == 0;
        Ok((!is_all).then_some(windows))
    }

    /// The phase after another one, and its number of instructions.
    fn next(&self, phase: u32) -> (u32, i64) {
        match phase {
            NEW if self.skip > 0 => (SKIPPED, self.skip as i64),
            NOTED if self.every == 0 => (BETWEEN, ALWAYS),
            NOTED => (BETWEEN, (self.every - self.window) as i64),
            _ if self.window == 0 => (NOTED, ALWAYS),
            _ => (NOTED, self.window as i64),
        }
    }
}

/// Adds the calls that count.
pub fn add(program: &Program<'_>, buffer: ThreadData<NoteBuffer>) {
    let phase = program.thread_data(Phase::zero());
    for block in program.procs().flat_map(|proc| proc.blocks()) {
        let insts = block.insts().len() as u64;
        block.add_call(Before, count, (buffer, phase, insts));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phases(windows: &Windows) -> Vec<(u32, i64)> {
        let mut phase = NEW;
        let next = |_| {
            let next = windows.next(phase);
            phase = next.0;
            next
        };
        (0..4).map(next).collect()
    }

    #[test]
    fn phases_follow_each_other() {
        let [skip, window, every] = [10, 20, 50];
        let all = Windows {
            skip,
            window,
            every,
        };
        let expected = [(SKIPPED, 10), (NOTED, 20), (BETWEEN, 30), (NOTED, 20)];
        assert_eq!(phases(&all), expected);
        let skipping = Windows {
            skip,
            window: 0,
            every: 0,
        };
        assert_eq!(phases(&skipping)[..2], [(SKIPPED, 10), (NOTED, ALWAYS)]);
        let one = Windows {
            skip: 0,
            window,
            every: 0,
        };
        assert_eq!(phases(&one)[..2], [(NOTED, 20), (BETWEEN, ALWAYS)]);
    }
}

//! What measuring costs, and the clock.
//!
//! Executions of nothing are measured when the program starts. Of each execution's own value
//! is subtracted what one of nothing has (*own*: from the reading at its beginning to that at its
//! end), and of what encloses it what it adds there (*whole*). What instrumentation counts needs
//! neither, for analysis routines are not counted.

use std::arch::x86_64::{__cpuid, __rdtscp};
use std::hint::black_box;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use atom_tool::notes::NoteBuffer;
use atom_tool::{Counters, clocks};

use crate::settings::{self, Run};
use crate::thread::{Moment, State};
use crate::{ENTRY, EXIT, ROW};

/// Clock and events.
pub const MEASURES: usize = 1 + events::MOST;

/// Stands for a processor that is not known.
pub const UNKNOWN: u32 = 0xfff;

static HAS_RDTSCP: AtomicBool = AtomicBool::new(false);

/// The time stamp and the processor, read at one moment.
#[inline(always)]
pub fn now() -> (u64, u32) {
    if !HAS_RDTSCP.load(Relaxed) {
        return (clocks::time_stamp(), UNKNOWN);
    }
    let mut aux = 0;
    // SAFETY: the processor has it.
    let ticks = unsafe { __rdtscp(&raw mut aux) };
    // Linux puts the processor's number there, above it the node's.
    (ticks, aux & 0xfff)
}

/// What measuring costs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Costs {
    /// In the value of an execution.
    pub own: [u64; MEASURES],
    /// In what encloses it.
    pub whole: [u64; MEASURES],
    /// What is left of an empty execution's ticks in the middle.
    pub residual: u64,
}

static COSTS: OnceLock<Costs> = OnceLock::new();

/// As they were found at the start.
pub fn costs() -> Costs {
    COSTS.get().copied().unwrap_or_default()
}

fn has_rdtscp() -> bool {
    const EXTENDED: u32 = 0x8000_0000;
    __cpuid(EXTENDED).eax > EXTENDED && __cpuid(EXTENDED + 1).edx & 1 << 27 != 0
}

/// Executions that are measured, and how many in a row.
const TRIALS: usize = 100;
const PAIRS: usize = 16;

type Routine = fn(&NoteBuffer, u32, u32, u64, Counters<ROW>);

#[inline(never)]
fn by_cells(buffer: &NoteBuffer, thread: u32, word: u32, sp: u64, cells: Counters<ROW>) {
    crate::note(buffer, thread, word, sp, cells, false);
}

#[inline(never)]
fn by_all(buffer: &NoteBuffer, thread: u32, word: u32, sp: u64, cells: Counters<ROW>) {
    crate::note(buffer, thread, word, sp, cells, true);
}

/// Measures nothing, to learn what measuring costs.
pub fn calibrate(cells: Counters<ROW>) {
    HAS_RDTSCP.store(has_rdtscp(), Relaxed);
    let Some(run) = settings::run() else { return };
    let _ = COSTS.set(measure(run, cells).unwrap_or_default());
}

fn measure(run: &Run, cells: Counters<ROW>) -> Option<Costs> {
    let mut state = State::new(run)?;
    let buffer = NoteBuffer::new();
    state.lend(&buffer);
    let routine = match run.settings.has_meters() {
        true => by_all as Routine,
        false => by_cells as Routine,
    };
    let thread = buffer.thread();
    let mut own: [Vec<u64>; MEASURES] = Default::default();
    let mut whole = [u64::MAX; MEASURES];
    for _ in 0..TRIALS {
        state.rewind(&buffer);
        let routine = black_box(routine);
        for _ in 0..PAIRS {
            routine(&buffer, thread, ENTRY, 1, cells);
            routine(&buffer, thread, EXIT, 1, cells);
        }
        let moments: Vec<Moment> = state.moments(run, &buffer).collect();
        let (first, last) = (moments.first()?, moments.get(2 * PAIRS - 2)?);
        for (i, whole) in whole.iter_mut().enumerate() {
            let passed = last.values[i].saturating_sub(first.values[i]);
            *whole = passed.div_euclid(PAIRS as u64 - 1).min(*whole);
            let pairs = moments.chunks_exact(2);
            own[i].extend(pairs.map(|pair| pair[1].values[i].saturating_sub(pair[0].values[i])));
        }
    }
    let mut costs = Costs {
        whole,
        ..Costs::default()
    };
    for (i, own) in own.iter_mut().enumerate() {
        own.sort_unstable();
        costs.own[i] = own[own.len() / 20];
        if i == 0 {
            costs.residual = own[own.len() / 2] - costs.own[0];
        }
        costs.whole[i] = costs.whole[i].max(costs.own[i]);
    }
    // What is counted by instrumentation does not run here.
    for (i, slot) in run.settings.slots.iter().enumerate() {
        if slot.cell.is_some() {
            (costs.own[1 + i], costs.whole[1 + i]) = (0, 0);
        }
    }
    Some(costs)
}

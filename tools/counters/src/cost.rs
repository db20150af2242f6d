//! The cost of measuring, and the clock.
//!
//! Empty executions are measured when the program starts. Each measures two costs. The *own* cost is the value
//! of an empty execution, from the reading at its beginning to the reading at its end; it is subtracted from the
//! value of each execution. The *whole* cost is the amount that an empty execution adds to the execution that
//! encloses it; it is subtracted there. Events that instrumentation counts have no cost, because
//! analysis routines are not counted.

use std::arch::x86_64::{__cpuid, __rdtscp};
use std::hint::black_box;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use atom_tool::notes::NoteBuffer;
use atom_tool::{Counters, clocks};

use crate::settings::{self, Run};
use crate::thread::{Moment, State};
use crate::{ENTRY, EXIT, ROW};

/// Number of measures: the clock and the events.
pub const MEASURES: usize = 1 + events::MOST;

/// Stands for an unknown processor.
pub const UNKNOWN: u32 = 0xfff;

static HAS_RDTSCP: AtomicBool = AtomicBool::new(false);

/// The time stamp and the number of the processor, read by one instruction if possible.
#[inline(always)]
pub fn now() -> (u64, u32) {
    if !HAS_RDTSCP.load(Relaxed) {
        return (clocks::time_stamp(), UNKNOWN);
    }
    let mut aux = 0;
    // SAFETY: the processor has the instruction rdtscp, which was checked.
    let ticks = unsafe { __rdtscp(&raw mut aux) };
    // Linux stores the processor's number in the lowest 12 bits, and the number of the NUMA node above.
    (ticks, aux & 0xfff)
}

/// Costs of one measured execution, for the clock and each event.
#[derive(Clone, Copy, Debug, Default)]
pub struct Costs {
    /// Amount in the value of the execution.
    pub own: [u64; MEASURES],
    /// Amount in the value of the enclosing execution.
    pub whole: [u64; MEASURES],
    /// Median of the ticks of an empty execution that remain after the own cost is subtracted.
    pub residual: u64,
}

static COSTS: OnceLock<Costs> = OnceLock::new();

/// The costs that were measured at the program's start.
pub fn costs() -> Costs {
    COSTS.get().copied().unwrap_or_default()
}

fn has_rdtscp() -> bool {
    const EXTENDED: u32 = 0x8000_0000;
    __cpuid(EXTENDED).eax > EXTENDED && __cpuid(EXTENDED + 1).edx & 1 << 27 != 0
}

/// Number of series of empty executions that are measured.
const TRIALS: usize = 100;
/// Number of empty executions in a series.
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

/// Measures empty executions, and stores their costs.
pub fn calibrate(cells: Counters<ROW>) {
    HAS_RDTSCP.store(has_rdtscp(), Relaxed);
    let Some(run) = settings::run() else { return };
    let _ = COSTS.set(measure(run, cells).unwrap_or_default());
}

fn measure(run: &Run, cells: Counters<ROW>) -> Option<Costs> {
    let mut state = State::new(run)?;
    let buffer = NoteBuffer::new();
    state.lend(&buffer);
    let routine = if run.settings.has_meters() {
        by_all as Routine
    } else {
        by_cells as Routine
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
    // Calibration is not instrumented, so the cells do not change.
    for (i, slot) in run.settings.slots.iter().enumerate() {
        if slot.cell.is_some() {
            (costs.own[1 + i], costs.whole[1 + i]) = (0, 0);
        }
    }
    Some(costs)
}

//! Measures the cost of measuring, by empty executions when the program starts.

use std::hint::black_box;

use atom_tool::Counters;
use atom_tool::notes::NoteBuffer;

use crate::cost::{self, Costs, MEASURES, Moment};
use crate::settings::{self, Run};
use crate::thread::State;
use crate::{ENTRY, EXIT, ROW};

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
    cost::find_clock();
    let Some(run) = settings::run() else { return };
    cost::store(measure(run, cells).unwrap_or_default());
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

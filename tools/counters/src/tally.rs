//! The exact events: constants for blocks, and values that only the running program knows at
//! single instructions.
//!
//! A block counts at its start, so a block that a fault ends early counts in full.

use atom_tool::prelude::*;
use atom_tool::{CounterAt, CounterTable, FloatOps, MemoryAccess, Times};
use events::Exact;

use crate::settings::{Settings, Slot};
use crate::{REPLICAS, ROW, flow};

thread_state! {
    /// State that is kept during an instruction that compares strings.
    struct Compared {
        /// Number of times that it may be repeated.
        times: ThreadCell<u64>,
    }
}

#[analysis]
fn tally(row: Counter<ROW>, cell: u32, n: u64) {
    row.add_to(cell as usize & 1, n);
}

#[analysis]
fn tally_both(row: Counter<ROW>, first: u64, second: u64) {
    row.add_to(0, first);
    row.add_to(1, second);
}

#[analysis]
fn tally_taken(row: Counter<ROW>, cell: u32, taken: Value) {
    row.add_to(cell as usize & 1, u64::from(taken.is_true()));
}

#[analysis]
fn tally_not_taken(row: Counter<ROW>, cell: u32, taken: Value) {
    row.add_to(cell as usize & 1, u64::from(!taken.is_true()));
}

/// Counts `n` for each repetition.
#[analysis]
fn tally_times(row: Counter<ROW>, cell: u32, n: u64, times: Value) {
    row.add_to(cell as usize & 1, n.wrapping_mul(times.0));
}

/// Counts `n` for an element of a vector that has an address of its own.
#[analysis]
fn tally_element(row: Counter<ROW>, cell: u32, n: u64, _address: Value) {
    row.add_to(cell as usize & 1, n);
}

#[analysis]
fn keep_times(state: PerThread<Compared>, times: Value) {
    state.times.set(times.0);
}

#[analysis]
fn tally_compared(state: PerThread<Compared>, row: Counter<ROW>, cell: u32, n: u64, left: RegV) {
    let times = state.times.get().saturating_sub(left.0);
    row.add_to(cell as usize & 1, n.wrapping_mul(times));
}

/// An exact event of the set, and the cell that counts it.
struct CountedEvent<'a> {
    slot: &'a Slot,
    exact: Exact,
    row: CounterAt<ROW>,
    cell: usize,
}

/// Adds the calls that count the exact events of the set.
pub fn add(program: &Program, settings: &Settings, cells: CounterTable<ROW>) {
    let events: Vec<CountedEvent> = settings
        .slots
        .iter()
        .filter_map(|slot| {
            let (exact, cell) = (slot.exact()?, slot.cell?);
            Some(CountedEvent {
                slot,
                exact,
                row: cells.at(cell / ROW),
                cell,
            })
        })
        .collect();
    if events.is_empty() {
        return;
    }
    let compared = program.thread_data(Compared {
        times: ThreadCell::new(0),
    });
    // Blocks take turns among the replicas, because adding to a cell waits for the last addition.
    let rows = cells.len() / REPLICAS;
    let mut turn = 0;
    for proc in program.procs() {
        let mut graph = flow::Graph::new(proc);
        for weights in &mut graph.weights {
            weights.resize(rows * ROW, 0);
        }
        for (number, block) in proc.blocks().enumerate() {
            turn = (turn + 1) % REPLICAS;
            for inst in block.insts() {
                for event in events.iter().filter(|p| takes(p.slot, inst)) {
                    graph.add(number, event.cell, constant(event.exact, inst));
                    let row = cells.at(turn * rows + event.cell / ROW);
                    match event.exact {
                        Exact::Taken | Exact::NotTaken => {
                            branch(event, row, inst, &mut graph, number);
                        }
                        _ => at_instruction(event, inst),
                    }
                }
                comparison(&events, inst, compared);
            }
        }
        graph.settle();
        for (block, sums) in proc.blocks().zip(&graph.weights) {
            if sums.iter().all(|n| *n == 0) {
                continue;
            }
            turn = (turn + 1) % REPLICAS;
            for (number, sums) in sums.chunks_exact(ROW).enumerate() {
                let row = cells.at(turn * rows + number);
                match *sums {
                    [0, 0] => {}
                    [n, 0] => block.add_call(Before, tally, (row, 0, n)),
                    [0, n] => block.add_call(Before, tally, (row, 1, n)),
                    [first, second] => block.add_call(Before, tally_both, (row, first, second)),
                    _ => {}
                }
            }
        }
    }
}

fn takes(slot: &Slot, inst: Inst) -> bool {
    slot.choice.opcode.is_none() || slot.choice.takes(inst.mnemonic())
}

/// The amount that each execution of the instruction counts.
fn constant(exact: Exact, inst: Inst) -> u64 {
    match exact {
        Exact::Instructions => 1,
        Exact::Branches => inst.is_type(InstType::CondBr).into(),
        Exact::Calls => inst.is_type(InstType::Call).into(),
        Exact::FloatOps => inst.float_ops().map_or(0, FloatOps::count),
        Exact::FloatInsts => inst.float_ops().is_some().into(),
        Exact::Taken | Exact::NotTaken => 0,
        Exact::Loads | Exact::Stores | Exact::References | Exact::Bytes => {
            let accesses = inst.memory();
            let plain = accesses.iter().filter(|m| !m.is_repeated() && m.count <= 1);
            plain.map(|m| weight(exact, m)).sum()
        }
    }
}

/// The amount that one access counts.
fn weight(exact: Exact, access: &MemoryAccess) -> u64 {
    let (loads, stores) = (
        u64::from(access.access.reads()),
        u64::from(access.access.writes()),
    );
    match exact {
        Exact::Loads => loads,
        Exact::Stores => stores,
        Exact::References => loads + stores,
        Exact::Bytes => (loads + stores) * u64::from(access.size),
        _ => 0,
    }
}

/// Counts a side of a conditional branch: in the block at that side, or else by its condition.
fn branch(
    event: &CountedEvent,
    row: CounterAt<ROW>,
    inst: Inst,
    graph: &mut flow::Graph,
    number: usize,
) {
    if !inst.is_type(InstType::CondBr) {
        return;
    }
    let side = match event.exact {
        Exact::Taken => flow::Side::Taken,
        _ => flow::Side::Falling,
    };
    if graph.count_side(number, side, event.cell) || !inst.offers(Before, BrCondValue) {
        return;
    }
    let args = (row, (event.cell % ROW) as u32, BrCondValue);
    match side {
        flow::Side::Taken => inst.add_call(Before, tally_taken, args),
        flow::Side::Falling => inst.add_call(Before, tally_not_taken, args),
    }
}

/// Adds calls for values that only the running program knows.
fn at_instruction(event: &CountedEvent, inst: Inst) {
    let (row, cell) = (event.row, (event.cell % ROW) as u32);
    if !is_of_memory(event.exact) || !inst.is_type(InstType::Load) && !inst.is_type(InstType::Store)
    {
        return;
    }
    let accesses = inst.memory();
    let repeated: u64 = accesses
        .iter()
        .filter(|m| m.is_repeated())
        .map(|m| weight(event.exact, m))
        .sum();
    if repeated != 0 && times(inst) == Some(Times::Repeated) {
        inst.add_call(Before, tally_times, (row, cell, repeated, RepCount));
    }
    for (number, access) in accesses.iter().enumerate().filter(|(_, m)| m.count > 1) {
        let (n, element) = (weight(event.exact, access), EffAddrOf(number as u8));
        if n != 0 && inst.offers(Before, element) {
            inst.add_call(Before, tally_element, (row, cell, n, element));
        }
    }
}

fn is_of_memory(exact: Exact) -> bool {
    matches!(
        exact,
        Exact::Loads | Exact::Stores | Exact::References | Exact::Bytes
    )
}

fn times(inst: Inst) -> Option<Times> {
    inst.references().map(|references| references.times)
}

/// Adds the calls for a comparison of strings, which may end early.
fn comparison(events: &[CountedEvent], inst: Inst, state: atom_tool::ThreadData<Compared>) {
    let wants = |p: &&CountedEvent| is_of_memory(p.exact) && takes(p.slot, inst);
    if !events.iter().any(|p| wants(&p))
        || !inst.is_type(InstType::Load)
        || times(inst) != Some(Times::Compared)
    {
        return;
    }
    inst.add_call(Before, keep_times, (state, RepCount));
    for event in events.iter().filter(wants) {
        let accesses = inst.memory();
        let n: u64 = accesses.iter().map(|m| weight(event.exact, m)).sum();
        if n != 0 {
            let cell = (event.cell % ROW) as u32;
            let args = (state, event.row, cell, n, Reg::Rcx);
            inst.add_call(After, tally_compared, args);
        }
    }
}

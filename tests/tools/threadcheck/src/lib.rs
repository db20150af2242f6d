//! Counts each block's executions in all ways in which threads can share counters: by
//! per-thread counters, by atomic counters, and in per-thread state; with `--lock` also
//! each procedure's entries after a mutex. All must agree, cell by cell.
//!
//! Writes `NAME COUNT` for each procedure that was entered, then a line for each
//! disagreement, then the number of threads with state of their own.

use std::io::{self, Write};
use std::sync::Mutex;

use atom_tool::prelude::*;

/// Blocks share these cells.
const CELLS: usize = 64;

thread_state! {
    struct State {
        blocks: ThreadCell<u64>,
        cells: [ThreadCell<u32>; CELLS],
        /// The instrument routine sets it; each thread's copy must have the same value.
        seal: ThreadCell<u64>,
    }
}

const SEAL: u64 = 0x5ea1_ed00_c0de;

#[analysis]
fn own(counter: Counter) {
    counter.increment();
}

#[analysis]
fn atomic(counter: AtomicCounter) {
    counter.increment();
}

#[analysis]
fn state(state: PerThread<State>, block: u64) {
    state.blocks.add(1);
    state.cells[block as usize % CELLS].add(1);
}

static LOCKED: Mutex<Vec<u64>> = Mutex::new(Vec::new());

/// Holds a lock, also in signal handlers and in threads that are cancelled.
#[analysis(uninterrupted)]
fn locked(entry: u64) {
    let Ok(mut counts) = LOCKED.lock() else {
        return;
    };
    if counts.len() <= entry as usize {
        counts.resize(entry as usize + 1, 0);
    }
    counts[entry as usize] += 1;
}

#[analysis]
fn report(
    output: Str,
    with_lock: bool,
    own: Counters,
    atomic: AtomicCounters,
    states: AllThreads<State>,
    entries: Array<u64>,
    names: Strings,
) {
    let write = || -> io::Result<()> {
        let mut file = output::create(&output)?;
        let counts: Vec<u64> = own.rows().map(|[n]| n).collect();
        let shared: Vec<u64> = atomic.rows().map(|[n]| n).collect();
        for (&block, name) in entries.iter().zip(names.iter()) {
            if counts[block as usize] != 0 {
                writeln!(file, "{name} {}", counts[block as usize])?;
            }
        }
        for (i, (own, shared)) in counts.iter().zip(&shared).enumerate() {
            if own != shared {
                writeln!(file, "! block {i}: own {own}, atomic {shared}")?;
            }
        }
        let behind_lock = LOCKED.lock().map(|counts| counts.clone());
        for (&block, &count) in entries.iter().zip(&behind_lock.unwrap_or_default()) {
            if with_lock && counts[block as usize] != count {
                let own = counts[block as usize];
                writeln!(file, "! block {block}: own {own}, behind a lock {count}")?;
            }
        }
        for cell in 0..CELLS {
            let sum = states
                .iter()
                .fold(0u32, |sum, s| sum.wrapping_add(s.cells[cell].get()));
            let all = shared.iter().skip(cell).step_by(CELLS).sum::<u64>();
            if sum != all as u32 {
                writeln!(file, "! cell {cell}: state {sum}, atomic {all}")?;
            }
        }
        let all: u64 = states.iter().map(|s| s.blocks.get()).sum();
        if all != shared.iter().sum() {
            writeln!(file, "! blocks: state {all}")?;
        }
        if let Some(broken) = states.iter().find(|s| s.seal.get() != SEAL) {
            writeln!(file, "! seal {:#x}", broken.seal.get())?;
        }
        writeln!(file, "= threads {}", states.iter().count())?;
        file.flush()
    };
    if let Err(e) = write() {
        eprintln!("threadcheck: cannot write {e}");
    }
}

fn instrument(program: &Program, args: &Args) -> Result {
    let options = args.options();
    let file = options.value("--output")?.unwrap_or("threadcheck.out");
    let with_lock = options.flag("--lock");
    options.finish()?;
    let counters = program.counters(program.block_count());
    let shared = program.atomic_counters(program.block_count());
    let states = program.thread_data(State {
        blocks: ThreadCell::new(0),
        cells: std::array::from_fn(|_| ThreadCell::new(0)),
        seal: ThreadCell::new(SEAL),
    });
    let mut names = StringList::new();
    let mut entries = Vec::new();
    for proc in program.procs() {
        for (i, block) in proc.blocks().enumerate() {
            if i == 0 {
                if with_lock {
                    block.add_call(Before, locked, (entries.len() as u64,));
                }
                names.push(proc.name());
                entries.push(block.index() as u64);
            }
            block.add_call(Before, own, (counters.at(block.index()),));
            block.add_call(Before, atomic, (shared.at(block.index()),));
            block.add_call(Before, state, (states, block.index() as u64));
        }
    }
    program.add_call(
        After,
        report,
        (file, with_lock, counters, shared, states, &entries, &names),
    );
    Ok(())
}

// A tool for tests, which is not listed.
atom_tool::tool!(instrument, help = "");

//! Basic-block vectors: how often each block is executed in each interval of a run.
//!
//! Each thread counts the executions of blocks, and the instructions that remain until its interval ends. The block
//! with which the interval ends takes the cold path, which writes the counts as a vector and begins with new ones
//! (`vectors`). `docs/tools/bbv.md` describes options and files.

use atom_tool::prelude::*;
use atom_tool::{Uninterrupted, forks};

mod blocks;
mod settings;
mod vectors;

use blocks::{BlockFacts, BlockList};
use settings::{Run, SettingsData};

/// Number of parts into which the rest of an interval is divided.
const PARTS: usize = 8;
/// Largest number of instructions of a short block. A short block is counted wherever its part is not empty, so it may take
/// more than is left: a part ends at most this number below 0.
const SHORT: i64 = 64;

thread_state! {
    /// Where a thread is in its interval.
    ///
    /// The number of instructions until the interval ends is the sum of all parts and the rest. Blocks take from
    /// different parts: with one number for all, each block would wait for the subtraction of the block before.
    struct State {
        parts: [ThreadCell<i64>; PARTS],
        rest: ThreadCell<i64>,
        /// Number of the thread, from 1 on; 0 before its first block.
        thread: ThreadCell<u64>,
    }
}

impl State {
    /// Number of instructions until the interval ends.
    fn left(&self) -> u64 {
        let parts = self.parts.iter().map(ThreadCell::get);
        parts.fold(self.rest.get(), i64::wrapping_add) as u64
    }

    /// Sets the number of instructions until the interval ends. Near the end the parts are empty, so that each block
    /// takes the cold path and the last one is found.
    fn set_left(&self, left: u64) {
        let left = left as i64;
        let part = left / PARTS as i64 - SHORT;
        let part = if part < SHORT { 0 } else { part };
        self.parts.iter().for_each(|cell| cell.set(part));
        self.rest.set(left - part * PARTS as i64);
    }
}

/// The states of all threads.
struct States(AllThreads<State>);
// SAFETY: threads share only atomic data.
unsafe impl Send for States {}
// SAFETY: as above.
unsafe impl Sync for States {}

/// Counts an execution of a block with at most [`SHORT`] instructions, which it takes from a part.
#[analysis]
fn short(state: PerThread<State>, counts: Counters, count: Counter, insts: u64, part: u64) {
    take(state, counts, count, insts, part, 0);
}

/// Counts an execution of a longer block.
#[analysis]
fn long(state: PerThread<State>, counts: Counters, count: Counter, insts: u64, part: u64) {
    take(state, counts, count, insts, part, insts as i64);
}

/// Takes a block's instructions from a part that has more than `least`.
#[inline(always)]
fn take(
    state: PerThread<State>,
    counts: Counters,
    count: Counter,
    insts: u64,
    part: u64,
    least: i64,
) {
    let part = &state.parts[part as usize % PARTS];
    // SAFETY: other threads only read the parts.
    let left = unsafe { part.get_in_place() };
    // One instruction subtracts in memory, so a signal handler's subtraction is never lost.
    if left > least {
        part.set(part.get().wrapping_sub(insts as i64));
        count.increment();
    } else {
        slow(state, counts, count, insts);
    }
}

/// Counts an execution that finds its part empty: it may end the interval, or be the first one of a thread.
#[cold]
#[inline(never)]
fn slow(state: PerThread<State>, counts: Counters, count: Counter, insts: u64) {
    let _signals_wait = Uninterrupted::begin();
    // Code that runs before the program's start is in no interval.
    let Some(run) = settings::run() else { return };
    if state.thread.get() == 0 {
        let Some(mut sink) = vectors::lock(run) else {
            return;
        };
        state.thread.set(sink.begin_thread());
        state.set_left(run.interval);
    }
    count.increment();
    let left = state.left();
    if insts < left {
        return state.set_left(left - insts);
    }
    if let Some(mut sink) = vectors::lock(run) {
        sink.end_interval(run, state.thread.get(), counts);
    }
    // The next interval is shorter by what this one had too much, so that the limits are multiples of the length.
    let over = (insts - left) % run.interval;
    state.set_left(run.interval - over);
}

#[analysis]
fn begin(
    states: AllThreads<State>,
    settings: Record<SettingsData>,
    texts: Strings,
    blocks: Array<BlockFacts>,
    firsts: Array<u32>,
    sites: Sites,
) {
    let blocks = BlockList {
        blocks: blocks.as_slice(),
        firsts: firsts.as_slice(),
        sites,
    };
    settings::begin(Run {
        interval: settings.interval,
        vectors: texts.get(settings.vectors),
        blocks_file: texts.get(settings.blocks),
        program: texts.get(settings.program),
        blocks,
        states: States(states),
    });
    vectors::begin();
    forks::in_child(|| {
        // The counts of a child are zeros at its start, and it has no threads but one.
        let Some(run) = settings::run() else { return };
        for state in run.states.0.iter() {
            state.set_left(0);
            state.thread.set(0);
        }
    });
}

#[analysis(uninterrupted)]
fn end(states: AllThreads<State>, counts: Counters, files: Files) {
    let Some(run) = settings::run() else { return };
    let Some(mut sink) = vectors::lock(run) else {
        return;
    };
    for (state, counts) in states.iter().zip(counts.of_threads(states)) {
        if state.thread.get() != 0 {
            sink.end_interval(run, state.thread.get(), counts);
            // If the process goes on, because it fails to execute another program, it does so with a new interval.
            state.set_left(run.interval);
        }
    }
    sink.finish(run, files);
}

fn instrument(program: &Program, args: &Args) -> Result {
    let options = args.options();
    let files = ReportFiles::from_options(&options, "bbv.out")?;
    let interval = options.size("--interval", settings::INTERVAL)?;
    let vectors = options.value("--vectors")?.unwrap_or("bbv.bb");
    let blocks_file = options.value("--blocks")?.unwrap_or("bbv.blocks");
    options.finish()?;
    if !(1..=i64::MAX as u64).contains(&interval) {
        let text = format!(
            "an interval cannot have {interval} instructions; give --interval another number"
        );
        return Err(text.into());
    }

    let mut sites = SiteList::new();
    let mut firsts: Vec<u32> = Vec::new();
    let mut blocks: Vec<BlockFacts> = Vec::new();
    let counts = program.counters(program.block_count());
    let state = program.thread_data(State::zero());
    for proc in program.procs().filter(|proc| proc.first_block().is_some()) {
        firsts.push(blocks.len() as u32);
        sites.push_proc(proc);
        for block in proc.blocks() {
            let (insts, last) = (block.insts().len() as u32, block.last_inst());
            let count = counts.at(blocks.len());
            let part = (blocks.len() % PARTS) as u64;
            let args = (state, counts, count, u64::from(insts), part);
            match i64::from(insts) <= SHORT {
                true => block.add_call(Before, short, args),
                false => block.add_call(Before, long, args),
            }
            blocks.push(BlockFacts {
                pc: block.pc(),
                bytes: (last.pc() + last.size() as u64 - block.pc()) as u32,
                insts,
            });
        }
    }
    let mut texts = StringList::new();
    let settings = SettingsData {
        interval,
        vectors: texts.intern(vectors),
        blocks: texts.intern(blocks_file),
        program: texts.intern(program.name()),
        _unused: [0; 4],
    };
    let args = (state, &settings, &texts, &blocks, &firsts, &sites);
    program.add_call(Before, begin, args);
    program.add_call(After, end, (state, counts, &files));
    Ok(())
}

atom_tool::tool!(instrument, help = include_str!("help.txt"));

//! Basic-block vectors: how often each block is executed in each interval of a run.
//!
//! Each thread counts the executions of blocks, up to numbers that cannot end its interval (`ledger`). What is beyond takes
//! the cold path, which at the end of the interval writes the counts as a vector and begins with new ones (`vectors`). `docs/tools/bbv.md` describes options and files.

use atom_tool::prelude::*;
use atom_tool::{Uninterrupted, forks};

mod blocks;
mod ledger;
mod settings;
mod vectors;

use blocks::{BlockFacts, BlockList};
use ledger::Ledger;
use settings::{Run, SettingsData};

thread_state! {
    /// A thread and its interval.
    struct State {
        /// Address of its [`Ledger`]; 0 before the first block.
        ledger: ThreadCell<u64>,
        /// Number of the thread, from 1 on; 0 before its first block.
        thread: ThreadCell<u64>,
    }
}

impl State {
    /// The ledger, which lives for ever.
    fn ledger(&self) -> Option<&'static Ledger> {
        let address = self.ledger.get() as usize;
        // SAFETY: the address of a box that was leaked, or 0.
        unsafe { std::ptr::with_exposed_provenance::<Ledger>(address).as_ref() }
    }

    /// Makes the ledger of a thread that begins.
    fn begin(&self, run: &Run) -> &'static Ledger {
        let ledger = Ledger::new(run.interval, run.blocks.blocks.len());
        let ledger: &'static Ledger = Box::leak(Box::new(ledger));
        let address = std::ptr::from_ref(ledger).expose_provenance();
        self.ledger.set(address as u64);
        ledger
    }
}

/// The states of all threads.
struct States(AllThreads<State>);
// SAFETY: threads share only atomic data.
unsafe impl Send for States {}
// SAFETY: as above.
unsafe impl Sync for States {}

/// Counts an execution of a block. Its counter is minus its budget.
#[analysis]
fn take(state: PerThread<State>, counts: Counters, count: Counter, block: u32) {
    if count.count_up() >= 0 {
        slow(state, counts, block);
    }
}

/// Takes an execution that was the last one of its budget or had none: it may end the interval, or be the first one of a thread.
#[cold]
#[inline(never)]
fn slow(state: PerThread<State>, counts: Counters, block: u32) {
    if let (Some(run), Some(ledger)) = (settings::run(), state.ledger())
        && ledger.take(counts, block, &run.blocks.blocks)
    {
        return;
    }
    settle(state, counts, block);
}

/// Takes an execution after which there is no reserve, the first one of a thread, or of a block that came later.
#[cold]
#[inline(never)]
fn settle(state: PerThread<State>, counts: Counters, block: u32) {
    Uninterrupted::run(|_| {
        // Code that runs before the program's start is in no interval.
        let Some(run) = settings::run() else {
            counts.at(block as usize).replace(0);
            return;
        };
        let facts = run.blocks.blocks.as_slice();
        let ledger = match state.ledger() {
            Some(ledger) => {
                if ledger.grow_to(block) {
                    ledger.take(counts, block, facts);
                }
                ledger
            }
            None => {
                let Some(mut sink) = vectors::lock() else {
                    return;
                };
                state.thread.set(sink.begin_thread());
                let ledger = state.begin(run);
                ledger.take(counts, block, facts);
                ledger
            }
        };
        if !ledger.settle(counts, facts) {
            end_interval(run, &state, ledger, counts);
        }
    })
}

/// Ends the interval of a thread.
fn end_interval(run: &Run, state: &State, ledger: &Ledger, counts: Counters) {
    let executions = ledger.executions(counts);
    if let Some(mut sink) = vectors::lock() {
        sink.end_interval(run, state.thread.get(), &executions);
    }
    ledger.next(counts, run.interval, &executions, &run.blocks.blocks);
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
        blocks,
        firsts,
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
            // Another thread's may be in use by a thread that is not there any more.
            state.ledger.set(0);
            state.thread.set(0);
        }
    });
}

#[analysis(uninterrupted)]
fn end(states: AllThreads<State>, counts: Counters, files: Files) {
    let Some(run) = settings::run() else { return };
    for (state, counts) in states.iter().zip(counts.of_threads(states)) {
        // If the process continues, because it fails to execute another program, it does so with a new interval.
        if let Some(ledger) = state.ledger() {
            end_interval(run, state, ledger, counts);
        }
    }
    if let Some(mut sink) = vectors::lock() {
        sink.finish(run, files);
    }
}

fn instrument(program: &Program, args: &Args) -> Result {
    let options = args.options();
    let files = ReportFiles::from_options(&options)?;
    let interval = options.size("--interval")?;
    let vectors = options.value("--vectors")?.unwrap_or_default();
    let blocks_file = options.value("--blocks")?.unwrap_or_default();
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
            block.add_call(Before, take, (state, counts, count, blocks.len() as u32));
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
    // Blocks are looked up as they come.
    program.tables_may_grow();
    program.add_call(Before, begin, args);
    program.add_call(After, end, (state, counts, &files));
    Ok(())
}

atom_tool::tool! { instrument, help = include_str!("help.txt"), report = "bbv.out" }

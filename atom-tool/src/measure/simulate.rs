//! The common part of tools that simulate memory: caches, translation buffers.
//!
//! The executions of a block tell the number of references that its instructions make, so one
//! counter for each block is enough for the references. The tool's routine is called at each
//! reference, and counts only rare events, usually the misses.

pub mod batched;
pub mod batches;
mod bursts;
pub mod cache;
pub mod geometry;
pub mod groups;
mod look_up;
pub mod room;
pub mod times;

pub use self::look_up::{
    GroupRoutine, LookUp, ReferRoutine, Timed, TimedGroupRoutine, TimedRoutine,
};
use self::times::Known;
use crate::Place::{After, Before};
use crate::Reg;
use crate::calls::params::{Array, Str};
use crate::calls::typed::{AccessSizeOf, AsRoutine, Direction, EffAddrOf, RepCount, Routine};
use crate::data::counters::{Counter, CounterAt, CounterTable, Counters};
use crate::data::sites::{SiteList, Sites};
use crate::data::thread_data::{PerThread, ThreadCell, ThreadData, ThreadState};
use crate::navigation::handle::Inst;
use crate::navigation::program::Program;
use crate::navigation::references::{References, Times};
use crate::report::estimate::Estimate;
use crate::report::{Counted, Files, Report, ReportFiles};

/// Number of bursts for which a tool that simulates memory warms up before each one.
const WARM_UP: u64 = 1;

/// Cells of the counters of a [`Simulation`]. A tool may have more cells than these (`N`), which count further events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Seen {
    /// Number of misses.
    Misses = 0,
    /// Number of references that the executions of blocks do not include.
    Extra = 1,
}

crate::plain_data! {
    /// What a site's references refer to.
    #[derive(PartialEq, Eq, Debug)]
    pub enum Referred {
        /// Data: loads and stores.
        Data,
        /// Code that is fetched.
        Code,
    }

    /// The references of one site, as the instrument routine knows them.
    pub struct SiteReferences {
        /// Number of the site's block.
        pub block: u32,
        /// Number of references that each execution of the block makes at the site.
        pub each: u32,
        /// What they refer to.
        pub referred: Referred,
    }
}

/// Parameters of a routine that writes a report: its files, the name of the program, the
/// description of the simulated memory, then the parts of a [`Simulation`] in their order.
pub type ReportParams<const N: usize = 2> = (
    Files,
    Str,
    Str,
    Counters<N>,
    Counters,
    Array<SiteReferences>,
    Sites,
);

/// A routine for instructions that make many references: state, shape, both addresses (the
/// second is 0 if there is none), times, direction, size, counter.
pub type RepeatRoutine<T, const N: usize = 2> =
    Routine<(PerThread<T>, u64, u64, u64, u64, u64, u64, Counter<N>)>;

/// The routines of a tool. `shape` is a constant that only the tool interprets. A reference to
/// several lines is several references; the routine adds those beyond the first to [`Seen::Extra`].
pub struct Simulator<T: 'static, const N: usize = 2> {
    /// For instructions that make each of their references once.
    pub look_up: LookUp<T, N>,
    /// For a repeated string instruction, or an element of a vector. Only this routine counts
    /// their references.
    pub repeat: RepeatRoutine<T, N>,
    /// Before a string comparison, which may end early: state, both addresses, times.
    pub compare: Routine<(PerThread<T>, u64, u64, u64)>,
    /// After a string comparison: state, shape, rcx, direction, size, counter.
    pub compared: Routine<(PerThread<T>, u64, u64, u64, u64, Counter<N>)>,
}

/// Instrument side: the calls for all references of a program, and their counters. Its
/// parts are arguments for [`Report::simulated`].
pub struct Simulation<const N: usize = 2> {
    /// Misses and extra references of each site.
    pub counts: CounterTable<N>,
    /// Executions of each block.
    pub executed: CounterTable,
    /// The references of each site.
    pub references: Vec<SiteReferences>,
    /// The instructions that refer to memory, then those that are fetched.
    pub sites: SiteList,
}

#[crate::analysis]
fn simulated_block(counter: Counter) {
    counter.increment();
}

impl<const N: usize> Simulation<N> {
    /// Adds calls that simulate all loads and stores. With `code`, its state and the size of a line in
    /// bytes, the fetching of all instructions is simulated, too, at their addresses in the program's file.
    pub fn new<T: ThreadState>(
        program: &Program<'_>,
        simulator: &Simulator<T, N>,
        shape: u64,
        data: ThreadData<T>,
        code: Option<(ThreadData<T>, u64)>,
    ) -> Self {
        let blocks = || program.procs().flat_map(|proc| proc.blocks());
        let insts = blocks().flat_map(|block| block.insts());
        let insts: Vec<(Inst<'_>, References)> = insts
            .filter_map(|inst| Some((inst, inst.references()?)))
            .collect();
        let sites = insts.len() + code.map_or(0, |_| program.inst_count());
        let mut all = Self {
            counts: program.counters(sites),
            executed: program.counters(program.block_count()),
            references: Vec::new(),
            sites: SiteList::new(),
        };
        for block in blocks() {
            let refers = block.insts().any(|inst| inst.references().is_some());
            if code.is_some() || refers {
                block.add_call(Before, simulated_block, (all.executed.at(block.index()),));
            }
        }
        let known = match simulator.look_up {
            LookUp::Timed(_) => Known::new(program),
            _ => Known::default(),
        };
        let mut rest = &insts[..];
        for proc in program.procs() {
            let first = insts.len() - rest.len();
            let mut blocks = Vec::new();
            for block in proc.blocks() {
                let is_in = |i: &&(Inst<'_>, References)| i.0.block() == block;
                let (mine, others) = rest.split_at(rest.iter().take_while(is_in).count());
                rest = others;
                blocks.push((block, mine));
            }
            let look_up = &simulator.look_up;
            look_up.add_proc(proc, &blocks, (data, shape, all.counts, first), &known);
            let mine = blocks.into_iter().flat_map(|(_, insts)| insts);
            for (number, (inst, references)) in mine.enumerate() {
                let count = all.counts.at(first + number);
                let each = match (references.times, look_up) {
                    (Times::Once, LookUp::Grouped(..) | LookUp::Timed(_)) => {
                        references.operands.len() as u32
                    }
                    _ => simulator.add(*inst, references, data, shape, count),
                };
                all.push(*inst, each, Referred::Data);
            }
        }
        if let Some((state, line)) = code {
            all.fetch(program, simulator, shape, (state, line), insts.len());
        }
        program.tables_may_grow();
        let compared = (all.counts, all.executed, &all.references, WARM_UP);
        program.add_call(Before, bursts::simulated_bursts(), compared);
        all
    }

    /// Adds the calls for instructions that are fetched, whose counters come after `first` others.
    fn fetch<T: ThreadState>(
        &mut self,
        program: &Program<'_>,
        simulator: &Simulator<T, N>,
        shape: u64,
        (state, line): (ThreadData<T>, u64),
        first: usize,
    ) {
        let blocks = program.procs().flat_map(|proc| proc.blocks());
        let mut counts = self.counts.rows().skip(first);
        let fetch = simulator.look_up.refer();
        for block in blocks {
            let mut fetched = None;
            for (inst, count) in block.insts().zip(&mut counts) {
                let (first, last) = (
                    inst.pc() / line,
                    (inst.pc() + inst.size() as u64 - 1) / line,
                );
                for number in (first..=last).filter(|n| fetched < Some(*n)) {
                    let address = inst.pc().max(number * line);
                    block.add_call(Before, fetch, (state, shape, address, 1, count));
                }
                fetched = Some(last);
                self.push(inst, (last - first + 1) as u32, Referred::Code);
            }
        }
    }

    /// Adds a call of the tool's routine that writes its report after the program's end.
    /// `memory` describes the simulated memory.
    pub fn report_at_end(
        &self,
        program: &Program<'_>,
        routine: impl AsRoutine<ReportParams<N>>,
        files: &ReportFiles,
        memory: String,
    ) {
        let (name, counts, executed) = (program.name(), self.counts, self.executed);
        let (references, sites) = (&self.references, &self.sites);
        let args = (files, name, memory, counts, executed, references, sites);
        program.add_call(After, routine, args);
    }

    fn push(&mut self, inst: Inst<'_>, each: u32, referred: Referred) {
        self.references.push(SiteReferences {
            block: inst.block().index() as u32,
            each,
            referred,
        });
        self.sites.push(inst);
    }
}

impl<T: ThreadState, const N: usize> Simulator<T, N> {
    /// Adds the calls for an instruction. Returns the number of references that each of its
    /// executions makes and that the routine does not count.
    pub fn add(
        &self,
        inst: Inst<'_>,
        references: &References,
        state: ThreadData<T>,
        shape: u64,
        count: CounterAt<N>,
    ) -> u32 {
        let operands = &references.operands;
        if references.times == Times::Once {
            for operand in operands {
                self.look_up.add_one(inst, *operand, (state, shape, count));
            }
            return operands.len() as u32;
        }
        let (a, size) = (EffAddrOf(operands[0]), AccessSizeOf(operands[0]));
        let b = operands.get(1).map(|operand| EffAddrOf(*operand));
        match (references.times, b) {
            (Times::Compared, b) => {
                match b {
                    Some(b) => inst.add_call(Before, self.compare, (state, a, b, RepCount)),
                    None => inst.add_call(Before, self.compare, (state, a, 0, RepCount)),
                }
                let args = (state, shape, Reg::Rcx, Direction, size, count);
                inst.add_call(After, self.compared, args);
            }
            (Times::Repeated, Some(b)) => {
                let args = (state, shape, a, b, RepCount, Direction, size, count);
                inst.add_call(Before, self.repeat, args);
            }
            (Times::Repeated, None) => {
                let args = (state, shape, a, 0, RepCount, Direction, size, count);
                inst.add_call(Before, self.repeat, args);
            }
            _ => inst.add_call(Before, self.repeat, (state, shape, a, 0, 1, 0, size, count)),
        }
        0
    }
}

impl Report {
    /// Adds the tables of a [`Simulation`], whose parts are given: references and misses by procedure
    /// and by source line, and by instruction in the report for programs. Returns the numbers of
    /// references and misses, first of data, then of code.
    pub fn simulated(
        &mut self,
        counts: Counters<2>,
        executed: Counters,
        references: Array<SiteReferences>,
        sites: Sites,
    ) -> [[u64; 2]; 2] {
        let columns = ["references", "misses", "miss %"];
        let of = |[misses, extra]: [u64; 2], n: u64| [n.wrapping_add(extra), misses];
        self.simulated_with(columns, &[], (counts, executed, references, sites), of)
    }

    /// As [`Report::simulated`] for counters with more cells. `of` makes of a site's cells, and of the references that
    /// its block tells, the counts that columns show: references, misses, and one for each column of `more`.
    pub fn simulated_with<const N: usize, const K: usize>(
        &mut self,
        columns: [&'static str; 3],
        more: &[&'static str],
        (counts, executed, references, sites): (
            Counters<N>,
            Counters,
            Array<SiteReferences>,
            Sites,
        ),
        of: impl Fn([u64; N], u64) -> [u64; K],
    ) -> [[u64; K]; 2] {
        let estimate = Estimate::of_process();
        let mut counted: [Vec<(usize, [u64; K])>; 2] = Default::default();
        for (i, site) in references.iter().enumerate() {
            let [times] = executed.at(site.block as usize).get();
            let n = of(counts.at(i).get(), times * u64::from(site.each));
            if n != [0; K] {
                counted[usize::from(site.referred == Referred::Code)].push((i, n));
            }
        }
        let [data, code] = &counted;
        [("", Referred::Data, data), ("fetch ", Referred::Code, code)].map(
            |(prefix, referred, counted)| {
                let mut sum = [0; K];
                for (_, n) in counted {
                    sum.iter_mut().zip(n).for_each(|(sum, n)| *sum += n);
                }
                if referred == Referred::Data || sum != [0; K] {
                    let each = counted.iter().filter_map(|(i, n)| {
                        let misses = &counts.at(*i).cells()[..1];
                        Some(Counted {
                            site: sites.get(*i)?,
                            counts: *n,
                            spread: estimate.and_then(|e| e.spread(misses)),
                        })
                    });
                    self.places_of(prefix, columns, more, each);
                }
                sum
            },
        )
    }
}

/// Returns `value` in a way that hides from the compiler that it is the same value, so whatever depends
/// on the result is computed again. An inlined routine needs one register less at the point if
/// its cold path uses nothing that the hot path has computed.
#[inline(always)]
pub fn anew(value: u64) -> u64 {
    let mut same = value;
    // SAFETY: the template is a comment, so no instruction is emitted.
    unsafe {
        std::arch::asm!("/* {0} */", inout(reg) same, options(nomem, nostack, preserves_flags));
    }
    same
}

/// Values that [`Simulator::compare`] stores for [`Simulator::compared`]: both addresses, and the
/// largest number of repetitions.
pub type Comparison = [ThreadCell<u64>; 3];

/// Stores the values that are known before a comparison.
pub fn begin(comparison: &Comparison, known: [u64; 3]) {
    for (cell, value) in comparison.iter().zip(known) {
        cell.set(value);
    }
}

/// Returns the addresses at which a comparison began, and the number of its repetitions, given
/// rcx after it.
pub fn end(comparison: &Comparison, rcx: u64) -> ([u64; 2], u64) {
    let [first, second, times] = [0, 1, 2].map(|i: usize| comparison[i].get());
    ([first, second], times.saturating_sub(rcx))
}

/// Defines a simulator's routines for instructions that make many references, and a function
/// `simulator`, which makes a [`Simulator`] of these routines and of the routines for single references.
///
/// The arguments are the type of the state, which has a [`Comparison`] named `comparison`, and two functions:
/// `touch(state, shape, address, size, times, counter)` makes a reference `times` times in succession
/// and counts all references and misses; `line(shape)` returns the size of a line, or of a page, in bytes. For
/// counters with more than two cells, and for a second simulator in one tool, further arguments are the number of cells,
/// the names of the three routines and the name of the function.
#[macro_export]
macro_rules! simulator {
    ($state:ty, $touch:path, $line:path) => {
        $crate::simulator!($state, $touch, $line, 2, [repeat, compare, compared], simulator);
    };
    ($state:ty, $touch:path, $line:path, $cells:literal,
     [$repeat:ident, $compare:ident, $compared:ident], $simulator:ident) => {
        #[$crate::analysis]
        #[rustfmt::skip]
        fn $repeat(state: PerThread<$state>, shape: u64, a: u64, b: u64, times: u64, down: u64, size: u64, count: Counter<$cells>) {
            $crate::repeated([a, b], times, size, down, $line(shape), |address, n| {
                $touch(&state, shape, address, size, n, count);
            });
        }

        #[$crate::analysis]
        fn $compare(state: PerThread<$state>, a: u64, b: u64, times: u64) {
            $crate::simulate::begin(&state.comparison, [a, b, times]);
        }

        #[$crate::analysis]
        #[rustfmt::skip]
        fn $compared(state: PerThread<$state>, shape: u64, rcx: u64, down: u64, size: u64, count: Counter<$cells>) {
            let (at, times) = $crate::simulate::end(&state.comparison, rcx);
            $crate::repeated(at, times, size, down, $line(shape), |address, n| {
                $touch(&state, shape, address, size, n, count);
            });
        }

        /// The routines for a program; `look_up` has those for single references.
        fn $simulator(
            look_up: $crate::simulate::LookUp<$state, $cells>,
        ) -> $crate::simulate::Simulator<$state, $cells> {
            $crate::simulate::Simulator {
                look_up,
                repeat: $repeat(),
                compare: $compare(),
                compared: $compared(),
            }
        }
    };
}

//! What tools share that simulate memory: caches, translation buffers.
//!
//! How often a block is executed tells how often its instructions refer to memory, so a
//! counter for each block is enough for that. The tool's routine is called at each
//! reference, and counts only what is worth it, as a rule the misses.

pub mod cache;
pub mod groups;
mod look_up;
pub mod times;

pub use self::look_up::{
    GroupRoutine, LookUp, ReferRoutine, Timed, TimedGroupRoutine, TimedRoutine,
};
use self::times::Known;
use crate::Place::{After, Before};
use crate::Reg;
use crate::call::{AccessSizeOf, AsRoutine, Direction, EffAddrOf, RepCount, Routine};
use crate::counters::{Counter, CounterAt, CounterTable, Counters};
use crate::handle::Inst;
use crate::params::{Array, Str};
use crate::program::Program;
use crate::references::{References, Times};
use crate::report::{Files, Report, ReportFiles};
use crate::sites::{SiteList, Sites};
use crate::thread_data::{PerThread, ThreadCell, ThreadData, ThreadState};

/// Cells of a [`Simulation`]'s counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Seen {
    /// What missed.
    Misses = 0,
    /// References that the counts of blocks do not tell of.
    Extra = 1,
}

/// The routines of a tool. `shape` is a constant of the tool's own. A reference that is
/// more than one, because it reaches into several lines, is for the routine to count,
/// under [`Seen::Extra`].
pub struct Simulator<T: 'static> {
    /// For instructions that make each of their references once.
    pub look_up: LookUp<T>,
    /// For a repeated string instruction, or an element of a vector: state, shape, both addresses
    /// (the second 0 if there is none), times, direction, size, counter. None of
    /// its references is counted otherwise.
    #[allow(clippy::type_complexity)]
    pub repeat: Routine<(PerThread<T>, u64, u64, u64, u64, u64, u64, Counter<2>)>,
    /// Before a string comparison, which may end early: state, both addresses, times.
    pub compare: Routine<(PerThread<T>, u64, u64, u64)>,
    /// After it: state, shape, what is left in rcx, direction, size, counter.
    pub compared: Routine<(PerThread<T>, u64, u64, u64, u64, Counter<2>)>,
}

/// Instrument side: the calls for all references of a program, and what they count. Its
/// parts are arguments for [`Report::simulated`].
pub struct Simulation {
    /// Misses and extra references of each site.
    pub counts: CounterTable<2>,
    /// Executions of each block.
    pub executed: CounterTable,
    /// For each site the number of its block, the references that are made each
    /// time that it is executed, and whether it is code that is fetched.
    pub blocks: Vec<[u32; 3]>,
    /// The instructions.
    pub sites: SiteList,
}

#[crate::analysis]
fn simulated_block(counter: Counter) {
    counter.increment();
}

impl Simulation {
    /// Has all loads and stores simulated, and with `code` the fetching of all instructions
    /// from lines of so many bytes. Addresses of code are those in the program's file.
    pub fn new<T: ThreadState>(
        program: &Program<'_>,
        simulator: &Simulator<T>,
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
            blocks: Vec::new(),
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
                all.push(*inst, each, false);
            }
        }
        let mut counts = all.counts.rows().skip(insts.len());
        let Some((state, line)) = code else {
            return all;
        };
        let fetch = simulator.look_up.refer();
        for block in blocks() {
            let mut fetched = None;
            for (inst, count) in block.insts().zip(&mut counts) {
                let (first, last) = (inst.pc() / line, (inst.pc() + inst.len() as u64 - 1) / line);
                for number in (first..=last).filter(|n| fetched < Some(*n)) {
                    let address = inst.pc().max(number * line);
                    block.add_call(Before, fetch, (state, shape, address, 1, count));
                }
                fetched = Some(last);
                all.push(inst, (last - first + 1) as u32, true);
            }
        }
        all
    }

    /// Has the tool's own routine called after the program, which writes its report.
    pub fn report_at_end(
        &self,
        program: &Program<'_>,
        routine: impl AsRoutine<(Files, Str, Counters<2>, Counters, Array<[u32; 3]>, Sites)>,
        files: &ReportFiles,
        text: String,
    ) {
        let (counts, executed) = (self.counts, self.executed);
        let args = (files, text, counts, executed, &self.blocks, &self.sites);
        program.add_call(After, routine, args);
    }

    fn push(&mut self, inst: Inst<'_>, each: u32, code: bool) {
        let number = inst.block().index() as u32;
        self.blocks.push([number, each, code.into()]);
        self.sites.push(inst);
    }
}

impl<T: ThreadState> Simulator<T> {
    /// Adds the calls for an instruction; how many references each execution makes that
    /// `refer` sees one by one.
    pub fn add(
        &self,
        inst: Inst<'_>,
        references: &References,
        state: ThreadData<T>,
        shape: u64,
        count: CounterAt<2>,
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
        let down = Direction;
        match (references.times, b) {
            (Times::Compared, b) => {
                match b {
                    Some(b) => inst.add_call(Before, self.compare, (state, a, b, RepCount)),
                    None => inst.add_call(Before, self.compare, (state, a, 0, RepCount)),
                }
                let args = (state, shape, Reg::Rcx, down, size, count);
                inst.add_call(After, self.compared, args);
            }
            (Times::Repeated, Some(b)) => {
                let args = (state, shape, a, b, RepCount, down, size, count);
                inst.add_call(Before, self.repeat, args);
            }
            (Times::Repeated, None) => {
                let args = (state, shape, a, 0, RepCount, down, size, count);
                inst.add_call(Before, self.repeat, args);
            }
            _ => inst.add_call(Before, self.repeat, (state, shape, a, 0, 1, 0, size, count)),
        }
        0
    }
}

impl Report {
    /// Adds the tables of a [`Simulation`], whose parts are given: what happened by procedure
    /// and by source line, and for programs by instruction. Returns references and misses
    /// of data, and those of code.
    pub fn simulated(
        &mut self,
        counts: Counters<2>,
        executed: Counters,
        blocks: Array<[u32; 3]>,
        sites: Sites,
    ) -> [[u64; 2]; 2] {
        let of = |i: usize, code: bool| {
            let [block, each, fetched] = blocks.get(i).copied().unwrap_or_default();
            if (fetched != 0) != code {
                return [0, 0];
            }
            let [misses, extra] = counts.at(i).get();
            let [times] = executed.at(block as usize).get();
            [(times * u64::from(each)).wrapping_add(extra), misses]
        };
        [("", false), ("fetch ", true)].map(|(prefix, code)| {
            let sums = (0..sites.len()).map(|i| of(i, code));
            let sum = sums.fold([0, 0], |sum, n| [sum[0] + n[0], sum[1] + n[1]]);
            if !code || sum != [0, 0] {
                let columns = ["references", "misses", "miss %"];
                self.places(prefix, columns, sites, |i| of(i, code));
            }
            sum
        })
    }
}

/// The same value, of which the compiler does not know that it is: what is computed from it is
/// computed again at each use. A routine that becomes part of the program takes a register less
/// at the point if what is rare keeps nothing that the usual path has computed.
#[inline(always)]
pub fn anew(value: u64) -> u64 {
    let mut same = value;
    // SAFETY: it is no instruction at all.
    unsafe {
        std::arch::asm!("/* {0} */", inout(reg) same, options(nomem, nostack, preserves_flags));
    }
    same
}

/// What [`Simulator::compare`] and [`Simulator::compared`] keep: both addresses, and how
/// often the comparison may be repeated.
pub type Comparison = [ThreadCell<u64>; 3];

/// Keeps what is known before a comparison.
pub fn begin(comparison: &Comparison, known: [u64; 3]) {
    for (cell, value) in comparison.iter().zip(known) {
        cell.set(value);
    }
}

/// The addresses at which a comparison began, and how often it was repeated, by what is
/// left in rcx.
pub fn end(comparison: &Comparison, rcx: u64) -> ([u64; 2], u64) {
    let [first, second, times] = [0, 1, 2].map(|i: usize| comparison[i].get());
    ([first, second], times.saturating_sub(rcx))
}

/// Defines a simulator's routines for instructions that make many references, and
/// `simulator`, which makes a [`Simulator`] of them and of a routine for one reference. Given are
/// the type of the state, which has a [`Comparison`] named `comparison`, and two functions:
/// `touch(state, shape, address, size, times, counter)` makes a reference so many times in turn
/// and counts all of it; `line(shape)` tells how many bytes are one line, or page.
#[macro_export]
macro_rules! simulator {
    ($state:ty, $touch:path, $line:path) => {
        #[$crate::analysis]
        #[rustfmt::skip]
        fn repeat(state: PerThread<$state>, shape: u64, a: u64, b: u64, times: u64, down: u64, size: u64, count: Counter<2>) {
            $crate::repeated([a, b], times, size, down, $line(shape), |address, n| {
                $touch(&state, shape, address, size, n, count);
            });
        }

        #[$crate::analysis]
        fn compare(state: PerThread<$state>, a: u64, b: u64, times: u64) {
            $crate::simulate::begin(&state.comparison, [a, b, times]);
        }

        #[$crate::analysis]
        #[rustfmt::skip]
        fn compared(state: PerThread<$state>, shape: u64, rcx: u64, down: u64, size: u64, count: Counter<2>) {
            let (at, times) = $crate::simulate::end(&state.comparison, rcx);
            $crate::repeated(at, times, size, down, $line(shape), |address, n| {
                $touch(&state, shape, address, size, n, count);
            });
        }

        /// The routines for a program, with those for single references.
        fn simulator(
            look_up: $crate::simulate::LookUp<$state>,
        ) -> $crate::simulate::Simulator<$state> {
            $crate::simulate::Simulator {
                look_up,
                repeat: repeat(),
                compare: compare(),
                compared: compared(),
            }
        }
    };
}

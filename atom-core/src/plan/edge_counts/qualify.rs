//! Finding the calls that only count, in cells that nothing reads before the program's end.

use std::ops::Range;

use rayon::prelude::*;

use crate::analysis::specialise::Specialiser;
use crate::cfg::Cfg;
use crate::ids::{BlockId, InstId};
use crate::plan::data::Data;
use crate::plan::inline::{Cell, Increment, Increments};
use crate::tool::value::Value;
use crate::tool::{Argument, Call, CallPlace, Calls, Scope};
use crate::x86::ControlFlow;

/// When a call adds to its cell.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Way {
    /// Each time that the block runs.
    Block,
    /// When the branch at the block's end is not taken.
    Falling,
    /// When it is taken.
    Taken,
}

/// A wanted count: the number of times that control passes, for a cell.
#[derive(Clone, Copy, Debug)]
pub struct Want {
    /// Number of the call.
    pub call: u32,
    /// Block that the count belongs to.
    pub block: BlockId,
    /// Offset of the cell in the plan's data.
    pub cell: u32,
    /// Way through the block that is counted.
    pub way: Way,
    /// True if the routine adds atomically.
    locked: bool,
    /// Number that is added each time.
    pub amount: i64,
}

/// The wanted counts of all calls that qualify.
pub struct Qualified {
    /// Counts in the order of calls, in one piece for each [`CHUNK`] calls.
    pieces: Vec<Vec<Want>>,
    /// True if some routine adds atomically.
    pub locked: bool,
}

impl Qualified {
    /// True if no count is wanted.
    pub fn is_empty(&self) -> bool {
        self.pieces.iter().all(Vec::is_empty)
    }

    /// The counts in pieces, each with the number of its first.
    pub fn pieces(&self) -> impl IndexedParallelIterator<Item = (u32, &[Want])> {
        let pieces = self.pieces.par_iter().enumerate();
        pieces.map(|(piece, wants)| ((piece * MOST) as u32, &wants[..]))
    }

    /// The count with this number.
    pub fn want(&self, number: u32) -> &Want {
        let number = number as usize;
        &self.pieces[number / MOST][number % MOST]
    }
}

/// What a call does.
enum Does {
    /// It may read any data that it is given.
    Anything,
    /// It adds to cells, but not as often as an edge of the control flow is passed.
    Counts,
    /// It adds to one cell.
    Adds(Increment),
    /// It adds to one cell if the branch is taken, to another if not.
    AddsByBranch {
        falling: Increment,
        taken: Increment,
    },
}

/// Number of calls in one piece of parallel work.
const CHUNK: usize = 8192;

/// Largest number of counts of one piece: one for each call, or two for a branch.
const MOST: usize = 2 * CHUNK;

/// Results for one piece of calls.
struct Part {
    /// Wanted counts, for cells that may turn out not to be private.
    wants: Vec<Want>,
    /// Numbers of pieces of data that may be read before the end.
    open: Vec<usize>,
}

/// The wanted counts of one object's calls, for cells that may turn out not to be private.
pub struct Candidates {
    parts: Vec<Part>,
}

/// Finds the calls of one object that may qualify.
pub fn candidates(
    cfg: &Cfg,
    calls: &Calls,
    bodies: &Specialiser,
    data: &Data,
    regions: &Regions,
) -> Candidates {
    let parts: Vec<Part> = calls
        .calls
        .par_chunks(CHUNK)
        .enumerate()
        .map(|(chunk, some)| {
            let mut reader = Reader::new(calls, bodies, data);
            let mut part = Part {
                wants: Vec::with_capacity(some.len()),
                open: Vec::new(),
            };
            for (i, call) in some.iter().enumerate() {
                let number = (chunk * CHUNK + i) as u32;
                match reader.does(call) {
                    Does::Anything => part.opens(calls, data, regions, call),
                    does => part.add(cfg, calls, regions, number, does),
                }
            }
            part
        })
        .collect();
    Candidates { parts }
}

/// The calls that qualify, for each object. A cell is private only if no call of any object may read
/// the piece of data in which the cell is. Returns for each piece whether a call may read it, too.
pub fn wants(all: Vec<Candidates>, regions: &Regions) -> (Vec<Qualified>, Vec<bool>) {
    let mut is_open = vec![false; regions.starts.len() + 1];
    for region in all.iter().flat_map(|c| &c.parts).flat_map(|p| &p.open) {
        is_open[*region] = true;
    }
    let private = |want: &Want| !is_open[regions.of(want.cell)];
    let qualified = |candidates: Candidates| {
        let parts = candidates.parts.into_par_iter();
        let pieces: Vec<Vec<Want>> = parts
            .map(|mut part| {
                keep_calls(&mut part.wants, private);
                part.wants
            })
            .collect();
        Qualified {
            locked: pieces.par_iter().flatten().any(|want| want.locked),
            pieces,
        }
    };
    let all = all.into_iter().map(qualified).collect();
    (all, is_open)
}

/// Drops the wanted counts of a call unless all of them fulfil the condition.
fn keep_calls(wants: &mut Vec<Want>, is_right: impl Fn(&Want) -> bool) {
    let mut kept = 0;
    let mut next = 0;
    while let Some(first) = wants.get(next) {
        let call = first.call;
        let of_call = wants[next..].iter().take_while(|w| w.call == call);
        let end = next + of_call.count();
        if wants[next..end].iter().all(&is_right) {
            wants.copy_within(next..end, kept);
            kept += end - next;
        }
        next = end;
    }
    wants.truncate(kept);
}

impl Part {
    /// Notes that the call may read all data that it is given.
    fn opens(&mut self, calls: &Calls, data: &Data, regions: &Regions, call: &Call) {
        if call.scope == Scope::Program && call.place == CallPlace::After {
            return;
        }
        for i in call.args.start as usize..call.args.end as usize {
            if let Argument::Data(_) | Argument::ThreadData(_) = calls.args[i] {
                let region = regions.of(data.offsets[i]);
                if self.open.last() != Some(&region) {
                    self.open.push(region);
                }
            }
        }
    }

    /// Adds the wanted counts of the call with this number, if counts of edges can serve it.
    fn add(&mut self, cfg: &Cfg, calls: &Calls, regions: &Regions, number: u32, does: Does) {
        let (first, second) = match does {
            Does::Anything | Does::Counts => return,
            Does::Adds(i) => ((Way::Block, i), None),
            Does::AddsByBranch { falling, taken } => {
                ((Way::Falling, falling), Some((Way::Taken, taken)))
            }
        };
        let Some(block) = block_of(cfg, &calls.calls[number as usize], second.is_some()) else {
            return;
        };
        let before = self.wants.len();
        for (way, increment) in [Some(first), second].into_iter().flatten() {
            match increment.cell {
                Cell::Data(cell) if cell % 8 == 0 && regions.has_cell(cell) => {
                    self.wants.push(Want {
                        call: number,
                        block,
                        cell,
                        way,
                        locked: increment.locked,
                        amount: increment.amount,
                    });
                }
                _ => return self.wants.truncate(before),
            }
        }
    }
}

/// The pieces of data that the tool placed; offsets in the plan's data.
pub struct Regions {
    /// Start of each piece; the pieces for threads come last.
    starts: Vec<u32>,
    /// End of the pieces that all threads share.
    placed: usize,
    /// Cells that are summed over threads at the end.
    sums: Vec<Range<u32>>,
}

impl Regions {
    /// The pieces that these calls are given.
    pub fn new(calls: &Calls, data: &Data) -> Self {
        let threads = data.thread_data;
        let for_threads = calls.thread_data.regions.iter().map(|r| threads + r);
        Self {
            starts: calls.regions.iter().copied().chain(for_threads).collect(),
            placed: calls.placed.len(),
            sums: (calls.thread_data.sums.iter())
                .map(|r| threads + r.start..threads + r.end)
                .collect(),
        }
    }

    /// Number of the piece that an offset is in, from 1; 0 before the first piece.
    fn of(&self, at: u32) -> usize {
        self.starts.partition_point(|r| *r <= at)
    }

    /// True if the calls at the end see one value of the cell at this offset.
    fn has_cell(&self, at: u32) -> bool {
        let cell = at..at.saturating_add(8);
        let is_summed = |r: &Range<u32>| r.start <= cell.start && cell.end <= r.end;
        cell.end as usize <= self.placed || self.sums.iter().any(is_summed)
    }
}

/// The block that runs as often as the call is made.
fn block_of(cfg: &Cfg, call: &Call, by_branch: bool) -> Option<BlockId> {
    let (block, inst) = match call.scope {
        Scope::Block => {
            let block = BlockId(call.id);
            let at = cfg.blocks.get(block.index())?;
            let inst = match call.place {
                CallPlace::Before => at.first,
                CallPlace::After => at.last(),
            };
            (block, inst)
        }
        Scope::Inst => {
            let inst = InstId(call.id);
            cfg.insts.get(inst.index())?;
            (cfg.block_of(inst), inst)
        }
        _ => return None,
    };
    let flow = cfg.inst(inst).flow;
    // A call on the edge to the next instruction is made only if control comes back.
    let passes = match call.place {
        CallPlace::Before => true,
        CallPlace::After => matches!(
            flow,
            ControlFlow::FallThrough
                | ControlFlow::Jump
                | ControlFlow::CondJump
                | ControlFlow::IndirectJump
                | ControlFlow::Return
        ),
    };
    (passes && (!by_branch || flow == ControlFlow::CondJump)).then_some(block)
}

/// Finds out what calls do.
struct Reader<'a> {
    calls: &'a Calls,
    data: &'a Data,
    increments: Increments<'a>,
    values: Vec<Value>,
    found: Vec<Increment>,
}

impl<'a> Reader<'a> {
    fn new(calls: &'a Calls, bodies: &'a Specialiser<'a>, data: &'a Data) -> Self {
        Self {
            calls,
            data,
            increments: Increments::new(bodies),
            values: Vec::new(),
            found: Vec::new(),
        }
    }

    fn does(&mut self, call: &Call) -> Does {
        if matches!(call.scope, Scope::Program | Scope::Instead) {
            return Does::Anything;
        }
        let range = call.args.start as usize..call.args.end as usize;
        let calls = self.calls;
        let Some(arguments) = calls.args.get(range.clone()) else {
            return Does::Anything;
        };
        let offsets = &self.data.offsets[range];
        if !self.adds(call.routine.get(), arguments, offsets, 0) {
            return Does::Anything;
        }
        let first = self.only();
        let is_condition = |a: &Argument| matches!(a, Argument::BrCondValue);
        if !arguments.iter().any(is_condition) {
            return first.map_or(Does::Counts, Does::Adds);
        }
        if !self.adds(call.routine.get(), arguments, offsets, 1) {
            return Does::Anything;
        }
        match (first, self.only()) {
            (Some(falling), Some(taken)) => Does::AddsByBranch { falling, taken },
            _ => Does::Counts,
        }
    }

    /// The addition found, if there is exactly one.
    fn only(&self) -> Option<Increment> {
        match self.found[..] {
            [one] => Some(one),
            _ => None,
        }
    }

    /// Finds the additions of a call with these arguments and this condition of a branch; false if the
    /// routine does anything else.
    fn adds(&mut self, routine: u64, arguments: &[Argument], offsets: &[u32], taken: u64) -> bool {
        let value = |(argument, offset): (&Argument, &u32)| match argument {
            Argument::Const(n) => Value::Const(*n),
            // The main block stands for the data of all threads.
            Argument::Data(_)
            | Argument::ThreadData(_)
            | Argument::Str(..)
            | Argument::CStr(..)
            | Argument::Array(..)
            | Argument::CArray(..) => Value::Data(*offset),
            Argument::BrCondValue => Value::Const(taken),
            // The value is not known.
            _ => Value::Cycles,
        };
        self.values.clear();
        self.values.extend(arguments.iter().zip(offsets).map(value));
        self.increments.find(routine, &self.values, &mut self.found)
    }
}

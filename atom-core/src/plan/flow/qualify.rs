//! Which calls only count, in cells that nobody looks at before the end.

use rayon::prelude::*;

use crate::analysis::specialise::Specialiser;
use crate::cfg::Cfg;
use crate::decode::Flow;
use crate::ids::{BlockId, InstId};
use crate::plan::args::Value;
use crate::plan::data::Data;
use crate::plan::inline::{self, Cell, Increment};
use crate::tool::{Argument, Call, Calls, Place, Scope};

/// When a call adds to its cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// Each time that the block runs.
    Block,
    /// When the branch at the block's end is taken.
    Taken,
    /// When it is not.
    Falling,
}

/// A cell that wants to know how often control passes.
#[derive(Clone, Copy, Debug)]
pub struct Want {
    /// Number of the call.
    pub call: u32,
    /// Where.
    pub block: BlockId,
    /// When.
    pub way: Way,
    /// Offset of the cell in the plan's data.
    pub cell: u32,
    /// What is added each time.
    pub amount: i64,
}

/// What may be counted by flow.
pub struct Qualified {
    /// The cells, by call.
    pub wants: Vec<Want>,
    /// Some routine counts in one step for all threads.
    pub locked: bool,
}

/// What a call does.
enum Does {
    /// It may look at anything that it is given.
    Anything,
    /// It adds to cells, but not at a point that flow tells.
    Counts,
    /// It adds to one cell.
    Adds(Increment),
    /// To one cell if the branch is taken, to another if not.
    AddsByBranch(Increment, Increment),
}

/// The calls that qualify.
pub fn wants(cfg: &Cfg, calls: &Calls, bodies: &Specialiser, data: &Data) -> Qualified {
    let all = &calls.calls;
    let does: Vec<Does> = all
        .par_iter()
        .with_min_len(256)
        .map(|call| does(calls, call, bodies, data))
        .collect();
    let regions = Regions::new(calls, data);
    let mut is_open = vec![false; regions.starts.len() + 1];
    let at_end = |call: &Call| call.scope == Scope::Program && call.place == Place::After;
    for (call, _) in all
        .iter()
        .zip(&does)
        .filter(|(call, does)| matches!(does, Does::Anything) && !at_end(call))
    {
        for i in call.args.start as usize..call.args.end as usize {
            if let Argument::Data(_) | Argument::ThreadData(_) = calls.args[i] {
                is_open[regions.of(data.offsets[i])] = true;
            }
        }
    }
    let mut qualified = Qualified {
        wants: Vec::new(),
        locked: false,
    };
    for (number, (call, does)) in all.iter().zip(does).enumerate() {
        let (first, second) = match does {
            Does::Anything | Does::Counts => continue,
            Does::Adds(i) => ((Way::Block, i), None),
            Does::AddsByBranch(falling, taken) => {
                ((Way::Falling, falling), Some((Way::Taken, taken)))
            }
        };
        let Some(block) = block_of(cfg, call, second.is_some()) else {
            continue;
        };
        let both = || [Some(first), second].into_iter().flatten();
        let private = |increment: &Increment| match increment.cell {
            Cell::Data(at) => {
                at % 8 == 0 && regions.has_cell(calls, at) && !is_open[regions.of(at)]
            }
            _ => false,
        };
        if !both().all(|(_, increment)| private(&increment)) {
            continue;
        }
        for (way, increment) in both() {
            let Cell::Data(cell) = increment.cell else {
                continue;
            };
            qualified.locked |= increment.locked;
            qualified.wants.push(Want {
                call: number as u32,
                block,
                way,
                cell,
                amount: increment.amount,
            });
        }
    }
    qualified
}

/// The pieces of data that the tool placed; offsets in the plan's data.
struct Regions {
    /// Where each starts; those for threads come last.
    starts: Vec<u32>,
    threads: u32,
}

impl Regions {
    fn new(calls: &Calls, data: &Data) -> Self {
        let threads = data.thread_data;
        let for_threads = calls.thread_data.regions.iter().map(|r| threads + r);
        Self {
            starts: calls.regions.iter().copied().chain(for_threads).collect(),
            threads,
        }
    }

    /// The number of the piece; 0 is what lies before the first, where nothing is.
    fn of(&self, at: u32) -> usize {
        self.starts.partition_point(|r| *r <= at)
    }

    /// Whether there is a cell of which the calls at the end see one value.
    fn has_cell(&self, calls: &Calls, at: u32) -> bool {
        let cell = at..at.saturating_add(8);
        if cell.end as usize <= calls.placed.len() {
            return true;
        }
        let sums = &calls.thread_data.sums;
        sums.iter()
            .any(|r| self.threads + r.start <= cell.start && cell.end <= self.threads + r.end)
    }
}

/// The block that runs as often as the call is made.
fn block_of(cfg: &Cfg, call: &Call, by_branch: bool) -> Option<BlockId> {
    let (block, inst) = match call.scope {
        Scope::Block => {
            let block = BlockId(call.id);
            let at = cfg.blocks.get(block.index())?;
            let inst = match call.place {
                Place::Before => at.first,
                Place::After => at.last(),
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
    // What stands on the way to the next instruction passes there only if control comes back.
    let passes = match call.place {
        Place::Before => true,
        Place::After => matches!(
            flow,
            Flow::Next | Flow::Jump | Flow::CondJump | Flow::IndirectJump | Flow::Return
        ),
    };
    (passes && (!by_branch || flow == Flow::CondJump)).then_some(block)
}

fn does(calls: &Calls, call: &Call, bodies: &Specialiser, data: &Data) -> Does {
    if call.scope == Scope::Program {
        return Does::Anything;
    }
    let range = call.args.start as usize..call.args.end as usize;
    let Some(arguments) = calls.args.get(range.clone()) else {
        return Does::Anything;
    };
    let values = |taken: u64| -> Vec<Value> {
        arguments
            .iter()
            .zip(range.clone())
            .map(|(argument, i)| match argument {
                Argument::Const(n) => Value::Const(*n),
                // Of the threads' data, the main block stands for all.
                Argument::Data(_)
                | Argument::ThreadData(_)
                | Argument::Str(..)
                | Argument::CStr(..)
                | Argument::Array(..)
                | Argument::CArray(..) => Value::Data(data.offsets[i]),
                Argument::BrCondValue => Value::Const(taken),
                // Anything that is not known.
                _ => Value::Cycles,
            })
            .collect()
    };
    let adds = |taken| inline::increments(bodies, call.routine, &values(taken));
    let by_branch = arguments.contains(&Argument::BrCondValue);
    match (adds(0), by_branch) {
        (None, _) => Does::Anything,
        (Some(one), false) => match one[..] {
            [one] => Does::Adds(one),
            _ => Does::Counts,
        },
        (Some(falling), true) => match (&falling[..], adds(1).as_deref()) {
            (_, None) => Does::Anything,
            (&[falling], Some(&[taken])) => Does::AddsByBranch(falling, taken),
            _ => Does::Counts,
        },
    }
}

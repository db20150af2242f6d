//! The option `--edges`: how often each edge of the control flow was taken, as `atom report --export fdata` needs it.
//!
//! Both edges of a conditional branch follow from the branch's own counter. Where a block ends with a direct jump or
//! call, or continues into a block to which something jumps, the block's executions are counted. Jumps and calls through
//! pointers are counted by target. Returns are left out.

use std::collections::HashSet;

use atom_tool::prelude::*;
use atom_tool::report::{By, Column, Values};
use atom_tool::{AllTargets, CounterTable, TargetTable, WAYS};

use crate::{NOT_TAKEN, TAKEN};

#[analysis]
fn executed(counter: Counter) {
    counter.increment();
}

#[analysis]
fn indirect(targets: Targets, counts: Counter<WAYS>, target: u64, pc: RegV) {
    targets.count(counts, target, pc);
}

plain_data! {
    /// The counter that an edge has.
    #[derive(PartialEq, Eq)]
    enum Way {
        Taken,
        NotTaken,
        Jump,
        Call,
        Fall,
    }

    /// An edge.
    pub struct Edge {
        /// Address of the last instruction of the block that is left.
        from: u64,
        /// Address of the first instruction that is executed then.
        to: u64,
        /// Number of the branch, or of the block's counter.
        counter: u32,
        way: Way,
    }
}

impl Way {
    const fn name(self) -> &'static str {
        match self {
            Self::Taken => "taken",
            Self::NotTaken => "not taken",
            Self::Jump => "jump",
            Self::Call => "call",
            Self::Fall => "fall through",
        }
    }
}

/// Kind of an edge through a pointer.
const INDIRECT: &str = "indirect";

/// What is counted, on the instrument side.
pub struct Counted {
    /// The edges whose counters have numbers.
    pub edges: Vec<Edge>,
    /// Executions of blocks.
    pub blocks: CounterTable<1>,
    /// Targets of jumps and calls through pointers.
    pub targets: TargetTable,
    /// Addresses of the jumps and calls through pointers.
    pub pointers: Vec<u64>,
}

/// Adds the calls that count edges, if they are wanted. Conditional branches have the counters of the tool, in the order
/// of procedures and blocks.
pub fn count(program: &Program, is_wanted: bool) -> Counted {
    let mut edges: Vec<Edge> = Vec::new();
    let mut counted: Vec<Block> = Vec::new();
    let mut pointers: Vec<Inst> = Vec::new();
    let mut branches = 0;
    for proc in program.procs().filter(|_| is_wanted) {
        let is_stub = proc.is_stub();
        let is_direct =
            |inst: &Inst| inst.is_type(InstType::CondBr) || inst.is_type(InstType::UncondBr);
        let ends = proc.blocks().map(|block| block.last_inst());
        let targets: HashSet<u64> = ends
            .filter(is_direct)
            .filter_map(|i| i.target_pc())
            .collect();
        for block in proc.blocks() {
            let last = block.last_inst();
            let (from, next) = (last.pc(), last.pc() + last.size() as u64);
            let falls = targets.contains(&next) && block.next().is_some_and(|b| b.pc() == next);
            let mut push = |to, counter: usize, way| {
                let counter = counter as u32;
                edges.push(Edge {
                    from,
                    to,
                    counter,
                    way,
                });
            };
            if last.is_type(InstType::CondBr) {
                if let Some(to) = last.target_pc() {
                    push(to, branches, Way::Taken);
                    push(next, branches, Way::NotTaken);
                }
                branches += 1;
                continue;
            }
            let is_call = last.is_type(InstType::Call);
            let before = counted.len();
            if is_stub {
                continue;
            } else if let Some(to) = last.target_pc() {
                push(to, before, if is_call { Way::Call } else { Way::Jump });
                if is_call && falls {
                    push(next, before, Way::Fall);
                }
                counted.push(block);
            } else if last.is_type(InstType::Jump) {
                let is_pointer = !last.is_type(InstType::Ret) && last.offers(Before, BranchTarget);
                pointers.extend(is_pointer.then_some(last));
            } else if falls {
                push(next, before, Way::Fall);
                counted.push(block);
            }
        }
    }
    let blocks = program.counters(counted.len());
    for (block, counter) in counted.iter().zip(blocks.rows()) {
        block.add_call(Before, executed, (counter,));
    }
    let targets = program.targets(&pointers);
    for (inst, (row, counts)) in pointers.iter().zip(targets.rows()) {
        inst.add_call(Before, indirect, (row, counts, BranchTarget, Reg::Pc));
    }
    let pointers = pointers.iter().map(Inst::pc).collect();
    Counted {
        edges,
        blocks,
        targets,
        pointers,
    }
}

/// The counts, on the analysis side.
pub struct Counts<'a> {
    pub edges: &'a [Edge],
    pub branches: Counters<2>,
    pub blocks: Counters,
    pub targets: AllTargets,
    pub ways: Counters<WAYS>,
    pub pointers: &'a [u64],
}

impl Counts<'_> {
    /// Adds the profile's table `edges`: all edges that were taken.
    pub fn add_to(self, report: &mut Report) {
        let mut rows: Vec<(u64, u64, u64, &'static str)> = Vec::new();
        for edge in self.edges {
            let number = edge.counter as usize;
            let count = match edge.way {
                Way::Taken => self.branches.at(number).get()[TAKEN],
                Way::NotTaken => self.branches.at(number).get()[NOT_TAKEN],
                _ => self.blocks.at(number).get()[0],
            };
            rows.push((edge.from, edge.to, count, edge.way.name()));
        }
        for transfer in self.targets.transfers(self.ways) {
            let from = self.pointers.get(transfer.site).copied().unwrap_or(0);
            // 0 stands for targets that found no place in the table.
            if transfer.target != 0 {
                rows.push((from, transfer.target, transfer.count, INDIRECT));
            }
        }
        rows.retain(|row| row.2 != 0);
        let numbers = |value: fn(&(u64, u64, u64, &'static str)) -> u64| {
            Values::Numbers(rows.iter().map(value).collect())
        };
        let kinds = Values::Texts(rows.iter().map(|row| row.3).collect());
        let columns = vec![
            (Column::address("from"), numbers(|row| row.0)),
            (Column::address("to"), numbers(|row| row.1)),
            (Column::text("kind"), kinds),
            (Column::count("count", "executions"), numbers(|row| row.2)),
        ];
        report.column_table(By::Other, "edges", columns);
    }
}

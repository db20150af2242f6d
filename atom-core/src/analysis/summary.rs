//! Registers and flags that a routine, with all that it calls, may change.
//!
//! A call from inserted code saves only what the routine may change. Paths that never return (a failed
//! index check that panics, an exit) change nothing for the program, so only instructions on a path
//! from the entry to a return count. A function that is known only at run time counts as changing all
//! that the ABI allows: every caller-saved register and the flags.

use rustc_hash::FxHashMap;

use crate::x86::{InstructionInfoFactory, Mnemonic, OpKind};

use super::code::{Callee, Exit, Function};
use super::effect::{CALLER_SAVED, Summary, below_rsp, depths, effect, gpr_bit};
use super::image::AnalysisImage;
use crate::{Error, Result};

const RSP: u16 = 1 << 4;

/// Export of the runtime that does work on a stack of the runtime's own, and the bytes that it takes of the caller's at
/// most.
const APART: (&str, u32) = ("__atom_uninterrupted", 256);

/// Bytes that a function is taken to need which is called through a pointer: closures and methods of trait objects in
/// routines are small. What writes text needs more by its other calls.
const THROUGH_POINTER: u32 = 192;

/// Summaries of an image's routines and of all functions that they reach.
#[derive(Debug)]
pub struct Summaries {
    of: FxHashMap<u64, Summary>,
}

/// A function with the facts that do not depend on its callees. Instructions are numbered in the
/// order of addresses.
struct Facts {
    entry: usize,
    effects: Vec<Summary>,
    exits: Vec<Exit>,
    /// Predecessors of each instruction.
    before: Vec<Vec<u32>>,
    depths: Vec<Option<u32>>,
    below: Vec<u32>,
    /// Callee-saved registers that it pushes, and so restores, as a mask.
    saved: u16,
    /// Numbers of the functions that it calls or jumps to.
    callees: Vec<usize>,
    /// Instructions on a path to a return.
    live: Vec<bool>,
    sum: Summary,
}

impl Summaries {
    /// Summaries of the routines that the tool's header names, and of `extra` ones.
    pub fn new(image: &AnalysisImage, extra: &[u64]) -> Self {
        let roots = image
            .facts
            .routines
            .iter()
            .map(|r| r.1)
            .chain(extra.iter().copied());
        let mut graph = Graph::default();
        let mut info = InstructionInfoFactory::new();
        for root in roots.filter(|a| image.is_code(*a)) {
            graph.number(root);
        }
        while graph.all.len() < graph.entries.len() {
            let function = Function::decode(image, graph.entries[graph.all.len()]);
            let facts = Facts::new(&function, &mut info, &mut graph);
            graph.all.push(facts);
        }
        graph.solve();
        let mut stacks = vec![None; graph.all.len()];
        let apart = image.facts.export(APART.0);
        if let Some(number) = apart.and_then(|apart| graph.numbers.get(&apart)) {
            stacks[*number] = Some(Some(APART.1));
        }
        let sums = 0..graph.all.len();
        let sums = sums.map(|i| Summary {
            stack: graph.stack(i, &mut stacks, 0),
            ..graph.all[i].sum
        });
        Self {
            of: graph.entries.iter().copied().zip(sums).collect(),
        }
    }

    /// True if there is a summary of the function at an address.
    pub fn contains(&self, address: u64) -> bool {
        self.of.contains_key(&address)
    }

    /// The summary of the function at an address.
    pub fn of(&self, address: u64) -> Summary {
        self.of.get(&address).copied().unwrap_or(Summary::UNKNOWN)
    }

    /// Refuses analysis routines that change AVX or x87 registers: calls keep the application's general,
    /// xmm and flag registers only.
    pub fn refuse_wide_registers(&self, image: &AnalysisImage, routines: &[u64]) -> Result<()> {
        for &routine in routines {
            let summary = self.of(routine);
            if summary.avx || summary.x87 {
                let registers = if summary.avx { "AVX" } else { "x87" };
                return Err(Error::new(
                    "planning the calls",
                    format!(
                        "the analysis routine uses {registers} registers, which calls do not save"
                    ),
                )
                .file(&image.file)
                .symbol(image.name_at(routine))
                .advice(
                    "build the tool for baseline x86-64, without target-cpu or target-feature",
                ));
            }
        }
        Ok(())
    }
}

/// One step of a solution: computes a function's answer from those of its callees.
type Round = fn(&Graph, usize) -> (Vec<bool>, Summary);

/// All functions reached, numbered in the order of their discovery.
#[derive(Default)]
struct Graph {
    entries: Vec<u64>,
    numbers: FxHashMap<u64, usize>,
    all: Vec<Facts>,
}

impl Graph {
    fn number(&mut self, entry: u64) -> usize {
        *self.numbers.entry(entry).or_insert_with(|| {
            self.entries.push(entry);
            self.entries.len() - 1
        })
    }

    /// The callee's summary as far as it is known.
    fn callee(&self, c: &Callee) -> Summary {
        match c {
            Callee::Known(a) => self
                .numbers
                .get(a)
                .map_or(Summary::UNKNOWN, |i| self.all[*i].sum),
            // It is bound to a function that ends the program.
            Callee::Missing(_) => Summary::NOTHING,
            Callee::Unknown => Summary::UNKNOWN,
        }
    }

    /// Least solution of two questions, first which functions return and then what they change: all
    /// answers start empty, and a function is looked at again when a callee's answer has grown.
    fn solve(&mut self) {
        let mut callers = vec![Vec::new(); self.all.len()];
        for (i, facts) in self.all.iter().enumerate() {
            facts.callees.iter().for_each(|c| callers[*c].push(i));
        }
        let rounds: [Round; 2] = [
            |graph, i| {
                let live = graph.live(i);
                let returns = live[graph.all[i].entry];
                (
                    live,
                    Summary {
                        returns,
                        ..Summary::NOTHING
                    },
                )
            },
            |graph, i| (Vec::new(), graph.summary(i)),
        ];
        for (round, step) in rounds.into_iter().enumerate() {
            // From the end, as callees tend to be found later than callers.
            let mut work: Vec<usize> = (0..self.all.len()).collect();
            let mut queued = vec![true; self.all.len()];
            while let Some(i) = work.pop() {
                queued[i] = false;
                let (live, sum) = step(self, i);
                let facts = &mut self.all[i];
                if round == 0 {
                    facts.live = live;
                }
                if std::mem::replace(&mut facts.sum, sum) != sum {
                    for &c in &callers[i] {
                        if !std::mem::replace(&mut queued[c], true) {
                            work.push(c);
                        }
                    }
                }
            }
        }
    }

    /// Instructions from which a return can be reached; all are reachable from the entry.
    fn live(&self, i: usize) -> Vec<bool> {
        let facts = &self.all[i];
        let passes = |at: usize| match &facts.exits[at] {
            Exit::Call(c) => self.callee(c).returns,
            _ => true,
        };
        let ends = |exit: &Exit| match exit {
            Exit::Return | Exit::Table => true,
            Exit::Tail(c) => self.callee(c).returns,
            _ => false,
        };
        let mut live = vec![false; facts.exits.len()];
        let mut work: Vec<u32> = Vec::new();
        for (at, exit) in facts.exits.iter().enumerate() {
            if ends(exit) {
                live[at] = true;
                work.push(at as u32);
            }
        }
        while let Some(at) = work.pop() {
            for &b in &facts.before[at as usize] {
                if !live[b as usize] && passes(b as usize) {
                    live[b as usize] = true;
                    work.push(b);
                }
            }
        }
        live
    }

    fn summary(&self, i: usize) -> Summary {
        let facts = &self.all[i];
        let mut sum = Summary {
            returns: facts.live[facts.entry],
            ..Summary::NOTHING
        };
        for (at, exit) in facts.exits.iter().enumerate() {
            let effect = &facts.effects[at];
            sum.aligned_stack |= effect.aligned_stack;
            if facts.live[at] {
                sum.add(effect);
            }
            if let Exit::Call(c) | Exit::Tail(c) = exit {
                let callee = self.callee(c);
                sum.leaf = false;
                // A tail call passes the caller's alignment on; a call needs alignment by the ABI.
                sum.aligned_stack |= callee.aligned_stack || matches!(exit, Exit::Call(_));
                if facts.live[at] {
                    sum.calls = true;
                    sum.add(&callee);
                }
            }
        }
        // Registers that callees change count too unless this function restores them.
        sum.gprs &= !facts.saved & !RSP;
        sum.stack = None;
        sum
    }

    /// Bytes of stack that a function needs, from those of its callees. Recursion has no bound; a callee that is not known
    /// counts as a small one.
    fn stack(&self, i: usize, done: &mut [Option<Option<u32>>], depth: usize) -> Option<u32> {
        const DEEPEST: usize = 200;
        if let Some(known) = done[i] {
            return known;
        }
        // A function that is met again among its callees is recursive: it has no bound.
        done[i] = Some(None);
        let facts = &self.all[i];
        let mut most = (depth < DEEPEST).then_some(0);
        for (at, exit) in facts
            .exits
            .iter()
            .enumerate()
            .filter(|(at, _)| facts.live[*at])
        {
            let below = match exit {
                Exit::Call(Callee::Known(c)) | Exit::Tail(Callee::Known(c)) => {
                    let pushed = if matches!(exit, Exit::Call(_)) { 8 } else { 0 };
                    let number = self.numbers.get(c);
                    number
                        .and_then(|c| self.stack(*c, done, depth + 1))
                        .map(|s| s + pushed)
                }
                Exit::Call(Callee::Unknown) | Exit::Tail(Callee::Unknown) => Some(THROUGH_POINTER),
                // It ends the program.
                Exit::Call(Callee::Missing(_)) | Exit::Tail(Callee::Missing(_)) => Some(0),
                _ => Some(facts.below[at]),
            };
            most = match (most, facts.depths[at], below) {
                (Some(m), Some(d), Some(b)) => Some(m.max(d.saturating_add(b))),
                _ => None,
            };
            if most.is_none() {
                break;
            }
        }
        done[i] = Some(most);
        most
    }
}

impl Facts {
    fn new(function: &Function, info: &mut InstructionInfoFactory, graph: &mut Graph) -> Self {
        let addresses: Vec<u64> = function.insts.keys().copied().collect();
        let number = |a: u64| addresses.binary_search(&a).ok();
        let n = addresses.len();
        let mut facts = Facts {
            entry: number(function.entry).unwrap_or(0),
            effects: Vec::with_capacity(n),
            exits: Vec::with_capacity(n),
            before: vec![Vec::new(); n],
            depths: Vec::new(),
            below: Vec::with_capacity(n),
            saved: 0,
            callees: Vec::new(),
            live: vec![false; n],
            sum: Summary::NOTHING,
        };
        for (i, inst) in function.insts.values().enumerate() {
            let raw = &inst.raw;
            if raw.mnemonic() == Mnemonic::Push && raw.op0_kind() == OpKind::Register {
                facts.saved |= gpr_bit(raw.op0_register()) & !CALLER_SAVED;
            }
            facts.effects.push(effect(raw, info));
            facts.exits.push(inst.exit.clone());
            facts.below.push(below_rsp(raw));
            for next in inst.next.iter().filter_map(|a| number(*a)) {
                facts.before[next].push(i as u32);
            }
            if let Exit::Call(Callee::Known(to)) | Exit::Tail(Callee::Known(to)) = inst.exit {
                facts.callees.push(graph.number(to));
            }
        }
        let depths = depths(function);
        facts.depths = addresses.iter().map(|a| depths.get(a).copied()).collect();
        facts.callees.sort_unstable();
        facts.callees.dedup();
        facts
    }
}

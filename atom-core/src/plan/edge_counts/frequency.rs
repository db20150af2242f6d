//! Static estimates of block frequencies, from the arrangement of blocks.
//!
//! Backward branches are loops and are mostly taken. Blocks that end in `ud2` or are in a part that the
//! compiler put elsewhere are cold. The two edges of other branches count as equally likely. A wrong
//! estimate costs time, never exactness.

use super::members::index_of;
use crate::cfg::{Cfg, Succ};
use crate::ids::{BlockId, ProcId};
use crate::x86::ControlFlow;

/// Probability that a loop's branch goes back.
const AGAIN: f32 = 0.88;
/// Probability of an edge that looks cold.
const COLD: f32 = 0.02;
/// Number of rounds in which frequencies are propagated.
const ROUNDS: usize = 14;

/// Index of a successor among the blocks of the group.
fn place(cfg: &Cfg, procs: &[ProcId], succ: &Succ) -> Option<u32> {
    let to = match *succ {
        Succ::Fall(to) | Succ::Branch(to) => to,
        Succ::Tail(pc) => cfg.block_at(pc.get())?,
        Succ::Unknown => return None,
    };
    index_of(cfg, procs, to).map(|i| i as u32)
}

/// An edge inside a group: from, to, and its probability.
type On = (u32, u32, f32);

/// Estimates for one group after the other, in the same storage.
#[derive(Default)]
pub struct Estimate {
    /// Frequency of each block: executions per entry of the procedure.
    pub frequency: Vec<f32>,
    /// For each block that ends in a conditional branch, the probability that it is taken.
    pub taken: Vec<f32>,
    /// For each block, its first and its last successor in the group.
    pub ways: Vec<[Option<u32>; 2]>,
    forward: Vec<On>,
    back: Vec<On>,
    /// Forward edges between blocks that loops reach and from which loops are reached.
    between: Vec<On>,
    first: Vec<f32>,
    next: Vec<f32>,
}

impl Estimate {
    /// Estimates how often these blocks run.
    pub fn of(&mut self, cfg: &Cfg, procs: &[ProcId], blocks: &[BlockId]) {
        self.read(cfg, procs, blocks);
        let Self {
            frequency,
            forward,
            back,
            between,
            first,
            next,
            ..
        } = self;
        first.clear();
        first.extend(blocks.iter().enumerate().map(|(i, b)| {
            let entry = i == 0 || cfg.block(*b).is_entry;
            if entry { 1.0 } else { 0.0 }
        }));
        frequency.clone_from(first);
        // Before the first loop and after the last one, one round is enough.
        let start = back.iter().map(|way| way.1).min().unwrap_or(u32::MAX);
        let last = back.iter().map(|way| way.0).max().unwrap_or(u32::MAX);
        pass_on(frequency, forward.iter().filter(|way| way.1 < start));
        if !back.is_empty() {
            between.clear();
            between.extend(forward.iter().filter(|w| w.1 >= start && w.1 <= last));
            let loops = start as usize..last as usize + 1;
            next.clone_from(frequency);
            for _ in 0..ROUNDS {
                next[loops.clone()].copy_from_slice(&first[loops.clone()]);
                pass_back(frequency, next, back);
                pass_on(next, between.iter());
                std::mem::swap(frequency, next);
            }
        }
        pass_on(frequency, forward.iter().filter(|way| way.1 > last));
    }

    /// Finds the edges inside the group, and their probabilities.
    fn read(&mut self, cfg: &Cfg, procs: &[ProcId], blocks: &[BlockId]) {
        let Self {
            taken,
            ways,
            forward,
            back,
            ..
        } = self;
        forward.clear();
        back.clear();
        taken.clear();
        ways.clear();
        // The other procedures are parts that the compiler put elsewhere.
        let own = cfg.proc(procs[0]).block_count;
        let flow = |b: BlockId| cfg.inst(cfg.block(b).last()).flow;
        let is_cold = |to: Option<u32>| {
            let ends = |to: u32| {
                matches!(
                    flow(blocks[to as usize]),
                    ControlFlow::Halt | ControlFlow::Trap
                )
            };
            to.is_some_and(|to| to >= own || ends(to))
        };
        for (i, &b) in blocks.iter().enumerate() {
            let from = i as u32;
            let mut add = |to: Option<u32>, probability: f32| {
                if let Some(to) = to {
                    let on = (from, to, probability);
                    if to > from { &mut *forward } else { &mut *back }.push(on);
                }
            };
            let place = |succ: &Succ| place(cfg, procs, succ);
            let (mut taken_probability, mut both) = (0.0, [None; 2]);
            match (flow(b), cfg.succs(b)) {
                (ControlFlow::CondJump, [to, falling]) => {
                    both = [place(to), place(falling)];
                    let [to, falling] = both;
                    let cold = |to| from < own && is_cold(to);
                    taken_probability = match (cold(to), cold(falling)) {
                        (true, false) => COLD,
                        (false, true) => 1.0 - COLD,
                        _ if to.is_some_and(|to| is_back(cfg, blocks, from, to)) => AGAIN,
                        _ => 0.5,
                    };
                    add(to, taken_probability);
                    add(falling, 1.0 - taken_probability);
                }
                (_, [to]) => {
                    both = [place(to); 2];
                    add(both[0], 1.0);
                }
                (flow, targets) => {
                    let probability = match flow {
                        ControlFlow::IndirectJump => 1.0 / targets.len().max(1) as f32,
                        _ => 1.0,
                    };
                    for (n, to) in targets.iter().enumerate() {
                        let to = place(to);
                        add(to, probability);
                        both[usize::from(n != 0)] = to;
                    }
                }
            }
            taken.push(taken_probability);
            ways.push(both);
        }
    }
}

/// True if an edge leads back in the same procedure.
fn is_back(cfg: &Cfg, blocks: &[BlockId], from: u32, to: u32) -> bool {
    let proc = |i: u32| cfg.block(blocks[i as usize]).proc;
    to <= from && proc(to) == proc(from)
}

/// Propagates frequencies along back edges, for the next round.
fn pass_back(frequency: &[f32], next: &mut [f32], ways: &[On]) {
    for &(from, to, probability) in ways {
        next[to as usize] += frequency[from as usize] * probability;
    }
}

/// Propagates frequencies along forward edges, in the order of the blocks, so that one round suffices.
fn pass_on<'a>(frequency: &mut [f32], ways: impl Iterator<Item = &'a On>) {
    for &(from, to, probability) in ways {
        frequency[to as usize] += frequency[from as usize] * probability;
    }
}

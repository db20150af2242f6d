//! How often blocks are likely to run, as far as their arrangement tells.
//!
//! Backward branches are loops and mostly go on; what ends in `ud2` or lies in
//! a part that the compiler put elsewhere is rare; of other branches nothing is
//! assumed. A wrong guess costs time, never exactness.

use super::group::{World, index_of};
use crate::cfg::{Cfg, Succ};
use crate::decode::Flow;
use crate::ids::{BlockId, ProcId};

/// A loop's branch goes back this often.
const AGAIN: f32 = 0.88;
/// Share of a way that looks rare.
const RARE: f32 = 0.02;
/// How often frequencies are passed on from block to block.
const ROUNDS: usize = 14;

/// How likely the two ways out of a conditional branch are.
pub struct Ways {
    /// Share of the times that it is taken.
    pub taken: f32,
    /// The rest.
    pub falling: f32,
}

/// Where a successor lies in the group.
fn place(cfg: &Cfg, procs: &[ProcId], succ: &Succ) -> Option<BlockId> {
    let to = match *succ {
        Succ::Fall(to) | Succ::Branch(to) => to,
        Succ::Tail(pc) => cfg.block_at(pc.get())?,
        Succ::Unknown => return None,
    };
    procs.contains(&cfg.block(to).proc).then_some(to)
}

fn is_rare(cfg: &Cfg, procs: &[ProcId], to: Option<BlockId>) -> bool {
    let Some(to) = to else { return false };
    cfg.block(to).proc != procs[0]
        || matches!(cfg.inst(cfg.block(to).last()).flow, Flow::Halt | Flow::Trap)
}

/// The ways out of a block that ends in a conditional branch.
pub fn ways(world: &World<'_>, procs: &[ProcId], b: BlockId, taken: &Succ, falling: &Succ) -> Ways {
    let cfg = world.cfg;
    let here = cfg.block(b).proc;
    let (taken, falling) = (place(cfg, procs, taken), place(cfg, procs, falling));
    let rare = |to| here == procs[0] && is_rare(cfg, procs, to);
    let back = taken.is_some_and(|to| to <= b && cfg.block(to).proc == here);
    let share = match (rare(taken), rare(falling)) {
        (true, false) => RARE,
        (false, true) => 1.0 - RARE,
        _ if back => AGAIN,
        _ => 0.5,
    };
    Ways {
        taken: share,
        falling: 1.0 - share,
    }
}

/// By block of the group: how often it runs for each time the procedure is entered.
pub fn estimate(world: &World<'_>, procs: &[ProcId], blocks: &[BlockId]) -> Vec<f32> {
    let cfg = world.cfg;
    // Ways on inside the group, and their shares.
    let mut on: Vec<(u32, u32, f32)> = Vec::with_capacity(2 * blocks.len());
    let index = |to: Option<BlockId>| to.and_then(|to| index_of(cfg, procs, to));
    for (i, &b) in blocks.iter().enumerate() {
        let mut add = |succ: &Succ, share: f32| {
            if let Some(to) = index(place(cfg, procs, succ)) {
                on.push((i as u32, to as u32, share));
            }
        };
        let succs = cfg.succs(b);
        match (cfg.inst(cfg.block(b).last()).flow, succs) {
            (Flow::CondJump, [taken, falling]) => {
                let ways = ways(world, procs, b, taken, falling);
                add(taken, ways.taken);
                add(falling, ways.falling);
            }
            (Flow::IndirectJump, targets) => {
                let share = 1.0 / targets.len().max(1) as f32;
                targets.iter().for_each(|to| add(to, share));
            }
            (_, targets) => targets.iter().for_each(|to| add(to, 1.0)),
        }
    }
    let first: Vec<f32> = blocks
        .iter()
        .enumerate()
        .map(|(i, b)| {
            let block = cfg.block(*b);
            let entry = i == 0 || block.is_entry;
            if entry { 1.0 } else { 0.0 }
        })
        .collect();
    let mut frequency = first.clone();
    let mut next = first.clone();
    let (forward, back): (Vec<_>, Vec<_>) = on.into_iter().partition(|(from, to, _)| to > from);
    let rounds = if back.is_empty() { 1 } else { ROUNDS };
    for _ in 0..rounds {
        next.copy_from_slice(&first);
        for &(from, to, share) in &back {
            next[to as usize] += frequency[from as usize] * share;
        }
        // In the blocks' order, so that all of this arrives in one round.
        for &(from, to, share) in &forward {
            next[to as usize] += next[from as usize] * share;
        }
        std::mem::swap(&mut frequency, &mut next);
    }
    frequency
}

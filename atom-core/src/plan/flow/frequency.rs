//! How often blocks are likely to run, as far as their arrangement tells.
//!
//! Backward branches are loops and mostly go on; what ends in `ud2` or lies in
//! a part that the compiler put elsewhere is rare; of other branches nothing is
//! assumed. A wrong guess costs time, never exactness.

use super::group::index_of;
use crate::cfg::{Cfg, Succ};
use crate::decode::Flow;
use crate::ids::{BlockId, ProcId};

/// A loop's branch goes back this often.
const AGAIN: f32 = 0.88;
/// Share of a way that looks rare.
const RARE: f32 = 0.02;
/// How often frequencies are passed on from block to block.
const ROUNDS: usize = 14;

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

/// How likely a block's conditional branch is taken.
fn share_taken(
    cfg: &Cfg,
    procs: &[ProcId],
    b: BlockId,
    taken: Option<BlockId>,
    falling: Option<BlockId>,
) -> f32 {
    let here = cfg.block(b).proc;
    let rare = |to| here == procs[0] && is_rare(cfg, procs, to);
    let back = taken.is_some_and(|to| to <= b && cfg.block(to).proc == here);
    match (rare(taken), rare(falling)) {
        (true, false) => RARE,
        (false, true) => 1.0 - RARE,
        _ if back => AGAIN,
        _ => 0.5,
    }
}

/// A way on inside a group: from one block to another, and its share.
type On = (u32, u32, f32);

/// Estimates for one group after the other, in the same storage.
#[derive(Default)]
pub struct Estimate {
    /// By block of the group: how often it runs for each time the procedure is entered.
    pub frequency: Vec<f32>,
    /// By block: the share of the way that is taken, of a conditional branch.
    pub taken: Vec<f32>,
    forward: Vec<On>,
    back: Vec<On>,
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
        next.clone_from(first);
        let rounds = if back.is_empty() { 1 } else { ROUNDS };
        for _ in 0..rounds {
            next.copy_from_slice(first);
            for &(from, to, share) in &*back {
                next[to as usize] += frequency[from as usize] * share;
            }
            // In the blocks' order, so that all of this arrives in one round.
            for &(from, to, share) in &*forward {
                next[to as usize] += next[from as usize] * share;
            }
            std::mem::swap(frequency, next);
        }
    }

    /// Finds the ways on inside the group, and their shares.
    fn read(&mut self, cfg: &Cfg, procs: &[ProcId], blocks: &[BlockId]) {
        let Self {
            taken,
            forward,
            back,
            ..
        } = self;
        forward.clear();
        back.clear();
        taken.clear();
        taken.resize(blocks.len(), 0.0);
        let index = |to: Option<BlockId>| to.and_then(|to| index_of(cfg, procs, to));
        for (i, &b) in blocks.iter().enumerate() {
            let mut add = |to: Option<BlockId>, share: f32| {
                if let Some(to) = index(to) {
                    let on = (i as u32, to as u32, share);
                    if to > i { &mut *forward } else { &mut *back }.push(on);
                }
            };
            let succs = cfg.succs(b);
            match (cfg.inst(cfg.block(b).last()).flow, succs) {
                (Flow::CondJump, [to, falling]) => {
                    let (to, falling) = (place(cfg, procs, to), place(cfg, procs, falling));
                    let share = share_taken(cfg, procs, b, to, falling);
                    taken[i] = share;
                    add(to, share);
                    add(falling, 1.0 - share);
                }
                (Flow::IndirectJump, targets) => {
                    let share = 1.0 / targets.len().max(1) as f32;
                    targets
                        .iter()
                        .for_each(|to| add(place(cfg, procs, to), share));
                }
                (_, targets) => targets
                    .iter()
                    .for_each(|to| add(place(cfg, procs, to), 1.0)),
            }
        }
    }
}

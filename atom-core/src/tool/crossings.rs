//! Where a program goes from the light version of its text to the full one, and back: in headers of loops, around windows,
//! and where control comes from outside.
//!
//! A tool that derives counts from others, or leaves out what an earlier call has done, must know these places: its calls
//! may begin there and end there.

use super::borders::Borders;
use crate::cfg::{Cfg, ProcKind, Returns, Succ};
use crate::ids::{BlockId, ProcId};
use crate::x86::ControlFlow;

/// Where control may go from one version to the other, but for entries of procedures.
#[derive(Clone, Copy, Debug)]
pub struct Crossings<'a> {
    /// Where windows begin and end.
    pub borders: Option<&'a Borders>,
}

/// A block in front of which control may go from one version to the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Crossing {
    /// The block.
    pub block: BlockId,
    /// False if only the full version tests there: what comes from outside begins in it.
    pub is_in_light: bool,
}

impl<'a> Crossings<'a> {
    /// Those of one object. `borders` has an entry for each object, or none if windows begin and end nowhere.
    pub fn in_object(borders: &'a [Borders], object: usize) -> Self {
        Self {
            borders: borders.get(object),
        }
    }

    /// The blocks of a procedure with a test in front of them, in ascending order. Where code begins and ends windows, each
    /// procedure is in the right version as soon as control comes back to it from a call. Calls that push original return
    /// addresses come back from outside.
    pub fn of(self, cfg: &Cfg, proc: ProcId) -> Vec<Crossing> {
        let facts = cfg.proc(proc);
        let entry = entry(cfg, proc);
        let mut blocks = headers(cfg, proc);
        if self.borders.is_some() || facts.returns != Returns::New {
            blocks.extend(facts.blocks().filter_map(|b| after_call(cfg, b)));
        }
        if let Some(borders) = self.borders {
            let start = |list: &[BlockId]| list.partition_point(|b| *b < facts.first_block);
            let own = [&borders.from, &borders.to].into_iter().flat_map(|list| {
                let after = list[start(list)..].iter().copied();
                after.take_while(|b| cfg.block(*b).proc == proc)
            });
            // At the entry, control comes from outside, where there is a test anyway.
            blocks.extend(own.filter(|b| Some(*b) != entry));
            blocks.extend(facts.blocks().filter(|b| cfg.block(*b).is_landing_pad));
        }
        blocks.sort_unstable();
        blocks.dedup();
        let is_entered = |b: &BlockId| cfg.block(*b).is_indirect_target && Some(*b) != entry;
        let is_only_entered = |b: &BlockId| is_entered(b) && blocks.binary_search(b).is_err();
        let of_code = facts.kind != ProcKind::Plt;
        let entered = facts.blocks().filter(|b| of_code && is_only_entered(b));
        let crossing = |is_in_light| move |block| Crossing { block, is_in_light };
        let entered: Vec<Crossing> = entered.map(crossing(false)).collect();
        let mut all: Vec<Crossing> = blocks.into_iter().map(crossing(true)).collect();
        all.extend(entered);
        all.sort_unstable_by_key(|crossing| crossing.block);
        all
    }
}

/// The block at which control comes back to a procedure after a call that ends a block.
fn after_call(cfg: &Cfg, b: BlockId) -> Option<BlockId> {
    let flow = cfg.inst(cfg.block(b).last()).flow;
    if !matches!(flow, ControlFlow::Call | ControlFlow::IndirectCall) {
        return None;
    }
    cfg.succs(b).iter().find_map(|succ| match *succ {
        Succ::Fall(to) => Some(to),
        Succ::Branch(_) | Succ::Tail(_) | Succ::Unknown => None,
    })
}

/// The blocks of a procedure in which a test breaks each cycle of its control flow: headers of loops, and where other
/// procedures jump into the middle of this one, as to the part that is rarely run.
pub(crate) fn headers(cfg: &Cfg, proc: ProcId) -> Vec<BlockId> {
    let facts = cfg.proc(proc);
    if facts.kind == ProcKind::Plt {
        return Vec::new();
    }
    let entry = entry(cfg, proc);
    let is_middle = |b: &BlockId| cfg.block(*b).is_entry && Some(*b) != entry;
    let mut headers: Vec<BlockId> = facts.blocks().filter(is_middle).collect();
    let mut state = vec![State::New; facts.block_count as usize];
    let place = |b: BlockId| b.index() - facts.first_block.index();
    // A search in depth. It comes to a block again before it leaves it if the block is on a cycle.
    let mut path: Vec<(BlockId, usize)> = Vec::new();
    for first in facts.blocks() {
        if state[place(first)] != State::New {
            continue;
        }
        state[place(first)] = State::Open;
        path.push((first, 0));
        while let Some((b, next)) = path.last_mut() {
            let Some(succ) = cfg.succs(*b).get(*next) else {
                state[place(*b)] = State::Done;
                path.pop();
                continue;
            };
            *next += 1;
            let (Succ::Branch(to) | Succ::Fall(to)) = *succ else {
                continue;
            };
            match state[place(to)] {
                State::New => {
                    state[place(to)] = State::Open;
                    path.push((to, 0));
                }
                State::Open => headers.push(to),
                State::Done => {}
            }
        }
    }
    headers
}

/// How far a search in depth is with a block or procedure.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    New,
    /// On the path from where the search has begun.
    Open,
    Done,
}

/// The block by which a procedure is called; `None` if it has no code of its own, or is entered by jumps only.
pub(crate) fn entry(cfg: &Cfg, proc: ProcId) -> Option<BlockId> {
    let facts = cfg.proc(proc);
    let is_called = !matches!(facts.kind, ProcKind::Fragment(_) | ProcKind::Plt);
    let first = facts.first_block;
    (is_called && facts.is_movable() && cfg.block_pc(first) == facts.start).then_some(first)
}

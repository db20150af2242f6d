//! The flow graph of a procedure together with its parts elsewhere.
//!
//! Each block is an edge between two vertices, its start and its end, so that
//! blocks and ways between blocks are counted alike. What enters or leaves the
//! graph goes through vertex 0: calls and returns, jumps to places that are
//! not known or that belong to another procedure, landing pads, and the return
//! from a call that may not come back or may come back twice. Nothing is
//! assumed of these but that the code after them runs only if control comes there.

use rayon::prelude::*;

use super::frequency::Estimate;
use super::increment::Keeping;
use super::tree::Edge;
use crate::cfg::{Block, Cfg, ProcKind, Status, Succ};
use crate::decode::Flow;
use crate::ids::{BlockId, InstId, ProcId};
use crate::image::Image;
use crate::live::{EffectsOf, Live, RegSet};
use crate::plan::Position;

/// Flags that `inc` changes.
pub const CHANGED: RegSet = RegSet::FLAGS.without(RegSet::CF);

/// Where an edge is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spot {
    /// The instruction.
    pub inst: InstId,
    /// Where at it.
    pub position: Position,
    /// What is to be kept there.
    pub keeping: Keeping,
}

/// What leads out of a conditional branch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Branch {
    /// The edge if it is taken.
    pub taken: u32,
    /// The edge if it is not.
    pub falling: u32,
}

/// A procedure with its parts, as a graph; one after the other in the same storage.
#[derive(Default)]
pub struct Group {
    /// Its blocks.
    pub blocks: Vec<BlockId>,
    /// Edges. The first ones are the blocks, in their order.
    pub edges: Vec<Edge>,
    /// By edge: where it is counted.
    pub spots: Vec<Option<Spot>>,
    /// By block: its two ways, if it ends in a conditional branch.
    pub branches: Vec<Option<Branch>>,
    /// How often its blocks are likely to run.
    pub estimate: Estimate,
    live_in: Vec<RegSet>,
    /// By block: control may come to it from elsewhere.
    enters: Vec<bool>,
    effects_of: EffectsOf,
    sets: Vec<RegSet>,
}

/// Procedures after which the program's pages are given back.
const WAVE: usize = 8192;

/// What all groups have in common.
pub struct World<'a> {
    /// The program.
    pub image: &'a Image,
    /// Its code.
    pub cfg: &'a Cfg,
    /// What is live.
    pub live: &'a Live<'a>,
    /// Blocks to which calls, and jumps of other procedures, lead.
    pub entered: Vec<bool>,
    /// Procedures whose calls certainly come back, once.
    pub returns: Vec<bool>,
}

/// The start of the block's edge.
const fn start(i: usize) -> u32 {
    2 * i as u32 + 1
}

/// The end of the block's edge.
const fn end(i: usize) -> u32 {
    2 * i as u32 + 2
}

/// Marks the blocks to which control comes from elsewhere.
pub fn entered(image: &Image, cfg: &Cfg) -> Vec<bool> {
    let mut entered: Vec<bool> = cfg
        .blocks
        .iter()
        .enumerate()
        .map(|(i, block)| {
            let proc = cfg.proc(block.proc);
            let part_starts = matches!(proc.kind, ProcKind::Fragment(Some(_)))
                && proc.is_local
                && proc.first_block.index() == i;
            block.is_entry
                || block.is_landing_pad
                || (block.is_indirect_target && !part_starts)
                || (proc.first_block.index() == i && !part_starts)
        })
        .collect();
    let mut targets: Vec<BlockId> = Vec::new();
    for first in (0..cfg.procs.len()).step_by(WAVE) {
        let wave = first..cfg.procs.len().min(first + WAVE);
        let ways = wave.into_par_iter().with_min_len(32);
        targets.par_extend(ways.flat_map_iter(|p| ways_in(image, cfg, ProcId::from_index(p))));
        image.release_pages();
        for block in targets.drain(..) {
            entered[block.index()] = true;
        }
    }
    for target in cfg.jump_tables.iter().flat_map(|t| &t.targets) {
        if let Some(block) = cfg.block_at(*target) {
            entered[block.index()] = true;
        }
    }
    entered
}

/// The blocks to which a procedure's calls lead, and its jumps to other procedures.
fn ways_in(image: &Image, cfg: &Cfg, id: ProcId) -> Vec<BlockId> {
    let mut blocks = Vec::new();
    for b in cfg.proc(id).blocks() {
        let last = cfg.block(b).last();
        if cfg.inst(last).flow == Flow::Call
            && let Some(target) = cfg.direct_target(image, last)
        {
            blocks.extend(cfg.block_at(target));
        }
        for succ in cfg.succs(b) {
            let Succ::Tail(to) = *succ else { continue };
            let pc = to.get();
            let inside = cfg
                .proc_at(pc)
                .is_some_and(|p| cfg.whole(p) == cfg.whole(id));
            if !inside {
                blocks.extend(cfg.block_at(pc));
            }
        }
    }
    blocks
}

impl Group {
    /// Makes it the graph of these procedures, which belong together. `None` if
    /// something in them is not known well enough.
    pub fn read(&mut self, world: &World<'_>, procs: &[ProcId]) -> Option<()> {
        let cfg = world.cfg;
        let understood =
            |p: &ProcId| cfg.proc(*p).is_movable() && cfg.proc(*p).status == Status::Full;
        if !procs.iter().all(understood) {
            return None;
        }
        self.blocks.clear();
        for p in procs {
            self.blocks.extend(cfg.proc(*p).blocks());
        }
        let count = self.blocks.len();
        self.estimate.of(cfg, procs, &self.blocks);
        self.branches.clear();
        self.branches.resize(count, None);
        self.live_in.clear();
        self.edges.clear();
        self.spots.clear();
        for (i, &b) in self.blocks.iter().enumerate() {
            let live = world.live.at_start(b);
            self.live_in.push(live);
            let (inst, live) = if live.intersects(CHANGED) {
                let (effects_of, sets) = (&mut self.effects_of, &mut self.sets);
                world.live.block_into(b, effects_of, sets);
                inside(cfg.block(b), sets)
            } else {
                (cfg.block(b).first, live)
            };
            let cost = cost(Position::Before, live, self.estimate.frequency[i]);
            self.edges.push(edge(start(i), end(i), Some(cost)));
            self.spots.push(Some(Spot {
                inst,
                position: Position::Before,
                keeping: Keeping::of(live),
            }));
        }
        self.enters.clear();
        let enters = self.blocks.iter().map(|b| world.entered[b.index()]);
        self.enters.extend(enters);
        for i in 0..count {
            self.ways_out(world, procs, i)?;
        }
        for i in (0..count).filter(|i| self.enters[*i]) {
            self.edges.push(edge(0, start(i), None));
        }
        self.spots.resize(self.edges.len(), None);
        Some(())
    }

    /// Number of vertices.
    pub fn vertices(&self) -> usize {
        2 * self.blocks.len() + 1
    }

    fn add(&mut self, from: u32, to: u32, cost: Option<f32>, spot: Option<Spot>) -> u32 {
        self.edges.push(edge(from, to, cost));
        self.spots.push(spot);
        self.edges.len() as u32 - 1
    }

    /// Adds the edges that leave a block.
    fn ways_out(&mut self, world: &World<'_>, procs: &[ProcId], i: usize) -> Option<()> {
        let cfg = world.cfg;
        let b = self.blocks[i];
        let last = cfg.block(b).last();
        let inst = cfg.inst(last);
        let place = |succ: &Succ| match *succ {
            Succ::Fall(to) | Succ::Branch(to) => index_of(cfg, procs, to),
            Succ::Tail(pc) => cfg
                .block_at(pc.get())
                .and_then(|to| index_of(cfg, procs, to)),
            Succ::Unknown => None,
        };
        let vertex = |to: Option<usize>| to.map_or(0, start);
        let succs = cfg.succs(b);
        match inst.flow {
            Flow::CondJump => {
                let &[taken, falling] = succs else {
                    return None;
                };
                let bytes = (world.image).bytes_at(cfg.inst_pc(last), inst.len.into());
                let (plain, counted) = match bytes {
                    Some([0x70..=0x7f, _] | [0x0f, 0x80..=0x8f, ..]) => (true, false),
                    _ => {
                        let d = cfg.decode(world.image, last);
                        let counted = d.is_jcx_short() || d.is_loop() || d.is_loopcc();
                        (d.is_jcc_short_or_near(), counted)
                    }
                };
                if !plain && !counted {
                    // Undone memory cannot be counted in (xbegin).
                    return None;
                }
                let share = self.estimate.taken[i];
                let mut way = |succ: &Succ, position, share: f32, countable: bool| {
                    let to = place(succ);
                    let live = to.map_or_else(|| world.live.after(b), |to| self.live_in[to]);
                    let spot = Spot {
                        inst: last,
                        position,
                        keeping: Keeping::of(live),
                    };
                    let cost =
                        countable.then(|| cost(position, live, self.estimate.frequency[i] * share));
                    self.add(end(i), vertex(to), cost, countable.then_some(spot))
                };
                let taken = way(&taken, Position::Taken, share, plain);
                let falling = way(&falling, Position::After, 1.0 - share, true);
                self.branches[i] = Some(Branch { taken, falling });
            }
            Flow::Next | Flow::Jump => {
                let to = succs.first().and_then(place);
                self.add(end(i), vertex(to), None, None);
            }
            Flow::Call if comes_back(world, last) => {
                let to = succs.first().and_then(place);
                self.add(end(i), vertex(to), None, None);
            }
            _ => {
                self.add(end(i), 0, None, None);
                if !inst.flow.ends_flow()
                    && let Some(to) = succs.last().and_then(place)
                {
                    self.enters[to] = true;
                }
            }
        }
        Some(())
    }
}

fn edge(from: u32, to: u32, cost: Option<f32>) -> Edge {
    Edge {
        from,
        to,
        cost,
        wanted: false,
    }
}

/// Whether the direct call returns once for each time that it is made.
fn comes_back(world: &World<'_>, call: InstId) -> bool {
    let cfg = world.cfg;
    if cfg.inst(call).special {
        return false;
    }
    let Some(target) = cfg.direct_target(world.image, call) else {
        return false;
    };
    cfg.proc_at(target)
        .is_some_and(|p| cfg.proc(p).start == target && world.returns[p.index()])
}

/// The block's place among the blocks of these procedures.
pub fn index_of(cfg: &Cfg, procs: &[ProcId], b: BlockId) -> Option<usize> {
    let owner = cfg.block(b).proc;
    let mut before = 0;
    for &p in procs {
        let proc = cfg.proc(p);
        if p == owner {
            return Some(before + b.index() - proc.first_block.index());
        }
        before += proc.block_count as usize;
    }
    None
}

/// The best place to count a block: where the flags are dead. Yields what is live there.
fn inside(block: &Block, live: &[RegSet]) -> (InstId, RegSet) {
    let count = block.count as usize;
    let at = (0..count)
        .find(|i| !live[*i].intersects(CHANGED))
        .unwrap_or(0);
    (InstId(block.first.0 + at as u32), live[at])
}

/// What counting at a place costs: roughly, instructions executed and a little for their size.
fn cost(position: Position, live: RegSet, frequency: f32) -> f32 {
    const SIZE: f32 = 0.02;
    let increment = if !live.intersects(CHANGED) {
        1.0
    } else if live.gpr_mask() & 1 == 0 {
        3.0
    } else {
        5.0
    };
    let jump = if position == Position::Taken {
        1.0
    } else {
        0.0
    };
    // Of equal ways, rather a block than an edge.
    let edge = if position == Position::Before {
        0.0
    } else {
        0.05
    };
    (frequency + SIZE) * (increment + jump + edge)
}

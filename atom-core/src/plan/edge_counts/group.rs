//! The control flow graph of a procedure together with its parts elsewhere.
//!
//! Each block is an edge between two vertices, its start and its end, so that blocks and branches between
//! blocks are counted alike. Where a block has one successor in the graph, its end is the start of that
//! successor. All control that enters or leaves the graph passes vertex 0: calls and returns, jumps to
//! places that are not known or that belong to another procedure, landing pads, and the return from a call
//! that may not come back or may come back twice. Nothing is assumed of these except that the code after it
//! them runs only if control comes there.

use rayon::prelude::*;

use super::frequency::Estimate;
use super::qualify::Way;
use super::tree::Edge;
use crate::cfg::{Block, Cfg, ProcKind, Status, Succ};
use crate::ids::{BlockId, InstId, ProcId};
use crate::image::Image;
use crate::live::{EffectsOf, Live, RegSet};
use crate::plan::Position;
use crate::plan::keeping::Keeping;
use crate::x86::ControlFlow;
use crate::x86::branch::is_plain_jcc;

/// Flags that an increment changes.
const CHANGED: RegSet = RegSet::FLAGS.without(RegSet::CF);

/// Place of an edge's counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CounterSite {
    /// The instruction.
    pub inst: InstId,
    /// Position at the instruction.
    pub position: Position,
    /// Flags and registers that the counter has to keep there.
    pub keeping: Keeping,
}

/// A procedure with its parts, as a graph. Its storage is reused for one after the other.
#[derive(Default)]
pub struct Group {
    /// Its blocks.
    pub blocks: Vec<BlockId>,
    /// Number of vertices.
    pub vertices: usize,
    /// Edges that can be counted or whose count may be wanted. The first ones are the blocks, in their
    /// order.
    pub edges: Vec<Edge>,
    /// Place of each edge's counter.
    pub sites: Vec<CounterSite>,
    /// Estimated frequencies of its blocks.
    pub estimate: Estimate,
    /// For each block, how control leaves it.
    outs: Vec<Out>,
    /// For each block, the vertex at its start.
    starts: Vec<u32>,
    effects_of: EffectsOf,
    sets: Vec<RegSet>,
}

/// How control leaves a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Out {
    /// To this block, or out of the graph.
    To(Option<u32>),
    /// By a conditional branch.
    Branch {
        /// Number of the taken edge; the next number is the fall-through edge.
        taken: u32,
        /// True if a counter can be on the taken edge.
        is_plain: bool,
    },
}

/// Number of procedures after which the program's pages are given back.
const WAVE: usize = 8192;

/// Facts that all groups share.
pub struct Context<'a> {
    /// The program.
    pub image: &'a Image,
    /// Its code.
    pub cfg: &'a Cfg,
    /// Liveness.
    pub live: &'a Live<'a>,
    /// For each block, whether calls or jumps of other procedures lead to it.
    pub entered: Vec<bool>,
    /// For each procedure, whether a call of it certainly returns once.
    pub returns: Vec<bool>,
}

/// Marks the blocks that control may enter from outside of their procedure.
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

/// The blocks to which a procedure's calls and its jumps to other procedures lead.
fn ways_in(image: &Image, cfg: &Cfg, id: ProcId) -> Vec<BlockId> {
    let mut blocks = Vec::new();
    for b in cfg.proc(id).blocks() {
        let last = cfg.block(b).last();
        if cfg.inst(last).flow == ControlFlow::Call
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

/// No vertex yet.
const NONE: u32 = u32::MAX;

impl Group {
    /// Makes it the graph of these procedures, which belong together. `None` if they are not understood in
    /// full.
    pub fn read(&mut self, context: &Context<'_>, procs: &[ProcId]) -> Option<()> {
        let cfg = context.cfg;
        let understood =
            |p: &ProcId| cfg.proc(*p).is_movable() && cfg.proc(*p).status == Status::Full;
        if !procs.iter().all(understood) {
            return None;
        }
        self.blocks.clear();
        for p in procs {
            self.blocks.extend(cfg.proc(*p).blocks());
        }
        self.estimate.of(cfg, procs, &self.blocks);
        self.starts.clear();
        let entered = self.blocks.iter().map(|b| context.entered[b.index()]);
        self.starts
            .extend(entered.map(|e| if e { 0 } else { NONE }));
        self.outs.clear();
        for i in 0..self.blocks.len() {
            let out = self.out(context, i)?;
            self.outs.push(out);
        }
        self.edges.clear();
        self.sites.clear();
        self.vertices = 1;
        for i in 0..self.blocks.len() {
            self.add_block(context, i);
        }
        for i in 0..self.blocks.len() {
            if let Out::Branch { is_plain, .. } = self.outs[i] {
                self.add_ways(context, i, is_plain);
            }
        }
        Some(())
    }

    /// The edge whose count is the one of this way through the block.
    pub fn edge(&self, i: usize, way: Way) -> Option<u32> {
        match (way, self.outs[i]) {
            (Way::Block, _) => Some(i as u32),
            (Way::Taken, Out::Branch { taken, .. }) => Some(taken),
            (Way::Falling, Out::Branch { taken, .. }) => Some(taken + 1),
            _ => None,
        }
    }

    fn new_vertex(&mut self) -> u32 {
        self.vertices += 1;
        self.vertices as u32 - 1
    }

    /// The vertex where a block starts.
    fn start(&mut self, i: usize) -> u32 {
        if self.starts[i] == NONE {
            self.starts[i] = self.new_vertex();
        }
        self.starts[i]
    }

    /// Adds a block's edge.
    fn add_block(&mut self, context: &Context<'_>, i: usize) {
        let from = self.start(i);
        let to = match self.outs[i] {
            Out::Branch { .. } => self.new_vertex(),
            Out::To(None) => 0,
            Out::To(Some(to)) => self.start(to as usize),
        };
        let b = self.blocks[i];
        let block = context.cfg.block(b);
        let live = context.live.at_start(b);
        let (inst, live) = if live.intersects(CHANGED) {
            let (effects_of, sets) = (&mut self.effects_of, &mut self.sets);
            context.live.block_into(b, effects_of, sets);
            inside(block, sets)
        } else {
            (block.first, live)
        };
        let frequency = self.estimate.frequency[i];
        self.add([from, to], inst, Position::Before, live, frequency);
    }

    /// Adds the two edges out of a block that ends in a conditional branch.
    fn add_ways(&mut self, context: &Context<'_>, i: usize, is_plain: bool) {
        let b = self.blocks[i];
        let last = context.cfg.block(b).last();
        let from = self.edges[i].ends[1];
        let edge = self.edges.len();
        self.outs[i] = Out::Branch {
            taken: edge as u32,
            is_plain,
        };
        let (probability, frequency) = (self.estimate.taken[i], self.estimate.frequency[i]);
        let [taken, falling] = self.estimate.ways[i];
        let ways = [
            (taken, Position::Taken, probability),
            (falling, Position::After, 1.0 - probability),
        ];
        for (to, position, probability) in ways {
            let (vertex, live) = match to {
                None => (0, context.live.after(b)),
                Some(to) => {
                    let live = context.live.at_start(self.blocks[to as usize]);
                    (self.starts[to as usize], live)
                }
            };
            self.add(
                [from, vertex],
                last,
                position,
                live,
                frequency * probability,
            );
        }
        if !is_plain {
            self.edges[edge].cost = f32::INFINITY;
        }
    }

    /// Adds an edge with its counter's place; `often` is its estimated frequency.
    fn add(&mut self, ends: [u32; 2], inst: InstId, position: Position, live: RegSet, often: f32) {
        self.edges.push(Edge {
            ends,
            cost: cost(position, live, often),
            wanted: false,
        });
        self.sites.push(CounterSite {
            inst,
            position,
            keeping: Keeping::of(live, CHANGED),
        });
    }

    /// How control leaves a block. Where that is not known, the next block counts as entered from outside.
    fn out(&mut self, context: &Context<'_>, i: usize) -> Option<Out> {
        let cfg = context.cfg;
        let b = self.blocks[i];
        let last = cfg.block(b).last();
        let [first, behind] = self.estimate.ways[i];
        Some(match cfg.inst(last).flow {
            ControlFlow::CondJump if cfg.succs(b).len() == 2 => Out::Branch {
                taken: NONE,
                is_plain: is_plain(context, last)?,
            },
            ControlFlow::CondJump => return None,
            ControlFlow::FallThrough | ControlFlow::Jump => Out::To(first),
            ControlFlow::Call if comes_back(context, last) => Out::To(first),
            flow => {
                if let Some(to) = behind.filter(|_| !flow.ends_flow()) {
                    self.starts[to as usize] = 0;
                }
                Out::To(None)
            }
        })
    }
}

/// True if a counter can be on the taken edge of a branch. `None` if the branch cannot be counted.
fn is_plain(context: &Context<'_>, branch: InstId) -> Option<bool> {
    let cfg = context.cfg;
    let len = cfg.inst(branch).len;
    let bytes = context.image.bytes_at(cfg.inst_pc(branch), len.into());
    if bytes.is_some_and(is_plain_jcc) {
        return Some(true);
    }
    let d = cfg.decode(context.image, branch);
    let is_plain = d.is_jcc_short_or_near();
    // `xbegin` cannot be counted: an abort undoes the counter too.
    (is_plain || d.is_jcx_short() || d.is_loop() || d.is_loopcc()).then_some(is_plain)
}

/// True if the direct call returns exactly once each time that it is made.
fn comes_back(context: &Context<'_>, call: InstId) -> bool {
    let cfg = context.cfg;
    if cfg.inst(call).special {
        return false;
    }
    let Some(target) = cfg.direct_target(context.image, call) else {
        return false;
    };
    cfg.proc_at(target)
        .is_some_and(|p| cfg.proc(p).start == target && context.returns[p.index()])
}

/// The best place for a block's counter: where the flags are dead. Also returns what is live there.
fn inside(block: &Block, live: &[RegSet]) -> (InstId, RegSet) {
    let count = block.count as usize;
    let at = (0..count)
        .find(|i| !live[*i].intersects(CHANGED))
        .unwrap_or(0);
    (InstId(block.first.0 + at as u32), live[at])
}

/// Cost of a counter at a place: about the number of instructions executed, and a little for their size.
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
    // At equal cost a block is better than a branch.
    let edge = if position == Position::Before {
        0.0
    } else {
        0.05
    };
    (frequency + SIZE) * (increment + jump + edge)
}

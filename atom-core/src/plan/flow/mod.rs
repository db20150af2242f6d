//! Counting control flow instead of making calls that only count.
//!
//! A call whose routine does nothing but add a constant to a cell need not be
//! made where it stands, if nobody looks at the cell before the program's end.
//! The flow of control is counted with as few counters as possible
//! ([`tree`]), and the end's calls find in the cells what the calls would have
//! added: the runtime computes it from a table ([`table`]) just before.
//!
//! A cell is *private* if the data that the tool placed it in is an argument
//! of such calls and of the calls at the program's end only.

mod frequency;
mod group;
mod qualify;
mod returns;
mod table;
mod tree;

use rayon::prelude::*;

use super::asm::Asm;
use super::code::{Position, Target};
use super::data::Data;
use super::site::Point;
use super::threads::ThreadAccess;
use crate::analysis::specialise::Specialiser;
use crate::cfg::{Cfg, ProcKind};
use crate::ids::{InstId, ProcId};
use crate::image::Image;
use crate::live::{Live, RegSet};
use crate::tool::Calls;

use group::{Group, Scratch, Spot, World};
use qualify::{Want, Way};

/// Where the counters lie and how totals follow from them; offsets in the plan's data.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Totals {
    /// The table, as the runtime reads it.
    pub table: u32,
    /// Its size.
    pub table_size: u32,
    /// The flow's counters.
    pub counters: u32,
    /// Room for the runtime to compute in.
    pub scratch: u32,
}

/// A counter of the flow at its place.
#[derive(Clone, Copy, Debug)]
pub struct Counter {
    /// Its place.
    pub spot: Spot,
    /// Offset in the plan's data.
    pub cell: u32,
}

/// What is counted by flow.
#[derive(Default)]
pub struct Flow {
    /// By number of a call: it is not made. Empty: all are.
    handled: Vec<bool>,
    /// The counters by place.
    counters: Vec<Counter>,
    /// Prefix of the counters' instructions.
    prefix: Option<u8>,
    /// By group, until it is laid out.
    counted: Vec<Counted>,
    /// For the runtime.
    pub totals: Option<Totals>,
}

/// In one step for all threads.
const LOCK: u8 = 0xf0;
/// On the running thread's own.
const GS: u8 = 0x65;

/// What came out for one group.
struct Counted {
    spots: Vec<Spot>,
    table: Vec<u8>,
    values: usize,
    calls: Vec<u32>,
}

impl Flow {
    /// Decides which calls are counted by flow, and lays out what that takes.
    pub fn build(
        image: &Image,
        cfg: &Cfg,
        live: &Live,
        calls: &Calls,
        bodies: &Specialiser,
        data: &Data,
    ) -> Self {
        let qualified = qualify::wants(cfg, calls, bodies, data);
        if qualified.wants.is_empty() {
            return Self::default();
        }
        let groups = groups(cfg);
        let world = World {
            image,
            cfg,
            live,
            entered: group::entered(image, cfg),
            returns: returns::certain(image, cfg, &groups),
        };
        let mut wants = qualified.wants;
        let group_of = |want: &Want| group::whole(cfg, cfg.block(want.block).proc);
        wants.par_sort_by_key(|w| (group_of(w), w.call));
        let counted: Vec<Counted> = wants
            .par_chunk_by(|a, b| group_of(a) == group_of(b))
            .map_init(Scratch::default, |scratch, wants| {
                let whole = group_of(&wants[0]);
                let at = groups.binary_search_by_key(&whole, |g| g[0]).ok()?;
                count(&world, &groups[at], wants, scratch)
            })
            .flatten()
            .collect();
        Self {
            handled: vec![false; calls.calls.len()],
            prefix: qualified.locked.then_some(LOCK),
            counted,
            ..Self::default()
        }
    }

    /// Gives everything its place in the data, that of the threads included.
    pub fn lay_out(mut self, calls: &Calls, data: &mut Data, access: ThreadAccess) -> Self {
        let counted = std::mem::take(&mut self.counted);
        let count: usize = counted.iter().map(|c| c.spots.len()).sum();
        let own = access == ThreadAccess::Gs;
        let for_threads = data.place_threads(calls, if own { count } else { 0 });
        if count == 0 {
            return self;
        }
        let counters = match for_threads.filter(|_| own) {
            Some(counters) => {
                self.prefix = Some(GS);
                counters
            }
            None => {
                if access == ThreadAccess::Lookup {
                    // One instruction for all threads costs less than asking for the thread's own.
                    self.prefix = Some(LOCK);
                }
                data.reserve(8 * count)
            }
        };
        let most = counted.iter().map(|c| c.values).max().unwrap_or(0);
        let scratch = data.reserve(8 * most);
        let size: usize = counted.iter().map(|c| c.table.len()).sum();
        let table = data.reserve(size);
        let mut cell = counters;
        let mut at = table as usize;
        for group in counted {
            for spot in group.spots {
                self.counters.push(Counter { spot, cell });
                cell += 8;
            }
            data.bytes[at..at + group.table.len()].copy_from_slice(&group.table);
            at += group.table.len();
            for call in group.calls {
                self.handled[call as usize] = true;
            }
        }
        self.counters
            .sort_unstable_by_key(|c| (c.spot.inst, c.spot.position));
        self.totals = Some(Totals {
            table,
            table_size: size as u32,
            counters,
            scratch,
        });
        self
    }

    /// Whether the call of this number is counted by flow, so not made.
    pub fn handles(&self, call: usize) -> bool {
        self.handled.get(call).copied().unwrap_or(false)
    }

    /// Number of calls that are not made.
    pub fn handled(&self) -> usize {
        self.handled.iter().filter(|h| **h).count()
    }

    /// The counters at the instructions from `first` up to, not including, `end`.
    pub fn between(&self, first: InstId, end: InstId) -> &[Counter] {
        let at = |inst| self.counters.partition_point(|c| c.spot.inst < inst);
        &self.counters[at(first)..at(end)]
    }

    /// Emits the code of a counter.
    pub fn emit(&self, asm: &mut Asm, counter: &Counter, may_set_df: bool) {
        let point = Point {
            live: counter.spot.live,
            may_set_df,
            absolute: false,
            is_piece: false,
        };
        emit_increment(asm, Target::Data(counter.cell), self.prefix, point);
    }
}

/// Increments a cell in one instruction, keeping what is live.
fn emit_increment(asm: &mut Asm, cell: Target, prefix: Option<u8>, point: Point) {
    use super::asm::{Gpr, Mem};
    use super::site::RED_ZONE;
    let live = point.live;
    let overflow = live.intersects(RegSet::OF);
    if !live.intersects(group::CHANGED) {
        return asm.increment(cell, prefix);
    }
    let free = |r: &u8| *r != Gpr::RSP.0 && live.gpr_mask() >> r & 1 == 0;
    if free(&Gpr::RAX.0) {
        asm.flags_to_ax(overflow);
        asm.increment(cell, prefix);
        asm.flags_from_ax(overflow);
    } else if let Some(keeper) = (0..16).find(free).map(Gpr) {
        asm.mov(keeper, Gpr::RAX);
        asm.flags_to_ax(overflow);
        asm.increment(cell, prefix);
        asm.flags_from_ax(overflow);
        asm.mov(Gpr::RAX, keeper);
    } else {
        asm.lea(Gpr::RSP, Mem::at(Gpr::RSP, -RED_ZONE));
        asm.push(Gpr::RAX);
        asm.flags_to_ax(overflow);
        asm.increment(cell, prefix);
        asm.flags_from_ax(overflow);
        asm.pop(Gpr::RAX);
        asm.lea(Gpr::RSP, Mem::at(Gpr::RSP, RED_ZONE));
    }
}

/// Procedures with their parts, each group's whole first, in order.
fn groups(cfg: &Cfg) -> Vec<Vec<ProcId>> {
    let mut members: Vec<(ProcId, bool, ProcId)> = (0..cfg.procs.len())
        .map(ProcId::from_index)
        .map(|id| match cfg.proc(id).kind {
            ProcKind::Fragment(Some(parent)) => (parent, true, id),
            _ => (id, false, id),
        })
        .collect();
    members.sort_unstable();
    members
        .chunk_by(|a, b| a.0 == b.0)
        .map(|g| g.iter().map(|m| m.2).collect())
        .collect()
}

/// Counts one group's flow, if that is possible and pays.
fn count(
    world: &World<'_>,
    procs: &[ProcId],
    wants: &[Want],
    scratch: &mut Scratch,
) -> Option<Counted> {
    let mut graph = Group::new(world, procs, scratch)?;
    let mut edges = Vec::with_capacity(wants.len());
    let mut explicit = 0.0;
    for want in wants {
        let i = group::index_of(world.cfg, procs, want.block)?;
        let edge = match want.way {
            Way::Block => i as u32,
            Way::Taken => graph.branches[i]?.taken,
            Way::Falling => graph.branches[i]?.falling,
        };
        // What the call would cost at least: a branch's cell has to be found.
        explicit += match want.way {
            Way::Block => graph.edges[i].cost?,
            _ => graph.frequency[i] * 2.0,
        };
        graph.edges[edge as usize].wanted = true;
        edges.push(edge);
    }
    let solution = tree::solve(graph.vertices(), &graph.edges)?;
    let cost: f32 = solution
        .counted
        .iter()
        .filter_map(|e| graph.edges[*e as usize].cost)
        .sum();
    if cost > explicit {
        return None;
    }
    let spots = solution
        .counted
        .iter()
        .map(|e| graph.spots[*e as usize])
        .collect::<Option<Vec<Spot>>>()?;
    let cells = wants.iter().zip(edges).map(|(want, edge)| table::CellOf {
        edge,
        cell: want.cell,
        amount: want.amount,
    });
    let mut bytes = Vec::new();
    table::write(&mut bytes, graph.edges.len(), &solution, cells)?;
    let mut calls: Vec<u32> = wants.iter().map(|w| w.call).collect();
    calls.dedup();
    Some(Counted {
        spots,
        table: bytes,
        values: solution.counted.len() + solution.derived.len(),
        calls,
    })
}

/// True if the counter stands at this place.
pub fn is_at(counter: &Counter, inst: InstId, position: Position) -> bool {
    counter.spot.inst == inst && counter.spot.position == position
}

//! The fixpoint over the whole program.
//!
//! For a procedure P let W be the registers and flags that P and its callees may write, and R those
//! that they may read. Then
//! - live before a call of P are: what is live at P's entry and in R or W; what is live after the
//!   call and not in W; and what the ABI makes P keep, since an exception may lead to a handler
//!   that reads it;
//! - live before a call of an unknown function are: what the ABI passes, and all that is live after the call, since the
//!   function may keep it;
//! - live before a return of P are: results by the ABI, callee-saved
//!   registers, and all that is live after any known call of P. If P may be called through a pointer or
//!   by another object, also what `expectations.rs` says. If code
//!   that is not understood may call P directly, everything is live;
//! - live before a jump through a pointer that was looked up are: every register, and the
//!   flags that are live at a possible target: at labels of P whose addresses are
//!   known, at labels of separate parts of procedures, and at entries of procedures.
//!
//! The sets only grow, so the order of work does not matter, and procedures are
//! solved in parallel. A procedure is solved again while a set that it reads has
//! grown. If that takes too long, everything counts as live, which is sound.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::AcqRel, Ordering::Relaxed};

use rayon::prelude::*;

use super::RegSet;
use super::convention::{before_go_pointer, before_keeping};
use super::ends::{Callee, End};
use super::expectations::{Expectations, NameId};
use super::graph::{BlockInfo, LiveGraph};
use super::span::Span;
use crate::cfg::{Cfg, ProcKind, Succ};
use crate::ids::{BlockId, ProcId};
use crate::parallel;

/// Number of visits of procedures at most, as a multiple of the number of procedures.
const VISITS_PER_PROC: usize = 300;

/// Number of blocks in a piece of parallel work.
const CHUNK: usize = 4096;

struct Solver<'a> {
    cfg: &'a Cfg,
    graph: &'a LiveGraph,
    /// By block: what is live at its start, as the bits of a [`RegSet`].
    live_in: Vec<AtomicU64>,
    /// By procedure: what is live after its known calls, as the bits of a [`RegSet`].
    ret_live: Vec<AtomicU64>,
    /// By name: what is live after calls of a function by this name, as the bits of a [`RegSet`].
    expected: Vec<AtomicU64>,
    /// True if what is live after calls through pointers has grown.
    expected_grew: AtomicBool,
    /// Flags that are live where jumps through pointers may lead, as the bits of a [`RegSet`].
    pointed: AtomicU64,
    /// True if `pointed` has grown.
    pointed_grew: AtomicBool,
    /// By procedure: its blocks that have to be visited again, because a set of another procedure
    /// that they read may have grown, as the bits of a [`Span`]. The bits are always exchanged, never
    /// just written, so that the thread that takes them sees all that grew before they were set.
    dirty: Vec<AtomicU64>,
}

/// What is live at the ends of all blocks.
#[derive(Default)]
pub struct Solution {
    /// Before the first instruction of each block.
    pub before: Vec<RegSet>,
    /// After the last instruction of each block.
    pub after: Vec<RegSet>,
    /// Blocks that end with a call before whose callee other registers are live than after the call;
    /// sorted.
    pub calls: Vec<BlockId>,
    /// By index into `calls`: what is live before the callee.
    pub across: Vec<RegSet>,
}

/// Finds what is live at both ends of each block, and what callers expect of functions that they do not know.
pub fn solve(cfg: &Cfg, graph: &LiveGraph) -> (Solution, Expectations) {
    let solver = Solver::new(cfg, graph);
    for (name, live) in graph.names.outside() {
        solver.grow_expected(*name, live.with_read());
    }
    let mut order = callees_first(graph);
    order.retain(|p| cfg.proc(*p).is_movable());
    let mut work = order.clone();
    let mut visits_left = VISITS_PER_PROC * cfg.procs.len().max(100);
    while !work.is_empty() {
        if work.len() > visits_left {
            return (Solution::everything(cfg), Expectations::default());
        }
        visits_left -= work.len();
        work.par_iter()
            .with_min_len(32)
            .for_each(|p| solver.visit(*p));
        work.clear();
        if solver.pointed_grew.swap(false, Relaxed) {
            for b in (0..cfg.blocks.len()).map(BlockId::from_index) {
                if graph.blocks[b.index()].end == End::Dispatch {
                    let p = cfg.block(b).proc;
                    solver.make_dirty(p, Span::one(b.0 - cfg.proc(p).first_block.0));
                }
            }
        }
        if solver.expected_grew.swap(false, Relaxed) {
            for p in &order {
                let all = Span::of(0..cfg.proc(*p).block_count);
                solver.make_dirty(*p, all);
            }
        }
        let dirty = |p: &ProcId| solver.dirty[p.index()].load(Relaxed) != 0;
        work.extend(order.iter().copied().filter(dirty));
    }
    let count = cfg.blocks.len();
    let lengths = (0..count)
        .step_by(CHUNK)
        .map(|first| CHUNK.min(count - first));
    let (after, carried) = parallel::in_pieces(
        RegSet::EMPTY,
        lengths,
        || (),
        |_, piece, places| {
            let mut carried = Vec::new();
            let mut is_solved = true;
            let mut proc = ProcId(u32::MAX);
            let mut tail = 0;
            for (i, place) in places.iter_mut().enumerate() {
                let b = BlockId::from_index(piece * CHUNK + i);
                if cfg.block(b).proc != proc {
                    proc = cfg.block(b).proc;
                    tail = solver.tails_from(proc, b);
                }
                let tails = &graph.procs[proc.index()].tails;
                while tails.get(tail).is_some_and(|t| t.0 < b) {
                    tail += 1;
                }
                let tails = &tails[tail..];
                let block = &graph.blocks[b.index()];
                let after = solver.after(proc, (b, block), tails);
                let across = solver.across(block, after);
                is_solved &= solver.agrees(b, tails, after, across);
                *place = after.without_notes();
                if across.without_notes() != *place {
                    carried.push((b, across.without_notes()));
                }
            }
            (carried, is_solved)
        },
    );
    let is_solved = carried.iter().all(|(_, is_solved)| *is_solved);
    debug_assert!(is_solved, "something was forgotten");
    if !is_solved {
        // Sound in any case.
        return (Solution::everything(cfg), Expectations::default());
    }
    let expected = solver
        .expected
        .iter()
        .map(|live| RegSet(live.load(Relaxed)).without_notes());
    let expected = graph.names.expectations(expected);
    // No set grows any more, so the sets at the starts agree with the sets at the ends.
    let live_in = solver.live_in.into_iter();
    let mut found = Solution {
        before: (live_in.map(|live| RegSet(live.into_inner()).without_notes())).collect(),
        after,
        ..Solution::default()
    };
    let count = carried.iter().map(|(some, _)| some.len()).sum();
    found.calls.reserve_exact(count);
    found.across.reserve_exact(count);
    for (b, across) in carried.into_iter().flat_map(|(some, _)| some) {
        found.calls.push(b);
        found.across.push(across);
    }
    (found, expected)
}

/// All procedures, callees before their callers except where calls form a circle.
fn callees_first(graph: &LiveGraph) -> Vec<ProcId> {
    let count = graph.procs.len();
    let mut order = Vec::with_capacity(count);
    let mut seen = vec![false; count];
    // Procedures that are begun, each with the number of its callees that are done.
    let mut open: Vec<(ProcId, usize)> = Vec::new();
    for root in (0..count).map(ProcId::from_index) {
        if std::mem::replace(&mut seen[root.index()], true) {
            continue;
        }
        open.push((root, 0));
        while let Some((p, next)) = open.last_mut() {
            match graph.procs[p.index()].callees.get(*next) {
                Some((callee, _)) => {
                    *next += 1;
                    if !std::mem::replace(&mut seen[callee.index()], true) {
                        open.push((*callee, 0));
                    }
                }
                None => {
                    order.push(*p);
                    open.pop();
                }
            }
        }
    }
    order
}

impl Solution {
    /// The solution in which everything is live everywhere.
    pub fn everything(cfg: &Cfg) -> Self {
        let all = vec![RegSet::ALL; cfg.blocks.len()];
        Self {
            before: all.clone(),
            after: all,
            ..Self::default()
        }
    }
}

impl<'a> Solver<'a> {
    fn new(cfg: &'a Cfg, graph: &'a LiveGraph) -> Self {
        Self {
            cfg,
            graph,
            live_in: (0..cfg.blocks.len())
                .into_par_iter()
                .map(|_| AtomicU64::new(0))
                .collect(),
            ret_live: (0..cfg.procs.len()).map(|_| AtomicU64::new(0)).collect(),
            expected: (0..graph.names.count())
                .map(|_| AtomicU64::new(0))
                .collect(),
            expected_grew: AtomicBool::new(false),
            pointed: AtomicU64::new(0),
            pointed_grew: AtomicBool::new(false),
            dirty: cfg
                .procs
                .iter()
                .map(|p| AtomicU64::new(Span::of(0..p.block_count).to_bits()))
                .collect(),
        }
    }

    fn block_in(&self, b: BlockId) -> RegSet {
        RegSet(self.live_in[b.index()].load(Relaxed))
    }

    fn at_return(&self, p: ProcId) -> RegSet {
        let known = RegSet(self.ret_live[p.index()].load(Relaxed));
        let info = &self.graph.procs[p.index()];
        if info.convention.is_compiled {
            return info.convention.at_return;
        }
        if info.has_unknown_callers {
            return RegSet::ALL | known;
        }
        let pointers = if info.is_open && !info.convention.is_go {
            // Without notes: what some function keeps says nothing of what this one calls.
            RegSet(self.expected[NameId::POINTER.index()].load(Relaxed)).without_notes()
        } else {
            RegSet::EMPTY
        };
        info.convention.at_return | known | pointers
    }

    /// Index in the procedure's tails of the first tail at or after a block.
    fn tails_from(&self, p: ProcId, b: BlockId) -> usize {
        self.graph.procs[p.index()]
            .tails
            .partition_point(|t| t.0 < b)
    }

    /// What is live after the last instruction of a block. `tails` starts with the block's own tails.
    #[inline(always)]
    fn after(
        &self,
        p: ProcId,
        (b, block): (BlockId, &BlockInfo),
        tails: &[(BlockId, Callee)],
    ) -> RegSet {
        match block.end {
            End::Return => return self.at_return(p),
            End::Unknown => return RegSet::ALL,
            End::Dispatch => {
                let mut flags = RegSet(self.pointed.load(Relaxed));
                for succ in self.cfg.succs(b) {
                    if let Succ::Branch(to) = succ {
                        flags |= self.block_in(*to);
                    }
                }
                flags |= self.at_return(p);
                return RegSet::ALL.without(RegSet::FLAGS) | (flags & RegSet::FLAGS);
            }
            End::Dead => return RegSet::EMPTY,
            End::JumpGo => return before_go_pointer(self.at_return(p)),
            End::TailCall => {
                return RegSet::POINTER_ARGUMENTS | RegSet::CALLEE_SAVED | self.at_return(p);
            }
            End::Import => return RegSet::ARGUMENTS | RegSet::CALLEE_SAVED | self.at_return(p),
            End::Plain
            | End::Call(_)
            | End::CallPointer
            | End::CallStrange
            | End::CallGo
            | End::CallKeeping => {}
        }
        let mut live = RegSet::EMPTY;
        for succ in self.cfg.succs(b) {
            if let Succ::Fall(next) | Succ::Branch(next) = succ {
                live |= self.block_in(*next);
            }
        }
        for (_, callee) in tails.iter().take_while(|t| t.0 == b) {
            live |= match *callee {
                Callee::Unknown => RegSet::ALL,
                Callee::Import(_) => RegSet::ARGUMENTS | RegSet::CALLEE_SAVED | self.at_return(p),
                Callee::Known(block, q) => {
                    let info = &self.graph.procs[q.index()];
                    let returns = self.at_return(p);
                    (self.block_in(block) & info.wanted(returns)) | returns.without(info.writes)
                }
            };
        }
        live
    }

    /// What is live before the callee of the call that ends a block, from what is live after the block.
    #[inline(always)]
    fn across(&self, block: &BlockInfo, after: RegSet) -> RegSet {
        match block.end {
            End::Call(Callee::Known(block, q)) => {
                let info = &self.graph.procs[q.index()];
                if info.convention.keeps_all {
                    return before_keeping(self.block_in(block), after);
                }
                (self.block_in(block) & info.wanted(after))
                    | after.without(info.writes)
                    | info.convention.at_call
            }
            End::Call(Callee::Import(name)) => {
                RegSet::ARGUMENTS | RegSet::CALLEE_SAVED | self.kept_by(name, after)
            }
            End::Call(Callee::Unknown) | End::CallStrange => RegSet::ALL,
            End::CallGo => before_go_pointer(after),
            End::CallPointer => {
                let kept = self.kept_by(NameId::POINTER, after);
                RegSet::POINTER_ARGUMENTS | RegSet::CALLEE_SAVED | kept
            }
            End::CallKeeping => RegSet::POINTER_ARGUMENTS | RegSet::CALLEE_SAVED | after,
            _ => after,
        }
    }

    /// True if a block's sets follow from the sets after it and callees know these sets, which means
    /// that nothing was forgotten when other sets grew. `tails` starts with the block's own tails.
    fn agrees(
        &self,
        b: BlockId,
        tails: &[(BlockId, Callee)],
        after: RegSet,
        across: RegSet,
    ) -> bool {
        let block = &self.graph.blocks[b.index()];
        let told = |q: ProcId, live: RegSet| {
            self.graph.procs[q.index()].convention.is_compiled
                || (live.without_notes().without(self.at_return(q))).is_empty()
        };
        let returns = self.at_return(self.cfg.block(b).proc);
        let tails_know = tails.iter().take_while(|t| t.0 == b).all(|t| match t.1 {
            Callee::Known(_, q) => told(q, returns),
            _ => true,
        });
        let callee_knows = match block.end {
            End::Call(Callee::Known(_, q)) => told(q, after),
            _ => true,
        };
        tails_know && callee_knows && block.effects.before(across) == self.block_in(b)
    }

    /// Adds what is live after a call of `q` to what is live at its returns. What one caller reads says nothing of the
    /// functions that `q` calls for another, so notes are left out.
    fn grow_after(&self, q: ProcId, live: RegSet) {
        self.grow_return(q, live.without_notes());
    }

    /// Adds `live` to what is live at the returns of `q`.
    fn grow_return(&self, q: ProcId, live: RegSet) {
        let old = RegSet(self.ret_live[q.index()].fetch_or(live.0, Relaxed));
        // Some registers are live there in any case.
        let known = old | self.graph.procs[q.index()].convention.at_return;
        let info = &self.graph.procs[q.index()];
        if !info.convention.is_compiled && !live.without(known).is_empty() {
            self.make_dirty(q, self.graph.procs[q.index()].returns);
        }
    }

    /// The name of the unknown function that a block calls or jumps to; `None` if there is none of which the code after it
    /// tells what it keeps and returns.
    fn unknown_callee(end: End) -> Option<NameId> {
        match end {
            End::Call(Callee::Import(name)) => Some(name),
            End::CallPointer | End::CallStrange | End::TailCall | End::Dispatch => {
                Some(NameId::POINTER)
            }
            // The callee of a TLS descriptor keeps all registers, which says nothing of other functions.
            _ => None,
        }
    }

    /// What an unknown function may keep of what is live after its call.
    #[inline(always)]
    fn kept_by(&self, name: NameId, after: RegSet) -> RegSet {
        match () {
            () if self.graph.names.never_returns(name) => RegSet::EMPTY,
            // It has a convention of its own, so it may also keep what its caller passes on to others.
            () if self.expected[name.index()].load(Relaxed) != 0 => after,
            () => after.noted(),
        }
    }

    /// Adds `live` to what is live after calls of a function with this name.
    fn grow_expected(&self, name: NameId, live: RegSet) {
        let live = live.noted();
        if live.is_empty() || self.graph.names.never_returns(name) {
            return;
        }
        let old = self.expected[name.index()].fetch_or(live.0, Relaxed);
        if live.0 & !old == 0 {
            return;
        }
        // The calls have to be visited again when the first register becomes known.
        if name == NameId::POINTER || old == 0 {
            self.expected_grew.store(true, Relaxed);
        }
        for p in self.graph.names.procs(name) {
            self.grow_return(*p, live);
        }
    }

    /// Adds the flags in `live` to the flags that are live at unknown targets, if this block can be such a target.
    fn grow_pointed(&self, b: BlockId, live: RegSet) {
        let flags = live & RegSet::FLAGS;
        if self.cfg.block(b).is_indirect_target && flags != RegSet::EMPTY {
            let old = self.pointed.fetch_or(flags.0, Relaxed);
            if flags.0 & !old != 0 {
                self.pointed_grew.store(true, Relaxed);
            }
        }
    }

    /// Notes that a set which these blocks of a procedure read has grown.
    fn make_dirty(&self, p: ProcId, blocks: Span) {
        let grown = |old| Some(Span::from_bits(old).with(blocks).to_bits());
        let _ = self.dirty[p.index()].fetch_update(AcqRel, Relaxed, grown);
    }

    /// Solves the dirty blocks of one procedure, given the present sets of the others.
    fn visit(&self, p: ProcId) {
        let dirty = self.dirty[p.index()].swap(0, AcqRel);
        let proc = self.cfg.proc(p);
        let info = &self.graph.procs[p.index()];
        let mut entry_grew = false;
        // Blocks by their numbers in the procedure.
        let first = proc.first_block.index();
        let blocks = &self.graph.blocks[first..first + proc.block_count as usize];
        let mut rest = Span::from_bits(dirty).blocks();
        while !rest.is_empty() {
            // The next round visits only blocks from which control comes back to a block that has grown.
            let mut again = Span::default();
            let mut tail = info.tails.len();
            let Range { mut start, end } = rest;
            let mut number = end;
            while number > start {
                number -= 1;
                let b = BlockId(proc.first_block.0 + number);
                while tail > 0 && info.tails[tail - 1].0 >= b {
                    tail -= 1;
                }
                let block = &blocks[number as usize];
                let after = self.after(p, (b, block), &info.tails[tail..]);
                if let End::Call(Callee::Known(_, q)) = block.end {
                    self.grow_after(q, after);
                } else if let Some(name) = Self::unknown_callee(block.end) {
                    let falls_out = info.tails.get(tail).is_some_and(|t| t.0 == b);
                    match block.end {
                        End::TailCall | End::Dispatch => {
                            self.grow_expected(name, self.at_return(p));
                        }
                        // The next procedure is there, so the callee does not return.
                        _ if falls_out => {}
                        _ => self.grow_expected(name, after),
                    }
                }
                let live = block.effects.before(self.across(block, after));
                let cell = &self.live_in[b.index()];
                let old = cell.load(Relaxed);
                if live.0 & !old != 0 {
                    cell.store(live.0 | old, Relaxed);
                    // Predecessors before this block are visited in this round, others in the next.
                    start = start.min(block.comes_from_before(number));
                    again = again.with(block.comes_again(number, proc.block_count));
                    // Callers read only what the procedure may read or write.
                    let grown = RegSet(live.0 & !old);
                    let seen = grown.intersects(info.reads | info.writes);
                    entry_grew |= seen && self.graph.is_target(b);
                    if b == proc.first_block || matches!(proc.kind, ProcKind::Fragment(_)) {
                        // Registers outside of `reads` are live only for callers that know the
                        // procedure, and no value is carried in flags over a call.
                        let read = match block.end {
                            End::Plain => live & info.reads,
                            _ => block.effects.uses(),
                        };
                        self.grow_pointed(b, read);
                    }
                }
            }
            rest = again.blocks();
        }
        let returns = self.at_return(p);
        for (_, callee) in &info.tails {
            match *callee {
                Callee::Known(_, q) => self.grow_after(q, returns),
                Callee::Import(name) => self.grow_expected(name, returns),
                Callee::Unknown => {}
            }
        }
        if entry_grew {
            for &(caller, blocks) in self.graph.callers(p) {
                self.make_dirty(caller, blocks);
            }
        }
    }
}

//! Entries whose test the light version leaves out.
//!
//! A program that runs in the light version must meet a test soon, not at each call. A procedure without loops ends after
//! a known number of instructions, and one with loops meets the tests of their headers. So an entry needs its test
//! only where calls form a cycle, or where too many instructions would run between two tests. Calls whose target is not known come by
//! a pad, and so through the full version, whose entries all have tests.

use rayon::prelude::*;

use crate::cfg::{Cfg, Succ};
use crate::ids::{BlockId, InstId, ProcId};
use crate::image::Image;
use crate::tool::crossings::{State, entry};
use crate::x86::ControlFlow;

/// Largest number of instructions of a procedure from its start to its end, with the untested procedures that it calls.
const LONGEST: u32 = 10_000;
/// Largest such number of a procedure whose entry has no test.
const LEFT_OUT: u32 = 2_500;
/// Largest such number of a procedure that has no test although a procedure longer than [`LONGEST`] calls it.
const SHORT: u32 = 50;

/// A direct call or jump to another procedure.
#[derive(Clone, Copy)]
struct Edge {
    to: ProcId,
    /// It leads to the start, where the test would be.
    to_start: bool,
}

/// For each procedure, whether the light version has no test at its entry.
pub(in crate::plan) fn left_out(image: &Image, cfg: &Cfg) -> Vec<bool> {
    let procs = (0..cfg.procs.len()).into_par_iter().map(ProcId::from_index);
    let edges: Vec<Vec<Edge>> = procs.map(|p| edges(image, cfg, p)).collect();
    let mut search = Search {
        cfg,
        edges: &edges,
        state: vec![State::New; edges.len()],
        has_test: vec![false; edges.len()],
        length: vec![0; edges.len()],
    };
    for p in (0..edges.len()).map(ProcId::from_index) {
        search.from(p);
    }
    search.has_test.iter().map(|has_test| !has_test).collect()
}

/// The direct calls and jumps out of a procedure, each as often as it is there.
fn edges(image: &Image, cfg: &Cfg, p: ProcId) -> Vec<Edge> {
    let edge = |pc: u64| {
        let to = cfg.proc_at(pc)?;
        let to_start = cfg.proc(to).start == pc;
        Some(Edge { to, to_start })
    };
    let of_block = |b: BlockId| {
        let last: InstId = cfg.block(b).last();
        let is_call = cfg.inst(last).flow == ControlFlow::Call;
        let call = is_call.then(|| cfg.direct_target(image, last)).flatten();
        let tails = cfg.succs(b).iter().filter_map(|succ| match succ {
            Succ::Tail(to) => Some(to.get()),
            Succ::Fall(_) | Succ::Branch(_) | Succ::Unknown => None,
        });
        call.into_iter().chain(tails).filter_map(edge)
    };
    cfg.proc(p).blocks().flat_map(of_block).collect()
}

/// A search in depth, which comes to each procedure after those that it calls, but for cycles.
struct Search<'a> {
    cfg: &'a Cfg,
    edges: &'a [Vec<Edge>],
    state: Vec<State>,
    has_test: Vec<bool>,
    /// Number of instructions from a procedure's start to its end, at most.
    length: Vec<u32>,
}

impl Search<'_> {
    fn from(&mut self, first: ProcId) {
        if self.state[first.index()] != State::New {
            return;
        }
        self.state[first.index()] = State::Open;
        let mut path = vec![(first, 0)];
        while let Some(&mut (p, ref mut next)) = path.last_mut() {
            let Some(&edge) = self.edges[p.index()].get(*next) else {
                self.finish(p);
                path.pop();
                continue;
            };
            *next += 1;
            match self.state[edge.to.index()] {
                State::New => {
                    self.state[edge.to.index()] = State::Open;
                    path.push((edge.to, 0));
                }
                State::Open if edge.to_start && self.may_have_test(edge.to) => {
                    self.has_test[edge.to.index()] = true;
                }
                // No test is where the cycle closes, so all on the cycle keep theirs.
                State::Open => {
                    let start = path.iter().position(|(p, _)| *p == edge.to);
                    for (p, _) in &path[start.unwrap_or_default()..] {
                        self.has_test[p.index()] = self.may_have_test(*p);
                    }
                }
                State::Done => {}
            }
        }
    }

    /// Decides about a procedure once all is known about those that it calls.
    fn finish(&mut self, p: ProcId) {
        self.state[p.index()] = State::Done;
        let blocks = self.cfg.proc(p).blocks();
        let own = blocks.fold(0, |sum: u32, b| sum.saturating_add(self.cfg.block(b).count));
        let mut length = self.with_calls(p, own);
        if length > LONGEST {
            for edge in &self.edges[p.index()] {
                let to = edge.to.index();
                self.has_test[to] |= self.may_have_test(edge.to) && self.length[to] > SHORT;
            }
            length = self.with_calls(p, own);
        }
        self.length[p.index()] = length;
        self.has_test[p.index()] |= length > LEFT_OUT && self.may_have_test(p);
    }

    fn with_calls(&self, p: ProcId, own: u32) -> u32 {
        let calls = self.edges[p.index()].iter();
        let untested = calls.filter(|edge| !(edge.to_start && self.has_test[edge.to.index()]));
        untested.fold(own, |sum, edge| {
            sum.saturating_add(self.length[edge.to.index()])
        })
    }

    fn may_have_test(&self, p: ProcId) -> bool {
        entry(self.cfg, p).is_some()
    }
}

//! From seeds to all procedures: follows control, collects code pointers, and
//! repeats both until nothing new is found.

use rustc_hash::{FxHashMap, FxHashSet};

use rayon::prelude::*;

use super::data_refs::DataRefs;
use super::jump_table::{self, Surroundings};
use super::seeds::{self, FrameFacts, Seed};
use super::traverse::{Body, Ref, mark};
use super::{Cfg, Kept, Starts, pointers};
use crate::error::Result;
use crate::image::Image;
use crate::parallel::AT_ONCE;

/// Number of rounds of discovery at most; real programs need about five.
const MAX_ROUNDS: usize = 40;

/// Number of rounds at most in programs with info tables, where each piece of code names the piece
/// that the program goes on with after a call.
const MAX_ROUNDS_OF_PIECES: usize = 1000;

/// Size in bytes from which on a procedure without a known end may be several procedures.
const LARGE: usize = 4096;

/// Numbers of entries taken of tables of unknown size, step by step: the code to which they
/// lead may tell where the next table starts.
/// If a step were too long, entries of the next table would be taken for entries of this one
/// and lead into the middle of instructions.
const UNBOUNDED_LIMITS: [usize; 14] = [2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32, 64, 128, usize::MAX];

pub(super) struct Discovery<'a> {
    pub(super) image: &'a Image,
    pub(super) regions: Vec<(u64, u64)>,
    pub(super) seeds: Vec<Seed>,
    pub(super) bodies: Vec<Body>,
    /// By body: number of its refs that have been processed.
    pub(super) seen_refs: Vec<usize>,
    /// Code addresses found in data or relocations that are not processed yet, each with true if it
    /// is certainly an address.
    data_pointers: Vec<(u64, bool)>,
    /// Addresses of code that lie in data, relocations or operands.
    pub(super) pointers: FxHashSet<u64>,
    /// Data addresses that code refers to.
    pub(super) data_refs: DataRefs,
    /// Index to find bodies by address.
    index: Starts,
    /// True if code stands behind info tables, see [`pointers::has_info_table`].
    pub(super) has_info_tables: bool,
}

/// Addresses to which references lead.
#[derive(Default)]
struct NewRefs {
    /// Targets of calls and jumps.
    entries: Vec<u64>,
    /// Code whose address is taken.
    pointers: Vec<u64>,
    /// Data.
    data: Vec<u64>,
}

impl NewRefs {
    /// Number of targets of control.
    fn targets(&self) -> usize {
        self.entries.len() + self.pointers.len()
    }
}

impl Cfg {
    /// Builds the graph of a program.
    pub fn build(image: &Image, frames: &FrameFacts) -> Result<Self> {
        Self::build_keeping(image, frames, &Kept::new())
    }

    /// Builds the graph of a program; the procedures in `kept` stay in place and are not instrumented.
    pub fn build_keeping(image: &Image, frames: &FrameFacts, kept: &Kept) -> Result<Self> {
        let mut discovery = Discovery::start(image, frames);
        discovery.run(frames);
        Ok(discovery.finish(frames, kept))
    }
}

impl<'a> Discovery<'a> {
    fn start(image: &'a Image, frames: &FrameFacts) -> Self {
        let (seeds, (data_pointers, has_info_tables)) = rayon::join(
            || seeds::collect(image, frames),
            || {
                let pointers = pointers::data_pointers(image);
                let has_info_tables = pointers::has_info_tables(image, &pointers);
                (pointers, has_info_tables)
            },
        );
        let mut discovery = Self {
            image,
            regions: seeds::code_regions(image),
            seeds,
            bodies: Vec::new(),
            seen_refs: Vec::new(),
            data_pointers,
            pointers: FxHashSet::default(),
            data_refs: DataRefs::new(image),
            index: Starts::default(),
            has_info_tables,
        };
        discovery.seeds.retain({
            let regions = discovery.regions.clone();
            move |s| region_end(&regions, s.start).is_some()
        });
        let bodies = (0..discovery.seeds.len())
            .map(|i| discovery.empty_body(i))
            .collect();
        discovery.bodies = bodies;
        let bodies = discovery.bodies.par_iter_mut().with_max_len(AT_ONCE);
        bodies.for_each(|b| {
            b.explore(image, b.start);
            b.finish();
        });
        discovery.split_open_ended();
        discovery.seen_refs = vec![0; discovery.seeds.len()];
        discovery.index_bodies();
        discovery
    }

    /// Splits procedures whose end is not known (in stripped static programs without unwind tables), which
    /// would contain the next procedures too. Each target of a call starts a procedure.
    fn split_open_ended(&mut self) {
        let image = self.image;
        let mut open: FxHashSet<u64> = FxHashSet::default();
        loop {
            open.extend(
                self.seeds
                    .iter()
                    .zip(&self.bodies)
                    .filter(|(seed, body)| seed.end.is_none() && body.marks.len() >= LARGE)
                    .map(|(seed, _)| seed.start),
            );
            let mut starts: Vec<u64> = self
                .bodies
                .iter()
                .filter(|b| open.contains(&b.start))
                .flat_map(|b| b.local_calls.iter().copied())
                .collect();
            if starts.is_empty() {
                break;
            }
            starts.sort_unstable();
            starts.dedup();
            open.extend(&starts);
            self.seeds.extend(starts.into_iter().map(Seed::bare));
            self.seeds.sort_by_key(|s| s.start);
            let mut old: FxHashMap<u64, Body> =
                self.bodies.drain(..).map(|b| (b.start, b)).collect();
            let kept: Vec<Option<Body>> = (0..self.seeds.len())
                .map(|i| {
                    let end = self.region_of(&self.seeds, i);
                    old.remove(&self.seeds[i].start).filter(|b| b.end == end)
                })
                .collect();
            let this = &*self;
            self.bodies = kept
                .into_par_iter()
                .enumerate()
                .map(|(i, body)| {
                    body.unwrap_or_else(|| {
                        let mut body = this.empty_body(i);
                        body.explore(image, body.start);
                        body.finish();
                        body
                    })
                })
                .collect();
        }
        for body in self.bodies.iter_mut().filter(|b| open.contains(&b.start)) {
            body.end_at_code();
        }
    }

    /// An empty body over the range that seed `i` may cover: up to its stated end, the next seed
    /// or the end of its section.
    pub(super) fn empty_body(&self, i: usize) -> Body {
        Body::new(self.seeds[i].start, self.region_of(&self.seeds, i))
    }

    /// End of the range that seed `i` may cover.
    pub(super) fn region_of(&self, seeds: &[Seed], i: usize) -> u64 {
        let seed = &seeds[i];
        let region = region_end(&self.regions, seed.start).expect("seeds lie in regions");
        let next = seeds.get(i + 1).map_or(u64::MAX, |s| s.start);
        seed.end.unwrap_or(u64::MAX).min(next).min(region)
    }

    pub(super) fn body_at(&self, address: u64) -> Option<usize> {
        let offset = u32::try_from(address.checked_sub(self.image.base)?);
        let after = match offset {
            Ok(offset) if self.index.covers(self.bodies.len()) => self.index.up_to(offset),
            _ => self.bodies.partition_point(|b| b.start <= address),
        };
        let i = after.checked_sub(1)?;
        self.bodies[i].contains(address).then_some(i)
    }

    /// Makes the index of bodies. Call it when bodies were added.
    pub(super) fn index_bodies(&mut self) {
        let starts = self.bodies.iter().map(|b| b.start);
        self.index = Starts::of(self.image.base, starts);
    }

    fn run(&mut self, frames: &FrameFacts) {
        let mut pending: Vec<(u64, u8)> = frames
            .landing_pads
            .iter()
            .map(|(_, pad)| (*pad, mark::LANDING))
            .collect();
        for function in &frames.go {
            pending.extend(function.resumed.map(|a| (a, mark::LANDING)));
            pending.extend(function.pointers().map(|a| (a, mark::INDIRECT)));
        }
        let mut pointers = std::mem::take(&mut self.data_pointers);
        if let Some(end) = &frames.go_end {
            pointers.retain(|(address, _)| !end.contains(address));
        }
        if self.has_info_tables {
            for (address, certain) in &mut pointers {
                *certain |= pointers::has_info_table(self.image, *address);
            }
        }
        self.pointers
            .extend(pointers.iter().map(|(address, _)| *address));
        // A lone word may be any number: it counts only where code is known.
        let (certain, doubtful): (Vec<_>, Vec<_>) =
            pointers.into_iter().partition(|(_, certain)| *certain);
        pending.extend(certain.iter().map(|(a, _)| (*a, mark::INDIRECT)));
        // Certain pointers first, since a wrong target would hide right ones.
        self.settle(pending, 0);
        self.settle_traps(0);
        for limit in UNBOUNDED_LIMITS {
            self.settle(Vec::new(), limit);
        }
        let doubtful = doubtful.into_iter().filter(|(address, _)| {
            self.body_at(*address)
                .is_some_and(|i| self.bodies[i].mark_at(*address) & mark::START != 0)
        });
        let doubtful = doubtful.map(|(a, _)| (a, mark::INDIRECT)).collect();
        self.settle(doubtful, usize::MAX);
        self.settle_traps(usize::MAX);
    }

    /// Follows control behind traps until nothing new is found.
    fn settle_traps(&mut self, unbounded_limit: usize) {
        for _ in 0..MAX_ROUNDS {
            if !self.follow_traps() {
                break;
            }
            self.settle(Vec::new(), unbounded_limit);
        }
    }

    /// Follows control from new targets until nothing new is found.
    fn settle(&mut self, mut pending: Vec<(u64, u8)>, unbounded_limit: usize) {
        let rounds = if self.has_info_tables {
            MAX_ROUNDS_OF_PIECES
        } else {
            MAX_ROUNDS
        };
        for _ in 0..rounds {
            pending.extend(self.new_refs());
            pending.extend(self.find_open_tables(unbounded_limit));
            let fresh = self.apply(std::mem::take(&mut pending));
            if !fresh {
                break;
            }
        }
    }

    /// Targets of references that have not been processed yet, with [`mark`] bits.
    fn new_refs(&mut self) -> Vec<(u64, u8)> {
        let (image, regions) = (self.image, &self.regions);
        let of_bodies = |(bodies, seen): (&[Body], &mut [usize])| {
            let mut found = NewRefs::default();
            for (body, seen) in bodies.iter().zip(seen) {
                for r in &body.refs[*seen..] {
                    match *r {
                        Ref::Call(t) | Ref::Jump(t) | Ref::CondJump(t) => found.entries.push(t),
                        Ref::Address(t) if image.is_code(t) => {
                            found.pointers.push(t);
                            // Data may lie in the segment of the code, in sections of its own.
                            if region_end(regions, t).is_none() {
                                found.data.push(t);
                            }
                        }
                        Ref::Address(t) | Ref::Memory(t) => found.data.push(t),
                    }
                }
                *seen = body.refs.len();
            }
            found
        };
        let bodies = self.bodies.par_chunks(AT_ONCE);
        let all = bodies.zip(self.seen_refs.par_chunks_mut(AT_ONCE));
        let found: Vec<NewRefs> = all.map(of_bodies).collect();
        let mut targets = Vec::with_capacity(found.iter().map(NewRefs::targets).sum());
        for found in found {
            targets.extend(found.entries.iter().map(|t| (*t, mark::ENTRY)));
            targets.extend(found.pointers.iter().map(|t| (*t, mark::INDIRECT)));
            self.pointers.extend(found.pointers);
            found.data.iter().for_each(|t| self.data_refs.insert(*t));
        }
        targets
    }

    /// Targets of tables that may not have been followed yet.
    fn find_open_tables(&mut self, unbounded_limit: usize) -> Vec<(u64, u8)> {
        let found = self.tables_of(unbounded_limit, |body| !body.tables_are_settled);
        // Most targets are known from the round before, whose limit was lower.
        let new_of = |(i, tables): (usize, jump_table::Tables)| {
            let is_new = |&target: &u64| {
                let owner = match self.bodies[i].contains(target) {
                    true => Some(i),
                    false => self.body_at(target),
                };
                owner.is_none_or(|i| !self.bodies[i].is_leader_with(target, mark::INDIRECT))
            };
            let all = tables.found.into_iter().flat_map(|table| table.targets);
            (i, all.filter(is_new).collect(), tables.are_complete)
        };
        let found: Vec<(usize, Vec<u64>, bool)> = found.into_par_iter().map(new_of).collect();
        let mut targets = Vec::new();
        for (i, new, are_complete) in found {
            targets.extend(new.iter().map(|t| (*t, mark::INDIRECT)));
            self.bodies[i].tables_are_settled = are_complete && new.is_empty();
        }
        targets
    }

    /// The jump tables of all procedures.
    pub(super) fn find_tables(&self, unbounded_limit: usize) -> Vec<jump_table::FoundTable> {
        let found = self.tables_of(unbounded_limit, |_| true);
        found.into_iter().flat_map(|(_, t)| t.found).collect()
    }

    /// The jump tables of the procedures that `wanted` accepts, each with the number of its procedure.
    fn tables_of(
        &self,
        unbounded_limit: usize,
        wanted: impl Fn(&Body) -> bool + Sync,
    ) -> Vec<(usize, jump_table::Tables)> {
        let other_part = |body: &Body, address: u64, certain: bool| {
            let is_fragment = |i: usize| self.seeds[i].looks_like_fragment;
            let Some(i) = self.body_at(address) else {
                return false;
            };
            let other = &self.bodies[i];
            let own = self.body_at(body.start);
            other.mark_at(address) & mark::START != 0
                || (certain || is_fragment(i) || own.is_some_and(is_fragment))
                    && jump_table::is_plausible(self.image, other, address)
        };
        let around = Surroundings {
            data_refs: &self.data_refs,
            other_part: &other_part,
            unbounded_limit,
        };
        self.bodies
            .par_iter()
            .with_max_len(AT_ONCE)
            .enumerate()
            .filter(|(_, b)| !b.indirect_jumps.is_empty() && wanted(b))
            .map(|(i, b)| (i, jump_table::find(self.image, b, &around)))
            .collect()
    }
}

pub(super) fn region_end(regions: &[(u64, u64)], address: u64) -> Option<u64> {
    let i = regions.partition_point(|r| r.0 <= address).checked_sub(1)?;
    (address < regions[i].1).then_some(regions[i].1)
}

//! From seeds to all procedures: follows control, collects code pointers, and
//! repeats both until nothing new is found.

use std::collections::BTreeSet;

use rustc_hash::{FxHashMap, FxHashSet};

use rayon::prelude::*;

use super::addresses::Addresses;
use super::discovery::{Discovery, News, where_true};
use super::regions::{code_regions, region_end};
use super::seeds::{self, FrameFacts, Seed};
use super::text_data::TextData;
use super::traverse::{Body, Ref, mark};
use super::{Starts, pointers};
use crate::image::imports::Imports;
use crate::image::{Image, ImageDecoder};
use crate::parallel::AT_ONCE;
use crate::x86::Instruction;
use crate::x86::jump_table::is_address;

/// Number of rounds of discovery at most; real programs need about five.
const MAX_ROUNDS: usize = 40;

/// Number of rounds at most in programs with info tables, where each piece of code names the piece
/// that the program continues with after a call.
const MAX_ROUNDS_OF_PIECES: usize = 1000;

/// Size in bytes from which on a procedure without a known end may be several procedures.
const LARGE: usize = 4096;

/// Number of bytes between the end of one procedure and the start of the next at most, where compilers align procedures.
const MOST_PADDING: usize = 16;

/// Numbers of entries taken of tables of unknown size, step by step: the code to which they
/// lead may tell where the next table starts.
/// If a step were too long, entries of the next table would be taken for entries of this one
/// and lead into the middle of instructions.
const UNBOUNDED_LIMITS: [usize; 14] = [2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32, 64, 128, usize::MAX];

/// Addresses to which references lead.
#[derive(Default)]
struct NewRefs {
    /// Targets of calls and jumps.
    entries: Vec<u64>,
    /// Code whose address is taken.
    pointers: Vec<u64>,
    /// Code to which control certainly goes by its address.
    code: Vec<u64>,
    /// Data.
    data: Vec<u64>,
    /// Code or data in the segment of the code that is read; true for an operand without index.
    read: Vec<(u64, bool)>,
}

impl NewRefs {
    /// Number of targets of control.
    fn targets(&self) -> usize {
        self.entries.len() + self.pointers.len() + self.code.len()
    }
}

impl<'a> Discovery<'a> {
    /// Finds all code.
    pub(super) fn complete(image: &'a Image, frames: &FrameFacts) -> Self {
        let mut read = BTreeSet::new();
        for is_last in [false, false, true] {
            let mut discovery = Self::start(image, frames, read.clone());
            discovery.run(frames);
            if is_last || !discovery.has_followed_data(&read) {
                discovery.settle_doubtful();
                return discovery;
            }
            // Data was taken for code, which may have led anywhere.
            read = discovery.data.into_read();
        }
        unreachable!("the last round returns")
    }

    /// Finds the seeds and follows control from each. Bytes at the addresses in `read` are known to be data.
    fn start(image: &'a Image, frames: &FrameFacts, read: BTreeSet<u64>) -> Self {
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
            regions: code_regions(image),
            seeds: seeds.into_iter().map(Box::new).collect(),
            bodies: Vec::new(),
            news: News::default(),
            data_pointers,
            stored: Vec::new(),
            pointers: Addresses::new(image),
            data_refs: Addresses::new(image),
            guessed_refs: Addresses::new(image),
            index: Starts::default(),
            imports: Imports::new(image),
            has_info_tables,
            data: TextData::default(),
            doubtful: Vec::new(),
            lone: Vec::new(),
            tested: FxHashMap::default(),
            bodies_at_last_proof: 0,
            ambiguous: FxHashMap::default(),
            uncounted: FxHashMap::default(),
        };
        discovery.data = TextData::new(image, &discovery.seeds, read);
        discovery.seeds.retain({
            let regions = discovery.regions.clone();
            move |s| region_end(&regions, s.start).is_some()
        });
        let bodies = (0..discovery.seeds.len())
            .map(|i| Box::new(discovery.empty_body(i)))
            .collect();
        discovery.bodies = bodies;
        let bodies = discovery.bodies.par_iter_mut().with_max_len(AT_ONCE);
        bodies.for_each(|b| {
            b.explore(image, b.start);
            b.finish();
        });
        discovery.split_open_ended();
        discovery.news = News::all(discovery.seeds.len());
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
            let new = starts.into_iter().map(Seed::bare);
            self.seeds.extend(new.map(Box::new));
            self.seeds.sort_by_key(|s| s.start);
            let mut old: FxHashMap<u64, Box<Body>> =
                self.bodies.drain(..).map(|b| (b.start, b)).collect();
            let kept: Vec<Option<Box<Body>>> = (0..self.seeds.len())
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
                        Box::new(body)
                    })
                })
                .collect();
        }
        for body in self.bodies.iter_mut().filter(|b| open.contains(&b.start)) {
            body.end_at_code();
        }
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
        for (address, _) in &pointers {
            self.pointers.insert(*address);
        }
        // A lone word may be any number: it counts only where code is known.
        let (certain, doubtful): (Vec<_>, Vec<_>) =
            pointers.into_iter().partition(|(_, certain)| *certain);
        self.stored = certain.iter().map(|(a, _)| *a).collect();
        let bits = mark::INDIRECT | mark::DOUBTFUL;
        pending.extend(certain.iter().map(|(a, _)| (*a, bits)));
        // Certain pointers first, since a wrong target would hide right ones.
        self.settle(pending, 0);
        self.settle_traps(0);
        self.guess_refs();
        for limit in UNBOUNDED_LIMITS {
            self.settle(Vec::new(), limit);
        }
        if !self.guessed_refs.is_empty() {
            // A wrong guess has perhaps cut a table short.
            self.guessed_refs = Addresses::new(self.image);
            self.forget_open_tables();
            self.settle(Vec::new(), usize::MAX);
        }
        let is_known = |address: &u64| {
            let known = self.body_at(*address);
            known.is_some_and(|i| self.bodies[i].mark_at(*address) & mark::START != 0)
        };
        let words = doubtful.into_iter().map(|(address, _)| address);
        let (known, lone): (Vec<u64>, Vec<u64>) = words.partition(is_known);
        let known = known.into_iter().map(|address| (address, mark::INDIRECT));
        self.settle(known.collect(), usize::MAX);
        self.lone = lone;
        self.settle_traps(usize::MAX);
    }

    /// Guesses the data addresses to which the code refers that control reaches only through tables whose sizes are not
    /// known: decodes all bytes of the procedures with such tables, and of those with bytes that were not reached, one
    /// instruction after the other. A table of one part of a procedure may lead to a part that is elsewhere.
    fn guess_refs(&mut self) {
        let image = self.image;
        if !self.bodies.par_iter().any(|body| body.has_open_tables()) {
            return;
        }
        let bodies = self.bodies.par_iter().with_max_len(AT_ONCE);
        let open = bodies.filter(|b| b.has_open_tables() || b.not_reached() > MOST_PADDING);
        let found: Vec<u64> = open.flat_map_iter(|b| addresses_in(image, b)).collect();
        for address in found {
            self.guessed_refs.insert(address);
        }
    }

    /// Follows control after traps until nothing new is found.
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
                pending = self.newly_proven();
                if pending.is_empty() {
                    break;
                }
            }
        }
    }

    /// Targets of references that have not been processed yet, with [`mark`] bits.
    pub(super) fn new_refs(&mut self) -> Vec<(u64, u8)> {
        let (image, regions) = (self.image, &self.regions);
        let new = where_true(&self.news.refs);
        let of_bodies = |numbers: &[usize]| {
            let mut found = NewRefs::default();
            for &i in numbers {
                let (body, is_doubtful) = (&self.bodies[i], self.seeds[i].is_doubtful);
                for r in &body.refs[body.seen_refs..] {
                    match *r {
                        Ref::Call(t) | Ref::Jump(t) | Ref::CondJump(t) => found.entries.push(t),
                        Ref::Code(t) if !is_doubtful && region_end(regions, t).is_some() => {
                            found.code.push(t);
                        }
                        Ref::Address(t) | Ref::Code(t) if image.is_code(t) => {
                            found.pointers.push(t);
                            // Data may be in the segment of the code, in sections of its own.
                            if region_end(regions, t).is_none() {
                                found.data.push(t);
                            }
                        }
                        Ref::Address(t) | Ref::Code(t) => found.data.push(t),
                        Ref::Table(t) | Ref::Memory(t) => {
                            found.data.push(t);
                            if !is_doubtful && image.is_code(t) {
                                found.read.push((t, matches!(r, Ref::Memory(_))));
                            }
                        }
                    }
                }
            }
            found
        };
        let found: Vec<NewRefs> = new.par_chunks(AT_ONCE).map(of_bodies).collect();
        for i in new {
            self.news.refs[i] = false;
            self.bodies[i].seen_refs = self.bodies[i].refs.len();
        }
        let mut targets = Vec::with_capacity(found.iter().map(NewRefs::targets).sum());
        for found in found {
            targets.extend(found.entries.iter().map(|t| (*t, mark::ENTRY)));
            let bits = mark::INDIRECT | mark::DOUBTFUL;
            targets.extend(found.pointers.iter().map(|t| (*t, bits)));
            let bits = mark::INDIRECT | mark::CERTAIN;
            targets.extend(found.code.iter().map(|t| (*t, bits)));
            for pointer in found.pointers.into_iter().chain(found.code) {
                self.pointers.insert(pointer);
            }
            for address in found.data {
                self.data_refs.insert(address);
            }
            for (t, is_exact) in found.read {
                self.note_read(t, is_exact);
            }
        }
        targets
    }
}

/// The addresses that instructions between the first and the last byte of a body compute.
fn addresses_in(image: &Image, body: &Body) -> Vec<u64> {
    let mut decoder = ImageDecoder::new(image);
    let mut instruction = Instruction::default();
    let mut found = Vec::new();
    let mut pc = body.start;
    while pc < body.end {
        if !decoder.decode_into(pc, &mut instruction) {
            pc += 1;
            continue;
        }
        if is_address(&instruction) {
            found.push(instruction.memory_displacement64());
        }
        pc = instruction.next_ip();
    }
    found
}

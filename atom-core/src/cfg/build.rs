//! From seeds to the finished graph: follow control, collect code pointers,
//! repeat until nothing new is found, then lay everything out flat.

use std::collections::HashSet;

use object::elf;
use rayon::prelude::*;

use super::jump_table::{self, JumpForm, Surroundings};
use super::seeds::{self, FrameFacts, Seed};
use super::traverse::{Body, Ref, mark};
use super::{Block, Cfg, JumpTable, Proc, ProcKind, Status, Succ};
use crate::decode::{Flow, Inst, decode_at, direct_target};
use crate::error::Result;
use crate::ids::{BlockId, InstId, ProcId};
use crate::image::Image;

/// Rounds of discovery; real programs need about five.
const MAX_ROUNDS: usize = 40;

/// Entries taken of tables of unknown size, step by step: the code that they
/// lead to may tell where the next table starts.
const UNBOUNDED_LIMITS: [usize; 4] = [2, 16, 128, usize::MAX];

struct Discovery<'a> {
    image: &'a Image,
    regions: Vec<(u64, u64)>,
    seeds: Vec<Seed>,
    bodies: Vec<Body>,
    /// For each body, how many of its refs have been looked at.
    seen_refs: Vec<usize>,
    /// Addresses of code that lie in data, relocations or operands.
    pointers: HashSet<u64>,
    /// Sorted data addresses that code refers to.
    data_refs: Vec<u64>,
}

impl Cfg {
    /// Builds the graph of a program.
    pub fn build(image: &Image, frames: &FrameFacts) -> Result<Self> {
        let mut discovery = Discovery::start(image, frames);
        discovery.run(frames);
        Ok(discovery.finish(frames))
    }
}

impl<'a> Discovery<'a> {
    fn start(image: &'a Image, frames: &FrameFacts) -> Self {
        let mut discovery = Self {
            image,
            regions: seeds::code_regions(image),
            seeds: seeds::collect(image, frames),
            bodies: Vec::new(),
            seen_refs: Vec::new(),
            pointers: HashSet::new(),
            data_refs: Vec::new(),
        };
        discovery.seeds.retain({
            let regions = discovery.regions.clone();
            move |s| region_end(&regions, s.start).is_some()
        });
        let bodies = (0..discovery.seeds.len())
            .map(|i| discovery.empty_body(i))
            .collect();
        discovery.bodies = bodies;
        discovery.bodies.par_iter_mut().for_each(|b| {
            b.explore(image, b.start);
            b.finish();
        });
        discovery.seen_refs = vec![0; discovery.seeds.len()];
        discovery
    }

    /// The range that seed `i` may cover: up to its stated end, the next seed
    /// or the end of its section.
    fn empty_body(&self, i: usize) -> Body {
        let seed = &self.seeds[i];
        let region = region_end(&self.regions, seed.start).expect("seeds lie in regions");
        let next = self.seeds.get(i + 1).map_or(u64::MAX, |s| s.start);
        let end = seed.end.unwrap_or(u64::MAX).min(next).min(region);
        Body::new(seed.start, end)
    }

    fn body_at(&self, address: u64) -> Option<usize> {
        let i = self
            .bodies
            .partition_point(|b| b.start <= address)
            .checked_sub(1)?;
        self.bodies[i].contains(address).then_some(i)
    }

    fn run(&mut self, frames: &FrameFacts) {
        let mut pending: Vec<(u64, u8)> = frames
            .landing_pads
            .iter()
            .map(|(_, pad)| (*pad, mark::LANDING))
            .collect();
        let pointers = data_pointers(self.image);
        self.pointers
            .extend(pointers.iter().map(|(address, _)| *address));
        // A lone word may be any number: it counts where code is known to be.
        let (certain, doubtful): (Vec<_>, Vec<_>) =
            pointers.into_iter().partition(|(_, certain)| *certain);
        pending.extend(certain.iter().map(|(a, _)| (*a, mark::INDIRECT)));
        // What is certain first: a wrong target would hide right ones.
        self.settle(pending, 0);
        for limit in UNBOUNDED_LIMITS {
            self.settle(Vec::new(), limit);
        }
        let doubtful = doubtful.into_iter().filter(|(address, _)| {
            self.body_at(*address)
                .is_some_and(|i| self.bodies[i].mark_at(*address) & mark::START != 0)
        });
        let doubtful = doubtful.map(|(a, _)| (a, mark::INDIRECT)).collect();
        self.settle(doubtful, usize::MAX);
    }

    /// Follows control from new targets until nothing new is found.
    fn settle(&mut self, mut pending: Vec<(u64, u8)>, unbounded_limit: usize) {
        for _ in 0..MAX_ROUNDS {
            pending.extend(self.new_refs());
            let tables = self.find_tables(unbounded_limit);
            pending.extend(
                tables
                    .iter()
                    .flat_map(|t| &t.targets)
                    .map(|t| (*t, mark::INDIRECT)),
            );
            let fresh = self.apply(std::mem::take(&mut pending));
            if !fresh {
                break;
            }
        }
    }

    /// Targets of references that have not been looked at yet.
    fn new_refs(&mut self) -> Vec<(u64, u8)> {
        let mut targets = Vec::new();
        let mut data = Vec::new();
        for (body, seen) in self.bodies.iter().zip(&mut self.seen_refs) {
            for r in &body.refs[*seen..] {
                match *r {
                    Ref::Call(t) | Ref::Jump(t) | Ref::CondJump(t) => {
                        targets.push((t, mark::ENTRY))
                    }
                    Ref::Address(t) if self.image.is_code(t) => {
                        self.pointers.insert(t);
                        targets.push((t, mark::INDIRECT));
                    }
                    Ref::Address(t) | Ref::Memory(t) => data.push(t),
                }
            }
            *seen = body.refs.len();
        }
        if !data.is_empty() {
            self.data_refs.extend(data);
            self.data_refs.sort_unstable();
            self.data_refs.dedup();
        }
        targets
    }

    fn find_tables(&self, unbounded_limit: usize) -> Vec<jump_table::Found> {
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
            .filter(|b| !b.indirect_jumps.is_empty())
            .flat_map_iter(|b| jump_table::find(self.image, b, &around))
            .collect()
    }

    /// Adds leaders and procedures; true if any code was new.
    fn apply(&mut self, mut pending: Vec<(u64, u8)>) -> bool {
        pending.sort_unstable();
        pending.dedup();
        let mut fresh = false;
        let mut new_seeds = Vec::new();
        let mut work: Vec<Vec<(u64, u8)>> = vec![Vec::new(); self.bodies.len()];
        for (target, bits) in pending {
            match self.body_at(target) {
                Some(i) => {
                    let marks = self.bodies[i].mark_at(target);
                    if marks & bits == bits && marks & mark::LEADER != 0 {
                        continue;
                    }
                    if bits & mark::INDIRECT != 0
                        && (!jump_table::is_plausible(self.image, &self.bodies[i], target)
                            || self.is_plt_padding(i, target))
                    {
                        continue;
                    }
                    work[i].push((target, bits));
                }
                None if region_end(&self.regions, target).is_some()
                    && (bits & mark::ENTRY != 0 || self.looks_like_code(target)) =>
                {
                    new_seeds.push(target);
                }
                None => {}
            }
        }
        let image = self.image;
        fresh |= self
            .bodies
            .par_iter_mut()
            .zip(work)
            .map(|(body, work)| {
                let before = body.insts.len();
                let mut changed = false;
                for (target, bits) in work {
                    let marks = body.mark_at(target);
                    changed |= marks & (bits | mark::LEADER) != bits | mark::LEADER;
                    if marks & mark::START == 0 && bits & (mark::ENTRY | mark::LANDING) == 0 {
                        // Only data says that this is code: believe it if it looks so throughout.
                        let mut trial = body.clone();
                        trial.explore(image, target);
                        if trial.obstacle.is_some() && body.obstacle.is_none()
                            || trial.disagrees_with(body, image.base)
                        {
                            continue;
                        }
                        *body = trial;
                    } else {
                        body.explore(image, target);
                    }
                    body.add_mark(target, bits);
                }
                if body.insts.len() != before {
                    body.finish();
                }
                changed
            })
            .reduce(|| false, |a, b| a | b);
        self.add_procs(new_seeds) | fresh
    }

    /// Adds procedures that start at these addresses, which lie in none;
    /// true if there were any.
    fn add_procs(&mut self, mut starts: Vec<u64>) -> bool {
        starts.sort_unstable();
        starts.dedup();
        if starts.is_empty() {
            return false;
        }
        let mut old = std::mem::take(&mut self.seeds)
            .into_iter()
            .zip(std::mem::take(&mut self.bodies))
            .zip(std::mem::take(&mut self.seen_refs))
            .map(|((seed, body), seen)| (seed, Some(body), seen))
            .peekable();
        // All starts first: each procedure ends where the next one starts.
        let mut bodies = Vec::new();
        let mut push = |this: &mut Self, (seed, body, seen): (Seed, Option<Body>, usize)| {
            this.seeds.push(seed);
            this.seen_refs.push(seen);
            bodies.push(body);
        };
        for start in starts {
            while let Some(item) = old.next_if(|o| o.0.start < start) {
                push(self, item);
            }
            push(self, (Seed::bare(start), None, 0));
        }
        for item in old {
            push(self, item);
        }
        let image = self.image;
        let bodies = bodies
            .into_par_iter()
            .enumerate()
            .map(|(i, body)| {
                body.unwrap_or_else(|| {
                    let mut body = self.empty_body(i);
                    body.explore(image, body.start);
                    body.finish();
                    // What it does not reach stays free for procedures found later.
                    let end = body.code_end().max(body.start + 1);
                    body.marks.truncate((end - body.start) as usize);
                    body.end = end;
                    body
                })
            })
            .collect();
        self.bodies = bodies;
        true
    }

    /// Behind the jump of a PLT entry stands code only if it is bound lazily.
    fn is_plt_padding(&self, i: usize, address: u64) -> bool {
        self.seeds[i].kind == ProcKind::Plt
            && self
                .image
                .bytes_at(address, 2)
                .is_some_and(|b| b == [0x66, 0x90])
    }

    /// Whether an address outside all procedures, known only as a pointer,
    /// is a procedure. Tables in the text of hand-written assembly look
    /// similar, and a pad there would destroy them: in doubt it is not.
    fn looks_like_code(&self, address: u64) -> bool {
        let Some(end) = region_end(&self.regions, address) else {
            return false;
        };
        let next = self.seeds.partition_point(|s| s.start <= address);
        let end = self.seeds.get(next).map_or(end, |s| s.start.min(end));
        let Some(bytes) = self.image.bytes_at(address, (end - address) as usize) else {
            return false;
        };
        if bytes.starts_with(&[0xf3, 0x0f, 0x1e, 0xfa]) {
            return true;
        }
        let read_as_data = {
            let i = self.data_refs.partition_point(|r| *r < address);
            self.data_refs.get(i).is_some_and(|r| *r < end)
        };
        if !address.is_multiple_of(16) || read_as_data {
            return false;
        }
        let mut body = Body::new(address, end);
        body.explore(self.image, address);
        body.obstacle.is_none()
            && body.refs.iter().all(|r| match r {
                Ref::Call(t) | Ref::Jump(t) | Ref::CondJump(t) => {
                    self.bodies.iter().any(|b| b.start == *t)
                }
                _ => true,
            })
    }

    fn finish(mut self, frames: &FrameFacts) -> Cfg {
        let image = self.image;
        self.bodies.par_iter_mut().for_each(Body::finish);
        let reasons = self.obstacles(frames);
        // A procedure that stays keeps its exception table, with original addresses.
        for (range, pad) in &frames.landing_pads {
            let owner = self.body_at(frames.ranges[*range].start);
            if owner.is_some_and(|i| reasons[i].is_some())
                && let Some(i) = self.body_at(*pad)
            {
                self.bodies[i].add_mark(*pad, mark::INDIRECT);
            }
        }
        self.set_fragments();
        self.clear_entries_between_parts();
        let pointers = &self.pointers;
        let ends: Vec<u64> = frames.ranges.iter().map(|r| r.end).collect();
        let mut cfg = Cfg {
            base: image.base,
            ..Cfg::default()
        };
        let flat: Vec<_> = self
            .bodies
            .par_iter()
            .zip(&reasons)
            .map(|(b, reason)| {
                if reason.is_none() {
                    blocks_of(image, b)
                } else {
                    Default::default()
                }
            })
            .collect();
        for (i, ((seed, body), (insts, blocks))) in
            self.seeds.iter().zip(&self.bodies).zip(flat).enumerate()
        {
            let proc = ProcId::from_index(i);
            let first_inst = cfg.insts.len() as u32;
            let first_block = cfg.blocks.len() as u32;
            for b in &blocks {
                let marks = body.mark_at(image.base + u64::from(insts[b.0 as usize].offset));
                let is_start = image.base + u64::from(insts[b.0 as usize].offset) == body.start;
                let fragment = matches!(seed.kind, ProcKind::Fragment(_));
                cfg.blocks.push(Block {
                    proc,
                    first: InstId(first_inst + b.0),
                    count: b.1,
                    first_succ: 0,
                    succ_count: 0,
                    is_entry: (is_start && !fragment) || marks & mark::ENTRY != 0,
                    is_indirect_target: is_start || marks & mark::INDIRECT != 0,
                    is_landing_pad: marks & mark::LANDING != 0,
                });
            }
            cfg.insts.extend(insts);
            let end = if seed.end.is_some() || ends.binary_search(&body.end).is_ok() {
                body.end
            } else if reasons[i].is_some() {
                // What was not understood may go on up to the next procedure.
                self.empty_body(i).end
            } else {
                body.code_end().max(body.start + 1)
            };
            cfg.procs.push(Proc {
                start: body.start,
                end,
                name: seed.name.clone(),
                kind: seed.kind,
                status: match &reasons[i] {
                    None => Status::Full,
                    Some(reason) => Status::Opaque(reason.clone()),
                },
                first_block: BlockId(first_block),
                block_count: blocks.len() as u32,
                is_local: !seed.is_exported && !pointers.contains(&body.start),
            });
        }
        cfg.jump_tables = self.jump_tables(&cfg);
        link_blocks(image, &mut cfg);
        cfg
    }

    /// The tables whose jumps are known, in terms of the finished instructions.
    fn jump_tables(&self, cfg: &Cfg) -> Vec<JumpTable> {
        let mut tables: Vec<JumpTable> = self
            .find_tables(usize::MAX)
            .into_iter()
            .filter_map(|t| {
                let mut targets = t.targets.clone();
                targets.sort_unstable();
                targets.dedup();
                Some(JumpTable {
                    jump: cfg.inst_at(t.jump?)?,
                    table: t.table,
                    entry_size: t.entry_size,
                    entries: t.targets.len() as u32,
                    relative_to: (t.entry_size == 4).then_some(t.table),
                    load: t.load.and_then(|l| cfg.inst_at(l)),
                    targets,
                })
            })
            .collect();
        tables.sort_unstable_by_key(|t| t.jump);
        tables
    }

    /// Why a procedure stays in place, for each body.
    fn obstacles(&self, frames: &FrameFacts) -> Vec<Option<String>> {
        let image = self.image;
        let tables = self.find_tables(usize::MAX);
        // A table in the text might be taken for code and get a pad.
        let with_table: HashSet<u64> = tables
            .iter()
            .filter(|t| !image.is_code(t.table))
            .filter_map(|t| t.jump)
            .collect();
        // Where a jump's own table is not known, all of the body's were looked for.
        let with_some: HashSet<usize> = tables
            .iter()
            .filter(|t| !image.is_code(t.table))
            .filter_map(|t| self.body_at(*t.targets.first()?))
            .collect();
        let mut reasons: Vec<Option<String>> =
            self.bodies
                .par_iter()
                .enumerate()
                .map(|(i, body)| {
                    if body.insts.is_empty() {
                        return Some("no instruction could be decoded".to_string());
                    }
                    if let Some((pc, reason)) = &body.obstacle {
                        return Some(format!("{reason} at {pc:#x}"));
                    }
                    let own_labels = body.refs.iter().any(
                        |r| matches!(r, Ref::Address(t) if body.contains(*t) && *t != body.start),
                    );
                    body.indirect_jumps.iter().find_map(|jump| {
                        match jump_table::form_of(image, body, *jump) {
                            _ if with_table.contains(jump) => None,
                            JumpForm::Pointer => None,
                            _ if with_some.contains(&i) && !own_labels => None,
                            JumpForm::RelativeTable => Some(format!(
                                "the jump table of the indirect jump at {jump:#x} was not found"
                            )),
                            JumpForm::Computed => Some(format!(
                                "the indirect jump at {jump:#x} goes to a computed address"
                            )),
                        }
                    })
                })
                .collect();
        for range in &frames.ranges {
            if let (Some(reason), Some(i)) = (&range.obstacle, self.body_at(range.start)) {
                reasons[i].get_or_insert_with(|| {
                    format!("its exception tables cannot be moved: {reason}")
                });
            }
        }
        let readers: HashSet<u64> = self
            .bodies
            .par_iter()
            .filter(|b| reads_return_address(image, b, b.start))
            .map(|b| b.start)
            .collect();
        for (body, reason) in self.bodies.iter().zip(&mut reasons) {
            let outside = body.refs.iter().find_map(|r| match r {
                Ref::Call(t) if readers.contains(t) => Some(*t),
                _ => None,
            });
            let call = outside.or_else(|| {
                let mut local = body.local_calls.iter().copied();
                local.find(|t| reads_return_address(image, body, *t))
            });
            if let Some(t) = call {
                reason.get_or_insert_with(|| {
                    format!("it calls {t:#x}, which takes its return address as data")
                });
            }
        }
        for i in self.before_start() {
            reasons[i].get_or_insert_with(|| {
                "an IFUNC resolver calls it before the program is initialised".into()
            });
        }
        for i in self.self_examining() {
            reasons[i].get_or_insert_with(|| {
                "V8 looks the return addresses of its built-in code up in a table".into()
            });
        }
        for i in self.restartable() {
            reasons[i].get_or_insert_with(|| "it contains a restartable sequence (rseq)".into());
        }
        reasons
    }

    /// IFUNC resolvers of a dynamically linked program, and what they call:
    /// the dynamic loader runs them before anything of ours.
    fn before_start(&self) -> Vec<usize> {
        if self.image.is_static() {
            return Vec::new();
        }
        let resolvers = self
            .image
            .relocs
            .iter()
            .filter(|r| r.kind == elf::R_X86_64_IRELATIVE)
            .map(|r| r.addend as u64);
        let exported = self
            .image
            .dynamic_symbols
            .iter()
            .filter(|s| s.is_ifunc && !s.is_undefined)
            .map(|s| s.address);
        let mut work: Vec<usize> = resolvers
            .chain(exported)
            .filter_map(|a| self.body_at(a))
            .collect();
        let mut seen = HashSet::new();
        while let Some(i) = work.pop() {
            if seen.insert(i) {
                work.extend(self.bodies[i].refs.iter().filter_map(|r| match r {
                    Ref::Call(t) | Ref::Jump(t) | Ref::CondJump(t) => self.body_at(*t),
                    _ => None,
                }));
            }
        }
        seen.into_iter().collect()
    }

    /// The code that V8 (node, Chromium) carries ready-made in the program: it
    /// walks the stack by its own tables of return addresses, like Go.
    fn self_examining(&self) -> Vec<usize> {
        let has_v8 = self
            .image
            .symbols
            .iter()
            .any(|s| s.name.contains("embedded_blob_code"));
        let is_builtin = |s: &Seed| s.name.as_ref().is_some_and(|n| n.starts_with("Builtins_"));
        (0..self.seeds.len())
            .filter(|i| has_v8 && is_builtin(&self.seeds[*i]))
            .collect()
    }

    /// Procedures with restartable sequences: the kernel compares their
    /// program counter with the descriptors in `__rseq_cs`.
    fn restartable(&self) -> Vec<usize> {
        let Some(section) = self.image.section("__rseq_cs") else {
            return Vec::new();
        };
        let Some(bytes) = self.image.bytes_at(section.address, section.size as usize) else {
            return Vec::new();
        };
        let in_file = bytes
            .chunks_exact(8)
            .map(|c| u64::from_le_bytes(c.try_into().expect("eight bytes")));
        let range = section.address..section.address + section.size;
        let relocated = self
            .image
            .relocs
            .iter()
            .filter(|r| range.contains(&r.address))
            .map(|r| r.addend as u64);
        in_file
            .chain(relocated)
            .filter(|a| self.image.is_code(*a))
            .filter_map(|a| self.body_at(a))
            .collect()
    }

    /// Finds the procedure that each part put elsewhere belongs to: the one
    /// that jumps to it.
    fn set_fragments(&mut self) {
        for i in 0..self.seeds.len() {
            if !self.seeds[i].looks_like_fragment || self.pointers.contains(&self.seeds[i].start) {
                continue;
            }
            self.seeds[i].kind = ProcKind::Fragment(None);
        }
        let mut parents = Vec::new();
        for (p, body) in self.bodies.iter().enumerate() {
            for r in &body.refs {
                let (Ref::Jump(t) | Ref::CondJump(t)) = r else {
                    continue;
                };
                if let Some(f) = self.body_at(*t)
                    && f != p
                    && matches!(self.seeds[f].kind, ProcKind::Fragment(_))
                    && !matches!(self.seeds[p].kind, ProcKind::Fragment(_))
                {
                    parents.push((f, p));
                }
            }
        }
        for (f, p) in parents {
            if self.seeds[f].kind == ProcKind::Fragment(None) {
                self.seeds[f].kind = ProcKind::Fragment(Some(ProcId::from_index(p)));
                if self.seeds[f].name.is_none()
                    && let Some(name) = self.seeds[p].name.clone()
                {
                    self.seeds[f].name = Some(format!("{name}.cold"));
                }
            }
        }
    }

    /// A jump between the parts of one procedure is no entry.
    fn clear_entries_between_parts(&mut self) {
        let whole = |s: &Self, i: usize| match s.seeds[i].kind {
            ProcKind::Fragment(Some(p)) => p.index(),
            _ => i,
        };
        let mut outside: HashSet<u64> = HashSet::new();
        for (i, body) in self.bodies.iter().enumerate() {
            for r in &body.refs {
                let (Ref::Jump(t) | Ref::CondJump(t) | Ref::Call(t)) = r else {
                    continue;
                };
                if self
                    .body_at(*t)
                    .is_some_and(|j| whole(self, i) != whole(self, j) || matches!(r, Ref::Call(_)))
                {
                    outside.insert(*t);
                }
            }
        }
        for body in &mut self.bodies {
            let start = body.start;
            for (i, m) in body.marks.iter_mut().enumerate() {
                if *m & mark::ENTRY != 0 && !outside.contains(&(start + i as u64)) {
                    *m &= !mark::ENTRY;
                }
            }
        }
    }
}

fn region_end(regions: &[(u64, u64)], address: u64) -> Option<u64> {
    let i = regions.partition_point(|r| r.0 <= address).checked_sub(1)?;
    (address < regions[i].1).then_some(regions[i].1)
}

/// Code addresses that stand in data: in relocations of a position-independent
/// program; in another, in every aligned word of its data, where they are
/// certain only beside another one, as in a table of labels.
fn data_pointers(image: &Image) -> Vec<(u64, bool)> {
    let mut pointers: Vec<(u64, bool)> = image
        .relocs
        .iter()
        .filter_map(|r| match r.kind {
            elf::R_X86_64_RELATIVE | elf::R_X86_64_IRELATIVE => Some(r.addend as u64),
            elf::R_X86_64_64 | elf::R_X86_64_GLOB_DAT | elf::R_X86_64_JUMP_SLOT => {
                let symbol = image.dynamic_symbols.get(r.symbol as usize)?;
                Some(symbol.address.wrapping_add_signed(r.addend))
            }
            _ => None,
        })
        .map(|address| (address, true))
        .collect();
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    // A slot of the PLT holds the address of its entry's second half until it is bound.
    let slots = image
        .relocs
        .iter()
        .filter(|r| r.kind == elf::R_X86_64_JUMP_SLOT);
    pointers.extend(slots.filter_map(|r| Some((word(image.bytes_at(r.address, 8)?), true))));
    if !image.is_pie {
        for segment in image.segments.iter().filter(|s| !s.is_executable()) {
            let bytes = image
                .bytes_at(segment.address, segment.file_size as usize)
                .unwrap_or_default();
            let skip = (segment.address.wrapping_neg() & 7) as usize;
            let words: Vec<u64> = bytes
                .get(skip..)
                .unwrap_or_default()
                .chunks_exact(8)
                .map(word)
                .collect();
            for (i, address) in words.iter().enumerate() {
                if !image.is_code(*address) {
                    continue;
                }
                let beside = [i.checked_sub(1), i.checked_add(1)];
                let certain = beside
                    .into_iter()
                    .flatten()
                    .any(|j| words.get(j).is_some_and(|w| image.is_code(*w)));
                pointers.push((*address, certain));
            }
        }
    }
    pointers.retain(|(p, _)| image.is_code(*p));
    // Certain ones first among equals.
    pointers.sort_unstable_by_key(|(p, certain)| (*p, !certain));
    pointers.dedup_by_key(|(p, _)| *p);
    pointers
}

/// Instructions in order, and blocks as (first, count).
fn blocks_of(image: &Image, body: &Body) -> (Vec<Inst>, Vec<(u32, u32)>) {
    let offset_of = |pc: u64| (pc - image.base) as u32;
    let start = offset_of(body.start);
    let mut insts = body.insts.clone();
    let mut leader: Vec<bool> = insts
        .iter()
        .map(|i| body.marks[(i.offset - start) as usize] & mark::LEADER != 0)
        .collect();
    // Where instructions overlap, what follows the longer one is a leader.
    for i in 0..insts.len().saturating_sub(1) {
        let end = insts[i].offset + u32::from(insts[i].len);
        if insts[i + 1].offset < end {
            leader[i + 1] = true;
            if let Ok(after) = insts.binary_search_by_key(&end, |x| x.offset) {
                leader[after] = true;
            }
        }
    }
    let mut blocks: Vec<(u32, u32)> = Vec::new();
    for i in 0..insts.len() {
        let joined = i > 0
            && !leader[i]
            && !insts[i - 1].flow.ends_block()
            && insts[i - 1].offset + u32::from(insts[i - 1].len) == insts[i].offset;
        match blocks.last_mut() {
            Some(last) if joined => last.1 += 1,
            _ => blocks.push((i as u32, 1)),
        }
    }
    for inst in &mut insts {
        if inst.flow == Flow::Call {
            let pc = image.base + u64::from(inst.offset);
            let bytes = image.bytes_at(pc, usize::from(inst.len)).unwrap_or(&[]);
            let target = decode_at(bytes, pc).and_then(|d| direct_target(&d));
            // `call next`: its return address is read as data.
            inst.special = target == Some(pc + u64::from(inst.len));
        }
    }
    (insts, blocks)
}

/// True if a procedure takes its return address off the stack for good, or
/// returns it: what follows the call is then data, or the address is computed
/// with. (`vfork` pops it too, but pushes it again.)
///
/// `start` is the procedure's first address, or that of a local subroutine.
fn reads_return_address(image: &Image, body: &Body, start: u64) -> bool {
    use iced_x86::{Mnemonic, OpKind, Register};
    let decode = |inst: &Inst| {
        let pc = image.base + u64::from(inst.offset);
        decode_at(image.bytes_at(pc, usize::from(inst.len))?, pc)
    };
    let from = (start - image.base) as u32;
    let insts = &body.insts[body.insts.partition_point(|i| i.offset < from)..];
    let mut own = insts.iter().filter_map(decode);
    let Some(first) = own.find(|i| i.mnemonic() != Mnemonic::Endbr64) else {
        return false;
    };
    match first.mnemonic() {
        Mnemonic::Pop if first.op0_kind() == OpKind::Register => {
            let register = first.op0_register();
            !own.any(|i| i.mnemonic() == Mnemonic::Push && i.op0_register() == register)
        }
        Mnemonic::Mov => {
            first.op1_kind() == OpKind::Memory
                && first.memory_base() == Register::RSP
                && first.memory_index() == Register::None
                && first.memory_displacement64() == 0
                && own.next().is_some_and(|i| i.mnemonic() == Mnemonic::Ret)
        }
        _ => false,
    }
}

/// Fills in the successors of all blocks.
fn link_blocks(image: &Image, cfg: &mut Cfg) {
    let succs: Vec<Vec<Succ>> = (0..cfg.procs.len())
        .into_par_iter()
        .map(|p| proc_succs(image, cfg, ProcId::from_index(p)))
        .collect::<Vec<_>>()
        .into_iter()
        .flatten()
        .collect();
    for (block, list) in cfg.blocks.iter_mut().zip(succs) {
        block.first_succ = cfg.succs.len() as u32;
        block.succ_count = list.len().min(usize::from(u16::MAX)) as u16;
        cfg.succs
            .extend(list.into_iter().take(usize::from(u16::MAX)));
    }
}

fn proc_succs(image: &Image, cfg: &Cfg, id: ProcId) -> Vec<Vec<Succ>> {
    let proc = cfg.proc(id);
    let first = proc.first_block.index();
    let blocks = &cfg.blocks[first..first + proc.block_count as usize];
    let block_at = |pc: u64| {
        let offset = u32::try_from(pc.checked_sub(cfg.base)?).ok()?;
        let i = blocks
            .binary_search_by_key(&offset, |b| cfg.inst(b.first).offset)
            .ok()?;
        Some(BlockId::from_index(first + i))
    };
    let inside = |pc: u64| pc >= proc.start && pc < proc.end;
    let indirect: Vec<BlockId> = proc
        .blocks()
        .filter(|b| {
            let block = cfg.block(*b);
            block.is_indirect_target && cfg.block_pc(*b) != proc.start
        })
        .collect();
    blocks
        .iter()
        .map(|block| {
            let last = block.last();
            let inst = cfg.inst(last);
            let mut list = Vec::new();
            let goes_on = |pc: u64| match block_at(pc) {
                Some(b) if inside(pc) => Succ::Fall(b),
                _ => Succ::Tail(pc),
            };
            match inst.flow {
                Flow::Jump | Flow::CondJump => {
                    let target =
                        direct_target(&cfg.decode(image, last)).expect("direct jumps have targets");
                    list.push(match block_at(target) {
                        Some(b) if inside(target) => Succ::Branch(b),
                        _ => Succ::Tail(target),
                    });
                }
                Flow::IndirectJump => match cfg.jump_tables.binary_search_by_key(&last, |t| t.jump)
                {
                    Ok(t) => list.extend(cfg.jump_tables[t].targets.iter().map(
                        |t| match block_at(*t) {
                            Some(b) if inside(*t) => Succ::Branch(b),
                            _ => Succ::Tail(*t),
                        },
                    )),
                    Err(_) => {
                        list.extend(indirect.iter().map(|b| Succ::Branch(*b)));
                        list.push(Succ::Unknown);
                    }
                },
                Flow::Return => list.push(Succ::Unknown),
                _ => {}
            }
            if !inst.flow.ends_flow() {
                list.push(goes_on(cfg.inst_end(last)));
            }
            list
        })
        .collect()
}

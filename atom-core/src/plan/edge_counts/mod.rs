//! Counting edges of the control flow instead of making calls that only count.
//!
//! A call whose routine only adds a constant to a cell need not be made at its point, if nothing reads
//! the cell before the program's end. Instead edges of the control flow graph are counted, with as few
//! counters as possible ([`tree`]). Just before the calls at the program's end, the runtime computes from
//! a table ([`table`]) the sums that the calls would have added to the cells.
//!
//! A cell is *private* if the data that the tool placed it in is an argument only of such calls and of the
//! calls at the program's end.

mod counted;
mod frequency;
mod group;
mod members;
pub mod qualify;
mod returns_once;
mod table;
mod tree;

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rayon::prelude::*;

use super::code::{Asm, Position, Target, Totals};
use super::data::Data;
use super::kept::EdgeFacts;
use super::private_stack::PrivateStack;
use super::threads::{ThreadAccess, ThreadOptions};
use crate::cfg::Cfg;
use crate::grouped::Grouped;
use crate::ids::{InstId, ProcId};
use crate::image::Image;
use crate::live::Live;
use crate::memory;
use crate::tool::crossings::Crossings;
use crate::tool::{Calls, ThreadData};
use crate::x86::opcode::prefix;

use counted::{Counted, Storage};
use group::{Context, CounterSite};
use qualify::{Qualified, Want};

/// A counter of an edge at its place.
#[derive(Clone, Copy, Debug)]
pub struct Counter {
    /// Its place.
    pub site: CounterSite,
    /// Offset of its cell in the plan's data.
    pub cell: u32,
}

/// The counters of edges, and the calls that they replace.
#[derive(Default)]
pub struct EdgeCounts {
    /// For each call, whether it is replaced and not made. Empty if all calls are made.
    handled: Vec<AtomicBool>,
    /// Counters in the order of their places.
    counters: Vec<Counter>,
    /// Prefix of the counters' instructions.
    prefix: Option<u8>,
    /// Results for the groups, until the counters are laid out.
    counted: Vec<Counted>,
}

/// Number of groups in one piece of parallel work.
const CHUNK: usize = 64;

/// Number of pieces of work after which the program's pages are given back.
const WAVE: usize = 128;

impl EdgeCounts {
    /// Decides which calls are replaced, and chooses the counters. `crossings`: procedures have two versions, and control may go
    /// from one to the other there.
    pub fn build(
        (image, cfg, live): (&Image, &Cfg, &Live<'_>),
        calls: &Calls,
        qualified: Qualified,
        crossings: Option<Crossings<'_>>,
    ) -> Self {
        if qualified.is_empty() {
            return Self::default();
        }
        let groups = members::groups(cfg);
        let (mut entered, returns) = rayon::join(
            || group::entered(image, cfg),
            || returns_once::certain(image, cfg, &groups),
        );
        image.release_pages();
        if let Some(crossings) = crossings {
            let procs = (0..cfg.procs.len()).map(ProcId::from_index);
            let blocks = procs.flat_map(|p| crossings.of(cfg, p));
            blocks.for_each(|crossing| entered[crossing.block.index()] = true);
        }
        let context = Context {
            image,
            cfg,
            live,
            entered,
            returns,
        };
        let order = by_group(cfg, &qualified);
        let by_group: Vec<&[u32]> = order.groups().filter(|g| !g.is_empty()).collect();
        let handled: Vec<AtomicBool> = calls.calls.iter().map(|_| AtomicBool::default()).collect();
        let count = |storage: &mut Storage, some: &[&[u32]]| {
            let mut counted = Counted::default();
            for numbers in some {
                storage.wants.clear();
                let own = numbers.iter().map(|n| *qualified.want(*n));
                storage.wants.extend(own);
                let whole = whole_of(cfg, &storage.wants[0]);
                let at = groups.binary_search_by_key(&whole, |g| g[0]).ok();
                let done = at.and_then(|at| counted.add(&context, &groups[at], storage));
                if done.is_some() {
                    for want in &storage.wants {
                        handled[want.call as usize].store(true, Relaxed);
                    }
                }
            }
            counted.sites.shrink_to_fit();
            counted.table.shrink_to_fit();
            counted
        };
        let mut counted = Vec::with_capacity(by_group.len().div_ceil(CHUNK));
        for wave in by_group.chunks(CHUNK * WAVE) {
            let chunks = wave.par_chunks(CHUNK).map_init(Default::default, count);
            counted.par_extend(chunks);
            image.release_pages();
        }
        let prefix = qualified.locked.then_some(prefix::LOCK);
        drop(qualified);
        memory::give_back();
        Self {
            handled,
            prefix,
            counted,
            ..Self::default()
        }
    }

    /// Lays out the counters and the table of all objects in the data, and the threads' block. `before` are the counters
    /// that there are. Returns all of them, too.
    pub fn lay_out(
        all: &mut [Self],
        (threads, options): (&ThreadData, &ThreadOptions),
        data: &mut Data,
        before: &EdgeFacts,
    ) -> (Option<Totals>, EdgeFacts) {
        let counted: Vec<Vec<Counted>> = (all.iter_mut())
            .map(|one| std::mem::take(&mut one.counted))
            .collect();
        let number = |one: &[Counted]| -> usize { one.iter().map(|c| c.sites.len()).sum() };
        let own_count: usize = counted.iter().map(|one| number(one)).sum();
        let count = before.count as usize + own_count;
        let own = options.access == ThreadAccess::Gs;
        let cells = if own { count } else { 0 };
        let for_threads = data.place_threads(threads, cells, options.own_stack);
        if let Some(place) = &mut data.threads {
            place.has_data |= options.are_sampled;
        }
        if count == 0 {
            return (None, EdgeFacts::default());
        }
        let (counters, prefix) = match () {
            () if own => (for_threads, Some(prefix::GS)),
            // An atomic addition for all threads costs less than looking up the thread's own cell.
            () if options.access == ThreadAccess::Lookup => {
                (data.reserve_edges(8 * count), Some(prefix::LOCK))
            }
            () => (data.reserve_edges(8 * count), None),
        };
        let mut first = counters + 8 * before.count;
        let firsts: Vec<u32> = (counted.iter())
            .map(|one| {
                let own = first;
                first += 8 * number(one) as u32;
                own
            })
            .collect();
        let groups = || counted.iter().flatten();
        let most = groups().map(|c| c.values).max().unwrap_or(0);
        let most = most.max(before.most as usize);
        let scratch = data.reserve(8 * most);
        let own_size: usize = groups().map(|c| c.table.len()).sum();
        let size = before.table.len() + own_size;
        let table = data.reserve(size);
        let pieces = || std::iter::once(&before.table).chain(groups().map(|c| &c.table));
        let write = || {
            let mut at = table as usize;
            for piece in pieces() {
                data.bytes.write(at, piece);
                at += piece.len();
            }
        };
        let place = || {
            let objects = all.par_iter_mut().zip(&counted).zip(&firsts);
            objects.for_each(|((one, counted), first)| {
                one.prefix = prefix.or(one.prefix);
                one.counters = by_place(counted, *first);
            });
        };
        rayon::join(place, write);
        let totals = Totals {
            table,
            table_size: size as u32,
            counters,
            scratch,
        };
        let mut facts = EdgeFacts {
            count: count as u32,
            most: most as u32,
            table: Vec::new(),
        };
        if data.fixed.is_some() {
            facts.table = pieces().flatten().copied().collect();
        }
        (Some(totals), facts)
    }

    /// True if the call with this number is replaced by counters and not made.
    pub fn handles(&self, call: usize) -> bool {
        self.handled.get(call).is_some_and(|h| h.load(Relaxed))
    }

    /// Number of calls that are replaced.
    pub fn handled(&self) -> usize {
        self.handled.iter().filter(|h| h.load(Relaxed)).count()
    }

    /// The counters at the instructions from `first` up to, not including, `end`.
    pub fn between(&self, first: InstId, end: InstId) -> &[Counter] {
        let at = |inst| self.counters.partition_point(|c| c.site.inst < inst);
        &self.counters[at(first)..at(end)]
    }

    /// Emits the code of a counter.
    ///
    /// `private` is set where rsp may lead to data.
    pub fn emit(&self, asm: &mut Asm, counter: &Counter, private: Option<PrivateStack>) {
        let keeping = counter.site.keeping;
        keeping.save(asm, private);
        asm.increment(Target::Data(counter.cell), self.prefix);
        keeping.restore(asm, private);
    }
}

/// The procedure of a wanted count; for a part elsewhere, the procedure that it belongs to.
fn whole_of(cfg: &Cfg, want: &Want) -> ProcId {
    cfg.whole(cfg.block(want.block).proc)
}

/// The numbers of the wanted counts, grouped by procedures with their parts; within a group in the order
/// of the calls.
fn by_group(cfg: &Cfg, qualified: &Qualified) -> Grouped<u32> {
    let wholes = |(first, wants): (u32, &[Want])| {
        let wholes: Vec<u32> = wants.iter().map(|w| whole_of(cfg, w).0).collect();
        (first, wholes)
    };
    let pieces: Vec<(u32, Vec<u32>)> = qualified.pieces().map(wholes).collect();
    let numbered = || {
        let pieces = pieces.iter();
        pieces.flat_map(|(first, wholes)| wholes.iter().copied().zip(*first..))
    };
    Grouped::new(cfg.procs.len(), numbered)
}

/// The counters in the order of their places. The cells, from `cell` on, are in the order of the groups.
fn by_place(counted: &[Counted], mut cell: u32) -> Vec<Counter> {
    // Groups follow each other except for parts elsewhere, so counters are first sorted into pieces of
    // the program.
    let piece = |site: &CounterSite| site.inst.index() / 32;
    let sites = || counted.iter().flat_map(|groups| &groups.sites);
    let last = sites().map(piece).max().unwrap_or(0);
    let mut next = vec![0u32; last + 2];
    for site in sites() {
        next[piece(site) + 1] += 1;
    }
    for i in 1..next.len() {
        next[i] += next[i - 1];
    }
    let any = sites().next().map(|site| Counter { site: *site, cell });
    let mut counters: Vec<Counter> = any.into_iter().cycle().take(sites().count()).collect();
    for site in sites() {
        let place = &mut next[piece(site)];
        counters[*place as usize] = Counter { site: *site, cell };
        *place += 1;
        cell += 8;
    }
    counters
        .par_chunk_by_mut(|a, b| piece(&a.site) == piece(&b.site))
        .for_each(|some| some.sort_unstable_by_key(|c| (c.site.inst, c.site.position)));
    counters
}

/// True if the counter is at this place.
pub fn is_at(counter: &Counter, inst: InstId, position: Position) -> bool {
    counter.site.inst == inst && counter.site.position == position
}

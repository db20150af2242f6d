//! Planning the calls of all objects of a process.
//!
//! The calls are split by the objects that they are added to, and each object gets a plan of its own. The
//! data of the calls is laid out once, as the objects share it: a cell that is counted in two libraries
//! is one cell. A program alone is the case of one object, which has the data in its own plan.

use atom_abi::FileIdentity;
use rayon::prelude::*;

use super::build::Planner;
use super::code::{Changes, Home};
use super::data::Data;
use super::edge_counts::EdgeCounts;
use super::edge_counts::qualify::{self, Regions};
use super::exits::Exits;
use super::kept::{Fixed, Kept, Late, Replaced, Summary};
use super::points::Points;
use super::prepare::{forget, routines, seen};
use super::spare_stack::SpareStack;
use super::switch::{self, Switch};
use super::threads::{ThreadAccess, Threads};
use super::{Clobbers, Options, Plan};
use crate::cfg::{Cfg, Numbers};
use crate::error::{Error, Result};
use crate::image::Image;
use crate::live::{Live, RegSet};
use crate::tool::crossings::Crossings;
use crate::tool::{Call, Calls};

/// An object whose calls are planned.
#[derive(Clone, Copy)]
pub struct Unit<'a> {
    /// Its file.
    pub image: &'a Image,
    /// Its control flow.
    pub cfg: &'a Cfg,
    /// What is live in it.
    pub live: &'a Live<'a>,
}

/// The plans of the objects of a process, and the data that the objects share.
#[derive(Default)]
pub struct Whole {
    /// A plan for each object, without data.
    pub plans: Vec<Plan>,
    /// The data; see the fields of the same names of [`Plan`].
    pub shared: Plan,
    /// Offset in the data of the load biases that the runtime notes, 8 bytes for each object.
    pub biases: u32,
    /// Offset in the data of an [`atom_abi::FileIdentity`] for each object.
    pub identities: u32,
    /// If libraries may be added later: what is kept for the next one, and what this one replaces.
    pub kept: Option<(Kept, Replaced)>,
}

impl Plan {
    /// Plans all calls of a program alone, and drops them.
    ///
    /// `clobbers` tells what a routine may change, by the routine's address in the tool's file.
    pub fn build(
        image: &Image,
        cfg: &Cfg,
        live: &Live,
        calls: Calls,
        clobbers: &dyn Fn(u64) -> Clobbers,
        options: &Options<'_>,
    ) -> Result<Self> {
        let unit = Unit { image, cfg, live };
        let mut whole = Whole::build(&[unit], 0, calls, clobbers, options, &Late::Never)?;
        whole.own_data();
        Ok(whole.plans.into_iter().next().unwrap_or_default())
    }
}

impl Whole {
    /// Makes empty plans for `objects` objects, to which a tool adds no calls.
    pub fn without_calls(objects: usize) -> Self {
        Self {
            plans: (0..objects).map(|_| Plan::default()).collect(),
            ..Self::default()
        }
    }

    /// Moves the data into the plan of a program alone.
    pub fn own_data(&mut self) {
        let shared = std::mem::take(&mut self.shared);
        if let Some(own) = self.plans.first_mut() {
            own.data = shared.data;
            own.data_relocs = shared.data_relocs;
            own.counts = shared.counts;
        }
    }

    /// Plans all calls of a process, and drops them. The calls at the program's start and end are made
    /// by code of the object with the index `starter`.
    pub fn build(
        units: &[Unit<'_>],
        starter: usize,
        mut calls: Calls,
        clobbers: &dyn Fn(u64) -> Clobbers,
        options: &Options<'_>,
        late: &Late<'_>,
    ) -> Result<Self> {
        let numbers = Numbers::of(units.iter().map(|u| u.cfg));
        let summary = Summary::take(&calls, late, &numbers, decisions(options));
        let (routines, mut data) =
            beside(|| Data::build(&calls, late), || routines(&calls, clobbers))?;
        let regions = Regions::new(&calls, &data);
        // The data has been copied into the plan.
        (calls.data, calls.placed) = (Vec::new(), Vec::new());
        let thread_data = std::mem::take(&mut calls.thread_data);
        let signature = std::mem::take(&mut calls.signature);
        let first = Plan::first(&calls);
        let split = split(units, starter, calls, std::mem::take(&mut data.offsets));
        let mut parts: Vec<(Calls, Data)> = (split.into_iter())
            .map(|(calls, offsets)| (calls, Data::of_part(offsets, data.thread_data)))
            .collect();
        let kept = kept(units, &parts);
        let live = |i: usize| kept.get(i).unwrap_or(units[i].live);
        let there = late.objects_before();
        let lives: Vec<&Live<'_>> = (0..units.len()).map(live).collect();
        let (mut flows, is_open) = flows(units, &parts, &lives, (options, there), &regions);
        let before = late.edges_before().cloned().unwrap_or_default();
        let of_threads = (&thread_data, &options.threads);
        let (totals, edges) = EdgeCounts::lay_out(&mut flows, of_threads, &mut data, &before);
        let switch = options.switch.map(|switch| switch.place(&mut data));
        let (biases, identities) = noted(options.home, units.len(), &mut data);
        let spare = SpareStack::at(data.reserve(SpareStack::SIZE));
        let kept = summary
            .map(|summary| summary.finish(late, (data.fixed, &data.records), edges, &is_open));
        let counts = data.place_counts();
        data.check_size()?;
        let mut whole = Self {
            shared: Plan {
                totals,
                control: switch::control(switch),
                ..first
            },
            biases,
            identities,
            kept: kept.transpose()?,
            ..Self::without_calls(there)
        };
        for (i, (unit, flow)) in units.iter().zip(flows).enumerate().skip(there) {
            unit.image.release_pages();
            let (mut calls, mut part) = std::mem::take(&mut parts[i]);
            part.threads = data.threads;
            let empty = Plan {
                calls_added: calls.calls.len() as u64,
                calls_by_flow: flow.handled() as u64,
                light: switch.is_some().then(Vec::new),
                changes: Changes::of(&calls),
                ..whole.shared.emptied()
            };
            forget(&mut calls, &mut part, |call| flow.handles(call));
            let planner = Planner {
                image: unit.image,
                cfg: unit.cfg,
                live: live(i),
                points: Points::build(unit.cfg, &calls)?,
                calls: &calls,
                threads: threads(unit, &data, counts.1 != 0, options),
                data: part,
                shared_size: data.bytes.len(),
                flow,
                routines: &routines,
                bodies: options.bodies.filter(|_| !may_check_alignment(units)),
                exits: Exits::new(unit.image, options, spare),
                apart: options.apart,
                unchecked: may_check_alignment(units),
                home: options.home,
                object: i,
                biases,
                switch,
                left_out: left_out(options, i, unit),
                crossings: Crossings::in_object(options.borders, i),
                window: options.window,
                turn: options.turn,
                absolute: options.low_space != 0 || options.home == Home::Area,
                makes_program_calls: i == starter,
            };
            whole
                .plans
                .push(planner.plan_within(empty, options.low_space)?);
        }
        if let Some(program) = whole.plans.first_mut() {
            program.signature = signature;
        }
        whole.shared.data = data.bytes;
        whole.shared.data_relocs = data.relocs;
        let plan = &whole.plans[starter.max(there)];
        (whole.shared.thread_info, whole.shared.cell_info) = (plan.thread_info, plan.cell_info);
        whole.shared.counts = counts;
        Ok(whole)
    }
}

/// Does two things at once, the first of them in another thread.
fn beside<A: Send, B>(
    first: impl FnOnce() -> Result<A> + Send,
    second: impl FnOnce() -> Result<B>,
) -> Result<(B, A)> {
    let mut found = None;
    let own = rayon::in_place_scope(|scope| {
        scope.spawn(|_| found = Some(first()));
        second()
    })?;
    let found = found.unwrap_or_else(|| Err(Error::new("planning calls", "a thread is gone")))?;
    Ok((own, found))
}

/// True if the processor may check alignment, which routines' accesses need not pass, in line neither.
fn may_check_alignment(units: &[Unit<'_>]) -> bool {
    units.iter().any(|unit| unit.live.may_check_alignment())
}

/// Offsets in the data of the load biases and of the identities of files, which the runtime notes.
fn noted(home: Home, objects: usize, data: &mut Data) -> (u32, u32) {
    match (home, data.fixed) {
        (Home::Own, _) => (0, 0),
        (Home::Area, Some(fixed)) => (fixed.biases, fixed.biases + Fixed::BIASES as u32),
        (Home::Area, None) => {
            let biases = data.reserve((8 + size_of::<FileIdentity>()) * objects);
            (biases, biases + 8 * objects as u32)
        }
    }
}

/// Decisions for all objects, which have to be the same when an object is added.
fn decisions(options: &Options<'_>) -> [bool; 5] {
    let access = options.threads.access;
    [
        access == ThreadAccess::Gs,
        access == ThreadAccess::Lookup,
        options.threads.own_stack,
        options.may_have_threads,
        options.switch.is_some(),
    ]
}

/// What is live where the calls may see all registers; nothing if none of them does.
fn kept<'a>(units: &[Unit<'a>], parts: &[(Calls, Data)]) -> Vec<Live<'a>> {
    let seen = (units.iter().zip(parts))
        .map(|(unit, (calls, _))| seen(unit.image, unit.cfg, calls))
        .fold(RegSet::EMPTY, RegSet::with);
    match seen {
        RegSet::EMPTY => Vec::new(),
        seen => units.iter().map(|u| u.live.keeping(seen)).collect(),
    }
}

/// What the planner of an object knows of threads. `counts` says whether data outside of the threads' counts.
fn threads(unit: &Unit<'_>, data: &Data, counts: bool, options: &Options<'_>) -> Threads {
    let counts = counts || data.threads.is_some_and(|place| place.has_data);
    let is_whole = options.home == Home::Area;
    let object = (unit.image, unit.cfg);
    let mut options = options.threads;
    // Functions of other languages run on large stacks.
    options.own_stack &= unit.image.is_go();
    Threads::new(object, data.threads, options, (counts, is_whole))
}

/// The entries of an object's procedures where the light version has no test. All have one where the program's code begins
/// windows.
fn left_out(options: &Options<'_>, object: usize, unit: &Unit<'_>) -> Vec<bool> {
    if options.switch.is_none()
        || Crossings::in_object(options.borders, object)
            .borders
            .is_some()
    {
        return Vec::new();
    }
    switch::left_out(unit.image, unit.cfg)
}

/// The counters of edges of the objects from `first` on, and for each piece of data whether a call may read it.
fn flows(
    units: &[Unit<'_>],
    parts: &[(Calls, Data)],
    lives: &[&Live<'_>],
    (options, first): (&Options<'_>, usize),
    regions: &Regions,
) -> (Vec<EdgeCounts>, Vec<bool>) {
    // Each burst has counts of its own, which no solution for the whole run gives.
    let is_sampled = options.switch.is_some_and(Switch::is_of_threads);
    let may_derive = !options.every_point && !is_sampled;
    let Some(bodies) = options.bodies.filter(|_| may_derive) else {
        let none = units.iter().map(|_| EdgeCounts::default());
        return (none.collect(), Vec::new());
    };
    let each = || units.iter().zip(parts);
    let candidates = each()
        .map(|(unit, (calls, data))| qualify::candidates(unit.cfg, calls, bodies, data, regions));
    let (qualified, is_open) = qualify::wants(candidates.collect(), regions);
    let flows = each().zip(lives).zip(qualified).enumerate().map(
        |(i, (((unit, (calls, _)), live), qualified))| {
            if i < first {
                EdgeCounts::default()
            } else {
                let crossings = options
                    .switch
                    .map(|_| Crossings::in_object(options.borders, i));
                EdgeCounts::build((unit.image, unit.cfg, live), calls, qualified, crossings)
            }
        },
    );
    (flows.collect(), is_open)
}

/// The calls of each object, with its own numbers and addresses, and the offsets of the calls'
/// arguments in the data. Calls on the program go to the object with the index `starter`.
fn split(
    units: &[Unit<'_>],
    starter: usize,
    calls: Calls,
    offsets: Vec<u32>,
) -> Vec<(Calls, Vec<u32>)> {
    if units.len() == 1 {
        return vec![(calls, offsets)];
    }
    let numbers = Numbers::of(units.iter().map(|u| u.cfg));
    // The object of each call, and the number there of what the call is added to.
    let own: Vec<(u32, u32)> = (calls.calls.par_iter())
        .map(|call| {
            let (object, id) = call.scope.locate(call.id, &numbers).unwrap_or((starter, 0));
            (object as u32, id)
        })
        .collect();
    let part = |object: usize| {
        let mut part = Calls::default();
        let mut own_offsets = Vec::new();
        let mine = calls.calls.iter().zip(&own);
        for (call, (_, id)) in mine.filter(|(_, own)| own.0 == object as u32) {
            let range = call.args.start as usize..call.args.end as usize;
            let start = part.args.len() as u32;
            part.args.extend_from_slice(&calls.args[range.clone()]);
            own_offsets.extend_from_slice(&offsets[range]);
            part.calls.push(Call {
                id: *id,
                args: start..part.args.len() as u32,
                ..call.clone()
            });
        }
        (part, own_offsets)
    };
    (0..units.len()).into_par_iter().map(part).collect()
}

//! Planning the calls of all objects of a process.
//!
//! The calls are split by the objects that they are added to, and each object gets a plan of its own. The
//! data of the calls is laid out once, as the objects share it: a cell that is counted in two libraries
//! is one cell. A program alone is the case of one object, which has the data in its own plan.

use atom_abi::FileIdentity;
use rayon::prelude::*;

use super::build::Planner;
use super::code::Home;
use super::data::Data;
use super::edge_counts::EdgeCounts;
use super::edge_counts::qualify::{self, Regions};
use super::exits::Exits;
use super::points::Points;
use super::prepare::{forget, routines, seen};
use super::threads::Threads;
use super::{Clobbers, Options, Plan};
use crate::analysis::specialise::Specialiser;
use crate::cfg::{Cfg, Numbers};
use crate::error::Result;
use crate::image::Image;
use crate::live::{Live, RegSet};
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
pub struct Whole {
    /// A plan for each object, without data.
    pub plans: Vec<Plan>,
    /// The data; see the fields of the same names of [`Plan`].
    pub shared: Plan,
    /// Offset in the data of what the runtime notes of the objects: the load biases, 8 bytes for each
    /// object, and behind them for each object an [`atom_abi::FileIdentity`].
    pub biases: u32,
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
        let whole = Whole::build(&[unit], 0, calls, clobbers, options)?;
        let own = whole.plans.into_iter().next().unwrap_or_default();
        let shared = whole.shared;
        Ok(Self {
            data: shared.data,
            data_relocs: shared.data_relocs,
            counts: shared.counts,
            ..own
        })
    }
}

impl Whole {
    /// Plans all calls of a process, and drops them. The calls at the program's start and end are made
    /// by code of the object with the index `starter`.
    pub fn build(
        units: &[Unit<'_>],
        starter: usize,
        mut calls: Calls,
        clobbers: &dyn Fn(u64) -> Clobbers,
        options: &Options<'_>,
    ) -> Result<Self> {
        let mut data = Ok(Data::default());
        let routines = rayon::in_place_scope(|scope| {
            scope.spawn(|_| data = Data::build(&calls));
            routines(&calls, clobbers)
        });
        let (routines, mut data) = (routines?, data?);
        // The data has been copied into the plan.
        calls.data = Vec::new();
        let regions = Regions::new(&calls, &data);
        calls.placed = Vec::new();
        let thread_data = std::mem::take(&mut calls.thread_data);
        let signature = std::mem::take(&mut calls.signature);
        let first = Plan::first(&calls);
        let split = split(units, starter, calls, std::mem::take(&mut data.offsets));
        let mut parts: Vec<(Calls, Data)> = (split.into_iter())
            .map(|(calls, offsets)| {
                let thread_data = data.thread_data;
                (calls, Data::of_part(offsets, thread_data))
            })
            .collect();
        let kept = kept(units, &parts);
        let live = |i: usize| kept.get(i).unwrap_or(units[i].live);
        let mut flows = match options.bodies.filter(|_| !options.every_point) {
            None => units.iter().map(|_| EdgeCounts::default()).collect(),
            Some(bodies) => {
                let lives: Vec<&Live<'_>> = (0..units.len()).map(live).collect();
                flows(units, &parts, &lives, bodies, &regions)
            }
        };
        let totals = EdgeCounts::lay_out(&mut flows, &thread_data, &mut data, &options.threads);
        let biases = match options.home {
            Home::Own => 0,
            Home::Area => data.reserve((8 + size_of::<FileIdentity>()) * units.len()),
        };
        let counts = data.place_counts();
        data.check_size()?;
        let mut whole = Self {
            plans: Vec::with_capacity(units.len()),
            shared: Plan {
                calls_by_flow: flows.iter().map(|f| f.handled() as u64).sum(),
                totals,
                ..first
            },
            biases,
        };
        for (i, (unit, flow)) in units.iter().zip(flows).enumerate() {
            unit.image.release_pages();
            let (mut calls, mut part) = std::mem::take(&mut parts[i]);
            part.threads = data.threads;
            forget(&mut calls, &mut part, |call| flow.handles(call));
            let empty = whole.shared.emptied();
            let mut planner = Planner {
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
                bodies: options.bodies,
                exits: Exits::new(unit.image, options),
                home: options.home,
                object: i,
                biases,
                absolute: options.low_room != 0 || options.home == Home::Area,
                makes_program_calls: i == starter,
            };
            let mut plan = planner.plan(empty)?;
            if options.home == Home::Own
                && planner.absolute
                && planner.may_take(&plan) >= options.low_room
            {
                let again = plan.emptied();
                drop(plan);
                planner.absolute = false;
                plan = planner.plan(again)?;
            }
            whole.plans.push(plan);
        }
        if let Some(program) = whole.plans.first_mut() {
            program.signature = signature;
        }
        whole.shared.data = data.bytes;
        whole.shared.data_relocs = data.relocs;
        whole.shared.thread_info = whole.plans[starter].thread_info;
        whole.shared.cell_info = whole.plans[starter].cell_info;
        whole.shared.counts = counts;
        Ok(whole)
    }
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
    let counts = counts || data.threads.is_some();
    let is_whole = options.home == Home::Area;
    let object = (unit.image, unit.cfg);
    let mut options = options.threads;
    // Functions of other languages run on large stacks.
    options.own_stack &= unit.image.is_go();
    Threads::new(object, data.threads, options, (counts, is_whole))
}

/// The counters of edges of all objects.
fn flows(
    units: &[Unit<'_>],
    parts: &[(Calls, Data)],
    lives: &[&Live<'_>],
    bodies: &Specialiser<'_>,
    regions: &Regions,
) -> Vec<EdgeCounts> {
    let each = || units.iter().zip(parts);
    let candidates = each()
        .map(|(unit, (calls, data))| qualify::candidates(unit.cfg, calls, bodies, data, regions));
    let qualified = qualify::wants(candidates.collect(), regions);
    each()
        .zip(lives)
        .zip(qualified)
        .map(|(((unit, (calls, _)), live), qualified)| {
            EdgeCounts::build(unit.image, unit.cfg, live, calls, qualified)
        })
        .collect()
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

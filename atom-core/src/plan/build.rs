//! Putting the plan together: procedures are planned in parallel, then joined in order.

use std::collections::HashMap;
use std::sync::Arc;

use atom_abi::THREAD_THIS;
use rayon::prelude::*;

use super::data::Data;
use super::edge_counts::{self, EdgeCounts};
use super::exits::Exits;
use super::inline;
use super::part::Part;
use super::points::{Around, Points};
use super::return_address;
use super::shared;
use super::site::{self, Point, SiteCall};
use super::threads::{self, Threads};
use super::wrapper::Wrappers;
use super::{Clobbers, Options, Plan, Position, Target};
use crate::analysis::specialise::{Body, Specialiser};
use crate::cfg::Cfg;
use crate::error::{Error, Result};
use crate::ids::{BlockId, InstId, ProcId};
use crate::image::Image;
use crate::live::{EffectsOf, Live, RegSet, is_free_below};
use crate::plan::code::Asm;
use crate::tool::operand::{At, When};
use crate::tool::value::{Selected, Taken, Value};
use crate::tool::{Argument, Call, Calls};
use crate::tool::{CallPlace, Scope};
use crate::x86::ControlFlow;

/// Number of procedures in one piece of parallel work.
const CHUNK: usize = 64;

/// Smallest room in bytes for the tool's own segments where data is named by absolute addresses.
const TOOL_ROOM: u64 = 64 << 20;

/// Number of pieces that are made before they are joined. It limits what is in memory twice.
const WAVE: usize = 32;

impl Plan {
    /// Plans all calls, and drops them.
    ///
    /// `clobbers` tells what a routine may change, by the routine's address in the tool's file.
    pub fn build(
        image: &Image,
        cfg: &Cfg,
        live: &Live,
        mut calls: Calls,
        clobbers: &dyn Fn(u64) -> Clobbers,
        options: &Options<'_>,
    ) -> Result<Self> {
        let mut data = Ok(Data::default());
        let (seen, routines) = rayon::in_place_scope(|scope| {
            scope.spawn(|_| data = Data::build(&calls));
            (seen(image, cfg, &calls), routines(&calls, clobbers))
        });
        let (routines, mut data) = (routines?, data?);
        let kept;
        let live = match seen {
            RegSet::EMPTY => live,
            seen => {
                kept = live.keeping(seen);
                &kept
            }
        };
        let exits = options
            .finish
            .map(|f| Exits::new(image, f, options.exec, !options.may_have_threads));
        // The data has been copied into the plan.
        calls.data = Vec::new();
        let flow = match options.bodies.filter(|_| !options.every_point) {
            Some(bodies) => EdgeCounts::build(image, cfg, live, &calls, bodies, &data),
            None => EdgeCounts::default(),
        };
        let flow = flow.lay_out(&calls, &mut data, options.threads.access);
        data.check_size()?;
        image.release_pages();
        let empty = Self {
            calls_added: calls.calls.len() as u64,
            calls_by_flow: flow.handled() as u64,
            totals: flow.totals,
            ..Self::default()
        };
        forget(&mut calls, &mut data, |call| flow.handles(call));
        let mut planner = Planner {
            image,
            cfg,
            live,
            calls: &calls,
            points: Points::build(cfg, &calls)?,
            threads: Threads::new(image, cfg, data.threads, options.threads),
            data,
            flow,
            routines,
            bodies: options.bodies,
            exits,
            absolute: options.low_room != 0,
        };
        let mut plan = planner.plan(empty)?;
        if planner.absolute && planner.may_take(&plan) >= options.low_room {
            let again = plan.emptied();
            drop(plan);
            planner.absolute = false;
            plan = planner.plan(again)?;
        }
        plan.data = planner.data.bytes;
        plan.data_relocs = planner.data.relocs;
        Ok(plan)
    }
}

/// Facts about a routine that is called.
struct Routine {
    clobbers: Clobbers,
    /// Mask of the arguments that are the same in all calls.
    common: u64,
}

/// Number of calls in one piece of parallel work.
const CALLS: usize = 8192;

/// Arguments of a routine's first call, and a mask of those that are the same in all its calls.
type Common<'a> = (&'a [Argument], u64);

/// Mask of the arguments that are the same in both calls.
fn same(first: &[Argument], args: &[Argument]) -> u64 {
    let pairs = first.iter().zip(args).take(64).enumerate();
    let differ = pairs.filter(|(_, (a, b))| a != b);
    !differ.fold(0, |bits, (i, _)| bits | 1 << i)
}

/// Facts about all routines that are called, by their addresses.
fn routines(calls: &Calls, clobbers: &dyn Fn(u64) -> Clobbers) -> Result<HashMap<u64, Routine>> {
    let common = |some: &[Call]| -> Option<Vec<(u64, Common<'_>)>> {
        let mut found: Vec<(u64, Common<'_>)> = Vec::new();
        let mut last = 0;
        for call in some {
            let range = call.args.start as usize..call.args.end as usize;
            let args = calls.args.get(range)?;
            // Mostly the same routine is called again.
            let routine = call.routine.get();
            if found.get(last).is_none_or(|f| f.0 != routine) {
                let known = found.iter().position(|f| f.0 == routine);
                last = known.unwrap_or(found.len());
                if known.is_none() {
                    found.push((routine, (args, !0)));
                }
            }
            let (first, bits) = &mut found[last].1;
            *bits &= same(first, args);
        }
        Some(found)
    };
    let parts: Option<Vec<_>> = calls.calls.par_chunks(CALLS).map(common).collect();
    let Some(parts) = parts else {
        let reason = "a call's arguments are out of range";
        return Err(Error::new("planning calls", reason));
    };
    let mut routines: HashMap<u64, Common<'_>> = HashMap::new();
    for (routine, (first, bits)) in parts.into_iter().flatten() {
        let known = routines.entry(routine).or_insert((first, !0));
        // Arguments that only later calls have are not common.
        let own = (1u64 << known.0.len().min(63)) - 1;
        known.1 &= (bits & same(known.0, first)) | !own;
    }
    let routine = |(at, (_, common)): (u64, Common<'_>)| {
        let clobbers = clobbers(at);
        (at, Routine { clobbers, common })
    };
    Ok(routines.into_iter().map(routine).collect())
}

/// Drops the calls that are not made, and the contents that have been copied to `data`.
fn forget(calls: &mut Calls, data: &mut Data, is_dropped: impl Fn(usize) -> bool) {
    calls.placed = Vec::new();
    let mut kept = Calls::default();
    let mut offsets = Vec::new();
    for (_, call) in calls
        .calls
        .iter()
        .enumerate()
        .filter(|(i, _)| !is_dropped(*i))
    {
        let range = call.args.start as usize..call.args.end as usize;
        let start = kept.args.len() as u32;
        kept.args.extend_from_slice(&calls.args[range.clone()]);
        offsets.extend_from_slice(&data.offsets[range]);
        kept.calls.push(Call {
            args: start..kept.args.len() as u32,
            ..call.clone()
        });
    }
    if kept.calls.len() < calls.calls.len() {
        calls.calls = kept.calls;
        calls.args = kept.args;
        data.offsets = offsets;
    }
}

struct Planner<'a> {
    image: &'a Image,
    cfg: &'a Cfg,
    live: &'a Live<'a>,
    calls: &'a Calls,
    points: Points<'a>,
    threads: Threads,
    data: Data,
    flow: EdgeCounts,
    routines: HashMap<u64, Routine>,
    bodies: Option<&'a Specialiser<'a>>,
    exits: Option<Exits>,
    absolute: bool,
}

/// The registers that calls take as arguments. Such an argument is the program's own value, also of a
/// register that the program does not read again. So no point may leave another value in it. A register
/// that the call's own instruction reads, or has just written, is right anyway.
fn seen(image: &Image, cfg: &Cfg, calls: &Calls) -> RegSet {
    let of = |argument: &Argument| match *argument {
        Argument::Regv(n @ 0..=15) => RegSet::gpr(n.into()),
        Argument::Regv(17) => RegSet::FLAGS,
        Argument::Regv(n @ 32..=47) | Argument::RegvHigh(n @ 32..=47) => {
            RegSet::xmm(usize::from(n) - 32)
        }
        Argument::ReturnValue => RegSet::gpr(0),
        _ => RegSet::EMPTY,
    };
    let seen_by = |effects: &mut EffectsOf, call: &Call, seen: RegSet| {
        let args = calls
            .args
            .get(call.args.start as usize..call.args.end as usize);
        let args = args.unwrap_or_default().iter();
        let mut mine = args.map(of).fold(RegSet::EMPTY, RegSet::with);
        if call.scope == Scope::Inst && !mine.without(seen).is_empty() {
            let effects = effects.of(&cfg.decode(image, InstId(call.id)));
            mine = mine.without(effects.uses);
            if call.place == CallPlace::After {
                mine = mine.without(effects.kills);
            }
        }
        seen | mine
    };
    let chunks = calls.calls.par_chunks(CALLS);
    let parts = chunks.map_init(EffectsOf::new, |effects, some| {
        some.iter()
            .fold(RegSet::EMPTY, |seen, call| seen_by(effects, call, seen))
    });
    parts.reduce(|| RegSet::EMPTY, RegSet::with)
}

/// Storage that is reused from block to block.
#[derive(Default)]
struct Scratch {
    effects_of: EffectsOf,
    live: Vec<RegSet>,
    around: Around,
}

impl Planner<'_> {
    /// Plans all calls; `plan` is empty at first.
    fn plan(&self, mut plan: Plan) -> Result<Plan> {
        let procs: Vec<ProcId> = (0..self.cfg.procs.len()).map(ProcId::from_index).collect();
        let mut wrappers = Wrappers::default();
        let mut waves = procs.chunks(CHUNK * WAVE);
        let mut wave = waves.next().map(|procs| self.wave(procs));
        // The pieces of one wave are joined while those of the next wave are made.
        while let Some(parts) = wave.transpose()? {
            let (put, made) = rayon::join(
                || {
                    let mut parts = parts.into_iter();
                    parts.try_for_each(|part| plan.append(part, &mut wrappers))
                },
                || waves.next().map(|procs| self.wave(procs)),
            );
            put?;
            wave = made;
            self.image.release_pages();
        }
        let threads = &self.threads;
        let enter = threads
            .by_gs()
            .map(|_| wrappers.index(threads.enter_wrapper()));
        plan.shared = Vec::with_capacity(wrappers.list.len() + 2);
        let mut next = 0;
        // Shared code may need further wrappers.
        while let Some(wrapper) = wrappers.list.get(next).copied() {
            let asm = shared::emit(&wrapper, self.bodies, self.absolute, &mut wrappers);
            plan.add_shared(asm);
            next += 1;
        }
        if plan
            .fixups
            .par_iter()
            .any(|f| f.target == Target::OriginalReturn)
        {
            let mut asm = Asm::default();
            return_address::emit(&mut asm, self.cfg.base);
            plan.original_return = Some(plan.add_shared(asm));
        }
        plan.thread_info = threads.info();
        if let (Some(place), Some(wrapper)) = (threads.by_gs(), enter) {
            let enter = plan.add_shared(threads.emit_enter(wrapper));
            plan.early_reloc = Some(place.block + THREAD_THIS as u32);
            let guards = threads::guards(self.image, self.cfg, self.live, place.block, enter);
            plan.guards = Some(guards);
        }
        plan.program_before = self.program(&mut plan, CallPlace::Before)?;
        plan.program_after = self.program(&mut plan, CallPlace::After)?;
        Ok(plan)
    }

    /// Upper bound of the size of the new segments in bytes, without the tool's own.
    fn may_take(&self, plan: &Plan) -> u64 {
        let text = self.image.segments.iter().filter(|s| s.is_executable());
        let text: u64 = text.map(|s| s.file_size).sum();
        (plan.code.len() + self.data.bytes.len()) as u64 + 4 * text + TOOL_ROOM
    }

    /// Plans some procedures, in all threads.
    fn wave(&self, procs: &[ProcId]) -> Result<Vec<Part>> {
        let chunks = procs.par_chunks(CHUNK);
        chunks.map(|chunk| self.part(chunk)).collect()
    }

    fn part(&self, procs: &[ProcId]) -> Result<Part> {
        let mut part = Part::default();
        let counters = |id: ProcId| {
            let insts = self.cfg.proc_insts(id);
            let [start, end] = [insts.start, insts.end].map(InstId::from_index);
            self.flow.between(start, end)
        };
        part.reserve(procs.iter().map(|id| counters(*id).len()).sum());
        let mut scratch = Scratch::default();
        for &id in procs {
            let proc = self.cfg.proc(id);
            let any = self.points.any_in_proc(id);
            let mut counters = counters(id);
            if !any && self.exits.is_none() && counters.is_empty() {
                continue;
            }
            let free_below = any && is_free_below(self.image, self.cfg, id);
            for b in proc.blocks() {
                if any && self.points.any_in_block(b) {
                    self.block(&mut part, &mut scratch, b, free_below, &mut counters)?;
                } else if self.exits.is_some() || !counters.is_empty() {
                    self.quiet_block(&mut part, b, &mut counters);
                }
            }
        }
        Ok(part)
    }

    /// Plans the calls of one block.
    fn block(
        &self,
        part: &mut Part,
        scratch: &mut Scratch,
        b: BlockId,
        free_below: bool,
        counters: &mut &[edge_counts::Counter],
    ) -> Result<()> {
        let block = self.cfg.block(b);
        let Scratch {
            effects_of,
            live,
            around,
        } = scratch;
        live.clear();
        for (i, inst) in block.insts().enumerate() {
            self.points.around(b, inst, around);
            let lists = [
                &around.entry,
                &around.before,
                &around.before_transfer,
                &around.if_taken,
                &around.taken,
                &around.after,
            ];
            if lists.iter().all(|l| l.is_empty()) {
                self.quiet(part, b, inst, counters);
                continue;
            }
            if live.is_empty() {
                self.live.block_into(b, effects_of, live);
            }
            let here = Here {
                at: At::new(self.cfg.decode(self.image, inst)),
                inst,
                block: b,
                may_set_df: self.live.may_set_df(block.proc),
            };
            let pc = self.cfg.inst_pc(inst);
            let point = Point {
                live: live[i],
                may_set_df: here.may_set_df,
                absolute: self.absolute,
                is_piece: false,
                free_below,
            };
            let at = |position| InsertionPoint {
                position,
                point,
                pc,
            };
            let lists = [(&around.entry[..], When::Before)];
            self.calls_at(part, &here, &lists, at(Position::Entry))?;
            self.counter(part, inst, Position::Before, counters);
            let lists = [
                (&around.before[..], When::Before),
                (&around.before_transfer, When::Transfer),
            ];
            self.calls_at(part, &here, &lists, at(Position::Before))?;
            let taken = match &around.taken[..] {
                [] => None,
                _ => Some(here.at.taken()?),
            };
            // A branch on rcx has no stub on the way to its target, as its displacement is too short.
            let on_the_way = matches!(taken, Some(Taken::Flags(_)));
            let guarded = match on_the_way {
                true => &[][..],
                false => &around.taken[..],
            };
            if !around.if_taken.is_empty() || !guarded.is_empty() {
                let numbers = guarded.iter().chain(&around.if_taken);
                let mut site = Vec::with_capacity(guarded.len() + around.if_taken.len());
                for &number in numbers {
                    site.push(self.resolve(number, &here, pc, When::Transfer, 0)?);
                }
                let guard = Some(Guard::Taken(here.at.taken()?));
                self.insert(part, &here, &site, at(Position::Before), guard)?;
            }
            self.exit_hook(part, b, inst);
            let after = |position, pc| InsertionPoint {
                position,
                point: Point {
                    live: live[i + 1],
                    ..point
                },
                pc,
            };
            let behind = after(Position::After, self.cfg.inst_end(inst));
            // The calls see the value that the instruction has just written.
            let lists = [(&around.after[..], When::After)];
            self.calls_at(part, &here, &lists, behind)?;
            self.counter(part, inst, Position::After, counters);
            self.counter(part, inst, Position::Taken, counters);
            if on_the_way {
                let lists = [(&around.taken[..], When::Transfer)];
                self.calls_at(part, &here, &lists, after(Position::Taken, pc))?;
            }
        }
        Ok(())
    }

    /// The body that can stand in the place of a call.
    fn body(&self, routine: u64, values: &[Value]) -> Option<Arc<Body>> {
        let bounds: Vec<_> = values.iter().map(inline::bound).collect();
        self.bodies?.body(routine, &bounds)
    }

    /// Plans a block without calls.
    fn quiet_block(&self, part: &mut Part, b: BlockId, counters: &mut &[edge_counts::Counter]) {
        let block = self.cfg.block(b);
        let last = block.last();
        // An instruction that ends the process or starts a thread ends its block, or is a procedure's entry.
        let is_entry = b == self.cfg.proc(block.proc).first_block;
        if is_entry && block.first != last {
            self.quiet(part, b, block.first, counters);
        }
        self.counters(part, last, counters);
        let flow = self.cfg.inst(last).flow;
        if is_entry || may_end(flow) || self.threads.may_start(last) {
            self.quiet(part, b, last, counters);
        } else {
            self.counters(part, InstId(last.0 + 1), counters);
        }
    }

    /// Emits the counters of edges at all instructions before this one.
    fn counters(&self, part: &mut Part, end: InstId, counters: &mut &[edge_counts::Counter]) {
        while let Some((counter, rest)) = counters.split_first()
            && counter.spot.inst < end
        {
            *counters = rest;
            self.emit(part, counter);
        }
    }

    /// Plans an instruction without calls.
    fn quiet(
        &self,
        part: &mut Part,
        b: BlockId,
        inst: InstId,
        counters: &mut &[edge_counts::Counter],
    ) {
        self.counter(part, inst, Position::Before, counters);
        self.exit_hook(part, b, inst);
        self.counter(part, inst, Position::After, counters);
        self.counter(part, inst, Position::Taken, counters);
    }

    /// Emits the next counter of an edge if it stands at this place.
    fn counter(
        &self,
        part: &mut Part,
        inst: InstId,
        position: Position,
        counters: &mut &[edge_counts::Counter],
    ) {
        let Some((counter, rest)) = counters.split_first() else {
            return;
        };
        if !edge_counts::is_at(counter, inst, position) {
            return;
        }
        *counters = rest;
        self.emit(part, counter);
    }

    fn emit(&self, part: &mut Part, counter: &edge_counts::Counter) {
        let (code, fixups) = (part.asm.code.len(), part.asm.fixups.len());
        self.flow.emit(&mut part.asm, counter);
        part.close(code, fixups, counter.spot.inst, counter.spot.position);
    }

    /// A call with its arguments as values. `element` is the number of a gather's or scatter's element.
    fn resolve(
        &self,
        number: u32,
        here: &Here,
        pc: u64,
        when: When,
        element: u8,
    ) -> Result<SiteCall> {
        let call = self.points.call(number);
        let avx512 = || self.has_avx512(here.block);
        let mut values = self.values(call, |argument| {
            here.at.value(argument, pc, when, element, &avx512)
        })?;
        if !here.may_set_df {
            for value in values.iter_mut().filter(|v| **v == Value::Direction) {
                *value = Value::Const(0);
            }
        }
        let routine = call.routine.get();
        Ok(SiteCall {
            routine,
            clobbers: self.routines[&routine].clobbers,
            common: self.routines[&routine].common,
            body: self.body(routine, &values),
            values,
        })
    }

    /// True if an instruction of the block needs AVX-512: a processor that runs the block has it.
    fn has_avx512(&self, block: BlockId) -> bool {
        let mut insts = self.cfg.block(block).insts();
        insts.any(|i| {
            let encoding = self.cfg.decode(self.image, i).code().encoding();
            encoding == crate::x86::EncodingKind::EVEX
        })
    }

    fn values(
        &self,
        call: &Call,
        at_point: impl Fn(&Argument) -> Result<Option<Value>>,
    ) -> Result<Vec<Value>> {
        let range = call.args.start as usize..call.args.end as usize;
        if range.len() > 100 {
            return Err(Error::new(
                "planning calls",
                "a call has more than 100 arguments",
            ));
        }
        range
            .map(|i| {
                let argument = &self.calls.args[i];
                let offset = self.data.offsets[i];
                Ok(match (at_point(argument)?, argument) {
                    (Some(value), _) => value,
                    (None, Argument::ThreadData(_)) => self.threads.value(offset),
                    (None, _) => Value::Data(offset),
                })
            })
            .collect()
    }

    /// Inserts the calls of one point. A call with a value of a gather's or scatter's operand is made
    /// for each element, with a test of its own around it.
    fn calls_at(
        &self,
        part: &mut Part,
        here: &Here,
        lists: &[(&[u32], When)],
        place: InsertionPoint,
    ) -> Result<()> {
        let mut site = Vec::with_capacity(lists.iter().map(|l| l.0.len()).sum());
        for &(numbers, when) in lists {
            for &number in numbers {
                let elements = match when {
                    When::Before => self.elements(number, here),
                    _ => 1,
                };
                if elements == 1 {
                    site.push(self.resolve(number, here, place.pc, when, 0)?);
                    continue;
                }
                self.insert(part, here, &site, place, None)?;
                site.clear();
                for element in 0..elements {
                    let call = self.resolve(number, here, place.pc, when, element)?;
                    let guard = Some(Guard::Selected(here.at.selected(element)));
                    self.insert(part, here, &[call], place, guard)?;
                }
            }
        }
        self.insert(part, here, &site, place, None)
    }

    /// Number of calls that a call stands for: one for each element of a gather or scatter.
    fn elements(&self, number: u32, here: &Here) -> u8 {
        let call = self.points.call(number);
        let args = &self.calls.args[call.args.start as usize..call.args.end as usize];
        let elements = args.iter().map(|a| here.at.elements(a));
        elements.max().unwrap_or(1)
    }

    fn insert(
        &self,
        part: &mut Part,
        here: &Here,
        site: &[SiteCall],
        place: InsertionPoint,
        guard: Option<Guard>,
    ) -> Result<()> {
        if site.is_empty() {
            return Ok(());
        }
        let (code, fixups) = (part.asm.code.len(), part.asm.fixups.len());
        let patches = match guard {
            None => Vec::new(),
            Some(Guard::Taken(taken)) => site::only_if_taken(&mut part.asm, taken),
            Some(Guard::Selected(element)) => site::only_if_selected(&mut part.asm, element),
        };
        let emitted = site::emit(&mut part.asm, code, site, place.point, &mut part.wrappers);
        part.inlined += emitted.inlined as u64;
        for patch in patches {
            part.asm.land(patch);
        }
        part.close_with_tail(code, fixups, here.inst, place.position, emitted.tail);
        Ok(())
    }

    /// Inserts calls of the runtime where the process may end and where a thread may start.
    fn exit_hook(&self, part: &mut Part, b: BlockId, inst: InstId) {
        self.end_hook(part, b, inst);
        if self.threads.may_start(inst) {
            let (code, fixups) = (part.asm.code.len(), part.asm.fixups.len());
            self.threads.emit_start(&mut part.asm, &mut part.wrappers);
            part.close(code, fixups, inst, Position::After);
        }
    }

    fn end_hook(&self, part: &mut Part, b: BlockId, inst: InstId) {
        let Some(exits) = &self.exits else { return };
        let block = self.cfg.block(b);
        let proc = self.cfg.proc(block.proc);
        let at_start = inst == block.first && b == proc.first_block;
        let at_entry = at_start.then(|| exits.at_entry(proc)).flatten();
        let flow = self.cfg.inst(inst).flow;
        let hook = if at_entry.is_some() {
            at_entry
        } else if may_end(flow) {
            exits.hook(self.image, self.cfg, proc, inst)
        } else {
            None
        };
        if let Some(hook) = hook {
            let (code, fixups) = (part.asm.code.len(), part.asm.fixups.len());
            exits.emit(hook, &mut part.asm, &mut part.wrappers);
            part.close(code, fixups, inst, Position::Before);
        }
    }

    /// The function that makes the calls of the program's start or end.
    ///
    /// It is a function by the C ABI. So only callee-saved registers are live, and the stack is 8 bytes
    /// off its alignment at the entry.
    fn program(&self, plan: &mut Plan, place: CallPlace) -> Result<Option<u32>> {
        let mine: Vec<&Call> = self
            .calls
            .calls
            .iter()
            .filter(|c| c.scope == Scope::Program && c.place == place)
            .collect();
        if mine.is_empty() {
            return Ok(None);
        }
        let mut asm = Asm::default();
        for call in mine {
            let mut values = self.values(call, |argument| match argument {
                Argument::Const(value) => Ok(Some(Value::Const(*value))),
                Argument::Routine(at) | Argument::Static(at) => Ok(Some(Value::Tool(*at))),
                Argument::Original(at) => Ok(Some(Value::Original(*at))),
                Argument::Str(..)
                | Argument::CStr(..)
                | Argument::Array(..)
                | Argument::CArray(..)
                | Argument::Data(_)
                | Argument::ThreadData(_) => Ok(None),
                _ => Err(Error::new(
                    "planning the calls at the program's start and end",
                    "registers and computed values do not exist there",
                )),
            })?;
            let offsets = &self.data.offsets[call.args.start as usize..];
            for (value, &offset) in values.iter_mut().zip(offsets) {
                if let Value::Thread { .. } | Value::ThreadLookup { .. } = value {
                    *value = match place {
                        CallPlace::Before => Value::Data(offset),
                        CallPlace::After => self.threads.total(offset),
                    };
                }
            }
            site::emit_plain(&mut asm, call.routine.get(), &values);
        }
        asm.ret();
        Ok(Some(plan.add_shared(asm)))
    }
}

/// True if the process may end at an instruction with this control flow.
fn may_end(flow: ControlFlow) -> bool {
    matches!(
        flow,
        ControlFlow::Syscall | ControlFlow::IndirectCall | ControlFlow::IndirectJump
    )
}

/// Where inserted code stands at an instruction, and what holds there.
#[derive(Clone, Copy)]
struct InsertionPoint {
    position: Position,
    point: Point,
    /// The program counter that arguments of calls see.
    pc: u64,
}

/// The instruction that a point belongs to, with the facts that its calls need.
struct Here {
    at: At,
    inst: InstId,
    block: BlockId,
    may_set_df: bool,
}

/// The condition on which a point's calls are made.
#[derive(Clone, Copy)]
enum Guard {
    Taken(Taken),
    Selected(Selected),
}

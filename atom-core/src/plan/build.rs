//! Putting the plan together: procedures are planned in parallel, then joined in order.

use std::collections::HashMap;
use std::sync::Arc;

use atom_abi::{OBJECT_SHIFT, THREAD_THIS};
use rayon::prelude::*;

use super::code::{Home, assembler};
use super::data::Data;
use super::edge_counts::{self, EdgeCounts};
use super::exits::Exits;
use super::inline;
use super::part::Part;
use super::points::{Around, Points};
use super::prepare::Routine;
use super::return_address;
use super::shared;
use super::site::{self, Point, SiteCall};
use super::switch::{self, Switch};
use super::threads::{self, Threads};
use super::wrapper::Wrappers;
use super::{Guards, Plan, Position, Target, Version};
use crate::analysis::specialise::{Body, Specialiser};
use crate::cfg::Cfg;
use crate::error::{Error, Result};
use crate::ids::{BlockId, InstId, ProcId};
use crate::image::Image;
use crate::live::{EffectsOf, Foreign, Live, RegSet, is_free_below};
use crate::tool::crossings::Crossings;
use crate::tool::operand::{At, When};
use crate::tool::value::{Taken, Value};
use crate::tool::{Argument, Call, Calls};
use crate::tool::{CallPlace, Scope};
use crate::x86::{ControlFlow, InstructionInfoFactory};

mod insert;

use insert::{Guard, Here, InsertionPoint};

/// Number of procedures in one piece of parallel work.
const CHUNK: usize = 64;

/// Smallest space in bytes for the tool's own segments where data is named by absolute addresses.
const TOOL_SPACE: u64 = 64 << 20;

/// Number of pieces that are made before they are joined. It limits what is in memory twice.
const WAVE: usize = 32;

/// What is needed to plan the calls of one object.
pub struct Planner<'a> {
    pub image: &'a Image,
    pub cfg: &'a Cfg,
    pub live: &'a Live<'a>,
    pub calls: &'a Calls,
    pub points: Points<'a>,
    pub threads: Threads,
    /// The places of the calls' arguments.
    pub data: Data,
    /// Size in bytes of the data that all objects share.
    pub shared_size: usize,
    pub flow: EdgeCounts,
    pub routines: &'a HashMap<u64, Routine>,
    pub bodies: Option<&'a Specialiser<'a>>,
    pub exits: Option<Exits>,
    /// See [`super::Options::apart`].
    pub apart: Option<u64>,
    /// True if the program may have the processor check alignment.
    pub unchecked: bool,
    pub home: Home,
    /// Index of the object.
    pub object: usize,
    /// Offset in the data of the objects' load biases, where there are several objects.
    pub biases: u32,
    /// What leads from one version to the other, with the offset of its data in the plan's; `None` if there is one version.
    pub switch: Option<(Switch, u32)>,
    /// By procedure, see [`switch::left_out()`]; empty if nothing is left out.
    pub left_out: Vec<bool>,
    /// Where control goes from one version to the other.
    pub crossings: Crossings<'a>,
    /// See [`super::Options::window`].
    pub window: Option<u64>,
    /// See [`super::Options::turn`].
    pub turn: Option<u64>,
    /// True if inserted code may name data by 32-bit addresses.
    pub absolute: bool,
    /// True if the calls at the program's start and end are made by code of this object.
    pub makes_program_calls: bool,
}

/// Storage that is reused from block to block.
struct Scratch {
    effects_of: EffectsOf,
    live: Vec<RegSet>,
    around: Around,
    info: InstructionInfoFactory,
}

impl Planner<'_> {
    /// Plans all calls; `plan` is empty at first.
    pub fn plan(&self, mut plan: Plan) -> Result<Plan> {
        let procs: Vec<ProcId> = (0..self.cfg.procs.len()).map(ProcId::from_index).collect();
        let mut wrappers = self.no_wrappers();
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
            let asm = shared::emit(
                &wrapper,
                self.bodies,
                self.home,
                self.absolute,
                &mut wrappers,
            );
            plan.add_shared(asm);
            next += 1;
        }
        if plan
            .fixups
            .par_iter()
            .any(|f| f.target == Target::OriginalReturn)
        {
            let mut asm = assembler(self.home);
            return_address::emit(&mut asm, self.cfg.base);
            plan.original_return = Some(plan.add_shared(asm));
        }
        plan.thread_info = threads.info();
        plan.cell_info = threads.cells();
        plan.has_private_stack = threads.private_stack().is_some();
        if let (Some(place), Some(wrapper)) = (threads.by_gs(), enter) {
            let enter = plan.add_shared(threads.emit_enter(wrapper));
            // An area needs no relocation.
            plan.early_reloc = match self.home {
                Home::Own => Some(place.block + THREAD_THIS as u32),
                Home::Area => None,
            };
            let guards = match self.home {
                Home::Own => threads::guards(self.image, self.cfg, self.live, place.block, enter),
                Home::Area => Guards::none(place.block, enter),
            };
            plan.guards = Some(guards);
        }
        if self.makes_program_calls {
            plan.program_before = self.program(&mut plan, CallPlace::Before)?;
            plan.program_after = self.program(&mut plan, CallPlace::After)?;
        }
        plan.maps_boundaries = self.exits.as_ref().is_some_and(Exits::sees_signals);
        Ok(plan)
    }

    /// Plans all calls; `plan` is empty at first. Data is named by absolute addresses if the new segments of a program alone
    /// certainly end within `low_space` bytes.
    pub fn plan_within(self, plan: Plan, low_space: u64) -> Result<Plan> {
        let plan = self.plan(plan)?;
        if self.home == Home::Area || !self.absolute || self.may_take(&plan) < low_space {
            return Ok(plan);
        }
        let again = plan.emptied();
        drop(plan);
        let farther = Self {
            absolute: false,
            ..self
        };
        farther.plan(again)
    }

    /// Upper bound of the size of the new segments in bytes, without the tool's own.
    pub fn may_take(&self, plan: &Plan) -> u64 {
        let text = self.image.segments.iter().filter(|s| s.is_executable());
        let text: u64 = text.map(|s| s.file_size).sum();
        (plan.code.len() + self.shared_size) as u64 + 4 * text + TOOL_SPACE
    }

    /// Plans some procedures, in all threads.
    fn wave(&self, procs: &[ProcId]) -> Result<Vec<Part>> {
        let chunks = procs.par_chunks(CHUNK);
        chunks.map(|chunk| self.part(chunk)).collect()
    }

    fn no_wrappers(&self) -> Wrappers {
        Wrappers::on(self.threads.stack(), self.apart, self.unchecked)
    }

    fn part(&self, procs: &[ProcId]) -> Result<Part> {
        let mut part = Part::default();
        part.wrappers = self.no_wrappers();
        part.asm.by_address = assembler(self.home).by_address;
        let counters = |id: ProcId| {
            let insts = self.cfg.proc_insts(id);
            let [start, end] = [insts.start, insts.end].map(InstId::from_index);
            self.flow.between(start, end)
        };
        part.reserve(procs.iter().map(|id| counters(*id).len()).sum());
        let mut scratch = Scratch {
            effects_of: EffectsOf::default(),
            live: Vec::new(),
            around: Around::default(),
            info: InstructionInfoFactory::new(),
        };
        for &id in procs {
            let proc = self.cfg.proc(id);
            let any = self.points.any_in_proc(id);
            let mut counters = counters(id);
            if self.switch.is_some() && proc.is_movable() {
                part.tests = switch::tests(self.cfg, self.live, id, self.crossings, &self.left_out);
                let fronts = part.tests.iter().filter(|test| test.is_front());
                let fronts = fronts.map(|test| self.cfg.block_of(test.inst));
                part.full_fronts.extend(fronts);
            } else {
                part.tests.clear();
            }
            let has_more = !counters.is_empty() || !part.tests.is_empty();
            if !any && self.exits.is_none() && !has_more {
                continue;
            }
            let free_below = any && is_free_below(self.image, self.cfg, id);
            part.foreign = if any || self.exits.is_some() || has_more {
                self.live.foreign(id, &mut scratch.info)
            } else {
                Foreign::default()
            };
            part.begin(Version::Full);
            for b in proc.blocks() {
                if any && self.points.any_in_block(b) {
                    self.block(&mut part, &mut scratch, b, free_below, &mut counters)?;
                } else if self.exits.is_some() || !counters.is_empty() || has_more {
                    self.quiet_block(&mut part, b, &mut counters);
                }
            }
            if self.switch.is_some() {
                part.begin(Version::Light);
                for b in proc.blocks() {
                    self.quiet_block(&mut part, b, &mut &[][..]);
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
            ..
        } = scratch;
        live.clear();
        for (i, inst) in block.insts().enumerate() {
            self.points.around(b, inst, around);
            if around.is_empty() {
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
                may_set_df: here.may_set_df,
                absolute: self.absolute,
                ..Point::of_hook(live[i], free_below)
            };
            let at = |position| InsertionPoint {
                position,
                point,
                pc,
            };
            self.test(part, inst, Position::Entry);
            if let Some(number) = around.instead {
                self.instead(part, &here, number, at(Position::Entry))?;
            }
            let lists = [(&around.entry[..], When::Before)];
            self.calls_at(part, &here, &lists, at(Position::Entry))?;
            self.test(part, inst, Position::Before);
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
            let guarded = if on_the_way {
                &[][..]
            } else {
                &around.taken[..]
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

    /// The body that can be in the place of a call.
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
        if part.has_test_in(block.first, last) {
            block
                .insts()
                .for_each(|inst| self.quiet(part, b, inst, counters));
            return;
        }
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
            && counter.site.inst < end
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
        self.test(part, inst, Position::Entry);
        self.test(part, inst, Position::Before);
        self.counter(part, inst, Position::Before, counters);
        self.exit_hook(part, b, inst);
        self.counter(part, inst, Position::After, counters);
        self.counter(part, inst, Position::Taken, counters);
    }

    /// Emits the next test of a switch if it is at this place.
    fn test(&self, part: &mut Part, inst: InstId, position: Position) {
        let (Some(switch), Some(test)) = (self.switch, part.next_test(inst, position)) else {
            return;
        };
        let (code, fixups) = (part.asm.code.len(), part.asm.fixups.len());
        let private = self.private_stack(part, inst, position);
        let around = switch::Around {
            switch,
            version: part.version,
            private,
            threads: &self.threads,
            turn: self.turn,
        };
        let hooks = (private, &mut part.wrappers);
        test.emit_border(&mut part.asm, part.version, self.window, hooks);
        let cold_part = switch::emit(&mut part.asm, &test, &around, &mut part.wrappers);
        part.close_with_cold_part(code, fixups, inst, position, cold_part);
    }

    /// Emits the next counter of an edge if it is at this place.
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
        let private = self.private_stack(part, counter.site.inst, counter.site.position);
        self.flow.emit(&mut part.asm, counter, private);
        part.close(code, fixups, counter.site.inst, counter.site.position);
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
                if let Some(value) = self.elsewhere(argument) {
                    return Ok(value);
                }
                Ok(match (at_point(argument)?, argument) {
                    (Some(value), _) => value,
                    (None, Argument::ThreadData(_)) => self.threads.value(offset),
                    (None, _) => Value::Data(offset),
                })
            })
            .collect()
    }

    /// The value of an argument that is an address of one of several objects. In another object it is the
    /// object's load bias, which the runtime notes, and the address in the object's file.
    fn elsewhere(&self, argument: &Argument) -> Option<Value> {
        let Argument::Original(address) = *argument else {
            return None;
        };
        if self.home == Home::Own {
            return None;
        }
        let object = (address >> OBJECT_SHIFT) as usize;
        let offset = address as u32;
        Some(if object == self.object {
            Value::Original(u64::from(offset))
        } else {
            Value::Pointed {
                slot: self.biases + 8 * object as u32,
                offset,
            }
        })
    }

    /// Inserts calls of the runtime where the process may end and where a thread may start.
    fn exit_hook(&self, part: &mut Part, b: BlockId, inst: InstId) {
        self.end_hook(part, b, inst);
        if self.threads.may_start(inst) {
            let (code, fixups) = (part.asm.code.len(), part.asm.fixups.len());
            let proc = self.cfg.proc(self.cfg.block(b).proc);
            self.threads
                .emit_start(inst, &mut part.asm, &mut part.wrappers, proc.is_go);
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
            let stack = (proc.is_go, part.is_foreign(inst, Position::Before));
            exits.emit(hook, &mut part.asm, &mut part.wrappers, stack);
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
        let mut asm = assembler(self.home);
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

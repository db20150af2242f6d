//! Comparison of one procedure: its blocks, and the code between the instructions of a block.

use crate::cfg::{Cfg, ProcKind, Succ};
use crate::error::{Error, Result};
use crate::ids::{BlockId, InstId, ProcId};
use crate::live::{EffectsOf, Foreign, RegSet, is_free_below};
use crate::tool::CallPlace;
use crate::x86::{ControlFlow, InstructionInfoFactory};

use super::frames::{Expected, Frames, Tables, carried};
use super::shared::SharedCode;
use super::state::Written;
use super::step::{Complaint, KnownWrites, WritableRanges};
use super::subject::{Checked, DOING, Scope, View};
use super::walk::{Postcondition, Walker, Watch};

/// Working storage, which one procedure after the other uses.
pub(super) struct Storage<'a> {
    pub(super) effects_of: EffectsOf,
    info: InstructionInfoFactory,
    /// What inserted instructions write.
    writes: KnownWrites,
    /// Frame descriptions, if the output has any of its own.
    pub(super) frames: Option<Frames<'a>>,
    pub(super) shared: SharedCode,
}

impl<'a> Storage<'a> {
    pub(super) fn new(tables: Option<&Tables<'a>>) -> Self {
        Self {
            effects_of: EffectsOf::new(),
            info: InstructionInfoFactory::new(),
            writes: KnownWrites::default(),
            frames: tables.map(Frames::new),
            shared: SharedCode::default(),
        }
    }

    /// What frame descriptions must say where the original is at one of these addresses.
    fn expect(&mut self, addresses: &[u64], live: RegSet) -> Expected<'a> {
        let frames = self.frames.as_mut();
        frames.map_or_else(Expected::default, |f| f.expect(addresses, live))
    }

    /// Judges the frame description of an instruction of the program.
    fn look(
        &mut self,
        expected: &Expected<'a>,
        at: u64,
        written: Written,
    ) -> Result<(), Complaint> {
        match &mut self.frames {
            Some(frames) => frames.look_at_point(expected, at, written),
            None => Ok(()),
        }
    }
}

/// A place of the program to which control goes.
#[derive(Clone, Copy)]
pub(super) struct Goal {
    /// Its new address.
    pub(super) at: u64,
    /// The instruction there; `None` if it is not known, so that everything is live.
    pub(super) inst: Option<InstId>,
    /// The block from which control comes, if it comes from there only.
    pub(super) from: Option<BlockId>,
}

/// What a procedure does with its stack.
struct Stack {
    /// True if it keeps nothing below rsp.
    free_below: bool,
    /// Where rsp may lead to data, if that matters.
    foreign: Foreign,
}

/// What holds on a way through inserted code.
struct Facts {
    /// The program keeps nothing below rsp.
    no_red_zone: bool,
    /// rsp may lead to data.
    is_foreign: bool,
    /// The same place in the other version, where control may go.
    twin: Option<u64>,
    /// A routine runs in place of the procedure to which control goes.
    is_replaced: bool,
}

/// Checks one procedure.
pub(super) struct Checker<'s, 'a> {
    pub(super) subject: View<'s, 'a>,
    pub(super) walker: &'s Walker<'a>,
    pub(super) id: ProcId,
    /// What the procedure does with its stack, if that has been asked for.
    stack: Option<Stack>,
    pub(super) storage: &'s mut Storage<'a>,
    /// Places around rsp that inserted code of this block has written.
    pub(super) written: Written,
    pub(super) checked: Checked,
}

impl<'s, 'a> Checker<'s, 'a> {
    pub(super) fn new(
        subject: View<'s, 'a>,
        walker: &'s Walker<'a>,
        id: ProcId,
        storage: &'s mut Storage<'a>,
    ) -> Self {
        Self {
            subject,
            walker,
            id,
            stack: None,
            storage,
            written: None,
            checked: Checked::default(),
        }
    }

    pub(super) fn fail(&self, pc: u64, complaint: Complaint) -> Error {
        Error::new(DOING, complaint)
            .file(&self.subject.image().path)
            .address(pc)
            .symbol(self.subject.cfg().proc(self.id).display_name())
            .advice(
                "this is a defect of atom, not of the program or the tool; please report it with both. \
                 Ways around it: --no-inline, or --skip with this procedure",
            )
    }

    pub(super) fn proc(&mut self) -> Result<()> {
        let (cfg, live) = (self.subject.cfg(), self.subject.live);
        let mut sets = Vec::new();
        let compares_all = self.subject.scope == Scope::All;
        let has_pads = self.subject.has_pads();
        if self.subject.layout().entry(self.id).is_none() {
            return if compares_all && has_pads {
                self.in_place()
            } else {
                Ok(())
            };
        }
        for b in cfg.proc(self.id).blocks() {
            if !compares_all && !self.has_insertions(b) {
                continue;
            }
            live.block_into(b, &mut self.storage.effects_of, &mut sets);
            self.block(b, &sets)?;
            if compares_all && self.subject.has_pad(b) && cfg.block(b).is_indirect_target {
                self.pad(b)?;
            }
        }
        Ok(())
    }

    /// True if the tool's calls add code to a block.
    fn has_insertions(&self, b: BlockId) -> bool {
        let block = self.subject.cfg().block(b);
        let (first, last) = (block.first, block.last());
        let insertions = (self.subject.placed.plan).insertions(self.subject.layout().version);
        let at = insertions.partition_point(|i| i.inst < first);
        insertions.get(at).is_some_and(|i| i.inst <= last)
    }

    /// A procedure that stays: only the targets of its branches may have changed.
    fn in_place(&mut self) -> Result<()> {
        let cfg = self.subject.cfg();
        for b in cfg.proc(self.id).blocks() {
            for inst in cfg.block(b).insts() {
                let pc = cfg.inst_pc(inst);
                let expected = self.storage.expect(&[pc], RegSet::ALL);
                self.storage
                    .look(&expected, pc, None)
                    .map_err(|c| self.fail(pc, c))?;
                self.instruction(b, inst, pc)
                    .map_err(|c| self.fail(pc, c))?;
            }
        }
        Ok(())
    }

    fn postcondition(&self, live: RegSet) -> Postcondition {
        Postcondition {
            live,
            direction: self.subject.live.may_set_df(self.id),
        }
    }

    fn stack(&mut self) -> &Stack {
        let (subject, id) = (self.subject, self.id);
        let (image, cfg) = (subject.image(), subject.cfg());
        let info = &mut self.storage.info;
        self.stack.get_or_insert_with(|| Stack {
            free_below: is_free_below(image, cfg, id),
            foreign: if subject.placed.plan.has_private_stack {
                subject.live.foreign(id, info)
            } else {
                Foreign::default()
            },
        })
    }

    /// Walks from `from` to a goal. `rows` are original addresses, one of which has the frame of the way.
    pub(super) fn walk(&mut self, from: u64, goal: Goal, rows: &[u64]) -> Result<(), Complaint> {
        if from == goal.at {
            return Ok(());
        }
        let facts = Facts {
            no_red_zone: self.stack().free_below,
            is_foreign: false,
            twin: None,
            is_replaced: false,
        };
        let live = self.live_at(goal);
        self.walk_with(facts, (from, goal.at), live, rows).map(drop)
    }

    /// Walks from one address to another. Yields the places around rsp that may have been written.
    fn walk_with(
        &mut self,
        facts: Facts,
        (from, goal): (u64, u64),
        live: RegSet,
        rows: &[u64],
    ) -> Result<Written, Complaint> {
        let postcondition = self.postcondition(live);
        let walker = Walker {
            writable: WritableRanges {
                no_red_zone: facts.no_red_zone,
                is_foreign: facts.is_foreign,
                ..self.walker.writable
            },
            twin: facts.twin,
            may_return: facts.is_replaced,
            ..*self.walker
        };
        let expected = self.storage.expect(rows, live);
        let mut watch = Watch {
            writes: &mut self.storage.writes,
            frames: self.storage.frames.as_mut(),
            expected,
            written: self.written,
            shared: &mut self.storage.shared,
        };
        let steps = walker.walk(from, goal, postcondition, &mut watch)?;
        self.checked.inserted += steps as u64;
        Ok(watch.written)
    }

    /// Walks from `from` to a goal, the new place of the code at the original address `old`. `back` is the instruction
    /// from which control comes, if it is known.
    pub(super) fn enter(
        &mut self,
        old: u64,
        back: Option<InstId>,
        from: u64,
        goal: Goal,
    ) -> Result<(), Complaint> {
        if from == goal.at || from == old && self.is_left(old) {
            return Ok(());
        }
        let rows = [
            old,
            back.map_or(old, |back| self.subject.cfg().inst_pc(back)),
        ];
        let facts = Facts {
            no_red_zone: self.free_below_at(old),
            is_foreign: back.is_some_and(|back| self.stack().foreign.after(back))
                && !begins_with_call(self.subject.cfg(), old),
            twin: self.twin_entry(old),
            is_replaced: self.is_replaced(old),
        };
        let live = self.live_at(goal);
        self.walk_with(facts, (from, goal.at), live, &rows)
            .map(drop)
    }

    /// Where the other version is entered, if a procedure starts at an original address.
    fn twin_entry(&self, old: u64) -> Option<u64> {
        let (cfg, twin) = (self.subject.cfg(), self.subject.twin()?);
        let proc = cfg.proc_at(old).filter(|p| cfg.proc(*p).start == old);
        twin.entry(proc?)
    }

    /// True if a routine runs in place of the procedure that starts at an original address.
    fn is_replaced(&self, old: u64) -> bool {
        let (cfg, plan) = (self.subject.cfg(), self.subject.placed.plan);
        let proc = cfg.proc_at(old).filter(|p| cfg.proc(*p).start == old);
        proc.is_some_and(|p| plan.changes.procs.binary_search(&p).is_ok())
    }

    /// True if nothing is kept below rsp at an original address: at the start of a procedure, and
    /// in a procedure that never keeps anything there.
    fn free_below_at(&mut self, old: u64) -> bool {
        let cfg = self.subject.cfg();
        let starts = cfg.proc_at(old).is_some_and(|p| {
            cfg.proc(p).start == old && !matches!(cfg.proc(p).kind, ProcKind::Fragment(_))
        });
        starts || self.stack().free_below
    }

    /// Checks the instructions of a block one by one, and the code between them.
    fn block(&mut self, b: BlockId, live: &[RegSet]) -> Result<()> {
        let cfg = self.subject.cfg();
        let block = cfg.block(b);
        let layout = self.subject.layout();
        let mut at = layout.label(self.id, block.first);
        self.written = None;
        let mut before = Expected::default();
        let has_area = self.has_area(b);
        let copies = layout.copies(self.subject.placed.plan, block);
        for ((inst, copy), live) in block.insts().zip(copies).zip(live) {
            let pc = cfg.inst_pc(inst);
            let expected = self.storage.expect(&[pc], *live);
            self.written = carried(self.written, &before, &expected);
            if at != copy {
                // The instruction changes these registers itself, or a call before it does.
                let own = match cfg.inst(inst).flow {
                    ControlFlow::Syscall => RegSet::gpr(1) | RegSet::gpr(11),
                    _ => RegSet::EMPTY,
                };
                let last = (inst != block.first).then(|| InstId(inst.0 - 1));
                let changed = own | self.set_between(last, Some(inst));
                let twin = self.subject.twin();
                let twin = twin.map(|twin| twin.label(self.id, inst));
                let stack = self.stack();
                let facts = Facts {
                    no_red_zone: stack.free_below,
                    is_foreign: stack.foreign.before(inst),
                    twin,
                    is_replaced: false,
                };
                self.written = self
                    .walk_with(facts, (at, copy), live.without(changed), &[pc])
                    .map_err(|c| self.fail(pc, format!("the code inserted before it {c}")))?;
            }
            self.storage
                .look(&expected, copy, self.written)
                .map_err(|c| self.fail(pc, c))?;
            before = expected;
            at = self
                .instruction(b, inst, copy)
                .map_err(|c| self.fail(pc, c))?;
            if has_area {
                self.landing(inst, copy, at).map_err(|c| self.fail(pc, c))?;
            }
            self.checked.instructions += 1;
        }
        let last = block.last();
        if !cfg.inst(last).flow.ends_flow() {
            self.fall_through(b, at, &before)?;
        }
        self.written = None;
        Ok(())
    }

    /// The registers that calls may set after one instruction and before the next, as far as these are known.
    fn set_between(&self, last: Option<InstId>, next: Option<InstId>) -> RegSet {
        let changes = &self.subject.placed.plan.changes;
        let set = |inst: Option<InstId>, place| {
            inst.map_or(RegSet::EMPTY, |inst| changes.registers_at(inst, place))
        };
        set(last, CallPlace::After) | set(next, CallPlace::Before)
    }

    /// True if exceptions may lead from a block to landing pads.
    fn has_area(&self, b: BlockId) -> bool {
        let table = &self.subject.placed.object.unwind;
        let fde = table.find(self.subject.cfg().block_pc(b));
        self.storage.frames.is_some() && fde.is_some_and(|i| table.fdes[i].lsda.is_some())
    }

    /// Checks where exceptions lead that pass an instruction, whose copy ends at `end`.
    fn landing(&mut self, inst: InstId, copy: u64, end: u64) -> Result<(), Complaint> {
        let (subject, memory) = (self.subject, self.walker.memory);
        let (pc, flow) = (subject.cfg().inst_pc(inst), subject.cfg().inst(inst).flow);
        let is_call = matches!(flow, ControlFlow::Call | ControlFlow::IndirectCall);
        // Unwinders look up the byte in front of a return address.
        let in_call = subject.cfg().inst_end(inst) - 1;
        let is_at_home = is_call && subject.layout().sites.homes.of(inst).is_some();
        if is_at_home && !subject.has_pads() {
            return Ok(());
        }
        let places = match is_call {
            // The return address is the original one.
            true if is_at_home => (in_call, in_call),
            true => (in_call, end - 1),
            false => (pc, copy),
        };
        let table = &subject.placed.object.unwind;
        self.storage.frames.as_mut().map_or(Ok(()), |frames| {
            frames.landing(table, memory, places, |pad| subject.place_of(pad).0)
        })
    }

    /// Checks that control goes from the last instruction, whose copy ends at `at`, to the code that followed it in the
    /// original.
    fn fall_through(&mut self, b: BlockId, at: u64, before: &Expected<'_>) -> Result<()> {
        let cfg = self.subject.cfg();
        let last = cfg.block(b).last();
        let (pc, next) = (cfg.inst_pc(last), cfg.inst_end(last));
        let goal = self.goal(next, Some(b));
        let goes_on = cfg.succs(b).iter().any(|s| match s {
            Succ::Fall(_) => true,
            Succ::Tail(t) => t.get() == next && goal.inst.is_some(),
            _ => false,
        });
        if at == goal.at || !goes_on {
            return Ok(());
        }
        let behind = self.storage.expect(&[next], RegSet::EMPTY);
        self.written = carried(self.written, before, &behind);
        let set = self.set_between(Some(last), goal.inst);
        let live = self.live_at(goal).without(set);
        // The inserted code may belong to either instruction where another description begins, and where
        // instructions that overlap both are between them.
        let unwind = &self.subject.placed.object.unwind;
        let follows = |after: InstId| after.index() == last.index() + 1;
        let is_one = unwind.find(pc) == unwind.find(next) && goal.inst.is_none_or(follows);
        let rows = match is_one && cfg.proc_at(next) == Some(self.id) {
            // The inserted code may belong to an instruction that nothing describes.
            _ if self.storage.expect(&[pc], live).is_empty() => &[][..],
            true => &[next],
            false => &[next, pc],
        };
        let facts = Facts {
            no_red_zone: self.free_below_at(next),
            is_foreign: self.stack().foreign.after(last),
            twin: self.twin_entry(next),
            is_replaced: self.is_replaced(next),
        };
        self.walk_with(facts, (at, goal.at), live, rows)
            .map(drop)
            .map_err(|c| self.fail(next, format!("the code inserted before it {c}")))
    }

    /// The new place of an original address to which control goes. `from` is the block from which alone it comes; where
    /// another procedure begins there, other callers, which keep more in registers, may also enter it.
    pub(super) fn goal(&self, old: u64, from: Option<BlockId>) -> Goal {
        let (at, inst) = self.subject.place_of(old);
        Goal {
            at,
            inst,
            from: from.filter(|_| inst.is_some()),
        }
    }

    /// What is live on the way to a goal.
    fn live_at(&mut self, goal: Goal) -> RegSet {
        let live = self.subject.live;
        let there = goal.inst.map_or(RegSet::ALL, |inst| {
            live.before(inst, &mut self.storage.effects_of)
        });
        there & goal.from.map_or(RegSet::ALL, |from| live.after(from))
    }
}

/// True if a procedure begins with a call at an address, as a thunk for jumps that are not predicted: the call writes below
/// rsp by itself, which so is a stack pointer.
fn begins_with_call(cfg: &Cfg, at: u64) -> bool {
    cfg.proc_at(at).is_some_and(|p| {
        let proc = cfg.proc(p);
        let first = cfg.block(proc.first_block).first;
        let is_call = matches!(
            cfg.inst(first).flow,
            ControlFlow::Call | ControlFlow::IndirectCall
        );
        proc.start == at && is_call
    })
}

//! An independent look at the finished program.
//!
//! Reads the output's bytes and compares every moved block with its original: each instruction must
//! be there with the same operands, the same memory and the same targets, and inserted code must
//! leave registers, flags, stack and memory as the program expects them. At each instruction,
//! inserted ones included, the frame description must lead to the caller to which the original's
//! leads. The code that planned and wrote the output is not used. Its addresses are checked, not
//! trusted: a wrong address leads to instructions that do not match.
//!
//! The checker trusts the control flow graph, liveness (a dead register may be changed) and the
//! summaries of what analysis routines may change. Each of these has tests of its own.

mod frames;
mod home;
mod memory;
mod old_text;
mod references;
mod same;
mod shared;
mod state;
mod step;
mod tables;
mod walk;

use rayon::prelude::*;

use crate::cfg::{Cfg, ProcKind};
use crate::error::{Error, Result};
use crate::ids::{BlockId, InstId, ProcId};
use crate::image::Image;
use crate::layout::{Area, Layout, Placed};
use crate::live::{EffectsOf, Foreign, Live, RegSet, is_free_below};
use crate::plan::Clobbers;
use crate::x86::{ControlFlow, InstructionInfoFactory, Mnemonic};

use frames::{Expected, Frames, Tables, carried};
use memory::Memory;
use shared::SharedCode;
use state::{State, Written};
use step::{Borders, Complaint};
use walk::{Demand, Routines, Walker, Watch};

/// How much is compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// The code that a tool's calls add: registers, flags, stack and memory of the program are kept.
    Inserted,
    /// Also each moved instruction, each pad, and code that stays in place.
    All,
}

/// The output to check, and the facts that the checker trusts.
pub struct Subject<'a> {
    /// The original, the plan, and the addresses that the output claims to have.
    pub placed: &'a Placed<'a>,
    /// Liveness of the original.
    pub live: &'a Live<'a>,
    /// Registers and flags that a routine may change, by its address in the tool's file.
    pub clobbers: &'a (dyn Fn(u64) -> Clobbers + Sync),
    /// The output file's contents.
    pub output: &'a [u8],
    /// How much of it is compared.
    pub scope: Scope,
}

impl<'a> Subject<'a> {
    fn image(&self) -> &'a Image {
        self.placed.object.image
    }

    fn cfg(&self) -> &'a Cfg {
        &self.placed.object.cfg
    }

    fn layout(&self) -> &'a Layout {
        &self.placed.layout
    }

    /// The new place of an original address.
    fn place_of(&self, old: u64) -> u64 {
        let (cfg, layout) = (self.cfg(), self.layout());
        let moved = cfg.proc_at(old).filter(|p| layout.entry(*p).is_some());
        let label = |(proc, inst)| layout.label(proc, inst);
        moved.zip(cfg.inst_at(old)).map_or(old, label)
    }

    /// The tool's routines as inserted code calls them.
    fn routines(&self) -> Routines<'_> {
        let placement = &self.placed.placement;
        Routines {
            clobbers: self.clobbers,
            code: (placement.analysis, placement.rw),
            area: self.placed.area,
        }
    }

    /// Start and end of what is written in the area that the objects of a process share.
    fn shared(&self) -> (u64, u64) {
        let of_area = |area: &Area| (area.rw, area.end);
        self.placed.area.map_or((0, 0), of_area)
    }
}

/// Numbers of checked items.
#[derive(Clone, Copy, Default, Debug)]
pub struct Checked {
    /// Moved instructions compared.
    pub instructions: u64,
    /// Instructions of inserted code followed.
    pub inserted: u64,
    /// Jumps from original addresses followed.
    pub pads: u64,
}

impl std::ops::Add for Checked {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            instructions: self.instructions + other.instructions,
            inserted: self.inserted + other.inserted,
            pads: self.pads + other.pads,
        }
    }
}

impl std::iter::Sum for Checked {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |a, b| a + b)
    }
}

/// Checks one object. The error tells the first difference.
pub fn check(subject: &Subject<'_>) -> Result<Checked> {
    let memory = Memory::new(subject.output, subject.layout().region.shift)?;
    let walker = Walker {
        memory: &memory,
        borders: Borders {
            own: (subject.layout().start, subject.placed.placement.end),
            shared: subject.shared(),
            no_red_zone: false,
            is_foreign: false,
        },
        text: (subject.layout().start, subject.layout().end),
        routines: subject.routines(),
    };
    let tables = Tables::of(subject.placed, &memory).transpose();
    let tables = tables.map_err(|complaint| Error::new(DOING, complaint))?;
    let storage = || Storage::new(tables.as_ref());
    if subject.scope == Scope::All {
        let references = references::collect(subject.image(), subject.cfg());
        old_text::check(subject, &memory, &references.named)?;
        jump_tables(subject, &references.all)?;
    }
    (0..subject.cfg().procs.len())
        .into_par_iter()
        .map(ProcId::from_index)
        .map_init(storage, |storage, id| {
            let mut checker = Checker {
                subject,
                walker: &walker,
                id,
                free_below: is_free_below(subject.image(), subject.cfg(), id),
                foreign: Foreign::of(subject.image(), subject.cfg(), id, &mut storage.info),
                storage,
                written: None,
                checked: Checked::default(),
            };
            checker.proc().map(|()| checker.checked)
        })
        .try_reduce(Checked::default, |a, b| Ok(a + b))
}

/// Judges the jump tables of procedures that move.
fn jump_tables(subject: &Subject<'_>, references: &[u64]) -> Result<()> {
    let (image, cfg) = (subject.image(), subject.cfg());
    cfg.jump_tables.par_iter().try_for_each(|table| {
        let proc = cfg.block(cfg.block_of(table.jump)).proc;
        tables::judge(image, cfg, table, references).map_err(|complaint| {
            Error::new(DOING, complaint)
                .file(&image.path)
                .address(cfg.inst_pc(table.jump))
                .symbol(cfg.proc(proc).display_name())
                .advice("this is a defect of atom; please report it with the program. A way around it: --skip with this procedure")
        })
    })
}

const DOING: &str = "checking the output";

/// Working storage, which one procedure after the other uses.
struct Storage<'a> {
    effects_of: EffectsOf,
    info: InstructionInfoFactory,
    /// Frame descriptions, if the output has any of its own.
    frames: Option<Frames<'a>>,
    shared: SharedCode,
}

impl<'a> Storage<'a> {
    fn new(tables: Option<&Tables<'a>>) -> Self {
        Self {
            effects_of: EffectsOf::new(),
            info: InstructionInfoFactory::new(),
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
            Some(frames) => frames.look(expected, at, &[], &State::after(written)),
            None => Ok(()),
        }
    }
}

/// Checks one procedure.
struct Checker<'s, 'a> {
    subject: &'s Subject<'a>,
    walker: &'s Walker<'a>,
    id: ProcId,
    /// True if the procedure keeps nothing below rsp.
    free_below: bool,
    /// Where rsp may lead to data.
    foreign: Foreign,
    storage: &'s mut Storage<'a>,
    /// Places around rsp that inserted code of this block has written.
    written: Written,
    checked: Checked,
}

impl Checker<'_, '_> {
    fn fail(&self, pc: u64, complaint: Complaint) -> Error {
        Error::new(DOING, complaint)
            .file(&self.subject.image().path)
            .address(pc)
            .symbol(self.subject.cfg().proc(self.id).display_name())
            .advice(
                "this is a defect of atom, not of the program or the tool; please report it with both. \
                 Ways around it: --no-inline, or --skip with this procedure",
            )
    }

    fn proc(&mut self) -> Result<()> {
        let (cfg, live) = (self.subject.cfg(), self.subject.live);
        let mut sets = Vec::new();
        let compares_all = self.subject.scope == Scope::All;
        if self.subject.layout().entry(self.id).is_none() {
            return if compares_all {
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
            if compares_all && cfg.block(b).is_indirect_target {
                self.pad(b, sets[0])?;
            }
        }
        Ok(())
    }

    /// True if the tool's calls add code to a block.
    fn has_insertions(&self, b: BlockId) -> bool {
        let block = self.subject.cfg().block(b);
        let (first, last) = (block.first, block.last());
        let insertions = &self.subject.placed.plan.insertions;
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
                let now = self.walker.memory.rest_at(pc);
                let then = self
                    .subject
                    .image()
                    .bytes_at(pc, usize::from(cfg.inst(inst).len));
                if cfg.inst(inst).rip_relative {
                    self.data(&cfg.decode(self.subject.image(), inst))
                        .map_err(|c| self.fail(pc, c))?;
                }
                let is_direct = cfg.inst(inst).flow.is_direct() && !cfg.inst(inst).special;
                if !is_direct
                    && now
                        .zip(then)
                        .is_some_and(|(now, then)| now.starts_with(then))
                {
                    continue;
                }
                self.instruction(b, inst, pc)
                    .map_err(|c| self.fail(pc, c))?;
            }
        }
        Ok(())
    }

    fn demand(&self, live: RegSet) -> Demand {
        Demand {
            live,
            direction: self.subject.live.may_set_df(self.id),
        }
    }

    /// Walks from `from` to `goal`. `rows` are original addresses, one of which has the frame of the way. Yields the
    /// places around rsp that may have been written.
    fn walk(
        &mut self,
        from: u64,
        goal: u64,
        live: RegSet,
        rows: &[u64],
    ) -> Result<Written, Complaint> {
        self.walk_with((self.free_below, false), from, goal, live, rows)
    }

    /// As [`Self::walk`]. `no_red_zone`: the program keeps nothing below rsp on the way. `is_foreign`: rsp may lead to data.
    fn walk_with(
        &mut self,
        (no_red_zone, is_foreign): (bool, bool),
        from: u64,
        goal: u64,
        live: RegSet,
        rows: &[u64],
    ) -> Result<Written, Complaint> {
        if from == goal {
            return Ok(self.written);
        }
        let demand = self.demand(live);
        let walker = Walker {
            borders: Borders {
                no_red_zone,
                is_foreign: is_foreign && self.subject.placed.plan.has_private_stack,
                ..self.walker.borders
            },
            ..*self.walker
        };
        let expected = self.storage.expect(rows, live);
        let mut watch = Watch {
            info: &mut self.storage.info,
            frames: self.storage.frames.as_mut(),
            expected,
            written: self.written,
            shared: &mut self.storage.shared,
        };
        let steps = walker.walk(from, goal, demand, &mut watch)?;
        self.checked.inserted += steps as u64;
        Ok(watch.written)
    }

    /// Walks from `from` to `goal`, the new place of the code at the original address `old`. `back` is the address of
    /// the instruction from which control comes, if it is known.
    fn enter(
        &mut self,
        old: u64,
        back: Option<u64>,
        from: u64,
        goal: u64,
        live: RegSet,
    ) -> Result<(), Complaint> {
        if from == old && self.is_left(old) {
            return Ok(());
        }
        let rows = [old, back.unwrap_or(old)];
        let from_inst = back.and_then(|back| self.subject.cfg().inst_at(back));
        let is_foreign = from_inst.is_some_and(|inst| self.foreign.after(inst));
        let facts = (self.free_below_at(old), is_foreign);
        self.walk_with(facts, from, goal, live, &rows).map(drop)
    }

    /// True if nothing is kept below rsp at an original address: at the start of a procedure, and
    /// in a procedure that never keeps anything there.
    fn free_below_at(&self, old: u64) -> bool {
        let cfg = self.subject.cfg();
        let starts = cfg.proc_at(old).is_some_and(|p| {
            cfg.proc(p).start == old && !matches!(cfg.proc(p).kind, ProcKind::Fragment(_))
        });
        starts || self.free_below
    }

    /// Checks the instructions of a block one by one, and the code between them.
    fn block(&mut self, b: BlockId, live: &[RegSet]) -> Result<()> {
        let cfg = self.subject.cfg();
        let block = cfg.block(b);
        let mut at = self.subject.layout().label(self.id, block.first);
        self.written = None;
        let mut before = Expected::default();
        let has_area = self.has_area(b);
        for (i, inst) in block.insts().enumerate() {
            let pc = cfg.inst_pc(inst);
            let expected = self.storage.expect(&[pc], live[i]);
            self.written = carried(self.written, &before, &expected);
            let copy = self
                .subject
                .layout()
                .copy_of(self.subject.placed.plan, self.id, inst);
            // The instruction changes these registers itself.
            let changed = match cfg.inst(inst).flow {
                ControlFlow::Syscall => RegSet::gpr(1) | RegSet::gpr(11),
                _ => RegSet::EMPTY,
            };
            let facts = (self.free_below, self.foreign.before(inst));
            self.written = self
                .walk_with(facts, at, copy, live[i].without(changed), &[pc])
                .map_err(|c| self.fail(pc, format!("the code inserted before it {c}")))?;
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
            let behind = self.storage.expect(&[cfg.inst_end(last)], RegSet::EMPTY);
            self.written = carried(self.written, &before, &behind);
            self.fall_through(b, at)?;
        }
        self.written = None;
        Ok(())
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
        let places = match is_call {
            // The return address is the original one.
            true if subject.layout().sites.homes.of(inst).is_some() => (in_call, in_call),
            true => (in_call, end - 1),
            false => (pc, copy),
        };
        let table = &subject.placed.object.unwind;
        self.storage.frames.as_mut().map_or(Ok(()), |frames| {
            frames.landing(table, memory, places, |pad| subject.place_of(pad))
        })
    }

    /// Checks that control goes from the last instruction to the code that followed it in the
    /// original.
    fn fall_through(&mut self, b: BlockId, at: u64) -> Result<()> {
        let cfg = self.subject.cfg();
        let next = cfg.inst_end(cfg.block(b).last());
        let goes_on = cfg.succs(b).iter().any(|s| match s {
            crate::cfg::Succ::Fall(_) => true,
            crate::cfg::Succ::Tail(t) => t.get() == next && cfg.inst_at(next).is_some(),
            _ => false,
        });
        if !goes_on {
            return Ok(());
        }
        let (goal, live) = self.place_behind(b, next);
        let last = cfg.inst_pc(cfg.block(b).last());
        // The inserted code may belong to either instruction where another description begins, and where
        // instructions that overlap both stand between them.
        let unwind = &self.subject.placed.object.unwind;
        let follows = |after: InstId| after.index() == cfg.block(b).last().index() + 1;
        let is_one =
            unwind.find(last) == unwind.find(next) && cfg.inst_at(next).is_none_or(follows);
        let rows = match is_one && cfg.proc_at(next) == Some(self.id) {
            // The inserted code may belong to an instruction that nothing describes.
            _ if self.storage.expect(&[last], live).is_empty() => &[][..],
            true => &[next],
            false => &[next, last],
        };
        let is_foreign = self.foreign.after(cfg.block(b).last());
        let facts = (self.free_below_at(next), is_foreign);
        self.walk_with(facts, at, goal, live, rows)
            .map(drop)
            .map_err(|c| self.fail(next, format!("the code inserted before it {c}")))
    }

    /// The new place of an original address, and the live registers there.
    fn place_of(&mut self, old: u64) -> (u64, RegSet) {
        let Some(inst) = self.subject.cfg().inst_at(old) else {
            return (old, RegSet::ALL);
        };
        let live = self.subject.live;
        let live = live.before(inst, &mut self.storage.effects_of);
        (self.subject.place_of(old), live)
    }

    /// The new place of an original address to which a block leads, and the live registers on the way. Where another
    /// procedure begins there, other callers, which keep more in registers, may also enter it.
    fn place_behind(&mut self, b: BlockId, old: u64) -> (u64, RegSet) {
        let (goal, live) = self.place_of(old);
        (goal, live & self.subject.live.after(b))
    }

    /// Compares an instruction of a block with its copy, and yields the address behind the copy.
    fn instruction(&mut self, b: BlockId, inst: InstId, copy: u64) -> Result<u64, Complaint> {
        let subject = self.subject;
        let facts = *subject.cfg().inst(inst);
        let is_compared = facts.flow.is_direct() || subject.scope == Scope::All;
        if !is_compared && !facts.rip_relative && subject.layout().sites.homes.of(inst).is_none() {
            return Ok(self.walker.decode(copy)?.next_ip());
        }
        let original = subject.cfg().decode(subject.image(), inst);
        if facts.rip_relative {
            self.data(&original)?;
        }
        // An instruction in place pushes the original return address by itself.
        if facts.flow == ControlFlow::Call && facts.special && copy != original.ip() {
            return self.pushed_return(&original, copy);
        }
        if copy != original.ip()
            && let Some(home) = subject.layout().sites.homes.of(inst)
        {
            return self.call_at_home(&original, inst, copy, home);
        }
        let moved = self.walker.decode(copy)?;
        if !is_compared {
            return Ok(moved.next_ip());
        }
        if !facts.flow.is_direct() {
            if same::is_same(&original, &moved) {
                return Ok(moved.next_ip());
            }
            if let Some(delta) = same::differs_in_displacement(&original, &moved) {
                self.table_copy(inst, delta)?;
                return Ok(moved.next_ip());
            }
            return Err(format!("the copy at {copy:#x} is {moved}, not {original}"));
        }
        let (goal, live) = match facts.flow {
            // What the caller still needs is not in the set, as it is not live across the call.
            ControlFlow::Call => self.place_of(original.near_branch_target()),
            _ => self.place_behind(b, original.near_branch_target()),
        };
        let target = moved.near_branch_target();
        if same::is_same_branch(&original, &moved) {
            let back = (facts.flow != ControlFlow::Call).then_some(original.ip());
            self.enter(original.near_branch_target(), back, target, goal, live)
                .map_err(|c| format!("the copy's branch to {target:#x} {c}"))?;
            Ok(moved.next_ip())
        } else if same::is_opposite_branch(&original, &moved) {
            // The copy is taken exactly where the original is not: the two ways are exchanged.
            let rows = [original.near_branch_target(), original.ip()];
            self.walk(moved.next_ip(), goal, live, &rows)
                .map_err(|c| format!("the copy's way to {goal:#x} {c}"))?;
            Ok(target)
        } else {
            Err(format!("the copy at {copy:#x} is {moved}, not {original}"))
        }
    }

    /// Checks that what an instruction reads in the text, without an index, is what it was.
    fn data(&self, original: &crate::x86::Instruction) -> Result<(), Complaint> {
        let (image, address) = (self.subject.image(), original.ip_rel_memory_address());
        let no_data = matches!(original.mnemonic(), Mnemonic::Lea | Mnemonic::Nop);
        if no_data || !original.is_ip_rel_memory_operand() || !image.is_code(address) {
            return Ok(());
        }
        let then = image.bytes_at(address, original.memory_size().size());
        let now = self.walker.memory.rest_at(address);
        match then.zip(now) {
            Some((then, now)) if !now.starts_with(then) => Err(format!(
                "{original}: the bytes that it reads have been overwritten"
            )),
            _ => Ok(()),
        }
    }

    /// Checks a `call next`, which became a push of the original return address.
    fn pushed_return(
        &self,
        original: &crate::x86::Instruction,
        copy: u64,
    ) -> Result<u64, Complaint> {
        let push = self.walker.decode(copy)?;
        let lea = self.walker.decode(push.next_ip())?;
        let exchange = self.walker.decode(lea.next_ip())?;
        let is_right = push.to_string() == "push rax"
            && lea.mnemonic() == Mnemonic::Lea
            && lea.op0_register() == crate::x86::Register::RAX
            && lea.is_ip_rel_memory_operand()
            && lea.ip_rel_memory_address() == original.next_ip()
            && same::is_exchange_of_rax_with_top(&exchange);
        if is_right {
            Ok(exchange.next_ip())
        } else {
            Err(format!(
                "the copy at {copy:#x} does not push the return address {:#x}",
                original.next_ip()
            ))
        }
    }

    /// Checks a load that reads a copy `delta` bytes behind the jump table. The entries of the copy
    /// must lead to the new places of the original targets.
    fn table_copy(&mut self, load: InstId, delta: u64) -> Result<(), Complaint> {
        let subject = self.subject;
        let table = subject
            .cfg()
            .jump_tables
            .iter()
            .find(|t| t.load == Some(load))
            .ok_or(
                "the copy reads another address, and the original is not the load of a jump table",
            )?;
        let size = usize::from(table.entry_size);
        let bytes = size * table.entries as usize;
        let entry = |bytes: &[u8]| match table.relative_to {
            Some(base) => {
                let offset = i32::from_le_bytes(bytes.try_into().unwrap_or_default());
                base.wrapping_add_signed(i64::from(offset))
            }
            None => u64::from_le_bytes(bytes.try_into().unwrap_or_default()),
        };
        let address = table.table.wrapping_add(delta);
        let copy = self
            .walker
            .memory
            .rest_at(address)
            .and_then(|b| b.get(..bytes));
        let old = subject.image().bytes_at(table.table, bytes);
        let (Some(copy), Some(old)) = (copy, old) else {
            return Err(format!("there is no jump table at {address:#x}"));
        };
        for (old, copy) in old.chunks_exact(size).zip(copy.chunks_exact(size)) {
            let (old, new) = (entry(old), entry(copy));
            if old == new {
                continue;
            }
            let (goal, live) = self.place_of(old);
            let rows = [old, subject.cfg().inst_pc(load)];
            self.walk(new, goal, live, &rows).map_err(|c| {
                format!("the jump table's entry for {old:#x} leads to {new:#x}, which {c}")
            })?;
        }
        Ok(())
    }

    /// True if the instruction at an original address was left in place for want
    /// of room, which is reported as such.
    fn is_left(&self, old: u64) -> bool {
        let subject = self.subject;
        let Some(inst) = subject.cfg().inst_at(old) else {
            return false;
        };
        let original = subject.cfg().decode(subject.image(), inst);
        let then = subject.image().bytes_at(old, original.len());
        let now = self.walker.memory.rest_at(old);
        !matches!(original.mnemonic(), Mnemonic::Endbr64 | Mnemonic::Nop)
            && now
                .zip(then)
                .is_some_and(|(now, then)| now.starts_with(then))
    }

    /// Checks a block that is one `nop` without room for a jump. The `nop` stays, and from the
    /// instruction behind it control must reach that instruction's new place. `None` for other
    /// blocks.
    fn after_left_nop(&mut self, b: BlockId) -> Option<Result<(), Complaint>> {
        let subject = self.subject;
        let block = subject.cfg().block(b);
        let original = subject.cfg().decode(subject.image(), block.first);
        let then = subject.image().bytes_at(original.ip(), original.len())?;
        let now = self.walker.memory.rest_at(original.ip())?;
        if block.count != 1 || original.mnemonic() != Mnemonic::Nop || !now.starts_with(then) {
            return None;
        }
        let next = original.next_ip();
        let (goal, live) = self.place_of(next);
        Some(self.enter(next, None, next, goal, live))
    }

    /// Checks that control goes from the original address of a block to the moved block.
    fn pad(&mut self, b: BlockId, live: RegSet) -> Result<()> {
        let subject = self.subject;
        let inst = subject.cfg().block(b).first;
        let old = subject.cfg().inst_pc(inst);
        if self.is_left(old) {
            return Ok(());
        }
        let goal = subject.layout().label(self.id, inst);
        // A call has just pushed a return address, below which nothing lies.
        self.enter(old, None, old, goal, live)
            .or_else(|complaint| self.after_left_nop(b).ok_or(complaint)?)
            .map_err(|c| self.fail(old, format!("the jump from the original address {c}")))?;
        self.checked.pads += 1;
        Ok(())
    }
}

//! An independent look at the finished program.
//!
//! Reads the output's bytes and compares every moved block with its original: each instruction must
//! be there with the same operands, the same memory and the same targets, and inserted code must
//! leave registers, flags, stack and memory as the program expects them. The code that planned and
//! wrote the output is not used. Its addresses are checked, not trusted: a wrong address leads to
//! instructions that do not match.
//!
//! The checker trusts the control flow graph, liveness (a dead register may be changed) and the
//! summaries of what analysis routines may change. Each of these has tests of its own.

mod memory;
mod same;
mod state;
mod step;
mod walk;

use rayon::prelude::*;

use crate::cfg::{Cfg, ProcKind};
use crate::error::{Error, Result};
use crate::ids::{BlockId, InstId, ProcId};
use crate::image::Image;
use crate::layout::{Area, Layout, Placed};
use crate::live::{EffectsOf, Live, RegSet, is_free_below};
use crate::plan::Clobbers;
use crate::x86::{ControlFlow, InstructionInfoFactory, Mnemonic};

use memory::Memory;
use step::{Borders, Complaint};
use walk::{Demand, Routines, Walker};

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
        },
        text: (subject.layout().start, subject.layout().end),
        routines: subject.routines(),
    };
    (0..subject.cfg().procs.len())
        .into_par_iter()
        .map(ProcId::from_index)
        .map_init(Storage::new, |storage, id| {
            let mut checker = Checker {
                subject,
                walker: &walker,
                id,
                free_below: is_free_below(subject.image(), subject.cfg(), id),
                storage,
                checked: Checked::default(),
            };
            checker.proc().map(|()| checker.checked)
        })
        .try_reduce(Checked::default, |a, b| Ok(a + b))
}

/// Working storage, which one procedure after the other uses.
struct Storage {
    effects_of: EffectsOf,
    info: InstructionInfoFactory,
}

impl Storage {
    fn new() -> Self {
        Self {
            effects_of: EffectsOf::new(),
            info: InstructionInfoFactory::new(),
        }
    }
}

/// Checks one procedure.
struct Checker<'a> {
    subject: &'a Subject<'a>,
    walker: &'a Walker<'a>,
    id: ProcId,
    /// True if the procedure keeps nothing below rsp.
    free_below: bool,
    storage: &'a mut Storage,
    checked: Checked,
}

impl Checker<'_> {
    fn fail(&self, pc: u64, complaint: Complaint) -> Error {
        Error::new("checking the output", complaint)
            .file(&self.subject.image().path)
            .address(pc)
            .symbol(self.subject.cfg().proc(self.id).display_name())
            .advice("this is a defect of atom; please report it with the program")
    }

    fn proc(&mut self) -> Result<()> {
        let (cfg, live) = (self.subject.cfg(), self.subject.live);
        let mut sets = Vec::new();
        if self.subject.layout().entry(self.id).is_none() {
            return self.in_place();
        }
        for b in cfg.proc(self.id).blocks() {
            live.block_into(b, &mut self.storage.effects_of, &mut sets);
            self.block(b, &sets)?;
            if cfg.block(b).is_indirect_target {
                self.pad(b, sets[0])?;
            }
        }
        Ok(())
    }

    /// A procedure that stays: only the targets of its branches may have changed.
    fn in_place(&mut self) -> Result<()> {
        let cfg = self.subject.cfg();
        for b in cfg.proc(self.id).blocks() {
            for inst in cfg.block(b).insts() {
                let pc = cfg.inst_pc(inst);
                let now = self.walker.memory.rest_at(pc);
                let then = self
                    .subject
                    .image()
                    .bytes_at(pc, usize::from(cfg.inst(inst).len));
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

    fn walk(&mut self, from: u64, goal: u64, live: RegSet) -> Result<(), Complaint> {
        self.walk_with(self.free_below, from, goal, live)
    }

    fn walk_with(
        &mut self,
        no_red_zone: bool,
        from: u64,
        goal: u64,
        live: RegSet,
    ) -> Result<(), Complaint> {
        let demand = self.demand(live);
        let walker = Walker {
            borders: Borders {
                no_red_zone,
                ..self.walker.borders
            },
            ..*self.walker
        };
        let steps = walker.walk(from, goal, demand, &mut self.storage.info)?;
        self.checked.inserted += steps as u64;
        Ok(())
    }

    /// Walks from `from` to `goal`, the new place of the code at the original address `old`.
    fn enter(&mut self, old: u64, from: u64, goal: u64, live: RegSet) -> Result<(), Complaint> {
        if from == old && self.is_left(old) {
            return Ok(());
        }
        self.walk_with(self.free_below_at(old), from, goal, live)
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
        for (i, inst) in block.insts().enumerate() {
            let pc = cfg.inst_pc(inst);
            let copy = self
                .subject
                .layout()
                .copy_of(self.subject.placed.plan, self.id, inst);
            self.walk(at, copy, live[i])
                .map_err(|c| self.fail(pc, format!("the code inserted before it {c}")))?;
            at = self
                .instruction(b, inst, copy)
                .map_err(|c| self.fail(pc, c))?;
            self.checked.instructions += 1;
        }
        let last = block.last();
        if !cfg.inst(last).flow.ends_flow() {
            self.fall_through(b, at)?;
        }
        Ok(())
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
        self.walk_with(self.free_below_at(next), at, goal, live)
            .map_err(|c| self.fail(next, format!("the code inserted before it {c}")))
    }

    /// The new place of an original address, and the live registers there.
    fn place_of(&mut self, old: u64) -> (u64, RegSet) {
        let (cfg, layout) = (self.subject.cfg(), self.subject.layout());
        let Some(inst) = cfg.inst_at(old) else {
            return (old, RegSet::ALL);
        };
        let live = self.subject.live;
        let live = live.before(inst, &mut self.storage.effects_of);
        match cfg.proc_at(old).filter(|p| layout.entry(*p).is_some()) {
            Some(proc) => (layout.label(proc, inst), live),
            None => (old, live),
        }
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
        let original = subject.cfg().decode(subject.image(), inst);
        let facts = *subject.cfg().inst(inst);
        // An instruction in place pushes the original return address by itself.
        if facts.flow == ControlFlow::Call && facts.special && copy != original.ip() {
            return self.pushed_return(&original, copy);
        }
        let moved = self.walker.decode(copy)?;
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
            self.enter(original.near_branch_target(), target, goal, live)
                .map_err(|c| format!("the copy's branch to {target:#x} {c}"))?;
            Ok(moved.next_ip())
        } else if same::is_opposite_branch(&original, &moved) {
            // The copy is taken exactly where the original is not: the two ways are exchanged.
            self.walk(moved.next_ip(), goal, live)
                .map_err(|c| format!("the copy's way to {goal:#x} {c}"))?;
            Ok(target)
        } else {
            Err(format!("the copy at {copy:#x} is {moved}, not {original}"))
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
            self.walk(new, goal, live).map_err(|c| {
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
        Some(self.enter(next, next, goal, live))
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
        self.enter(old, old, goal, live)
            .or_else(|complaint| self.after_left_nop(b).ok_or(complaint)?)
            .map_err(|c| self.fail(old, format!("the jump from the original address {c}")))?;
        self.checked.pads += 1;
        Ok(())
    }
}

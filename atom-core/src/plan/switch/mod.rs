//! Going from one version of a procedure to the other.
//!
//! Both versions test the same condition at the same places: where a procedure is entered, and in the header of each loop. The
//! light version leaves out tests at entries where another one is met soon anyway ([`left_out()`]), and where control comes
//! from outside alone: it comes to the full version there, which tests. So
//! a change of the condition is met soon, and a version that control does not leave costs one test in each of these
//! places. Where the program's own code begins and ends windows, no such test is left out, and there is one after
//! each call: a window has all that runs in it. The program's state is the same at the same original instruction in both versions, so a jump is
//! all that a switch needs. Where edges of the control flow are counted, control may come to a header from nowhere, and leave it.

mod left_out;
#[cfg(test)]
mod tests;

pub(super) use left_out::left_out;

use std::mem::offset_of;

use atom_abi::Control;

use super::code::{Asm, Position, Target, Version};
use super::data::Data;
use super::keeping::Keeping;
use super::private_stack::PrivateStack;
use super::site::{self, Point, SiteCall};
use super::threads::Threads;
use super::wrapper::Wrappers;
use crate::analysis::specialise::ops::Imm;
use crate::cfg::Cfg;
use crate::ids::{BlockId, InstId, ProcId};
use crate::live::{Live, RegSet};
use crate::plan::code::{Encoding, Operand};
use crate::tool::crossings::{Crossing, Crossings, entry};
use crate::tool::value::Value;
use crate::x86::asm::Cond;
use crate::x86::opcode::{self, Alu};

/// When control goes to the other version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Switch {
    /// To the full version while a word of 4 bytes is not 0, and to the light version while it is: the first of an
    /// [`atom_abi::Control`], which has a page for itself. `true`: it is not 0 at the start.
    Flag(bool),
    /// At each n-th test of either version.
    Every(u32),
    /// To the full version for bursts at random places, each thread for itself: its tests count down a word of its block
    /// ([`atom_abi::ThreadBlock::left`]), and the runtime says how long the thread stays.
    Bursts(Bursts),
}

/// How a run is sampled. Tests count the run's length: both versions have them at the same places, so each piece of the run is
/// as likely as any other to be in a burst.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bursts {
    /// Number of tests in a burst.
    pub length: u32,
    /// Mean number of tests from one burst to the next.
    pub gap: u32,
    /// Number of tests before a burst in which calls are made whose counts are left out; `None`: the tool chooses it.
    pub warm_up: Option<u32>,
    /// Where the random numbers begin; 0: somewhere else in each process.
    pub seed: u64,
}

impl Switch {
    /// Adds the data that the tests read; returns its offset as well.
    pub(super) fn place(self, data: &mut Data) -> (Self, u32) {
        let at = data.reserve_control();
        let mut write = |field: usize, bytes: &[u8]| data.bytes.write(at as usize + field, bytes);
        let first = offset_of!(Control, is_on);
        match self {
            Self::Flag(is_on) => write(first, &u32::from(is_on).to_le_bytes()),
            Self::Every(n) => write(first, &n.to_le_bytes()),
            Self::Bursts(bursts) => {
                write(offset_of!(Control, burst), &bursts.length.to_le_bytes());
                write(offset_of!(Control, gap), &bursts.gap.to_le_bytes());
                let warm_up = bursts.warm_up.unwrap_or(Control::WARM_UP_OF_TOOL);
                write(offset_of!(Control, warm_up), &warm_up.to_le_bytes());
                write(offset_of!(Control, seed), &bursts.seed.to_le_bytes());
            }
        }
        (self, at)
    }

    /// True if threads count for themselves, in their blocks.
    pub(super) fn is_of_threads(self) -> bool {
        matches!(self, Self::Bursts(_))
    }
}

/// Offset of the [`Control`], if the runtime needs it. `switch` has the offset of its data.
pub(super) fn control(switch: Option<(Switch, u32)>) -> Option<u32> {
    match switch? {
        (Switch::Flag(_) | Switch::Bursts(_), at) => Some(at),
        (Switch::Every(_), _) => None,
    }
}

/// A test, and where it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Test {
    pub inst: InstId,
    pub position: Position,
    /// A window begins here.
    begins: bool,
    /// A window ends here.
    ends: bool,
    /// The light version has it, too.
    pub is_in_light: bool,
    /// Control may come there from outside, to the full version if the light one does not test.
    is_entered: bool,
    /// What is live in front of the instruction.
    live: RegSet,
}

impl Test {
    /// True if control that comes from outside begins in the full version, as only that one tests.
    pub(super) fn is_front(&self) -> bool {
        self.is_entered && !self.is_in_light
    }

    /// If a window begins or ends in front of this test of a version: what the runtime's `window` gets, 1 or 0. Each
    /// version has the borders that lead out of it, so there is nothing to do at the others.
    fn border(&self, version: Version) -> Option<u64> {
        match version {
            Version::Light => self.begins.then_some(1),
            Version::Full => self.ends.then_some(0),
        }
    }

    /// Emits the call of the runtime's routine where a window begins or ends.
    pub(super) fn emit_border(
        &self,
        asm: &mut Asm,
        version: Version,
        routine: Option<u64>,
        hooks: (Option<PrivateStack>, &mut Wrappers),
    ) {
        let (Some(begins), Some(routine)) = (self.border(version), routine) else {
            return;
        };
        let call = SiteCall::of_runtime(routine, vec![Value::Const(begins)]);
        self.emit_call(asm, call, hooks);
    }

    /// Emits a call of a routine of the runtime, which keeps all that is live.
    fn emit_call(
        &self,
        asm: &mut Asm,
        call: SiteCall,
        (private, wrappers): (Option<PrivateStack>, &mut Wrappers),
    ) {
        if let Some(private) = private {
            private.enter(asm);
        }
        let point = Point {
            is_private: private.is_some(),
            ..Point::of_hook(self.live, false)
        };
        // Calls without bodies have no cold part.
        site::emit(asm, asm.code.len(), &[call], point, wrappers);
        if let Some(private) = private {
            private.leave(asm);
        }
    }
}

/// The tests of a procedure, in the order of their places, all in front of the first instruction of a block: a block is run
/// in one version as a whole. `left_out`: see [`left_out()`].
pub(super) fn tests(
    cfg: &Cfg,
    live: &Live<'_>,
    proc: ProcId,
    crossings: Crossings<'_>,
    left_out: &[bool],
) -> Vec<Test> {
    let inner = crossings.of(cfg, proc);
    let inner = inner
        .into_iter()
        .map(|crossing| (crossing, Position::Before));
    let is_in_light = !left_out.get(proc.index()).unwrap_or(&false);
    let entry = entry(cfg, proc).map(|block| Crossing { block, is_in_light });
    let entry = entry.map(|entry| (entry, Position::Entry));
    let mut blocks: Vec<_> = entry.into_iter().chain(inner).collect();
    blocks.sort_unstable_by_key(|(crossing, position)| (crossing.block, *position));
    let is_first = |i: usize| i == 0 || blocks[i - 1].0.block != blocks[i].0.block;
    let test = |(i, &(crossing, position)): (usize, &(Crossing, Position))| {
        let b = crossing.block;
        let is_in = |list: &[BlockId]| is_first(i) && list.binary_search(&b).is_ok();
        let borders = crossings.borders;
        Test {
            inst: cfg.block(b).first,
            position,
            begins: borders.is_some_and(|borders| is_in(&borders.from)),
            ends: borders.is_some_and(|borders| is_in(&borders.to)),
            is_in_light: crossing.is_in_light,
            is_entered: cfg.block(b).is_indirect_target,
            live: live.at_start(b),
        }
    };
    let mut tests: Vec<Test> = blocks.iter().enumerate().map(test).collect();
    tests.sort_by_key(|t| (t.inst, t.position));
    tests
}

/// What a test is emitted with.
pub(super) struct Around<'a> {
    /// When control goes to the other version, and the offset of the [`Control`] in the plan's data.
    pub switch: (Switch, u32),
    /// The version that the test is in.
    pub version: Version,
    /// The stack for inserted code where rsp may lead to data.
    pub private: Option<PrivateStack>,
    /// Where the running thread's number of tests is.
    pub threads: &'a Threads,
    /// Address of the runtime's `turn` in the tool's file.
    pub turn: Option<u64>,
}

/// Emits a test with the jump to the other version; returns what is to be after the procedure.
pub(super) fn emit(
    asm: &mut Asm,
    test: &Test,
    around: &Around<'_>,
    wrappers: &mut Wrappers,
) -> Asm {
    let (switch, control) = around.switch;
    let (version, private) = (around.version, around.private);
    let keeping = Keeping::of(test.live, RegSet::FLAGS);
    let mut cold_part = asm.apart();
    keeping.save(asm, private);
    cold_part.at_depth(asm.depth());
    let on_data = |opcode, reg, imm, (at, gs): (u32, bool)| Encoding {
        opcode,
        width: 4,
        reg,
        byte_reg: false,
        byte_rm: false,
        lock: false,
        rep: false,
        gs,
        rm: Operand::Link(Target::Data(at), 0),
        imm,
    };
    let change =
        |op: Alu, value, at| on_data(opcode::ALU_RM_IMM8, op.extension(), Imm::Byte(value), at);
    if let Switch::Bursts(_) = switch {
        let left = |version| around.threads.tests_left(version);
        let other = match version {
            Version::Full => Version::Light,
            Version::Light => Version::Full,
        };
        // Where the cold part begins, control leaves the version.
        keeping.restore(&mut cold_part, private);
        cold_part.jump_to(None, Target::Twin, 0);
        if version == Version::Full {
            // Control that comes from outside begins here: most of it belongs in the light version.
            asm.machine(&change(Alu::Cmp, 0, left(version)));
            asm.jump_to(Some(Cond::L), Target::ColdPart, 0);
        }
        if test.is_in_light {
            let turn_at = cold_part.code.len() as i32;
            asm.machine(&change(Alu::Sub, 1, left(version)));
            asm.jump_to(Some(Cond::S), Target::ColdPart, turn_at);
            // The thread is in the other version already.
            cold_part.at_depth(asm.depth());
            cold_part.machine(&change(Alu::Cmp, 0, left(other)));
            cold_part.jump_to(Some(Cond::LE.inverted()), Target::ColdPart, 0);
            keeping.restore(&mut cold_part, private);
            if let Some(turn) = around.turn {
                let values = vec![around.threads.own_block(), Value::Const(version as u64)];
                let call = SiteCall::of_runtime(turn, values);
                test.emit_call(&mut cold_part, call, (private, wrappers));
            }
            cold_part.jump_to(None, Target::Twin, 0);
        }
        keeping.restore(asm, private);
        return cold_part;
    }
    let shared = (control, false);
    let (compare, cond) = match (switch, version) {
        (Switch::Every(_), _) => (change(Alu::Sub, 1, shared), Cond::E),
        (_, Version::Light) => (change(Alu::Cmp, 0, shared), Cond::NE),
        (_, Version::Full) => (change(Alu::Cmp, 0, shared), Cond::E),
    };
    asm.machine(&compare);
    if keeping.is_nothing() && matches!(switch, Switch::Flag(_)) {
        asm.jump_to(Some(cond), Target::Twin, 0);
        return cold_part;
    }
    asm.jump_to(Some(cond), Target::ColdPart, 0);
    keeping.restore(asm, private);
    if let Switch::Every(n) = switch {
        // The same test of the other version comes next.
        let value = Imm::Wide(n.saturating_add(1) as i32);
        let again = on_data(opcode::MOV_RM_IMM, opcode::EXTENSION_MOV, value, shared);
        cold_part.machine(&again);
    }
    keeping.restore(&mut cold_part, private);
    cold_part.jump_to(None, Target::Twin, 0);
    cold_part
}

//! Going from one version of a procedure to the other.
//!
//! Both versions test the same condition at the same places: where a procedure is entered, and in the header of each loop. The
//! light version leaves out tests at entries where another one is met soon anyway ([`left_out()`]). So
//! a change of the condition is met soon, and a version that control does not leave costs one test in each of these
//! places. Where the program's own code begins and ends windows, no such test is left out, and there is one after
//! each call: a window has all that runs in it. The program's state is the same at the same original instruction in both versions, so a jump is
//! all that a switch needs. Where edges of the control flow are counted, control may come to a header from nowhere, and leave it.

mod left_out;
#[cfg(test)]
mod tests;

pub(super) use left_out::left_out;

use super::code::{Asm, Position, Target, Version};
use super::data::Data;
use super::keeping::Keeping;
use super::private_stack::PrivateStack;
use super::site::{self, Point, SiteCall};
use super::wrapper::Wrappers;
use crate::analysis::specialise::ops::Imm;
use crate::cfg::Cfg;
use crate::ids::{BlockId, InstId, ProcId};
use crate::live::{Live, RegSet};
use crate::plan::code::{Encoding, Operand};
use crate::tool::crossings::{Crossings, entry};
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
}

impl Switch {
    /// Adds the data that the tests read; returns its offset as well.
    pub(super) fn place(self, data: &mut Data) -> (Self, u32) {
        let at = data.reserve_control();
        let first = match self {
            Self::Flag(is_on) => u32::from(is_on),
            Self::Every(n) => n,
        };
        data.bytes.write(at as usize, &first.to_le_bytes());
        (self, at)
    }
}

/// Offset of the [`atom_abi::Control`], if a word of it decides. `switch` has the offset of its data.
pub(super) fn control(switch: Option<(Switch, u32)>) -> Option<u32> {
    match switch? {
        (Switch::Flag(_), at) => Some(at),
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
    /// What is live in front of the instruction.
    live: RegSet,
}

impl Test {
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
        (private, wrappers): (Option<PrivateStack>, &mut Wrappers),
    ) {
        let (Some(begins), Some(routine)) = (self.border(version), routine) else {
            return;
        };
        if let Some(private) = private {
            private.enter(asm);
        }
        let point = Point {
            is_private: private.is_some(),
            ..Point::of_hook(self.live, false)
        };
        let call = SiteCall::of_runtime(routine, vec![Value::Const(begins)]);
        // Calls without bodies have no tail.
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
    let inner = inner.into_iter().map(|b| (b, Position::Before));
    let entry = entry(cfg, proc).map(|first| (first, Position::Entry));
    let mut blocks: Vec<_> = entry.into_iter().chain(inner).collect();
    blocks.sort_unstable();
    let is_first = |i: usize| i == 0 || blocks[i - 1].0 != blocks[i].0;
    let test = |(i, &(b, position)): (usize, &(BlockId, Position))| {
        let is_in = |list: &[BlockId]| is_first(i) && list.binary_search(&b).is_ok();
        let borders = crossings.borders;
        Test {
            inst: cfg.block(b).first,
            position,
            begins: borders.is_some_and(|borders| is_in(&borders.from)),
            ends: borders.is_some_and(|borders| is_in(&borders.to)),
            is_in_light: position != Position::Entry
                || !left_out.get(proc.index()).unwrap_or(&false),
            live: live.at_start(b),
        }
    };
    let mut tests: Vec<Test> = blocks.iter().enumerate().map(test).collect();
    tests.sort_by_key(|t| (t.inst, t.position));
    tests
}

/// Emits a test with the jump to the other version, and what is to be after the procedure. `data` is the offset of the data in the
/// plan's, `private` the stack where rsp may lead to data.
pub(super) fn emit(
    asm: &mut Asm,
    test: &Test,
    (switch, data): (Switch, u32),
    version: Version,
    private: Option<PrivateStack>,
) -> Asm {
    let keeping = Keeping::of(test.live, RegSet::FLAGS);
    let mut tail = asm.apart();
    keeping.save(asm, private);
    let on_data = |opcode, reg, width, imm| Encoding {
        opcode,
        width,
        reg,
        byte_reg: false,
        byte_rm: false,
        lock: false,
        rep: false,
        gs: false,
        rm: Operand::Link(Target::Data(data), 0),
        imm,
    };
    let compare =
        |op: Alu, value| on_data(opcode::ALU_RM_IMM8, op.extension(), 4, Imm::Byte(value));
    let (cond, again) = match (switch, version) {
        (Switch::Flag(_), Version::Light) => (Cond::NE, None),
        (Switch::Flag(_), Version::Full) => (Cond::E, None),
        // The same test of the other version comes next.
        (Switch::Every(n), _) => (Cond::E, Some(n.saturating_add(1))),
    };
    asm.machine(&match switch {
        Switch::Flag(_) => compare(Alu::Cmp, 0),
        Switch::Every(_) => compare(Alu::Sub, 1),
    });
    if keeping.is_nothing() && again.is_none() {
        asm.jump_to(Some(cond), Target::Twin, 0);
        return tail;
    }
    asm.jump_to(Some(cond), Target::Tail, 0);
    tail.at_depth(asm.depth());
    keeping.restore(asm, private);
    if let Some(n) = again {
        let value = Imm::Wide(n as i32);
        tail.machine(&on_data(
            opcode::MOV_RM_IMM,
            opcode::EXTENSION_MOV,
            4,
            value,
        ));
    }
    keeping.restore(&mut tail, private);
    tail.jump_to(None, Target::Twin, 0);
    tail
}

//! Going from one version of a procedure to the other.
//!
//! Both versions test the same condition at the same places: where a procedure is entered, and in the header of each loop. So
//! a change of the condition is met soon, and a version that control does not leave costs one test in each of these
//! places. The program's state is the same at the same original instruction in both versions, so a jump is
//! all that a switch needs. Where edges of the control flow are counted, control may come to a header from nowhere, and leave it.

use super::code::{Asm, Position, Target, Version};
use super::data::Data;
use super::keeping::Keeping;
use super::private_stack::PrivateStack;
use super::site::{self, Point, SiteCall};
use super::wrapper::Wrappers;
use crate::analysis::specialise::ops::Imm;
use crate::cfg::{Cfg, ProcKind, Succ};
use crate::ids::{BlockId, InstId, ProcId};
use crate::live::{Live, RegSet};
use crate::plan::code::{Encoding, Operand};
use crate::tool::borders::Borders;
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

/// The headers of the loops of a procedure, each of which has a test: blocks to which a later one leads.
pub(super) fn headers(cfg: &Cfg, proc: ProcId) -> Vec<BlockId> {
    let mut headers: Vec<BlockId> = (cfg.proc(proc).blocks())
        .flat_map(|b| cfg.succs(b).iter().map(move |s| (b, s)))
        .filter_map(|(from, succ)| match succ {
            Succ::Branch(to) | Succ::Fall(to) if *to <= from => Some(*to),
            _ => None,
        })
        .collect();
    headers.sort_unstable();
    headers.dedup();
    headers
}

/// The blocks of a procedure that have tests: the one through which it is called, headers of loops, and borders of windows.
fn blocks(cfg: &Cfg, proc: ProcId, borders: Option<&Borders>) -> Vec<(BlockId, Position)> {
    let facts = cfg.proc(proc);
    let is_called = !matches!(facts.kind, ProcKind::Fragment(_) | ProcKind::Plt);
    let entry = (is_called && cfg.block_pc(facts.first_block) == facts.start)
        .then_some((facts.first_block, Position::Entry));
    let lists = borders.into_iter().flat_map(|b| [&b.from, &b.to]);
    let inner = lists.flat_map(|list| {
        let start = list.partition_point(|b| *b < facts.first_block);
        let own = list[start..].iter();
        own.take_while(|b| cfg.block(**b).proc == proc)
    });
    // At the entry, control comes from outside.
    let inner = inner.filter(|b| entry.is_none_or(|e| e.0 != **b)).copied();
    let inner = headers(cfg, proc).into_iter().chain(inner);
    let mut blocks: Vec<_> = inner.map(|b| (b, Position::Before)).chain(entry).collect();
    blocks.sort_unstable();
    blocks.dedup();
    blocks
}

/// The tests of a procedure, in the order of their places, all in front of the first instruction of a block: a block is run in one
/// version as a whole.
pub(super) fn tests(
    cfg: &Cfg,
    live: &Live<'_>,
    proc: ProcId,
    borders: Option<&Borders>,
) -> Vec<Test> {
    let blocks = blocks(cfg, proc, borders);
    let is_first = |i: usize| i == 0 || blocks[i - 1].0 != blocks[i].0;
    let test = |(i, &(b, position)): (usize, &(BlockId, Position))| {
        let is_in = |list: &[BlockId]| is_first(i) && list.binary_search(&b).is_ok();
        Test {
            inst: cfg.block(b).first,
            position,
            begins: borders.is_some_and(|borders| is_in(&borders.from)),
            ends: borders.is_some_and(|borders| is_in(&borders.to)),
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

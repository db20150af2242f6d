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
use crate::analysis::specialise::ops::Imm;
use crate::cfg::{Cfg, ProcKind, Succ};
use crate::ids::{BlockId, InstId, ProcId};
use crate::live::{Live, RegSet};
use crate::plan::code::{Encoding, Operand};
use crate::x86::asm::Cond;
use crate::x86::opcode::{self, Alu};

/// When control goes to the other version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Switch {
    /// To the full version while a word of 4 bytes is not 0, and to the light version while it is.
    Flag,
    /// At each n-th test of either version.
    Every(u32),
}

impl Switch {
    /// Adds the data that the tests read; returns its offset.
    pub(super) fn place(self, data: &mut Data) -> u32 {
        let at = data.reserve(size_of::<u64>());
        if let Self::Every(n) = self {
            data.bytes.write(at as usize, &n.to_le_bytes());
        }
        at
    }
}

/// A test, and where it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Test {
    pub inst: InstId,
    pub position: Position,
    keeping: Keeping,
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

/// The blocks of a procedure that have tests: the one through which it is called, and headers of loops.
fn blocks(cfg: &Cfg, proc: ProcId) -> impl Iterator<Item = (BlockId, Position)> {
    let facts = cfg.proc(proc);
    let is_called = !matches!(facts.kind, ProcKind::Fragment(_) | ProcKind::Plt);
    let entry = (is_called && cfg.block_pc(facts.first_block) == facts.start)
        .then_some((facts.first_block, Position::Entry));
    let headers = headers(cfg, proc).into_iter();
    entry
        .into_iter()
        .chain(headers.map(|b| (b, Position::Before)))
}

/// The tests of a procedure, in the order of their places, all in front of the first instruction of a block: a block is run in one
/// version as a whole.
pub(super) fn tests(cfg: &Cfg, live: &Live<'_>, proc: ProcId) -> Vec<Test> {
    let test = |(b, position)| Test {
        inst: cfg.block(b).first,
        position,
        keeping: Keeping::of(live.at_start(b), RegSet::FLAGS),
    };
    let mut tests: Vec<Test> = blocks(cfg, proc).map(test).collect();
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
    let keeping = test.keeping;
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
        (Switch::Flag, Version::Light) => (Cond::NE, None),
        (Switch::Flag, Version::Full) => (Cond::E, None),
        // The same test of the other version comes next.
        (Switch::Every(n), _) => (Cond::E, Some(n.saturating_add(1))),
    };
    asm.machine(&match switch {
        Switch::Flag => compare(Alu::Cmp, 0),
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

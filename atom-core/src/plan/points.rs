//! Which calls belong to which point, and what "before" and "after" mean there.
//!
//! Order at one address: before the procedure, before the block, before the
//! instruction; then after the instruction, after the block, after the
//! procedure; at each in the order of addition. A jump, a branch and a return
//! change nothing but the instruction pointer (and rsp), so what comes after
//! them is done before them, as the last thing; for other instructions it
//! stands on the way to the next one.

use std::ops::Range;

use crate::cfg::{Cfg, ProcKind, Succ};
use crate::error::{Error, Result};
use crate::ids::{BlockId, InstId, ProcId};
use crate::tool::{Call, Calls};
use crate::tool::{Place, Scope};
use crate::x86::ControlFlow;

/// Numbers of the calls of one scope and place, by what they are added to.
#[derive(Default)]
struct Index {
    /// By id: the start of its range; one more at the end. Empty without calls.
    starts: Vec<u32>,
    calls: Vec<u32>,
}

impl Index {
    fn build(calls: &Calls, scope: Scope, place: Place, count: usize) -> Result<Self> {
        let mine = || {
            calls
                .calls
                .iter()
                .enumerate()
                .filter(move |(_, c)| c.scope == scope && c.place == place)
        };
        let mut starts = Vec::new();
        for (_, call) in mine() {
            if starts.is_empty() {
                starts.resize(count + 1, 0);
            }
            if call.id as usize >= count {
                let reason = format!(
                    "a call is added to {scope:?} {}, which does not exist",
                    call.id
                );
                return Err(Error::new("planning calls", reason));
            }
            starts[call.id as usize + 1] += 1;
        }
        for i in 1..starts.len() {
            starts[i] += starts[i - 1];
        }
        let mut next = starts.clone();
        let mut sorted = vec![0; starts.last().map_or(0, |n| *n as usize)];
        for (number, call) in mine() {
            let slot = &mut next[call.id as usize];
            sorted[*slot as usize] = number as u32;
            *slot += 1;
        }
        Ok(Self {
            starts,
            calls: sorted,
        })
    }

    fn at(&self, id: usize) -> &[u32] {
        self.between(id..id + 1)
    }

    fn between(&self, ids: Range<usize>) -> &[u32] {
        match self.starts.get(ids.end) {
            Some(end) => &self.calls[self.starts[ids.start] as usize..*end as usize],
            None => &[],
        }
    }
}

/// The calls by point.
pub struct Points<'a> {
    cfg: &'a Cfg,
    calls: &'a Calls,
    proc: [Index; 2],
    block: [Index; 2],
    inst: [Index; 2],
    entry: Index,
    falling: Index,
    taken: Index,
}

/// The calls around one instruction, as numbers of calls.
#[derive(Default, Debug)]
pub struct Around {
    /// When control enters the procedure here from outside.
    pub entry: Vec<u32>,
    /// Before it.
    pub before: Vec<u32>,
    /// After it, but made before it since it transfers control.
    pub before_transfer: Vec<u32>,
    /// The same, but only if the branch is taken.
    pub if_taken: Vec<u32>,
    /// On the way to the branch's target.
    pub taken: Vec<u32>,
    /// On the way to the next instruction.
    pub after: Vec<u32>,
}

impl Around {
    /// Empties it.
    fn clear(&mut self) {
        for list in [
            &mut self.entry,
            &mut self.before,
            &mut self.before_transfer,
            &mut self.if_taken,
            &mut self.taken,
            &mut self.after,
        ] {
            list.clear();
        }
    }
}

impl<'a> Points<'a> {
    /// Sorts the calls.
    pub fn build(cfg: &'a Cfg, calls: &'a Calls) -> Result<Self> {
        let index = |scope, count| -> Result<[Index; 2]> {
            Ok([
                Index::build(calls, scope, Place::Before, count)?,
                Index::build(calls, scope, Place::After, count)?,
            ])
        };
        let edges = |scope| Index::build(calls, scope, Place::Before, cfg.blocks.len());
        Ok(Self {
            cfg,
            calls,
            proc: index(Scope::Proc, cfg.procs.len())?,
            block: index(Scope::Block, cfg.blocks.len())?,
            inst: index(Scope::Inst, cfg.insts.len())?,
            entry: edges(Scope::Entry)?,
            falling: edges(Scope::Falling)?,
            taken: edges(Scope::Taken)?,
        })
    }

    /// The call of this number.
    pub fn call(&self, number: u32) -> &'a Call {
        &self.calls.calls[number as usize]
    }

    /// Calls at the exits of this procedure or part of a procedure. A part
    /// whose whole is not known has none: it is never entered for itself.
    fn at_exits(&self, id: ProcId) -> &[u32] {
        if self.cfg.proc(id).kind == ProcKind::Fragment(None) {
            return &[];
        }
        self.proc[1].at(self.cfg.whole(id).index())
    }

    /// What is added to blocks and to ways between them.
    fn of_blocks(&self) -> impl Iterator<Item = &Index> {
        self.block
            .iter()
            .chain([&self.entry, &self.falling, &self.taken])
    }

    /// True if there is any call in the procedure.
    pub fn any_in_proc(&self, id: ProcId) -> bool {
        let proc = self.cfg.proc(id);
        if !proc.is_movable() {
            return false;
        }
        let first = proc.first_block.index();
        let blocks = first..first + proc.block_count as usize;
        let insts = self.cfg.proc_insts(id);
        !self.proc[0].at(id.index()).is_empty()
            || !self.at_exits(id).is_empty()
            || self
                .of_blocks()
                .any(|x| !x.between(blocks.clone()).is_empty())
            || self
                .inst
                .iter()
                .any(|x| !x.between(insts.clone()).is_empty())
    }

    /// True if there may be any call in the block.
    pub fn any_in_block(&self, id: BlockId) -> bool {
        let block = self.cfg.block(id);
        let first = block.first.index();
        let insts = first..first + block.count as usize;
        self.of_blocks().any(|x| !x.at(id.index()).is_empty())
            || self
                .inst
                .iter()
                .any(|x| !x.between(insts.clone()).is_empty())
            || (self.is_entry(id) && !self.proc[0].at(block.proc.index()).is_empty())
            || !self.at_exits(block.proc).is_empty()
    }

    fn is_entry(&self, id: BlockId) -> bool {
        is_entry(self.cfg, id)
    }

    /// The calls around an instruction of a block.
    pub fn around(&self, id: BlockId, inst: InstId, around: &mut Around) {
        around.clear();
        let block = self.cfg.block(id);
        if inst == block.first {
            if self.is_entry(id) {
                around.entry.extend(self.proc[0].at(block.proc.index()));
                around.entry.extend(self.entry.at(id.index()));
            }
            around.before.extend(self.block[0].at(id.index()));
        }
        around.before.extend(self.inst[0].at(inst.index()));
        let flow = self.cfg.inst(inst).flow;
        if flow == ControlFlow::Halt {
            return;
        }
        let transfers = matches!(
            flow,
            ControlFlow::Jump
                | ControlFlow::CondJump
                | ControlFlow::IndirectJump
                | ControlFlow::Return
        );
        let list = if transfers {
            &mut around.before_transfer
        } else {
            &mut around.after
        };
        list.extend(self.inst[1].at(inst.index()));
        if inst != block.last() {
            return;
        }
        list.extend(self.block[1].at(id.index()));
        match flow {
            ControlFlow::Jump | ControlFlow::IndirectJump | ControlFlow::Return => {
                list.extend(self.taken.at(id.index()));
            }
            ControlFlow::CondJump => {}
            _ => list.extend(self.falling.at(id.index())),
        }
        let at_exits = self.at_exits(block.proc);
        let exit = match at_exits {
            [] => Exit::Never,
            _ => exit(self.cfg, id),
        };
        if exit == Exit::Always {
            list.extend(at_exits);
        }
        if flow == ControlFlow::CondJump {
            around.taken.extend(self.taken.at(id.index()));
            around.after.extend(self.falling.at(id.index()));
        }
        match exit {
            Exit::Never | Exit::Always => {}
            Exit::IfTaken => around.if_taken.extend(at_exits),
            Exit::Falling => around.after.extend(at_exits),
        }
    }
}

/// True if other procedures enter the procedure of this block here.
pub(crate) fn is_entry(cfg: &Cfg, id: BlockId) -> bool {
    let block = cfg.block(id);
    let proc = cfg.proc(block.proc);
    !matches!(proc.kind, ProcKind::Fragment(_)) && (block.is_entry || proc.first_block == id)
}

/// An instruction by which control leaves a procedure, or a part of one, and
/// that is no return: a jump to another procedure.
pub(crate) fn exit_by_jump(cfg: &Cfg, id: ProcId) -> Option<InstId> {
    let exits = cfg
        .proc(id)
        .blocks()
        .filter(|b| exit(cfg, *b) != Exit::Never);
    exits
        .map(|b| cfg.block(b).last())
        .find(|i| cfg.inst(*i).flow != ControlFlow::Return)
}

/// True if a jump from a procedure to this address leaves it, as a tail call does.
fn leaves(cfg: &Cfg, from: ProcId, target: u64) -> bool {
    let Some(to) = cfg.proc_at(target) else {
        return true;
    };
    cfg.whole(from) != cfg.whole(to) && cfg.proc(to).kind != ProcKind::Fragment(None)
}

/// How control may leave the procedure at the end of a block.
fn exit(cfg: &Cfg, id: BlockId) -> Exit {
    let block = cfg.block(id);
    let last = block.last();
    let end = cfg.inst_end(last);
    let tails = || {
        cfg.succs(id).iter().filter_map(|s| match s {
            Succ::Tail(target) => Some(target.get()).filter(|t| leaves(cfg, block.proc, *t)),
            _ => None,
        })
    };
    match cfg.inst(last).flow {
        ControlFlow::Return => Exit::Always,
        ControlFlow::Jump if tails().next().is_some() => Exit::Always,
        ControlFlow::CondJump => {
            let by_branch = tails().any(|t| t != end);
            let by_falling = tails().any(|t| t == end);
            match (by_branch, by_falling) {
                (true, true) => Exit::Always,
                (true, false) => Exit::IfTaken,
                (false, true) => Exit::Falling,
                (false, false) => Exit::Never,
            }
        }
        ControlFlow::IndirectJump => {
            let table = cfg.jump_tables.binary_search_by_key(&last, |t| t.jump);
            if table.is_err() && cfg.succs(id).contains(&Succ::Unknown) {
                Exit::Always
            } else {
                Exit::Never
            }
        }
        ControlFlow::FallThrough
        | ControlFlow::Syscall
        | ControlFlow::Trap
        | ControlFlow::Call
        | ControlFlow::IndirectCall
            if tails().next().is_some() =>
        {
            Exit::Falling
        }
        _ => Exit::Never,
    }
}

/// When a block's end leaves the procedure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Exit {
    Never,
    Always,
    IfTaken,
    Falling,
}

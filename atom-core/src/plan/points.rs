//! Which calls belong to which point, and what "before" and "after" mean there.
//!
//! Order at one address: before the procedure, before the block, before the instruction; then after the
//! instruction, after the block, after the procedure; at each in the order of addition. A jump, a branch
//! and a return change only the instruction pointer (and rsp). So calls after them are made before them,
//! as the last calls there. Calls after other instructions are on the edge to the next instruction.

use std::ops::Range;

use crate::cfg::{Cfg, Exit, ProcKind};
use crate::error::{Error, Result};
use crate::ids::{BlockId, InstId, ProcId};
use crate::tool::{Call, Calls};
use crate::tool::{CallPlace, Scope};
use crate::x86::ControlFlow;

/// Numbers of the calls of one scope and place, by the number of the item that they are added to.
#[derive(Default)]
struct Index {
    /// Start of each item's range, and the end of the last. Empty if there are no calls.
    starts: Vec<u32>,
    calls: Vec<u32>,
}

impl Index {
    fn build(calls: &Calls, scope: Scope, place: CallPlace, count: usize) -> Result<Self> {
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

/// The calls of all points.
pub struct Points<'a> {
    cfg: &'a Cfg,
    calls: &'a Calls,
    proc: [Index; 2],
    block: [Index; 2],
    inst: [Index; 2],
    entry: Index,
    falling: Index,
    taken: Index,
    instead: Index,
}

/// The calls around one instruction, as numbers of calls.
#[derive(Default, Debug)]
pub struct Around {
    /// The call in place of the procedure that starts here.
    pub instead: Option<u32>,
    /// Calls made when control enters the procedure here from outside.
    pub entry: Vec<u32>,
    /// Calls before the instruction.
    pub before: Vec<u32>,
    /// Calls after the instruction that are made before it, as it transfers control.
    pub before_transfer: Vec<u32>,
    /// Calls made before the instruction, only if the branch will be taken.
    pub if_taken: Vec<u32>,
    /// Calls on the taken edge.
    pub taken: Vec<u32>,
    /// Calls on the edge to the next instruction.
    pub after: Vec<u32>,
}

impl Around {
    /// True if there is no call.
    pub fn is_empty(&self) -> bool {
        let lists = [
            &self.entry,
            &self.before,
            &self.before_transfer,
            &self.if_taken,
            &self.taken,
            &self.after,
        ];
        self.instead.is_none() && lists.iter().all(|l| l.is_empty())
    }
}

impl Around {
    /// Removes all calls.
    fn clear(&mut self) {
        self.instead = None;
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
                Index::build(calls, scope, CallPlace::Before, count)?,
                Index::build(calls, scope, CallPlace::After, count)?,
            ])
        };
        let edges = |scope| Index::build(calls, scope, CallPlace::Before, cfg.blocks.len());
        Ok(Self {
            cfg,
            calls,
            proc: index(Scope::Proc, cfg.procs.len())?,
            block: index(Scope::Block, cfg.blocks.len())?,
            inst: index(Scope::Inst, cfg.insts.len())?,
            entry: edges(Scope::Entry)?,
            falling: edges(Scope::Falling)?,
            taken: edges(Scope::Taken)?,
            instead: Index::build(calls, Scope::Instead, CallPlace::Before, cfg.procs.len())?,
        })
    }

    /// The call with this number.
    pub fn call(&self, number: u32) -> &'a Call {
        &self.calls.calls[number as usize]
    }

    /// True if a routine runs in place of the procedure.
    pub fn is_replaced(&self, id: ProcId) -> bool {
        !self.instead.at(id.index()).is_empty()
    }

    /// Calls at the exits of a procedure or of a part of one. A part whose procedure is not known has
    /// none, as it is never entered for itself.
    fn at_exits(&self, id: ProcId) -> &[u32] {
        if self.cfg.proc(id).kind == ProcKind::Fragment(None) {
            return &[];
        }
        self.proc[1].at(self.cfg.whole(id).index())
    }

    /// Calls that are added to blocks and to edges between them.
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
        self.is_replaced(id)
            || !self.proc[0].at(id.index()).is_empty()
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
            || (self.cfg.is_entry(id)
                && (self.is_replaced(block.proc)
                    || !self.proc[0].at(block.proc.index()).is_empty()))
            || !self.at_exits(block.proc).is_empty()
    }

    /// The calls around an instruction of a block.
    pub fn around(&self, id: BlockId, inst: InstId, around: &mut Around) {
        around.clear();
        let block = self.cfg.block(id);
        if inst == block.first {
            if self.cfg.is_entry(id) {
                if self.cfg.block_pc(id) == self.cfg.proc(block.proc).start {
                    let instead = self.instead.at(block.proc.index());
                    around.instead = instead.first().copied();
                }
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
            _ => self.cfg.exit_of(id),
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

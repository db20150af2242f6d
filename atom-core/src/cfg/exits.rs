//! Where control enters a procedure from outside, and where it leaves the procedure.

use super::{Cfg, ProcKind, Succ};
use crate::ids::{BlockId, InstId, ProcId};
use crate::x86::ControlFlow;

/// When control leaves the procedure at the end of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// Never.
    Never,
    /// Each time.
    Always,
    /// When the conditional branch at the block's end is taken.
    IfTaken,
    /// When control falls through to what is after the block.
    Falling,
}

impl Cfg {
    /// True if other procedures enter the procedure of this block here.
    pub fn is_entry(&self, id: BlockId) -> bool {
        let block = self.block(id);
        let proc = self.proc(block.proc);
        !matches!(proc.kind, ProcKind::Fragment(_)) && (block.is_entry || proc.first_block == id)
    }

    /// A jump by which control leaves a procedure, or a part of a procedure, for another procedure.
    pub fn exit_by_jump(&self, id: ProcId) -> Option<InstId> {
        let blocks = self.proc(id).blocks();
        blocks
            .filter(|b| self.exit_of(*b) != Exit::Never)
            .map(|b| self.block(b).last())
            .find(|i| self.inst(*i).flow != ControlFlow::Return)
    }

    /// When control leaves the procedure at the end of a block.
    pub fn exit_of(&self, id: BlockId) -> Exit {
        let block = self.block(id);
        let last = block.last();
        let end = self.inst_end(last);
        let tails = || {
            self.succs(id).iter().filter_map(|s| match s {
                Succ::Tail(target) => Some(target.get()).filter(|t| self.leaves(block.proc, *t)),
                _ => None,
            })
        };
        match self.inst(last).flow {
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
                let table = self.jump_tables.binary_search_by_key(&last, |t| t.jump);
                if table.is_err() && self.succs(id).contains(&Succ::Unknown) {
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

    /// True if a jump from a procedure to this address leaves the procedure, as a tail call does.
    fn leaves(&self, from: ProcId, target: u64) -> bool {
        let Some(to) = self.proc_at(target) else {
            return true;
        };
        self.whole(from) != self.whole(to) && self.proc(to).kind != ProcKind::Fragment(None)
    }
}

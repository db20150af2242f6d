//! Checks of jumps from original addresses to moved code.

use super::procedure::{Checker, Goal};
use super::step::Complaint;
use crate::error::Result;
use crate::ids::BlockId;
use crate::x86::Mnemonic;

impl Checker<'_, '_> {
    /// True if the instruction at an original address was left in place for want
    /// of space, which is reported as such.
    pub(super) fn is_left(&self, old: u64) -> bool {
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

    /// Checks a block that is one `nop` without space for a jump. The `nop` stays, and from the
    /// instruction after it control must reach that instruction's new place. `None` for other
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
        Some(self.enter(next, None, next, self.goal(next, None)))
    }

    /// Checks that control goes from the original address of a block to the moved block.
    pub(super) fn pad(&mut self, b: BlockId) -> Result<()> {
        let subject = self.subject;
        let inst = subject.cfg().block(b).first;
        let old = subject.cfg().inst_pc(inst);
        if self.is_left(old) {
            return Ok(());
        }
        let goal = Goal {
            at: subject.layout().label(self.id, inst),
            inst: Some(inst),
            from: None,
        };
        // A call has just pushed a return address, below which nothing is.
        self.enter(old, None, old, goal)
            .or_else(|complaint| self.after_left_nop(b).ok_or(complaint)?)
            .map_err(|c| self.fail(old, format!("the jump from the original address {c}")))?;
        self.checked.pads += 1;
        Ok(())
    }
}

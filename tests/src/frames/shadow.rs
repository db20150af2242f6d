//! The shadow stack: the state of each caller at its call.

use std::io;

use libc::{pid_t, user_regs_struct};

use super::Code;
use super::tables::{KEPT, Unwound, register};
use crate::stepper::ptrace;

/// A frame, as its caller made it.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Address of the return address.
    slot: u64,
    returns_to: u64,
    /// Values of the callee-saved registers; `None` if the kernel made the frame.
    kept: Option<[u64; 6]>,
}

impl Frame {
    /// Whether the tables describe this frame.
    pub fn compare(&self, found: &Unwound) -> Result<(), String> {
        let Some(kept) = self.kept else { return Ok(()) };
        if found.return_slot != self.slot {
            return Err(format!(
                "the return address lies at {:#x}, not at {:#x}",
                self.slot, found.return_slot
            ));
        }
        if found.cfa != self.slot + 8 {
            return Err(format!(
                "the CFA is {:#x}, not {:#x}",
                self.slot + 8,
                found.cfa
            ));
        }
        for ((name, was), is) in KEPT.iter().zip(kept).zip(found.kept) {
            if is != Some(was) {
                return Err(format!("register {name} was {was:#x}, not {is:x?}"));
            }
        }
        Ok(())
    }
}

/// The calls under way, outermost first.
#[derive(Default, Debug)]
pub struct Shadow {
    frames: Vec<Frame>,
    /// A frame whose return address is not on the stack at present, and its number.
    parked: Option<(Frame, usize)>,
}

impl Shadow {
    /// The innermost frame.
    pub fn frame(&self) -> Option<&Frame> {
        self.frames.last()
    }

    /// Updates the stack after an instruction was executed.
    pub fn moved(
        &mut self,
        pid: pid_t,
        old: &user_regs_struct,
        code: &Code,
        new: &user_regs_struct,
    ) -> io::Result<()> {
        if code.parks && self.frames.last().is_some_and(|f| f.slot == old.rsp) {
            let frame = self.frames.pop().expect("it was looked at");
            self.parked = Some((frame, self.frames.len()));
        } else if code.fetches
            && let Some((frame, _)) = self.parked.take_if(|p| p.0.slot == new.rsp)
        {
            self.frames.push(frame);
        }
        self.settle(new.rsp);
        let returns_to = old.rip + code.len;
        if code.is_call
            && new.rsp == old.rsp.wrapping_sub(8)
            && ptrace::peek(pid, new.rsp)? == returns_to
        {
            self.frames.push(Frame {
                slot: new.rsp,
                returns_to,
                kept: Some(KEPT.map(|n| register(old, n))),
            });
        }
        Ok(())
    }

    /// True if the innermost frame's return address is not on the stack.
    pub fn is_parked(&self) -> bool {
        self.parked
            .as_ref()
            .is_some_and(|p| p.1 == self.frames.len())
    }

    /// Updates the stack where control may have come to a signal handler.
    pub fn interrupted(&mut self, regs: &user_regs_struct) {
        self.settle(regs.rsp);
        if self.frames.last().is_none_or(|f| f.slot > regs.rsp + 128) {
            self.frames.push(Frame {
                slot: regs.rsp,
                returns_to: 0,
                kept: None,
            });
        }
    }

    /// Removes the frames that have returned.
    pub fn settle(&mut self, rsp: u64) {
        while self.frames.last().is_some_and(|f| f.slot < rsp) {
            self.frames.pop();
        }
    }

    /// Return address of the innermost call, if control has just left the program
    /// by this call. `None` for the outermost call, from which libc calls main.
    pub fn return_address(&self, regs: &user_regs_struct) -> Option<u64> {
        let frame = self.frames.last().filter(|_| self.frames.len() > 1)?;
        // The procedure linkage table may have pushed something.
        let is_new = frame.slot.wrapping_sub(regs.rsp) <= 32 && frame.returns_to != 0;
        is_new.then_some(frame.returns_to)
    }
}

//! Frames of functions, and code that goes to another stack than the program's and comes back.

use super::{Asm, Frame, Gpr, opcode};

impl<T> Asm<T> {
    /// Notes that the instruction just emitted set rsp to an address on another stack, `depth` bytes below the word that
    /// holds the program's rsp.
    pub fn went_elsewhere(&mut self, depth: u32) {
        self.elsewhere = true;
        self.depth = depth;
        self.shift_to_depth();
    }

    /// `pop rsp`: goes back to the program's stack, from the word that holds the program's rsp.
    pub fn come_back(&mut self) {
        debug_assert_eq!(self.depth, 0, "rsp leads to the word");
        self.byte(opcode::POP_R | Gpr::RSP.low());
        self.elsewhere = false;
        self.shift_to_depth();
    }

    /// An empty piece of code in which rsp is as in this one where no more has been pushed.
    pub fn apart(&self) -> Self {
        Self {
            elsewhere: self.elsewhere,
            ..Self::new(self.by_address)
        }
    }

    /// `push rbp; mov rbp, rsp`: the head of a function. What follows may move
    /// rsp as it likes until [`Asm::close_frame`].
    pub fn open_frame(&mut self) {
        self.push(Gpr::RBP);
        self.mov(Gpr::RBP, Gpr::RSP);
        self.framed = true;
        self.frame_change(Frame::Base);
    }

    /// `pop rbp`, where rsp is as it was after [`Asm::open_frame`].
    pub fn close_frame(&mut self) {
        self.rex(false, 0, 0, Gpr::RBP.0, false);
        self.byte(opcode::POP_R | Gpr::RBP.low());
        self.framed = false;
        self.depth = 0;
        self.frame_change(Frame::Below(0));
    }
}

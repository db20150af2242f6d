//! A stack of inserted code's own, for points at which rsp may lead to data.
//!
//! The stack is at the end of the running thread's block. Its topmost word gets the program's rsp, and inserted code
//! pushes below that word. Only such points use it, and one of them at a time: a signal handler that interrupts inserted
//! code in a program that is instrumented alone, and has such points itself, would use it a second time.

use atom_abi::THREAD_THIS;

use super::code::{Asm, Target};
use crate::x86::asm::{Gpr, Mem};

/// Size in bytes of the stack. A routine on the program's stack and the frame of a signal handler take 1 KB and some
/// KB; a handler in a program that is instrumented alone takes what it needs.
pub const PRIVATE_SIZE: u32 = 64 << 10;

/// Distance in bytes of the topmost word from the end of the block, which keeps it aligned to 16 bytes.
const TOP: u32 = 16;

/// The stack, by its place in the main block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PrivateStack {
    /// Offset in the plan's data of the main block.
    block: u32,
    /// Offset in the plan's data of the topmost word.
    top: u32,
    /// True if the running thread's block is found by the gs segment.
    by_gs: bool,
}

impl PrivateStack {
    /// The stack at the end of a block of this size. The offset in the plan's data is the main block's.
    pub fn in_block(block: u32, size: u32, by_gs: bool) -> Self {
        Self {
            block,
            top: block + size - TOP,
            by_gs,
        }
    }

    /// The instruction that follows accesses the running thread's block.
    fn of_thread(&self, asm: &mut Asm) {
        if self.by_gs {
            asm.gs();
        }
    }

    /// Goes to the stack.
    pub fn enter(&self, asm: &mut Asm) {
        self.keep(asm, Gpr::RSP);
        if self.by_gs {
            let up = (self.top - self.block) as i32;
            asm.gs();
            asm.load_target(Gpr::RSP, Target::Data(self.block + THREAD_THIS as u32));
            asm.went_elsewhere(up as u32);
            asm.lea(Gpr::RSP, Mem::at(Gpr::RSP, up));
        } else {
            asm.lea_target(Gpr::RSP, Target::Data(self.top));
            asm.went_elsewhere(0);
        }
    }

    /// Goes back to where rsp led.
    pub fn leave(&self, asm: &mut Asm) {
        asm.come_back();
    }

    /// Keeps a register in the topmost word, for code that needs no other word.
    pub fn keep(&self, asm: &mut Asm, register: Gpr) {
        self.of_thread(asm);
        asm.store_target(Target::Data(self.top), register);
    }

    /// Loads the register that is kept in the topmost word.
    pub fn take_back(&self, asm: &mut Asm, register: Gpr) {
        self.of_thread(asm);
        asm.load_target(register, Target::Data(self.top));
    }
}

//! A stack of the process's for hooks before system calls, where rsp may be any number.
//!
//! A program without a C library may have set rsp to 0 before its `exit`, and a thread that it has started may have no
//! stack at all. rcx and r11 are free there, as the instruction `syscall` changes both. One hook at a time has the
//! stack. Another one that wants it meanwhile, in another thread or in a signal handler, has to do without.
//!
//! Who never comes back keeps the stack: a child that shares the memory and executes a program from its hook, a handler
//! that jumps away. All later hooks do without it then.

use super::code::{Asm, Target};
use super::private_stack::{PRIVATE_SIZE, PrivateStack};
use crate::x86::asm::{Gpr, Mem, Patch};

/// The stack, by its place in the plan's data. The first word is not 0 while a hook has the stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpareStack {
    start: u32,
}

impl SpareStack {
    /// Size in bytes. A signal handler's frame takes some KB.
    pub const SIZE: usize = PRIVATE_SIZE as usize;

    /// The stack at this offset in the plan's data, a multiple of 16.
    pub fn at(start: u32) -> Self {
        Self { start }
    }

    fn stack(self) -> PrivateStack {
        PrivateStack::in_block(self.start, Self::SIZE as u32, false)
    }

    /// Goes to the stack. Yields a jump that is taken instead if another hook has it. Changes rcx and r11, and no flag.
    pub fn enter(self, asm: &mut Asm) -> Patch {
        asm.lea_target(Gpr::R11, Target::Data(self.start));
        asm.mov_imm(Gpr::RCX, 1);
        // xchg [r11], rcx
        asm.raw(&[0x49, 0x87, 0x0b]);
        let free = asm.jump_if_rcx_zero(false);
        let taken = asm.jump();
        asm.land(free);
        self.stack().enter(asm);
        taken
    }

    /// Goes back to where rsp led. Changes rcx and no flag.
    pub fn leave(self, asm: &mut Asm) {
        self.stack().leave(asm);
        asm.lea_target(Gpr::RCX, Target::Data(self.start));
        asm.store32_imm(Mem::at(Gpr::RCX, 0), 0);
    }
}

//! Wrappers: out-of-line stubs around the call of a routine, with saves, alignment and restores.
//!
//! A wrapper is called with the routine's arguments in place. By the System V ABI the stack is aligned to
//! 16 bytes at a call. The program's stack may not be, so a wrapper aligns it and copies the stack
//! arguments below.

use std::collections::HashMap;

use atom_abi::{STACK_STEP, THREAD_STACK};

use super::code::{Asm, Target, call_routine};
use super::stub::Stub;
use crate::live::RegSet;
use crate::x86::abi::{ARGUMENT_REGISTERS, DEFAULT_MXCSR};
use crate::x86::asm::{Cond, Gpr, Mem, Patch};

/// What a wrapper does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Wrapper {
    /// The routine's address in the tool's file.
    pub routine: u64,
    /// Mask of the general registers to save.
    pub gprs: u16,
    /// Mask of the vector registers to save.
    pub xmms: u16,
    /// True if it saves the arithmetic flags. That changes rax, which is in `gprs` if it is live.
    pub flags: bool,
    /// True if it runs the routine with the default SSE control word and restores the program's.
    pub mxcsr: bool,
    /// True if it aligns the stack.
    pub align: bool,
    /// True if it has the processor check no alignment while the routine runs. Then it aligns the stack, too.
    pub unchecked: bool,
    /// Number of arguments on the stack.
    pub stack_words: u8,
    /// True if it stores the result, unless that is 0, in the word above the return address, which the
    /// caller has reserved. rax and rcx are in `gprs`.
    pub yields: bool,
    /// Offset in the plan's data of the main block, if the routine runs on the stack that the running thread's block names.
    pub stack: Option<u32>,
    /// Address of the runtime's function in the tool's file that calls the routine, if that runs on a stack of the
    /// runtime's.
    pub apart: Option<u64>,
    /// Set if the stub is one for rare calls instead. Then it keeps the flags if `flags` is set, and `gprs`
    /// and `xmms` are the registers that the routine changes.
    pub stub: Option<Stub>,
}

/// The wrappers that are needed, numbered from 0.
#[derive(Default, Debug)]
pub struct Wrappers {
    numbers: HashMap<Wrapper, u32>,
    /// The wrappers in the order of their numbers.
    pub list: Vec<Wrapper>,
    /// Where routines do not run on the program's stack: see [`Wrapper::stack`].
    pub stack: Option<u32>,
    /// What calls the routines that need much of a stack: see [`Wrapper::apart`].
    pub apart: Option<u64>,
    /// True if the program may have the processor check alignment: see [`Wrapper::unchecked`].
    pub unchecked: bool,
}

impl Wrappers {
    /// No wrappers yet, of routines that run on these stacks.
    pub fn on(stack: Option<u32>, apart: Option<u64>, unchecked: bool) -> Self {
        Self {
            stack,
            // Each thread's own stack has space for all of them.
            apart: apart.filter(|_| stack.is_none()),
            unchecked,
            ..Self::default()
        }
    }

    /// Number of the wrapper for a call of a routine from a place of which nothing is known.
    pub fn whole(&mut self, routine: u64) -> u32 {
        self.index(Wrapper {
            stack: self.stack,
            ..Wrapper::whole(routine)
        })
    }

    /// Number of this wrapper, which is added if it is new.
    pub fn index(&mut self, wrapper: Wrapper) -> u32 {
        *self.numbers.entry(wrapper).or_insert_with(|| {
            self.list.push(wrapper);
            self.list.len() as u32 - 1
        })
    }

    /// Forgets all but the first `count`.
    pub fn truncate(&mut self, count: usize) {
        for wrapper in self.list.drain(count..) {
            self.numbers.remove(&wrapper);
        }
    }
}

/// The flag by which the processor checks alignment.
const ALIGNMENT_CHECK: u32 = 1 << 18;

/// Emits a jump that is taken if the flag is clear in the word at rsp + 8. Changes the flags.
fn jump_if_unchecked(asm: &mut Asm) -> Patch {
    // test dword [rsp + 8], AC
    asm.raw(&[0xf7, 0x44, 0x24, 8]);
    asm.raw(&ALIGNMENT_CHECK.to_le_bytes());
    asm.jump_if(Cond::E)
}

fn bits(mask: u16) -> impl DoubleEndedIterator<Item = u8> {
    (0..16).filter(move |n| mask >> n & 1 != 0)
}

impl Wrapper {
    /// A wrapper for a call from a place of which nothing is known.
    pub fn whole(routine: u64) -> Self {
        Self {
            routine,
            gprs: RegSet::CALLER_SAVED.gpr_mask(),
            xmms: u16::MAX,
            flags: false,
            mxcsr: true,
            align: true,
            unchecked: false,
            stack_words: 0,
            yields: false,
            stack: None,
            apart: None,
            stub: None,
        }
    }

    /// Emits the wrapper's code.
    pub fn emit(&self, asm: &mut Asm) {
        asm.open_frame();
        self.enter_stack(asm);
        bits(self.gprs).for_each(|n| asm.push(Gpr(n)));
        let mut pushed = 8 * self.gprs.count_ones() as i32;
        if self.flags {
            asm.flags_to_ax(true);
            asm.push(Gpr::RAX);
            pushed += 8;
        }
        // Vector registers are saved at aligned addresses, as the program may have the processor check that.
        let aligns = self.align && self.stack.is_none();
        if aligns {
            asm.align_stack();
        }
        if self.unchecked {
            asm.push_flags();
            // The words are an even number.
            asm.move_stack(-8);
            let usual = jump_if_unchecked(asm);
            asm.push_flags();
            // and dword [rsp], ~AC
            asm.raw(&[0x81, 0x24, 0x24]);
            asm.raw(&(!ALIGNMENT_CHECK).to_le_bytes());
            asm.pop_flags();
            asm.land(usual);
        }
        let xmm_bytes = 16 * self.xmms.count_ones() as i32;
        let area = xmm_bytes + if self.mxcsr { 16 } else { 0 };
        asm.move_stack(-area);
        for (i, n) in bits(self.xmms).enumerate() {
            asm.store_xmm(Mem::at(Gpr::RSP, 16 * i as i32), n);
        }
        if self.mxcsr {
            asm.store_mxcsr(Mem::at(Gpr::RSP, xmm_bytes));
            asm.store32_imm(Mem::at(Gpr::RSP, xmm_bytes + 4), DEFAULT_MXCSR);
            asm.load_mxcsr(Mem::at(Gpr::RSP, xmm_bytes + 4));
        }
        let words = 8 * i32::from(self.stack_words);
        // The routine's own stack is aligned where it begins.
        let padding = match (aligns, self.stack) {
            (true, _) => words & 8,
            (false, Some(_)) => (pushed + words) & 8,
            (false, None) => 0,
        };
        asm.move_stack(-padding);
        // Above rbp are the saved rbp, the wrapper's return address, then the arguments.
        for word in (0..i32::from(self.stack_words)).rev() {
            asm.push_mem(Mem::at(Gpr::RBP, 16 + 8 * word));
        }
        let mut below = words + padding;
        match self.apart {
            Some(apart) => below += self.call_apart(asm, apart),
            None => call_routine(asm, self.routine),
        }
        if self.yields {
            asm.mov(Gpr::RCX, Gpr::RAX);
            let none = asm.jump_if_rcx_zero(false);
            asm.store(Mem::at(Gpr::RBP, 16), Gpr::RAX);
            asm.land(none);
        }
        if self.mxcsr {
            asm.load_mxcsr(Mem::at(Gpr::RSP, below + xmm_bytes));
        }
        for (i, n) in bits(self.xmms).enumerate() {
            asm.load_xmm(n, Mem::at(Gpr::RSP, below + 16 * i as i32));
        }
        if self.unchecked {
            asm.move_stack(area + below);
            let usual = jump_if_unchecked(asm);
            asm.push_mem(Mem::at(Gpr::RSP, 8));
            asm.pop_flags();
            asm.land(usual);
            // The flags' words.
            below = 16 - area;
        }
        if aligns {
            asm.lea(Gpr::RSP, Mem::at(Gpr::RBP, -pushed))
        } else {
            asm.move_stack(area + below)
        }
        if self.flags {
            asm.pop(Gpr::RAX);
            asm.flags_from_ax(true);
        }
        bits(self.gprs).rev().for_each(|n| asm.pop(Gpr(n)));
        self.leave_stack(asm);
        asm.close_frame();
        asm.ret();
    }

    /// Has the runtime call the routine. ABI: the function takes the routine, the address of the words for all argument
    /// registers, after which the arguments on the stack follow, and the number of the latter. Returns the size of the
    /// words in bytes.
    fn call_apart(&self, asm: &mut Asm, apart: u64) -> i32 {
        for register in ARGUMENT_REGISTERS.into_iter().rev() {
            asm.push(register);
        }
        asm.lea_target(Gpr::RDI, Target::analysis(self.routine));
        asm.mov(Gpr::RSI, Gpr::RSP);
        asm.mov_imm(Gpr::RDX, self.stack_words.into());
        call_routine(asm, apart);
        8 * ARGUMENT_REGISTERS.len() as i32
    }

    /// Goes to the thread's stack for routines, and keeps a part of it for this call: a signal handler may
    /// interrupt at any instruction and call routines, too. Until the part is kept, nothing is on it.
    fn enter_stack(&self, asm: &mut Asm) {
        let Some(block) = self.stack else {
            return;
        };
        let top = Target::Data(block + THREAD_STACK as u32);
        asm.gs();
        asm.load_target(Gpr::RSP, top);
        asm.move_stack(-(STACK_STEP as i32));
        asm.gs();
        asm.store_target(top, Gpr::RSP);
        asm.move_stack(STACK_STEP as i32);
    }

    /// Goes back to the program's stack, whose pointer is in rbp.
    fn leave_stack(&self, asm: &mut Asm) {
        let Some(block) = self.stack else {
            return;
        };
        asm.gs();
        asm.store_target(Target::Data(block + THREAD_STACK as u32), Gpr::RSP);
        asm.mov(Gpr::RSP, Gpr::RBP);
    }
}

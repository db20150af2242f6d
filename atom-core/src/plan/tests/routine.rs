//! Random analysis routines: machine code that keeps to the ABI, reads nothing
//! undefined and touches only memory that it is given.

use crate::x86::assembler::MemoryOperand;
use crate::x86::assembler::code_asm::*;
use crate::x86::{Code, Instruction, Register};

use super::random::Random;

const R64: [AsmRegister64; 16] = [
    rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8, r9, r10, r11, r12, r13, r14, r15,
];
const R32: [AsmRegister32; 16] = [
    eax, ecx, edx, ebx, esp, ebp, esi, edi, r8d, r9d, r10d, r11d, r12d, r13d, r14d, r15d,
];
const R16: [AsmRegister16; 16] = [
    ax, cx, dx, bx, sp, bp, si, di, r8w, r9w, r10w, r11w, r12w, r13w, r14w, r15w,
];
const R8: [AsmRegister8; 16] = [
    al, cl, dl, bl, spl, bpl, sil, dil, r8b, r9b, r10b, r11b, r12b, r13b, r14b, r15b,
];

const CF: u8 = 1;
const PF: u8 = 2;
const AF: u8 = 4;
const ZF: u8 = 8;
const SF: u8 = 16;
const OF: u8 = 32;
const ALL: u8 = 63;

/// Writes one routine.
pub struct Writer<'a> {
    pub asm: &'a mut CodeAssembler,
    pub random: &'a mut Random,
    /// Where the routine's static memory lies.
    pub statics: u64,
    /// A function that it may call on a side path.
    pub helper: u64,
    defined: u16,
    pointers: u16,
    flags: u8,
    /// Forward branches: label, and what is defined at them.
    pending: Vec<(CodeLabel, u16, u16, u8)>,
    cold: Vec<CodeLabel>,
    frame: bool,
    slots: u8,
}

macro_rules! sized {
    ($self:ident, $op:ident, $width:expr, $a:expr, $b:expr) => {
        match $width {
            8 => $self.asm.$op(R64[$a], R64[$b]),
            4 => $self.asm.$op(R32[$a], R32[$b]),
            2 => $self.asm.$op(R16[$a], R16[$b]),
            _ => $self.asm.$op(R8[$a], R8[$b]),
        }
        .unwrap()
    };
}

macro_rules! to_memory {
    ($self:ident, $op:ident, $width:expr, $mem:expr, $b:expr) => {
        match $width {
            8 => $self.asm.$op(qword_ptr($mem), R64[$b]),
            4 => $self.asm.$op(dword_ptr($mem), R32[$b]),
            2 => $self.asm.$op(word_ptr($mem), R16[$b]),
            _ => $self.asm.$op(byte_ptr($mem), R8[$b]),
        }
        .unwrap()
    };
}

macro_rules! from_memory {
    ($self:ident, $op:ident, $width:expr, $a:expr, $mem:expr) => {
        match $width {
            8 => $self.asm.$op(R64[$a], qword_ptr($mem)),
            4 => $self.asm.$op(R32[$a], dword_ptr($mem)),
            2 => $self.asm.$op(R16[$a], word_ptr($mem)),
            _ => $self.asm.$op(R8[$a], byte_ptr($mem)),
        }
        .unwrap()
    };
}

macro_rules! immediate {
    ($self:ident, $op:ident, $width:expr, $a:expr, $n:expr) => {
        match $width {
            8 => $self.asm.$op(R64[$a], $n),
            4 => $self.asm.$op(R32[$a], $n),
            2 => $self.asm.$op(R16[$a], i32::from($n as i16)),
            _ => $self.asm.$op(R8[$a], i32::from($n as i8)),
        }
        .unwrap()
    };
}

macro_rules! alu {
    ($self:ident, $which:expr, $how:ident, $($rest:expr),*) => {
        match $which {
            0 => $how!($self, add, $($rest),*),
            1 => $how!($self, sub, $($rest),*),
            2 => $how!($self, and, $($rest),*),
            3 => $how!($self, or, $($rest),*),
            4 => $how!($self, xor, $($rest),*),
            5 => $how!($self, cmp, $($rest),*),
            6 => $how!($self, adc, $($rest),*),
            _ => $how!($self, sbb, $($rest),*),
        }
    };
}

/// An instruction by its condition code.
macro_rules! on_condition {
    ($self:ident, $code:expr, $type:ty, $arg:expr, $($name:ident)*) => {{
        type Emit = fn(&mut CodeAssembler, $type) -> Result<(), crate::x86::assembler::IcedError>;
        let all: [Emit; 16] = [$(|asm, operand| asm.$name(operand)),*];
        all[$code]($self.asm, $arg).unwrap()
    }};
}

impl<'a> Writer<'a> {
    pub fn new(
        asm: &'a mut CodeAssembler,
        random: &'a mut Random,
        statics: u64,
        helper: u64,
    ) -> Self {
        Self {
            asm,
            random,
            statics,
            helper,
            defined: 0,
            pointers: 0,
            flags: 0,
            pending: Vec::new(),
            cold: Vec::new(),
            frame: false,
            slots: 0,
        }
    }

    /// `arguments` says of each whether it is a pointer to at least 1 KB.
    pub fn write(&mut self, arguments: &[bool]) {
        for (number, pointer) in [7, 6, 2, 1, 8, 9].into_iter().zip(arguments) {
            self.defined |= 1 << number;
            self.pointers |= u16::from(*pointer) << number;
        }
        let below = |w: &mut Self, n| w.random.below(n);
        let saved = below(self, 4) == 0;
        self.frame = below(self, 4) == 0;
        if saved {
            self.asm.push(rbx).unwrap();
            self.asm.push(rbp).unwrap();
        }
        if self.frame {
            self.asm.sub(rsp, 24).unwrap();
            self.flags = 0;
        }
        let usable: Vec<usize> = if saved {
            vec![0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11]
        } else {
            vec![0, 1, 2, 6, 7, 8, 9, 10, 11]
        };
        let steps = 1 + below(self, 9);
        for _ in 0..steps {
            self.step(&usable);
            if below(self, 5) == 0 {
                self.land();
            }
        }
        while !self.pending.is_empty() {
            self.land();
        }
        self.leave(saved);
        for mut label in std::mem::take(&mut self.cold) {
            self.asm.set_label(&mut label).unwrap();
            // The stack is 8 off its alignment at the entry and after an even number of words.
            let extra = if self.frame { 8 } else { 0 };
            if extra == 0 {
                self.asm.sub(rsp, 8).unwrap();
            }
            self.asm.call(self.helper).unwrap();
            if extra == 0 {
                self.asm.add(rsp, 8).unwrap();
            }
            self.leave(saved);
        }
    }

    fn leave(&mut self, saved: bool) {
        if self.frame {
            self.asm.add(rsp, 24).unwrap();
        }
        if saved {
            self.asm.pop(rbp).unwrap();
            self.asm.pop(rbx).unwrap();
        }
        self.asm.ret().unwrap();
    }

    fn land(&mut self) {
        if let Some((mut label, defined, pointers, flags)) = self.pending.pop() {
            self.asm.set_label(&mut label).unwrap();
            self.asm.nop().unwrap();
            self.defined &= defined;
            self.pointers &= pointers;
            self.flags &= flags;
        }
    }

    fn one_of(&mut self, set: u16, usable: &[usize]) -> Option<usize> {
        let all: Vec<usize> = usable
            .iter()
            .copied()
            .filter(|r| set >> r & 1 != 0)
            .collect();
        (!all.is_empty()).then(|| all[self.random.below(all.len() as u64) as usize])
    }

    /// A register that may be written: no pointer that is needed.
    fn target(&mut self, usable: &[usize]) -> usize {
        self.one_of(!self.pointers, usable).unwrap_or(0)
    }

    fn wrote(&mut self, reg: usize, width: u8) {
        self.pointers &= !(1 << reg);
        if width >= 4 {
            self.defined |= 1 << reg;
        }
    }

    fn memory(&mut self, usable: &[usize]) -> Option<AsmMemoryOperand> {
        let pointer = self.one_of(self.pointers, usable)?;
        let disp = self.random.below(64) as i32;
        if self.random.below(3) != 0 {
            return Some(R64[pointer] + disp);
        }
        let index = self.one_of(self.defined & !self.pointers, usable)?;
        self.asm.and(R32[index], 0x3f).unwrap();
        self.flags = ALL & !AF;
        let scale = 1 << self.random.below(4);
        Some(R64[pointer] + R64[index] * scale + disp)
    }

    /// A condition whose flags are defined.
    fn condition(&mut self) -> Option<usize> {
        let code = self.random.below(16) as usize;
        let reads = match code >> 1 {
            0 => OF,
            1 => CF,
            2 => ZF,
            3 => CF | ZF,
            4 => SF,
            5 => PF,
            6 => SF | OF,
            _ => ZF | SF | OF,
        };
        (self.flags & reads == reads).then_some(code)
    }

    fn number(&mut self) -> i32 {
        match self.random.below(3) {
            0 => self.random.below(200) as i32 - 100,
            1 => self.random.next() as i32,
            _ => self.random.below(5) as i32,
        }
    }

    fn step(&mut self, usable: &[usize]) {
        let width = [8, 8, 8, 4, 4, 2, 1][self.random.below(7) as usize];
        let values = self.defined & !self.pointers;
        let to = self.target(usable);
        let is_defined = self.defined >> to & 1 != 0;
        let from = self.one_of(values, usable);
        match self.random.below(26) {
            0 => {
                let Some(from) = self.one_of(self.defined, usable) else {
                    return;
                };
                self.asm.mov(R64[to], R64[from]).unwrap();
                self.wrote(to, 8);
                if self.pointers >> from & 1 != 0 {
                    self.pointers |= 1 << to;
                }
            }
            1 => {
                let Some(from) = from else { return };
                if width < 4 && !is_defined {
                    return;
                }
                sized!(self, mov, width, to, from);
                self.wrote(to, width);
            }
            2 => {
                let n = self.random.next() >> self.random.below(60);
                self.asm.mov(R64[to], n).unwrap();
                self.wrote(to, 8);
            }
            3 => {
                // A pointer to static memory.
                let operand = MemoryOperand::with_base_displ(Register::RIP, self.statics as i64);
                let to_register = Register::from(R64[to]);
                let lea = Instruction::with2(Code::Lea_r64_m, to_register, operand).unwrap();
                self.asm.add_instruction(lea).unwrap();
                self.wrote(to, 8);
                self.pointers |= 1 << to;
            }
            4..=6 => {
                let (Some(from), true) = (from, is_defined) else {
                    return;
                };
                let op = self.alu_kind();
                alu!(self, op, sized, width, to, from);
                self.after_alu(op, to, width);
            }
            7 | 8 => {
                if !is_defined {
                    return;
                }
                let (op, n) = (self.alu_kind(), self.number());
                alu!(self, op, immediate, width, to, n);
                self.after_alu(op, to, width);
            }
            9 | 10 => {
                if !is_defined {
                    return;
                }
                let Some(mem) = self.memory(usable) else {
                    return;
                };
                let op = self.alu_kind();
                alu!(self, op, from_memory, width, to, mem);
                self.after_alu(op, to, width);
            }
            11 | 12 => {
                let Some(mem) = self.memory(usable) else {
                    return;
                };
                let Some(from) = self.one_of(self.defined & !self.pointers, usable) else {
                    return;
                };
                let op = self.alu_kind();
                alu!(self, op, to_memory, width, mem, from);
                self.after_alu(op, 16, 0);
            }
            13 => {
                let Some(mem) = self.memory(usable) else {
                    return;
                };
                if self.random.below(2) == 0 {
                    self.asm.inc(qword_ptr(mem)).unwrap();
                } else {
                    self.asm.lock().dec(dword_ptr(mem)).unwrap();
                }
                self.flags = self.flags & CF | ALL & !CF;
            }
            14 => {
                let Some(mem) = self.memory(usable) else {
                    return;
                };
                let Some(from) = self.one_of(self.defined & !self.pointers, usable) else {
                    return;
                };
                to_memory!(self, mov, width, mem, from);
            }
            15 => {
                let Some(mem) = self.memory(usable) else {
                    return;
                };
                if width < 4 && self.defined >> to & 1 == 0 || self.pointers >> to & 1 != 0 {
                    return;
                }
                from_memory!(self, mov, width, to, mem);
                self.wrote(to, width);
            }
            16 => {
                let (Some(a), Some(b)) = (from, self.one_of(values, usable)) else {
                    return;
                };
                let scale = 1 << self.random.below(4);
                let disp = self.random.below(1000) as i32 - 500;
                if width == 4 {
                    self.asm
                        .lea(R32[to], R64[a] + R64[b] * scale + disp)
                        .unwrap();
                } else {
                    self.asm
                        .lea(R64[to], R64[a] + R64[b] * scale + disp)
                        .unwrap();
                }
                self.wrote(to, 8);
            }
            17 => {
                if !is_defined {
                    return;
                }
                let count = 1 + self.random.below(30) as u32;
                let by_cl = self.random.below(3) == 0 && values & 2 != 0 && to != 1;
                match (self.random.below(3), by_cl, width == 4) {
                    (0, false, true) => self.asm.shl(R32[to], count),
                    (0, false, false) => self.asm.shl(R64[to], count),
                    (0, true, _) => self.asm.shl(R64[to], cl),
                    (1, false, true) => self.asm.shr(R32[to], count),
                    (1, false, false) => self.asm.shr(R64[to], count),
                    (1, true, _) => self.asm.shr(R32[to], cl),
                    (_, false, _) => self.asm.sar(R64[to], count),
                    (_, true, _) => self.asm.sar(R64[to], cl),
                }
                .unwrap();
                self.flags = match (by_cl, count) {
                    (true, _) => 0,
                    (_, 1) => ALL & !AF,
                    _ => ALL & !AF & !OF,
                };
            }
            18 => {
                let Some(from) = from else { return };
                match self.random.below(5) {
                    0 => self.asm.movzx(R32[to], R8[from]),
                    1 => self.asm.movzx(R32[to], R16[from]),
                    2 => self.asm.movsx(R64[to], R8[from]),
                    3 => self.asm.movsx(R32[to], R16[from]),
                    _ => self.asm.movsxd(R64[to], R32[from]),
                }
                .unwrap();
                self.wrote(to, 8);
            }
            19 => {
                let Some(code) = self.condition() else { return };
                self.asm.mov(R32[to], 7).unwrap();
                on_condition!(self, code, AsmRegister8, R8[to], seto setno setb setae sete setne setbe seta sets setns setp setnp setl setge setle setg);
                self.wrote(to, 8);
            }
            20 => {
                let (Some(from), true, Some(code)) = (from, is_defined, self.condition()) else {
                    return;
                };
                match code {
                    2 => self.asm.cmovb(R64[to], R64[from]),
                    4 => self.asm.cmove(R32[to], R32[from]),
                    5 => self.asm.cmovne(R64[to], R64[from]),
                    7 => self.asm.cmova(R64[to], R64[from]),
                    12 => self.asm.cmovl(R32[to], R32[from]),
                    _ => return,
                }
                .unwrap();
            }
            21 => {
                if !is_defined {
                    return;
                }
                match self.random.below(4) {
                    0 => self.asm.inc(R64[to]),
                    1 => self.asm.dec(R32[to]),
                    2 => self.asm.neg(R64[to]),
                    _ => return self.asm.not(R64[to]).unwrap(),
                }
                .unwrap();
                // For neg the carry is new; it counts as defined only if it was.
                self.flags = self.flags & CF | ALL & !CF;
            }
            22 => {
                let (Some(from), true) = (from, is_defined) else {
                    return;
                };
                if self.random.below(2) == 0 {
                    self.asm.imul_2(R64[to], R64[from]).unwrap();
                } else {
                    let n = self.number();
                    self.asm.imul_3(R32[to], R32[from], n).unwrap();
                }
                self.flags = CF | OF;
            }
            23 => {
                let Some(mem) = self.memory(usable) else {
                    return;
                };
                let Some(from) = self.one_of(self.defined & !self.pointers, usable) else {
                    return;
                };
                if self.random.below(2) == 0 {
                    self.asm.xchg(qword_ptr(mem), R64[from]).unwrap();
                    return;
                }
                let asm = match self.random.below(2) {
                    0 => self.asm.lock(),
                    _ => &mut self.asm,
                };
                asm.xadd(dword_ptr(mem), R32[from]).unwrap();
                self.flags = ALL;
            }
            24 if self.frame => {
                let slot = self.random.below(3) as i32;
                let mem = rsp + slot * 8;
                match from {
                    // Set on every path only if no branch is open.
                    Some(from)
                        if self.pending.is_empty()
                            && (self.slots >> slot & 1 == 0 || self.random.below(2) == 0) =>
                    {
                        self.asm.mov(qword_ptr(mem), R64[from]).unwrap();
                        self.slots |= 1 << slot;
                    }
                    _ if self.slots >> slot & 1 != 0 => {
                        self.asm.mov(R64[to], qword_ptr(mem)).unwrap();
                        self.wrote(to, 8);
                    }
                    _ => {}
                }
            }
            _ => self.branch(),
        }
    }

    fn branch(&mut self) {
        let Some(code) = self.condition() else { return };
        if self.pending.len() >= 2 {
            return;
        }
        let label = self.asm.create_label();
        on_condition!(self, code, CodeLabel, label, jo jno jb jae je jne jbe ja js jns jp jnp jl jge jle jg);
        if self.random.below(3) == 0 {
            self.cold.push(label);
        } else {
            self.pending
                .push((label, self.defined, self.pointers, self.flags));
        }
    }

    fn alu_kind(&mut self) -> u8 {
        let with_carry = self.flags & CF != 0 && self.random.below(2) == 0;
        self.random.below(if with_carry { 8 } else { 6 }) as u8
    }

    fn after_alu(&mut self, op: u8, to: usize, width: u8) {
        self.flags = if matches!(op, 2..=4) { ALL & !AF } else { ALL };
        if to < 16 && op != 5 {
            self.wrote(to, width);
        }
    }
}

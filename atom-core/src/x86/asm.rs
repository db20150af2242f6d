//! A small encoder for the instructions that inserted code is made of.
//!
//! A tool can add a million calls, so this is plain bytes into a vector. Only
//! the forms that are needed exist; each is tested against a decoder. None of
//! them changes the arithmetic flags unless its comment says so.

mod fixup;
pub mod machine;

pub use fixup::{Fixup, Frame, Shift};

/// A general register by its hardware number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gpr(pub u8);

#[allow(missing_docs)]
impl Gpr {
    pub const RAX: Self = Self(0);
    pub const RCX: Self = Self(1);
    pub const RDX: Self = Self(2);
    pub const RSP: Self = Self(4);
    pub const RBP: Self = Self(5);
    pub const RSI: Self = Self(6);
    pub const RDI: Self = Self(7);
    pub const R8: Self = Self(8);
    pub const R9: Self = Self(9);

    /// Its bit in a 16-bit mask.
    pub const fn bit(self) -> u16 {
        1 << self.0
    }

    const fn low(self) -> u8 {
        self.0 & 7
    }
}

/// A condition, as in the low four bits of `jcc`, `setcc` and `cmovcc`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cond(pub u8);

impl Cond {
    /// ZF set.
    pub const E: Self = Self(4);
    /// ZF clear.
    pub const NE: Self = Self(5);

    /// The opposite.
    pub const fn inverted(self) -> Self {
        Self(self.0 ^ 1)
    }
}

/// A memory operand without segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mem {
    /// Base register.
    pub base: Option<Gpr>,
    /// Index register (never rsp) and scale 1, 2, 4 or 8.
    pub index: Option<(Gpr, u8)>,
    /// Displacement.
    pub disp: i32,
}

impl Mem {
    /// `[base + disp]`.
    pub const fn at(base: Gpr, disp: i32) -> Self {
        Self {
            base: Some(base),
            index: None,
            disp,
        }
    }

    /// `[base + index * scale]`.
    pub const fn indexed(base: Gpr, index: Gpr, scale: u8) -> Self {
        Self {
            base: Some(base),
            index: Some((index, scale)),
            disp: 0,
        }
    }
}

/// An element of a vector register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Element {
    /// The register, 0 to 31.
    pub register: u8,
    /// Width of the register in bytes: 16, 32 or 64.
    pub width: u8,
    /// Read it by an instruction of AVX-512, as the program's own does.
    pub evex: bool,
    /// Bytes of an element, 4 or 8.
    pub size: u8,
    /// Which element.
    pub number: u8,
}

/// A forward jump whose end is not yet placed.
#[must_use]
#[derive(Debug)]
pub struct Patch {
    at: usize,
    size: usize,
}

/// Code under construction, with fixups; offsets count from its own start.
#[derive(Debug)]
pub struct Asm<T> {
    /// The bytes.
    pub code: Vec<u8>,
    /// The fixups.
    pub fixups: Vec<Fixup<T>>,
    /// Where the stack pointer moves against the program's, in order of offsets.
    pub shifts: Vec<Shift>,
    /// Bytes from the program's rsp down to the present one. Code is emitted so
    /// that this depends on the place only, not on the way there.
    depth: u32,
    /// rbp holds the frame, so that rsp does not matter.
    framed: bool,
}

/// A point of [`Asm`] to go back to.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    code: usize,
    fixups: usize,
    shifts: usize,
    depth: u32,
}

impl<T> Default for Asm<T> {
    fn default() -> Self {
        Self {
            code: Vec::new(),
            fixups: Vec::new(),
            shifts: Vec::new(),
            depth: 0,
            framed: false,
        }
    }
}

impl<T> Asm<T> {
    /// What has been emitted so far.
    pub fn mark(&self) -> Mark {
        Mark {
            code: self.code.len(),
            fixups: self.fixups.len(),
            shifts: self.shifts.len(),
            depth: self.depth,
        }
    }

    /// Forgets what has been emitted since.
    pub fn rewind(&mut self, mark: Mark) {
        self.code.truncate(mark.code);
        self.fixups.truncate(mark.fixups);
        self.shifts.truncate(mark.shifts);
        self.depth = mark.depth;
    }

    /// The instruction just emitted moved rsp down by so many bytes.
    fn moved_down(&mut self, bytes: i32) {
        self.depth = self.depth.wrapping_add_signed(bytes);
        if !self.framed {
            self.shift(Frame::Below(self.depth));
        }
    }

    /// Bytes from the program's rsp down to the present one.
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// Behind a jump: control comes here from where rsp was so far down.
    pub fn at_depth(&mut self, depth: u32) {
        if self.depth != depth {
            self.depth = depth;
            self.shift(Frame::Below(depth));
        }
    }

    /// Adds those of other code that lies at `start`.
    pub fn add_shifts(&mut self, shifts: &[Shift], start: u32) {
        let placed = shifts.iter().map(|s| Shift {
            at: s.at + start,
            ..*s
        });
        self.shifts.extend(placed);
    }

    fn shift(&mut self, frame: Frame) {
        self.shifts.push(Shift {
            at: self.code.len() as u32,
            frame,
        });
    }

    /// `push rbp; mov rbp, rsp`: the head of a function. What follows may move
    /// rsp as it likes until [`Asm::close_frame`].
    pub fn open_frame(&mut self) {
        self.push(Gpr::RBP);
        self.mov(Gpr::RBP, Gpr::RSP);
        self.framed = true;
        self.shift(Frame::Base);
    }

    /// `pop rbp`, where rsp is as it was behind [`Asm::open_frame`].
    pub fn close_frame(&mut self) {
        self.rex(false, 0, 0, Gpr::RBP.0, false);
        self.byte(0x58 | Gpr::RBP.low());
        self.framed = false;
        self.depth = 0;
        self.shift(Frame::Below(0));
    }

    /// Instructions as bytes, for what is used in one place only.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.bytes(bytes);
    }

    fn byte(&mut self, byte: u8) {
        self.code.push(byte);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.code.extend_from_slice(bytes);
    }

    fn imm32(&mut self, value: i32) {
        self.bytes(&value.to_le_bytes());
    }

    fn fixup(&mut self, target: T, addend: i32) {
        self.fixups.push(Fixup {
            at: self.code.len() as u32,
            target,
            addend,
            absolute: false,
        });
        self.imm32(0);
    }

    /// REX prefix for a ModRM of `reg` and `mem`; left out if it would be empty.
    fn rex(&mut self, wide: bool, reg: u8, index: u8, base: u8, force: bool) {
        let rex = 0x40 | u8::from(wide) << 3 | (reg >> 3) << 2 | (index >> 3) << 1 | base >> 3;
        if rex != 0x40 || force {
            self.byte(rex);
        }
    }

    fn rex_mem(&mut self, wide: bool, reg: u8, mem: Mem) {
        let index = mem.index.map_or(0, |i| i.0.0);
        self.rex(wide, reg, index, mem.base.map_or(0, |b| b.0), false);
    }

    fn modrm_mem(&mut self, reg: u8, mem: Mem) {
        let reg = (reg & 7) << 3;
        let Some(base) = mem.base else {
            // No base: SIB form with a 32-bit displacement.
            self.byte(reg | 4);
            let (index, scale) = mem.index.map_or((4, 1), |(i, s)| (i.low(), s));
            self.byte((scale.trailing_zeros() as u8) << 6 | index << 3 | 5);
            return self.imm32(mem.disp);
        };
        let short = i8::try_from(mem.disp);
        let mode = match short {
            Ok(0) if base.low() != 5 => 0,
            Ok(_) => 0x40,
            Err(_) => 0x80,
        };
        match mem.index {
            Some((index, scale)) => {
                self.byte(mode | reg | 4);
                self.byte((scale.trailing_zeros() as u8) << 6 | index.low() << 3 | base.low());
            }
            None if base.low() == 4 => {
                self.byte(mode | reg | 4);
                self.byte(0x24);
            }
            None => self.byte(mode | reg | base.low()),
        }
        match short {
            Ok(disp) if mode == 0x40 => self.byte(disp as u8),
            Ok(_) => {}
            Err(_) => self.imm32(mem.disp),
        }
    }

    fn op_mem(&mut self, wide: bool, opcode: &[u8], reg: u8, mem: Mem) {
        self.rex_mem(wide, reg, mem);
        self.bytes(opcode);
        self.modrm_mem(reg, mem);
    }

    /// `push reg`
    pub fn push(&mut self, reg: Gpr) {
        self.rex(false, 0, 0, reg.0, false);
        self.byte(0x50 | reg.low());
        self.moved_down(8);
    }

    /// `pop reg`
    pub fn pop(&mut self, reg: Gpr) {
        self.rex(false, 0, 0, reg.0, false);
        self.byte(0x58 | reg.low());
        self.moved_down(-8);
    }

    /// `push imm`, sign-extended to 64 bits.
    pub fn push_imm(&mut self, value: i32) {
        match i8::try_from(value) {
            Ok(value) => self.bytes(&[0x6a, value as u8]),
            Err(_) => {
                self.byte(0x68);
                self.imm32(value);
            }
        }
        self.moved_down(8);
    }

    /// `push qword [mem]`
    pub fn push_mem(&mut self, mem: Mem) {
        self.op_mem(false, &[0xff], 6, mem);
        self.moved_down(8);
    }

    /// `mov to, from`, 64 bits; nothing if they are the same.
    pub fn mov(&mut self, to: Gpr, from: Gpr) {
        if to != from {
            self.rex(true, from.0, 0, to.0, false);
            self.bytes(&[0x89, 0xc0 | from.low() << 3 | to.low()]);
        }
    }

    /// A constant, in the shortest form that leaves the flags alone.
    pub fn mov_imm(&mut self, to: Gpr, value: u64) {
        if let Ok(value) = u32::try_from(value) {
            self.rex(false, 0, 0, to.0, false);
            self.byte(0xb8 | to.low());
            self.imm32(value as i32);
        } else if let Ok(value) = i32::try_from(value as i64) {
            self.rex(true, 0, 0, to.0, false);
            self.bytes(&[0xc7, 0xc0 | to.low()]);
            self.imm32(value);
        } else {
            self.rex(true, 0, 0, to.0, false);
            self.byte(0xb8 | to.low());
            self.bytes(&value.to_le_bytes());
        }
    }

    /// `xor reg32, reg32`: zero. Changes the flags.
    pub fn zero(&mut self, reg: Gpr) {
        self.rex(false, reg.0, 0, reg.0, false);
        self.bytes(&[0x31, 0xc0 | reg.low() << 3 | reg.low()]);
    }

    /// `mov to, qword [mem]`
    pub fn load(&mut self, to: Gpr, mem: Mem) {
        self.op_mem(true, &[0x8b], to.0, mem);
    }

    /// `mov qword [mem], from`
    pub fn store(&mut self, mem: Mem, from: Gpr) {
        self.op_mem(true, &[0x89], from.0, mem);
    }

    /// `mov dword [mem], from`
    pub fn store32(&mut self, mem: Mem, from: Gpr) {
        self.op_mem(false, &[0x89], from.0, mem);
    }

    /// `mov dword [mem], value`
    pub fn store32_imm(&mut self, mem: Mem, value: i32) {
        self.op_mem(false, &[0xc7], 0, mem);
        self.imm32(value);
    }

    /// `movzx to, byte [mem]`
    pub fn load8(&mut self, to: Gpr, mem: Mem) {
        self.op_mem(false, &[0x0f, 0xb6], to.0, mem);
    }

    /// `movzx to, from8`: the low byte.
    pub fn zero_extend8(&mut self, to: Gpr, from: Gpr) {
        self.rex(false, to.0, 0, from.0, from.0 >= 4);
        self.bytes(&[0x0f, 0xb6, 0xc0 | to.low() << 3 | from.low()]);
    }

    /// `lea to, [mem]`
    pub fn lea(&mut self, to: Gpr, mem: Mem) {
        self.op_mem(true, &[0x8d], to.0, mem);
        if to == Gpr::RSP && mem.base == Some(Gpr::RSP) {
            self.moved_down(-mem.disp);
        }
    }

    /// `lea to32, [mem]`: the address modulo 2^32.
    pub fn lea32(&mut self, to: Gpr, mem: Mem) {
        self.op_mem(false, &[0x8d], to.0, mem);
    }

    /// `lea to, [rip + target]`
    pub fn lea_target(&mut self, to: Gpr, target: T) {
        self.rex(true, to.0, 0, 0, false);
        self.bytes(&[0x8d, to.low() << 3 | 5]);
        self.fixup(target, 0);
    }

    /// `mov to, [rip + target]`
    pub fn load_target(&mut self, to: Gpr, target: T) {
        self.rex(true, to.0, 0, 0, false);
        self.bytes(&[0x8b, to.low() << 3 | 5]);
        self.fixup(target, 0);
    }

    /// The prefix that adds the gs base to the memory operand of the next instruction.
    pub fn gs(&mut self) {
        self.byte(0x65);
    }

    /// `lea rsp, [rsp + disp]`; nothing for 0.
    pub fn move_stack(&mut self, disp: i32) {
        if disp != 0 {
            self.lea(Gpr::RSP, Mem::at(Gpr::RSP, disp));
        }
    }

    /// `call target`
    pub fn call(&mut self, target: T) {
        self.byte(0xe8);
        self.fixup(target, 0);
    }

    /// `inc qword [target]`, as a `prefix` says. Changes the flags but CF.
    pub fn increment(&mut self, target: T, prefix: Option<u8>) {
        self.code.extend(prefix);
        self.bytes(&[0x48, 0xff, 0x05]);
        self.fixup(target, 0);
    }

    /// `push target`, of which the address has 31 bits.
    pub fn push_address(&mut self, target: T) {
        self.byte(0x68);
        self.fixup(target, 0);
        if let Some(fixup) = self.fixups.last_mut() {
            fixup.absolute = true;
        }
        self.moved_down(8);
    }

    /// `ret bytes`
    pub fn ret_dropping(&mut self, bytes: u16) {
        self.byte(0xc2);
        self.bytes(&bytes.to_le_bytes());
    }

    /// `ret`
    pub fn ret(&mut self) {
        self.byte(0xc3);
    }

    /// `and rsp, -16`. Changes the flags.
    pub fn align_stack(&mut self) {
        self.bytes(&[0x48, 0x83, 0xe4, 0xf0]);
    }

    /// `setcc reg8`
    pub fn set(&mut self, cond: Cond, reg: Gpr) {
        self.rex(false, 0, 0, reg.0, reg.0 >= 4);
        self.bytes(&[0x0f, 0x90 | cond.0, 0xc0 | reg.low()]);
    }

    /// The flags into ax: SF, ZF, AF, PF and CF in ah, OF in al if it counts.
    pub fn flags_to_ax(&mut self, overflow: bool) {
        self.byte(0x9f);
        if overflow {
            self.set(Cond(0), Gpr::RAX);
        }
    }

    /// The opposite of [`Asm::flags_to_ax`].
    pub fn flags_from_ax(&mut self, overflow: bool) {
        if overflow {
            self.bytes(&[0x04, 0x7f]);
        }
        self.byte(0x9e);
    }

    /// `pushfq`
    pub fn push_flags(&mut self) {
        self.byte(0x9c);
        self.moved_down(8);
    }

    /// `popfq`. Changes the flags.
    pub fn pop_flags(&mut self) {
        self.byte(0x9d);
        self.moved_down(-8);
    }

    /// `cld`
    pub fn clear_direction(&mut self) {
        self.byte(0xfc);
    }

    /// `cmp eax, value`. Changes the flags.
    pub fn compare_eax(&mut self, value: i32) {
        self.byte(0x3d);
        self.imm32(value);
    }

    /// `cmp reg, value` of 32 bits.
    pub fn compare_low(&mut self, reg: Gpr, value: i32) {
        if reg == Gpr::RAX {
            return self.compare_eax(value);
        }
        self.rex(false, 0, 0, reg.0, false);
        self.bytes(&[0x81, 0xf8 | reg.low()]);
        self.imm32(value);
    }

    /// `rdtsc`, into edx:eax.
    pub fn read_cycles(&mut self) {
        self.bytes(&[0x0f, 0x31]);
    }

    /// `mov to, fs:[0]`: the thread's self pointer, which is the base of fs.
    pub fn load_self_pointer(&mut self, to: Gpr) {
        self.byte(0x64);
        self.load(
            to,
            Mem {
                base: None,
                index: None,
                disp: 0,
            },
        );
    }

    /// `rdfsbase to` or `rdgsbase to`
    pub fn read_base(&mut self, to: Gpr, gs: bool) {
        self.byte(0xf3);
        self.rex(true, 0, 0, to.0, false);
        self.bytes(&[0x0f, 0xae, 0xc0 | u8::from(gs) << 3 | to.low()]);
    }

    /// `movups [mem], xmm`
    pub fn store_xmm(&mut self, mem: Mem, xmm: u8) {
        self.op_mem(false, &[0x0f, 0x11], xmm, mem);
    }

    /// `movups xmm, [mem]`
    pub fn load_xmm(&mut self, xmm: u8, mem: Mem) {
        self.op_mem(false, &[0x0f, 0x10], xmm, mem);
    }

    /// `stmxcsr [mem]`
    pub fn store_mxcsr(&mut self, mem: Mem) {
        self.op_mem(false, &[0x0f, 0xae], 3, mem);
    }

    /// `ldmxcsr [mem]`
    pub fn load_mxcsr(&mut self, mem: Mem) {
        self.op_mem(false, &[0x0f, 0xae], 2, mem);
    }

    /// `jcc` forward.
    pub fn jump_if(&mut self, cond: Cond) -> Patch {
        self.bytes(&[0x0f, 0x80 | cond.0]);
        self.imm32(0);
        Patch {
            at: self.code.len() - 4,
            size: 4,
        }
    }

    /// `jmp` forward.
    pub fn jump(&mut self) -> Patch {
        self.byte(0xe9);
        self.imm32(0);
        Patch {
            at: self.code.len() - 4,
            size: 4,
        }
    }

    /// `jrcxz`, or `jecxz` if `narrow`, a short way forward.
    pub fn jump_if_rcx_zero(&mut self, narrow: bool) -> Patch {
        if narrow {
            self.byte(0x67);
        }
        self.bytes(&[0xe3, 0]);
        Patch {
            at: self.code.len() - 1,
            size: 1,
        }
    }

    /// Lets a forward jump end here.
    pub fn land(&mut self, patch: Patch) {
        let distance = self.code.len() - patch.at - patch.size;
        if patch.size == 1 {
            let distance = i8::try_from(distance).expect("short jumps span a few instructions");
            self.code[patch.at] = distance as u8;
        } else {
            self.code[patch.at..patch.at + 4].copy_from_slice(&(distance as u32).to_le_bytes());
        }
    }

    /// `mov to32, dword [mem]` and its like: so many bytes, extended by zeros.
    pub fn load_sized(&mut self, to: Gpr, mem: Mem, size: u8) {
        match size {
            1 => self.load8(to, mem),
            2 => self.op_mem(false, &[0x0f, 0xb7], to.0, mem),
            4 => self.op_mem(false, &[0x8b], to.0, mem),
            _ => self.load(to, mem),
        }
    }

    /// `movsxd to, dword [mem]`
    pub fn load32_signed(&mut self, to: Gpr, mem: Mem) {
        self.op_mem(true, &[0x63], to.0, mem);
    }

    /// The low bytes of a register, extended by zeros.
    pub fn extend(&mut self, to: Gpr, from: Gpr, size: u8) {
        let modrm = 0xc0 | to.low() << 3 | from.low();
        match size {
            1 => self.zero_extend8(to, from),
            2 => {
                self.rex(false, to.0, 0, from.0, false);
                self.bytes(&[0x0f, 0xb7, modrm]);
            }
            4 => {
                self.rex(false, to.0, 0, from.0, false);
                self.bytes(&[0x8b, modrm]);
            }
            _ => self.mov(to, from),
        }
    }

    /// `shl reg, count`. Changes the flags.
    pub fn shift_left(&mut self, reg: Gpr, count: u8) {
        self.rex(true, 0, 0, reg.0, false);
        self.bytes(&[0xc1, 0xe0 | reg.low(), count]);
    }

    /// `sar reg, count`. Changes the flags.
    pub fn shift_right_signed(&mut self, reg: Gpr, count: u8) {
        self.rex(true, 0, 0, reg.0, false);
        self.bytes(&[0xc1, 0xf8 | reg.low(), count]);
    }

    /// `test reg, reg`. Changes the flags.
    pub fn test(&mut self, reg: Gpr) {
        self.rex(true, reg.0, 0, reg.0, false);
        self.bytes(&[0x85, 0xc0 | reg.low() << 3 | reg.low()]);
    }

    /// `test eax, value`. Changes the flags.
    pub fn test_eax(&mut self, value: u32) {
        self.byte(0xa9);
        self.imm32(value as i32);
    }

    /// `cmovcc to, from`
    pub fn move_if(&mut self, cond: Cond, to: Gpr, from: Gpr) {
        self.rex(true, to.0, 0, from.0, false);
        self.bytes(&[0x0f, 0x40 | cond.0, 0xc0 | to.low() << 3 | from.low()]);
    }

    /// `movq to, xmm` or `movd to32, xmm`; of AVX-512 for the upper sixteen.
    pub fn low_of_xmm(&mut self, to: Gpr, xmm: u8, wide: bool) {
        let modrm = 0xc0 | (xmm & 7) << 3 | to.low();
        if xmm < 16 {
            self.byte(0x66);
            self.rex(wide, xmm, 0, to.0, false);
            self.bytes(&[0x0f, 0x7e, modrm]);
        } else {
            self.evex(1, 1, wide, 16, xmm, to.0);
            self.bytes(&[0x7e, modrm]);
        }
    }

    /// Stores the whole register of an element, by the program's own kind of
    /// instruction: `movups`, `vmovdqu` or `vmovdqu64`.
    pub fn store_vector(&mut self, mem: Mem, element: &Element) {
        let (reg, width) = (element.register, element.width);
        debug_assert!(mem.index.is_none() && mem.base == Some(Gpr::RSP));
        if element.evex {
            self.evex(1, 2, true, width, reg, Gpr::RSP.0);
            self.byte(0x7f);
            // A byte displacement would count vectors here.
            self.bytes(&[0x84 | (reg & 7) << 3, 0x24]);
            self.imm32(mem.disp);
        } else if width == 32 {
            // vmovdqu [mem], ymm
            let r = if reg < 8 { 0x80 } else { 0 };
            self.bytes(&[0xc5, r | 0x7e, 0x7f]);
            self.modrm_mem(reg, mem);
        } else {
            self.store_xmm(mem, reg);
        }
    }

    /// An EVEX prefix: opcode map, mandatory prefix (1 is 66, 2 is f3), and the
    /// operands `reg` and, as register or base, `rm`.
    fn evex(&mut self, map: u8, prefix: u8, wide: bool, width: u8, reg: u8, rm: u8) {
        let inverted = |bit: bool, shift: u8| u8::from(!bit) << shift;
        let length = width.trailing_zeros() as u8 - 4;
        self.bytes(&[
            0x62,
            inverted(reg & 8 != 0, 7)
                | 0x40
                | inverted(rm & 8 != 0, 5)
                | inverted(reg & 16 != 0, 4)
                | map,
            u8::from(wide) << 7 | 0x7c | prefix,
            length << 5 | 8,
        ]);
    }

    /// `kmovw to32, k`
    pub fn mask_to(&mut self, to: Gpr, mask: u8) {
        let r = if to.0 < 8 { 0x80 } else { 0 };
        self.bytes(&[0xc5, r | 0x78, 0x93, 0xc0 | to.low() << 3 | mask]);
    }
}

//! A small assembler for the instructions of inserted code.
//!
//! A tool can add a million calls, so bytes are written straight into a vector. Only the forms that
//! are needed exist; each is tested against a decoder. An instruction leaves the arithmetic flags
//! alone unless its comment says otherwise.

mod fixup;
mod frames;
pub mod machine;

pub use super::flags::Cond;
pub use super::gpr::Gpr;
pub use fixup::{Access, Fixup, Frame, FrameChange};

use super::opcode::{self, Alu, Unary, modrm, prefix};

/// A memory operand without segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mem {
    /// Base register, if there is one.
    pub base: Option<Gpr>,
    /// Index register (never rsp) and its factor 1, 2, 4 or 8.
    pub index: Option<(Gpr, u8)>,
    /// Displacement in bytes.
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
    /// It is to be read by an instruction of AVX-512, as the program's own instruction is one.
    pub evex: bool,
    /// Size of an element in bytes, 4 or 8.
    pub size: u8,
    /// Number of the element, from 0.
    pub number: u8,
}

/// A forward jump whose target is not placed yet.
#[must_use]
#[derive(Debug)]
pub struct Patch {
    at: usize,
    size: usize,
}

/// Code under construction, with fixups. Offsets count from its own start.
#[derive(Debug)]
pub struct Asm<T> {
    /// Bytes of the code.
    pub code: Vec<u8>,
    /// Fields that wait for their targets.
    pub fixups: Vec<Fixup<T>>,
    /// Places where the distance of rsp from the program's rsp changes, by ascending offset.
    pub frame_changes: Vec<FrameChange>,
    /// Instructions of routines that may fault, by ascending offset.
    pub accesses: Vec<Access>,
    /// Bytes from the program's rsp down to the present rsp. Code is emitted so that this depends on
    /// the place only, not on the path that control takes to it.
    depth: u32,
    /// True while rbp holds the frame, so that the distance of rsp does not matter.
    framed: bool,
    /// True while rsp leads to another stack than the program's. Then `depth` counts from the word there that holds the
    /// program's rsp.
    elsewhere: bool,
    /// True for a target that is below 2 GiB and out of reach: its address is written as it is,
    /// not as a distance from the instruction.
    pub by_address: fn(&T) -> bool,
}

/// A state of [`Asm`] to go back to.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    code: usize,
    fixups: usize,
    frame_changes: usize,
    accesses: usize,
    depth: u32,
}

impl<T> Default for Asm<T> {
    fn default() -> Self {
        Self {
            code: Vec::new(),
            fixups: Vec::new(),
            frame_changes: Vec::new(),
            accesses: Vec::new(),
            depth: 0,
            framed: false,
            elsewhere: false,
            by_address: |_| false,
        }
    }
}

impl<T> Asm<T> {
    /// No code yet. `by_address` tells which targets are below 2 GiB and out of reach; the addresses of
    /// these are written as they are, not as distances from the instruction.
    pub fn new(by_address: fn(&T) -> bool) -> Self {
        Self {
            by_address,
            ..Self::default()
        }
    }

    /// Marks the present state.
    pub fn mark(&self) -> Mark {
        Mark {
            code: self.code.len(),
            fixups: self.fixups.len(),
            frame_changes: self.frame_changes.len(),
            accesses: self.accesses.len(),
            depth: self.depth,
        }
    }

    /// Forgets all that has been emitted since the mark.
    pub fn rewind(&mut self, mark: Mark) {
        self.code.truncate(mark.code);
        self.fixups.truncate(mark.fixups);
        self.frame_changes.truncate(mark.frame_changes);
        self.accesses.truncate(mark.accesses);
        self.depth = mark.depth;
    }

    /// Notes that the instruction just emitted moved rsp down by this number of bytes.
    fn moved_down(&mut self, bytes: i32) {
        self.depth = self.depth.wrapping_add_signed(bytes);
        if !self.framed {
            self.shift_to_depth();
        }
    }

    fn shift_to_depth(&mut self) {
        self.frame_change(if self.elsewhere {
            Frame::Stored(self.depth)
        } else {
            Frame::Below(self.depth)
        });
    }

    /// Bytes from the program's rsp down to the present rsp.
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// Sets the distance from the program's rsp in bytes after a jump, where control comes from elsewhere.
    pub fn at_depth(&mut self, depth: u32) {
        if self.depth != depth || self.elsewhere {
            self.depth = depth;
            self.shift_to_depth();
        }
    }

    fn frame_change(&mut self, frame: Frame) {
        self.frame_changes.push(FrameChange {
            at: self.code.len() as u32,
            frame,
        });
    }

    /// Appends instructions as bytes, for code that is used in one place only.
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
        self.put_fixup(target, addend, false);
    }

    fn put_fixup(&mut self, target: T, addend: i32, absolute: bool) {
        self.fixups.push(Fixup {
            at: self.code.len() as u32,
            target,
            addend,
            absolute,
        });
        self.imm32(0);
    }

    /// The ModRM byte and what follows for memory at a target plus an offset in bytes. `behind` is
    /// the number of bytes from there to the instruction's end.
    fn modrm_target(&mut self, reg: u8, target: T, offset: i32, behind: i32) {
        if (self.by_address)(&target) {
            self.byte((reg & 7) << 3 | modrm::SIB);
            self.byte(modrm::sib(1, modrm::NO_INDEX, modrm::NO_BASE));
            self.put_fixup(target, offset, true);
        } else {
            self.byte(modrm::rip_relative(reg));
            self.put_fixup(target, offset - behind, false);
        }
    }

    /// REX prefix for these registers; left out if it has no bit set, unless `force` is set.
    fn rex(&mut self, wide: bool, reg: u8, index: u8, base: u8, force: bool) {
        let bits = u8::from(wide) << 3 | (reg >> 3) << 2 | (index >> 3) << 1 | base >> 3;
        let rex = prefix::REX | bits;
        if rex != prefix::REX || force {
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
            self.byte(reg | modrm::SIB);
            let (index, scale) = mem.index.map_or((modrm::NO_INDEX, 1), |(i, s)| (i.0, s));
            self.byte(modrm::sib(scale, index, modrm::NO_BASE));
            return self.imm32(mem.disp);
        };
        let short = i8::try_from(mem.disp);
        let mode = match short {
            Ok(0) if base.low() != modrm::RIP => 0,
            Ok(_) => modrm::DISP8,
            Err(_) => modrm::DISP32,
        };
        match mem.index {
            Some((index, scale)) => {
                self.byte(mode | reg | modrm::SIB);
                self.byte(modrm::sib(scale, index.0, base.0));
            }
            None if base.low() == modrm::SIB => {
                self.byte(mode | reg | modrm::SIB);
                self.byte(modrm::sib(1, modrm::NO_INDEX, base.0));
            }
            None => self.byte(mode | reg | base.low()),
        }
        match short {
            Ok(disp) if mode == modrm::DISP8 => self.byte(disp as u8),
            Ok(_) => {}
            Err(_) => self.imm32(mem.disp),
        }
    }

    /// An opcode, with the byte that opens its map if that is not the first.
    fn opcode(&mut self, opcode: u16) {
        if opcode > 0xff {
            self.byte(opcode::ESCAPE);
        }
        self.byte(opcode as u8);
    }

    fn op_mem(&mut self, wide: bool, opcode: u16, reg: u8, mem: Mem) {
        self.rex_mem(wide, reg, mem);
        self.opcode(opcode);
        self.modrm_mem(reg, mem);
    }

    /// `push reg`
    pub fn push(&mut self, reg: Gpr) {
        self.rex(false, 0, 0, reg.0, false);
        self.byte(opcode::PUSH_R | reg.low());
        self.moved_down(8);
    }

    /// `pop reg`
    pub fn pop(&mut self, reg: Gpr) {
        self.rex(false, 0, 0, reg.0, false);
        self.byte(opcode::POP_R | reg.low());
        self.moved_down(-8);
    }

    /// `push imm`, sign-extended to 64 bits.
    pub fn push_imm(&mut self, value: i32) {
        match i8::try_from(value) {
            Ok(value) => self.bytes(&[opcode::PUSH_IMM8, value as u8]),
            Err(_) => {
                self.byte(opcode::PUSH_IMM32);
                self.imm32(value);
            }
        }
        self.moved_down(8);
    }

    /// `push qword [mem]`
    pub fn push_mem(&mut self, mem: Mem) {
        self.op_mem(false, opcode::GROUP_5, opcode::EXTENSION_PUSH, mem);
        self.moved_down(8);
    }

    /// An operation on two registers, `reg` in the register field of ModRM.
    fn op_registers(&mut self, wide: bool, opcode: u16, reg: u8, rm: Gpr) {
        self.rex(wide, reg, 0, rm.0, false);
        self.opcode(opcode);
        self.byte(modrm::registers(reg, rm.0));
    }

    /// `mov to, from`, 64 bits; nothing if they are the same.
    pub fn mov(&mut self, to: Gpr, from: Gpr) {
        if to != from {
            self.op_registers(true, opcode::MOV_RM_R, from.0, to);
        }
    }

    /// `xchg a, b`
    pub fn swap(&mut self, a: Gpr, b: Gpr) {
        self.op_registers(true, opcode::XCHG, a.0, b);
    }

    /// `mov to, value`, in the shortest form.
    pub fn mov_imm(&mut self, to: Gpr, value: u64) {
        if let Ok(value) = u32::try_from(value) {
            self.rex(false, 0, 0, to.0, false);
            self.byte(opcode::MOV_R_IMM | to.low());
            self.imm32(value as i32);
        } else if let Ok(value) = i32::try_from(value as i64) {
            self.op_registers(true, opcode::MOV_RM_IMM, opcode::EXTENSION_MOV, to);
            self.imm32(value);
        } else {
            self.rex(true, 0, 0, to.0, false);
            self.byte(opcode::MOV_R_IMM | to.low());
            self.bytes(&value.to_le_bytes());
        }
    }

    /// `xor reg32, reg32`: zero. Changes the flags.
    pub fn zero(&mut self, reg: Gpr) {
        self.op_registers(false, Alu::Xor.rm_r(), reg.0, reg);
    }

    /// `mov to, qword [mem]`
    pub fn load(&mut self, to: Gpr, mem: Mem) {
        self.op_mem(true, opcode::MOV_R_RM, to.0, mem);
    }

    /// `mov qword [mem], from`
    pub fn store(&mut self, mem: Mem, from: Gpr) {
        self.op_mem(true, opcode::MOV_RM_R, from.0, mem);
    }

    /// `mov dword [mem], from`
    pub fn store32(&mut self, mem: Mem, from: Gpr) {
        self.op_mem(false, opcode::MOV_RM_R, from.0, mem);
    }

    /// `mov dword [mem], value`
    pub fn store32_imm(&mut self, mem: Mem, value: i32) {
        self.op_mem(false, opcode::MOV_RM_IMM, opcode::EXTENSION_MOV, mem);
        self.imm32(value);
    }

    /// `movzx to, byte [mem]`
    pub fn load8(&mut self, to: Gpr, mem: Mem) {
        self.op_mem(false, opcode::MOVZX_8, to.0, mem);
    }

    /// `movzx to, from8`: the low byte.
    pub fn zero_extend8(&mut self, to: Gpr, from: Gpr) {
        self.rex(false, to.0, 0, from.0, from.low_byte_needs_rex());
        self.opcode(opcode::MOVZX_8);
        self.byte(modrm::registers(to.0, from.0));
    }

    /// `lea to, [mem]`
    pub fn lea(&mut self, to: Gpr, mem: Mem) {
        self.op_mem(true, opcode::LEA, to.0, mem);
        if to == Gpr::RSP && mem.base == Some(Gpr::RSP) {
            self.moved_down(-mem.disp);
        }
    }

    /// `lea to32, [mem]`: the address modulo 2^32.
    pub fn lea32(&mut self, to: Gpr, mem: Mem) {
        self.op_mem(false, opcode::LEA, to.0, mem);
    }

    /// An operation of 64 bits on memory at a target.
    fn op_target(&mut self, opcode: u16, reg: u8, target: T) {
        self.rex(true, reg, 0, 0, false);
        self.opcode(opcode);
        self.modrm_target(reg, target, 0, 0);
    }

    /// `lea to, [rip + target]`, or `mov to32, target`
    pub fn lea_target(&mut self, to: Gpr, target: T) {
        if (self.by_address)(&target) {
            self.rex(false, 0, 0, to.0, false);
            self.byte(opcode::MOV_R_IMM | to.low());
            return self.put_fixup(target, 0, true);
        }
        self.op_target(opcode::LEA, to.0, target);
    }

    /// `mov to, [rip + target]`
    pub fn load_target(&mut self, to: Gpr, target: T) {
        self.op_target(opcode::MOV_R_RM, to.0, target);
    }

    /// Prefix that adds the gs base to the memory operand of the next instruction.
    pub fn gs(&mut self) {
        self.byte(prefix::GS);
    }

    /// `lea rsp, [rsp + disp]`; nothing for 0.
    pub fn move_stack(&mut self, disp: i32) {
        if disp != 0 {
            self.lea(Gpr::RSP, Mem::at(Gpr::RSP, disp));
        }
    }

    /// `call target`
    pub fn call(&mut self, target: T) {
        self.byte(opcode::CALL);
        self.fixup(target, 0);
    }

    /// `call [slot]`: the slot holds the address of what is called.
    pub fn call_through(&mut self, slot: T) {
        self.opcode(opcode::GROUP_5);
        self.modrm_target(opcode::EXTENSION_CALL, slot, 0, 0);
    }

    /// `inc qword [target]`, after a prefix if one is given. Changes the flags except CF.
    pub fn increment(&mut self, target: T, prefix: Option<u8>) {
        self.code.extend(prefix);
        self.op_target(opcode::GROUP_5, Unary::Inc as u8, target);
    }

    /// `push target`, whose address must fit 31 bits.
    pub fn push_address(&mut self, target: T) {
        self.byte(opcode::PUSH_IMM32);
        self.put_fixup(target, 0, true);
        self.moved_down(8);
    }

    /// `ret bytes`: also drops this number of bytes above the return address.
    pub fn ret_dropping(&mut self, bytes: u16) {
        self.byte(opcode::RET_IMM16);
        self.bytes(&bytes.to_le_bytes());
    }

    /// `ret`
    pub fn ret(&mut self) {
        self.byte(opcode::RET);
    }

    /// `and rsp, -16`: aligns the stack. Changes the flags.
    pub fn align_stack(&mut self) {
        const ALIGNMENT: i8 = 16;
        self.op_registers(true, opcode::ALU_RM_IMM8, Alu::And.extension(), Gpr::RSP);
        self.byte(-ALIGNMENT as u8);
    }

    /// `setcc reg8`
    pub fn set(&mut self, cond: Cond, reg: Gpr) {
        self.rex(false, 0, 0, reg.0, reg.low_byte_needs_rex());
        self.opcode(opcode::SETCC | u16::from(cond.0));
        self.byte(modrm::registers(0, reg.0));
    }

    /// Puts the flags into ax: SF, ZF, AF, PF and CF into ah, and OF into al if `overflow` is set.
    pub fn flags_to_ax(&mut self, overflow: bool) {
        self.byte(opcode::LAHF);
        if overflow {
            self.set(Cond::O, Gpr::RAX);
        }
    }

    /// Takes the flags from ax, where [`Asm::flags_to_ax`] put them.
    pub fn flags_from_ax(&mut self, overflow: bool) {
        if overflow {
            // 1 + 127 overflows in a byte, 0 + 127 does not.
            self.bytes(&[opcode::ADD_AL_IMM, 0x7f]);
        }
        self.byte(opcode::SAHF);
    }

    /// `pushfq`
    pub fn push_flags(&mut self) {
        self.byte(opcode::PUSHF);
        self.moved_down(8);
    }

    /// `popfq`. Changes the flags.
    pub fn pop_flags(&mut self) {
        self.byte(opcode::POPF);
        self.moved_down(-8);
    }

    /// `cld`
    pub fn clear_direction(&mut self) {
        self.byte(opcode::CLD);
    }

    /// `cmp eax, value`. Changes the flags.
    pub fn compare_eax(&mut self, value: i32) {
        self.byte(opcode::CMP_EAX_IMM);
        self.imm32(value);
    }

    /// `cmp reg32, value`. Changes the flags.
    pub fn compare_low(&mut self, reg: Gpr, value: i32) {
        if reg == Gpr::RAX {
            return self.compare_eax(value);
        }
        self.op_registers(false, opcode::ALU_RM_IMM32, Alu::Cmp.extension(), reg);
        self.imm32(value);
    }

    /// `rdtsc`, into edx:eax.
    pub fn read_cycles(&mut self) {
        self.opcode(opcode::RDTSC);
    }

    /// `mov to, fs:[0]`: the thread pointer, which is the base of fs.
    pub fn load_self_pointer(&mut self, to: Gpr) {
        self.byte(prefix::FS);
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
        self.byte(prefix::REP);
        let extension = if gs {
            opcode::EXTENSION_RDGSBASE
        } else {
            opcode::EXTENSION_RDFSBASE
        };
        self.op_registers(true, opcode::GROUP_15, extension, to);
    }

    /// `movups [mem], xmm`
    pub fn store_xmm(&mut self, mem: Mem, xmm: u8) {
        self.op_mem(false, opcode::MOVUPS_M_XMM, xmm, mem);
    }

    /// `movups xmm, [mem]`
    pub fn load_xmm(&mut self, xmm: u8, mem: Mem) {
        self.op_mem(false, opcode::MOVUPS_XMM_M, xmm, mem);
    }

    /// `stmxcsr [mem]`
    pub fn store_mxcsr(&mut self, mem: Mem) {
        self.op_mem(false, opcode::GROUP_15, opcode::EXTENSION_STMXCSR, mem);
    }

    /// `ldmxcsr [mem]`
    pub fn load_mxcsr(&mut self, mem: Mem) {
        self.op_mem(false, opcode::GROUP_15, opcode::EXTENSION_LDMXCSR, mem);
    }

    /// `jcc` forward.
    pub fn jump_if(&mut self, cond: Cond) -> Patch {
        self.bytes(&[opcode::ESCAPE, opcode::JCC | cond.0]);
        self.imm32(0);
        Patch {
            at: self.code.len() - 4,
            size: 4,
        }
    }

    /// `jmp` forward.
    pub fn jump(&mut self) -> Patch {
        self.byte(opcode::JMP);
        self.imm32(0);
        Patch {
            at: self.code.len() - 4,
            size: 4,
        }
    }

    /// `jrcxz` forward, or `jecxz` if `narrow`; it reaches 127 bytes.
    pub fn jump_if_rcx_zero(&mut self, narrow: bool) -> Patch {
        if narrow {
            self.byte(prefix::ADDRESS_SIZE);
        }
        self.bytes(&[opcode::JRCXZ, 0]);
        Patch {
            at: self.code.len() - 1,
            size: 1,
        }
    }

    /// Lets a forward jump lead here.
    pub fn land(&mut self, patch: Patch) {
        let distance = self.code.len() - patch.at - patch.size;
        if patch.size == 1 {
            let distance = i8::try_from(distance).expect("short jumps span a few instructions");
            self.code[patch.at] = distance as u8;
        } else {
            self.code[patch.at..patch.at + 4].copy_from_slice(&(distance as u32).to_le_bytes());
        }
    }

    /// Loads `size` bytes (1, 2, 4 or 8), extended by zeros.
    pub fn load_sized(&mut self, to: Gpr, mem: Mem, size: u8) {
        match size {
            1 => self.load8(to, mem),
            2 => self.op_mem(false, opcode::MOVZX_16, to.0, mem),
            4 => self.op_mem(false, opcode::MOV_R_RM, to.0, mem),
            _ => self.load(to, mem),
        }
    }

    /// `movsxd to, dword [mem]`
    pub fn load32_signed(&mut self, to: Gpr, mem: Mem) {
        self.op_mem(true, opcode::MOVSXD, to.0, mem);
    }

    /// Copies the low `size` bytes of a register, extended by zeros.
    pub fn extend(&mut self, to: Gpr, from: Gpr, size: u8) {
        match size {
            1 => self.zero_extend8(to, from),
            2 => self.op_registers(false, opcode::MOVZX_16, to.0, from),
            4 => self.op_registers(false, opcode::MOV_R_RM, to.0, from),
            _ => self.mov(to, from),
        }
    }

    /// `shl reg, count`. Changes the flags.
    pub fn shift_left(&mut self, reg: Gpr, count: u8) {
        self.op_registers(true, opcode::SHIFT_RM_IMM8, opcode::Shift::Shl as u8, reg);
        self.byte(count);
    }

    /// `sar reg, count`. Changes the flags.
    pub fn shift_right_signed(&mut self, reg: Gpr, count: u8) {
        self.op_registers(true, opcode::SHIFT_RM_IMM8, opcode::Shift::Sar as u8, reg);
        self.byte(count);
    }

    /// `test reg, reg`. Changes the flags.
    pub fn test(&mut self, reg: Gpr) {
        self.op_registers(true, opcode::TEST_RM_R, reg.0, reg);
    }

    /// `cmovcc to, from`
    pub fn move_if(&mut self, cond: Cond, to: Gpr, from: Gpr) {
        self.op_registers(true, opcode::CMOVCC | u16::from(cond.0), to.0, from);
    }

    /// `movq to, xmm` if `wide`, else `movd to32, xmm`; in the form of AVX-512 for registers from 16 on.
    pub fn low_of_xmm(&mut self, to: Gpr, xmm: u8, wide: bool) {
        if xmm < 16 {
            self.byte(prefix::OPERAND_SIZE);
            self.op_registers(wide, opcode::MOVQ_RM_XMM, xmm, to);
        } else {
            self.evex(&Evex {
                mandatory: Mandatory::P66,
                wide,
                width: 16,
                reg: xmm,
                rm: to.0,
            });
            self.byte(opcode::MOVQ_RM_XMM as u8);
            self.byte(modrm::registers(xmm, to.0));
        }
    }

    /// Stores the whole vector register of an element, by the kind of instruction that the program
    /// itself uses: `movups`, `vmovdqu` or `vmovdqu64`.
    pub fn store_vector(&mut self, mem: Mem, element: &Element) {
        let (reg, width) = (element.register, element.width);
        debug_assert!(mem.index.is_none() && mem.base == Some(Gpr::RSP));
        if element.evex {
            self.evex(&Evex {
                mandatory: Mandatory::F3,
                wide: true,
                width,
                reg,
                rm: Gpr::RSP.0,
            });
            self.byte(opcode::MOVDQU_M_XMM as u8);
            // EVEX multiplies a displacement of one byte by the vector's size.
            self.byte(modrm::DISP32 | (reg & 7) << 3 | modrm::SIB);
            self.byte(modrm::sib(1, modrm::NO_INDEX, Gpr::RSP.0));
            self.imm32(mem.disp);
        } else if width == 32 {
            // vmovdqu [mem], ymm
            self.vex2(reg, vex::LENGTH_256 | Mandatory::F3 as u8);
            self.byte(opcode::MOVDQU_M_XMM as u8);
            self.modrm_mem(reg, mem);
        } else {
            self.store_xmm(mem, reg);
        }
    }

    /// A VEX prefix of two bytes without a third operand: the register field, and the bits for
    /// the vector's length and the mandatory prefix.
    fn vex2(&mut self, reg: u8, bits: u8) {
        let reg_is_low = u8::from(reg < 8) << 7;
        self.bytes(&[prefix::VEX2, reg_is_low | vex::NO_THIRD_OPERAND | bits]);
    }

    /// An EVEX prefix for an opcode of the map that 0F opens.
    fn evex(&mut self, e: &Evex) {
        const MAP_0F: u8 = 1;
        /// Bits that are set where an index register is not one of the upper ones.
        const INDEX_IS_LOW: u8 = 0x40;
        const ALWAYS_SET: u8 = 4;
        /// The third operand's fifth bit, inverted.
        const THIRD_IS_LOW: u8 = 8;
        let inverted = |bit: bool, shift: u8| u8::from(!bit) << shift;
        let length = e.width.trailing_zeros() as u8 - 4;
        self.bytes(&[
            prefix::EVEX,
            inverted(e.reg & 8 != 0, 7)
                | INDEX_IS_LOW
                | inverted(e.rm & 8 != 0, 5)
                | inverted(e.reg & 16 != 0, 4)
                | MAP_0F,
            u8::from(e.wide) << 7 | vex::NO_THIRD_OPERAND | ALWAYS_SET | e.mandatory as u8,
            length << 5 | THIRD_IS_LOW,
        ]);
    }

    /// `kmovw to32, k`
    pub fn mask_to(&mut self, to: Gpr, mask: u8) {
        self.vex2(to.0, 0);
        self.byte(opcode::KMOVW_R_K);
        self.byte(modrm::registers(to.0, mask));
    }
}

/// The prefix that is part of the opcode, as VEX and EVEX encode it.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Mandatory {
    P66 = 1,
    F3 = 2,
}

/// Bits of VEX.
mod vex {
    /// The field of the third operand, which is inverted, where there is none.
    pub const NO_THIRD_OPERAND: u8 = 0x78;
    /// Vectors of 256 bits.
    pub const LENGTH_256: u8 = 4;
}

/// The variable parts of an EVEX prefix.
struct Evex {
    mandatory: Mandatory,
    /// W: elements of 64 bits.
    wide: bool,
    /// Width of the vector in bytes: 16, 32 or 64.
    width: u8,
    /// The register field, 0 to 31.
    reg: u8,
    /// The other register, or the base register.
    rm: u8,
}

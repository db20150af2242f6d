//! Encoding the instructions of inlined bodies: any instruction that has a ModRM byte.

use super::{Asm, Cond, Gpr, Mem, Patch};
use crate::x86::opcode::{self, modrm, prefix};

/// An immediate operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Imm {
    /// No immediate.
    None,
    /// One byte.
    Byte(i8),
    /// A constant as wide as the operation, at most 4 bytes.
    Wide(i32),
}

/// The operand of the ModRM byte that may be in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operand<T> {
    /// A register.
    Reg(Gpr),
    /// Memory.
    Mem(Mem),
    /// Memory at a target plus an offset in bytes, relative to rip.
    Link(T, i32),
    /// Memory at a target plus an offset plus a register times a factor, by the target's absolute address.
    Table(T, i32, (Gpr, u8)),
}

/// An instruction, with its registers.
#[derive(Clone, Copy, Debug)]
pub struct Encoding<T> {
    /// Opcode, as in [`opcode`](crate::x86::opcode).
    pub opcode: u16,
    /// Operand size in bytes.
    pub width: u8,
    /// Register field: the number of a register, or a part of the opcode.
    pub reg: u8,
    /// True if the register field is a byte register.
    pub byte_reg: bool,
    /// True if the second operand, as a register, is a byte register.
    pub byte_rm: bool,
    /// True for a `lock` prefix.
    pub lock: bool,
    /// True for the prefix F3.
    pub rep: bool,
    /// True for a `gs` prefix.
    pub gs: bool,
    /// The second operand.
    pub rm: Operand<T>,
    /// The immediate.
    pub imm: Imm,
}

/// The index register as a base register, which makes the shorter code; `None` if it is scaled, or takes a SIB byte as base
/// as well.
fn as_base((index, scale): (Gpr, u8)) -> Option<Gpr> {
    (scale == 1 && index.0 & 7 != modrm::SIB).then_some(index)
}

impl<T: Copy> Asm<T> {
    /// `test eax, value`. Changes the flags.
    pub fn test_eax(&mut self, value: u32) {
        self.byte(opcode::TEST_EAX_IMM);
        self.imm32(value as i32);
    }

    /// `test reg32, value`. Changes the flags.
    pub fn test_low(&mut self, reg: Gpr, value: i32) {
        self.op_registers(false, opcode::TEST_RM_IMM32, 0, reg);
        self.imm32(value);
    }

    /// Emits any instruction with a ModRM byte. The caller has to know its effect on the flags.
    pub fn machine(&mut self, e: &Encoding<T>) {
        let prefixes = [
            (e.lock, prefix::LOCK),
            (e.width == 2, prefix::OPERAND_SIZE),
            (e.rep, prefix::REP),
            (e.gs, prefix::GS),
        ];
        for (_, byte) in prefixes.into_iter().filter(|p| p.0) {
            self.byte(byte);
        }
        let wide = e.width == 8;
        let force = e.byte_reg && Gpr(e.reg).low_byte_needs_rex();
        match e.rm {
            Operand::Reg(rm) => {
                let force = force || e.byte_rm && rm.low_byte_needs_rex();
                self.rex(wide, e.reg, 0, rm.0, force);
            }
            Operand::Mem(mem) => {
                let (index, base) = (mem.index.map_or(0, |i| i.0.0), mem.base.map_or(0, |b| b.0));
                self.rex(wide, e.reg, index, base, force);
            }
            Operand::Link(..) => self.rex(wide, e.reg, 0, 0, force),
            Operand::Table(_, _, index) => match as_base(index) {
                Some(base) => self.rex(wide, e.reg, 0, base.0, force),
                None => self.rex(wide, e.reg, index.0.0, 0, force),
            },
        }
        self.opcode(e.opcode);
        let imm_size = match e.imm {
            Imm::None => 0,
            Imm::Byte(_) => 1,
            Imm::Wide(_) => usize::from(e.width.min(4)),
        };
        match e.rm {
            Operand::Reg(rm) => self.byte(modrm::registers(e.reg, rm.0)),
            Operand::Mem(mem) => self.modrm_mem(e.reg, mem),
            Operand::Link(target, offset) => {
                self.modrm_target(e.reg, target, offset, imm_size as i32);
            }
            Operand::Table(target, offset, index) => {
                // A 32-bit displacement, extended by its sign.
                let reg = (e.reg & 7) << 3;
                match as_base(index) {
                    Some(base) => self.byte(modrm::DISP32 | reg | base.0 & 7),
                    None => {
                        self.byte(reg | modrm::SIB);
                        self.byte(modrm::sib(index.1, index.0.0, modrm::NO_BASE));
                    }
                }
                self.put_fixup(target, offset, true);
            }
        }
        match e.imm {
            Imm::None => {}
            Imm::Byte(n) => self.byte(n as u8),
            Imm::Wide(n) => self.bytes(&n.to_le_bytes()[..imm_size]),
        }
    }

    /// `mov [rip + target], from`
    pub fn store_target(&mut self, target: T, from: Gpr) {
        self.op_target(opcode::MOV_RM_R, from.0, target);
    }

    /// `mov to32, from32`
    pub fn mov32(&mut self, to: Gpr, from: Gpr) {
        self.op_registers(false, opcode::MOV_RM_R, from.0, to);
    }

    /// `lea to, [rip + target + offset]`
    pub fn lea_link(&mut self, to: Gpr, target: T, offset: i32) {
        self.lea_target(to, target);
        if let Some(fixup) = self.fixups.last_mut() {
            fixup.addend = offset;
        }
    }

    /// A jump to a target, conditional or not, with a displacement of 32 bits.
    pub fn jump_to(&mut self, cond: Option<Cond>, target: T, addend: i32) {
        match cond {
            Some(cond) => self.bytes(&[opcode::ESCAPE, opcode::JCC | cond.0]),
            None => self.byte(opcode::JMP),
        }
        self.fixup(target, addend);
    }

    /// A jump forward, conditional or not, long or short.
    pub fn branch(&mut self, cond: Option<Cond>, long: bool) -> Patch {
        match (cond, long) {
            (Some(cond), true) => self.jump_if(cond),
            (None, true) => self.jump(),
            (cond, false) => {
                let opcode = cond.map_or(opcode::JMP_SHORT, |c| opcode::JCC_SHORT | c.0);
                self.bytes(&[opcode, 0]);
                Patch {
                    at: self.code.len() - 1,
                    size: 1,
                }
            }
        }
    }

    /// Lets a forward jump lead here; false if its short form does not reach.
    pub fn land_if_near(&mut self, patch: Patch) -> bool {
        let distance = self.code.len() - patch.at - patch.size;
        let near = patch.size == 4 || distance <= 127;
        if near {
            self.land(patch);
        }
        near
    }
}

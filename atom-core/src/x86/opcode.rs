//! Names of opcodes, prefixes and fields of encodings.
//!
//! An opcode of the map that the byte 0F opens has 0F as its upper byte. Opcodes are named as
//! the manuals write them: the mnemonic, then the operands in Intel's order, where `rm` is the
//! operand of the ModRM byte that may be in memory, `r` a register and `imm` an immediate.
//! Where an opcode comes in pairs, the name is that of the form for 16, 32 and 64 bits, and
//! [`sized`] yields the form for bytes, which is one less.

/// Prefixes.
pub mod prefix {
    /// Operand size of 16 bits; part of the opcode of many vector instructions.
    pub const OPERAND_SIZE: u8 = 0x66;
    /// Address size of 32 bits.
    pub const ADDRESS_SIZE: u8 = 0x67;
    /// `lock`
    pub const LOCK: u8 = 0xf0;
    /// `repne`, or a part of the opcode.
    pub const REPNE: u8 = 0xf2;
    /// `rep`, or a part of the opcode.
    pub const REP: u8 = 0xf3;
    /// Segment override `es`, without effect in 64-bit mode.
    pub const ES: u8 = 0x26;
    /// Segment override `cs`, without effect in 64-bit mode.
    pub const CS: u8 = 0x2e;
    /// Segment override `ss`, without effect in 64-bit mode.
    pub const SS: u8 = 0x36;
    /// Segment override `ds`, without effect in 64-bit mode.
    pub const DS: u8 = 0x3e;
    /// Segment override `fs`.
    pub const FS: u8 = 0x64;
    /// Segment override `gs`.
    pub const GS: u8 = 0x65;
    /// REX without any bit set; the last one is [`REX_LAST`].
    pub const REX: u8 = 0x40;
    /// REX with all bits set.
    pub const REX_LAST: u8 = 0x4f;
    /// REX with W: operands of 64 bits.
    pub const REX_W: u8 = 0x48;
    /// VEX of two bytes.
    pub const VEX2: u8 = 0xc5;
    /// VEX of three bytes.
    pub const VEX3: u8 = 0xc4;
    /// EVEX.
    pub const EVEX: u8 = 0x62;
    /// XOP, or `pop` to memory.
    pub const XOP: u8 = 0x8f;
}

/// Opens the map of opcodes of two bytes.
pub const ESCAPE: u8 = 0x0f;
/// After [`ESCAPE`], opens a map of opcodes of three bytes.
pub const ESCAPE_38: u8 = 0x38;
/// After [`ESCAPE`], opens the other map of opcodes of three bytes.
pub const ESCAPE_3A: u8 = 0x3a;

/// `push r64`, the register in the low three bits.
pub const PUSH_R: u8 = 0x50;
/// `pop r64`, the register in the low three bits.
pub const POP_R: u8 = 0x58;
/// `push imm8`
pub const PUSH_IMM8: u8 = 0x6a;
/// `push imm32`
pub const PUSH_IMM32: u8 = 0x68;
/// `pushfq`
pub const PUSHF: u8 = 0x9c;
/// `popfq`
pub const POPF: u8 = 0x9d;
/// `lahf`
pub const LAHF: u8 = 0x9f;
/// `sahf`
pub const SAHF: u8 = 0x9e;
/// `cld`
pub const CLD: u8 = 0xfc;
/// `nop`
pub const NOP: u8 = 0x90;
/// `int3`
pub const INT3: u8 = 0xcc;
/// `call rel32`
pub const CALL: u8 = 0xe8;
/// `jmp rel32`
pub const JMP: u8 = 0xe9;
/// `jmp rel8`
pub const JMP_SHORT: u8 = 0xeb;
/// `jcc rel8`, the condition in the low four bits.
pub const JCC_SHORT: u8 = 0x70;
/// The last of the opcodes `jcc rel8`.
pub const JCC_SHORT_LAST: u8 = 0x7f;
/// Second byte of `jcc rel32`, the condition in the low four bits.
pub const JCC: u8 = 0x80;
/// The last of the second bytes of `jcc rel32`.
pub const JCC_LAST: u8 = 0x8f;
/// `loopne rel8`, the first of the branches on rcx; `loope` and `loop` follow.
pub const LOOPNE: u8 = 0xe0;
/// `jrcxz rel8`, the last of the branches on rcx.
pub const JRCXZ: u8 = 0xe3;
/// `ret`
pub const RET: u8 = 0xc3;
/// `ret imm16`
pub const RET_IMM16: u8 = 0xc2;
/// `add al, imm8`
pub const ADD_AL_IMM: u8 = 0x04;
/// `cmp eax, imm32`
pub const CMP_EAX_IMM: u8 = 0x3d;
/// `test eax, imm32`
pub const TEST_EAX_IMM: u8 = 0xa9;
/// `mov r, imm`, the register in the low three bits.
pub const MOV_R_IMM: u8 = 0xb8;

/// `mov rm, r`
pub const MOV_RM_R: u16 = 0x89;
/// `mov r, rm`
pub const MOV_R_RM: u16 = 0x8b;
/// `mov rm, imm`
pub const MOV_RM_IMM: u16 = 0xc7;
/// `lea r, m`
pub const LEA: u16 = 0x8d;
/// `movsxd r64, rm32`
pub const MOVSXD: u16 = 0x63;
/// `movzx r, rm8`
pub const MOVZX_8: u16 = 0x0fb6;
/// `movzx r, rm16`
pub const MOVZX_16: u16 = 0x0fb7;
/// `movsx r, rm8`
pub const MOVSX_8: u16 = 0x0fbe;
/// `movsx r, rm16`
pub const MOVSX_16: u16 = 0x0fbf;
/// `test rm, imm32`, with the extension 0.
pub const TEST_RM_IMM32: u16 = 0xf7;
/// `test rm, r`
pub const TEST_RM_R: u16 = 0x85;
/// `xchg rm, r`
pub const XCHG: u16 = 0x87;
/// `xadd rm, r`
pub const XADD: u16 = 0x0fc1;
/// `imul r, rm`
pub const IMUL_R_RM: u16 = 0x0faf;
/// `imul r, rm, imm32`
pub const IMUL_R_RM_IMM: u16 = 0x69;
/// An [`Alu`] operation on `rm, imm8` of a byte.
pub const ALU_RM8_IMM8: u16 = 0x80;
/// An [`Alu`] operation on `rm, imm32`.
pub const ALU_RM_IMM32: u16 = 0x81;
/// An [`Alu`] operation on `rm, imm8`, extended by its sign.
pub const ALU_RM_IMM8: u16 = 0x83;
/// A [`Shift`] of `rm` by `imm8`.
pub const SHIFT_RM_IMM8: u16 = 0xc1;
/// A [`Shift`] of `rm` by cl.
pub const SHIFT_RM_CL: u16 = 0xd3;
/// The operations on one operand that [`Unary`] tells apart: `test`, `not`, `neg`.
pub const GROUP_3: u16 = 0xf7;
/// The operations on one operand that [`Unary`] tells apart: `inc`, `dec`; also `push rm`.
pub const GROUP_5: u16 = 0xff;
/// `setcc rm8`, the condition in the low four bits.
pub const SETCC: u16 = 0x0f90;
/// `cmovcc r, rm`, the condition in the low four bits.
pub const CMOVCC: u16 = 0x0f40;

/// `nop rm`, of any length from 3 bytes on.
pub const NOP_RM: u16 = 0x0f1f;
/// `rdtsc`
pub const RDTSC: u16 = 0x0f31;
/// `syscall`
pub const SYSCALL: u16 = 0x0f05;
/// `movups xmm, m`
pub const MOVUPS_XMM_M: u16 = 0x0f10;
/// `movups m, xmm`
pub const MOVUPS_M_XMM: u16 = 0x0f11;
/// `movq rm64, xmm` or `movd rm32, xmm`, after the prefix 66.
pub const MOVQ_RM_XMM: u16 = 0x0f7e;
/// `movdqu m, xmm`, after the prefix F3.
pub const MOVDQU_M_XMM: u16 = 0x0f7f;
/// `kmovw r32, k`, of the map 0F, after VEX.
pub const KMOVW_R_K: u8 = 0x93;
/// Operations on state, told apart by the register field.
pub const GROUP_15: u16 = 0x0fae;
/// Part of the opcode in the register field of [`GROUP_15`], on memory.
pub const EXTENSION_LDMXCSR: u8 = 2;
/// Part of the opcode in the register field of [`GROUP_15`], on memory.
pub const EXTENSION_STMXCSR: u8 = 3;
/// Part of the opcode in the register field of [`GROUP_15`], on a register after F3.
pub const EXTENSION_RDFSBASE: u8 = 0;
/// Part of the opcode in the register field of [`GROUP_15`], on a register after F3.
pub const EXTENSION_RDGSBASE: u8 = 1;
/// Part of the opcode in the register field of [`GROUP_15`], on a register after F3.
pub const EXTENSION_WRGSBASE: u8 = 3;

/// Part of the opcode in the register field of [`GROUP_3`]: `test rm, imm`.
pub const EXTENSION_TEST: u8 = 0;
/// Part of the opcode in the register field of [`MOV_RM_IMM`].
pub const EXTENSION_MOV: u8 = 0;
/// Part of the opcode in the register field of [`GROUP_5`]: `push rm`.
pub const EXTENSION_PUSH: u8 = 6;
/// `call r/m`, in [`GROUP_5`].
pub const EXTENSION_CALL: u8 = 2;

/// The form of an opcode for operands of this many bytes.
pub const fn sized(opcode: u16, width: u8) -> u16 {
    opcode - (width == 1) as u16
}

/// The operations on two operands of which the manuals' table of opcodes has one in each row
/// of eight: the number times 8, plus the form of the operands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Alu {
    Add = 0,
    Or = 1,
    Adc = 2,
    Sbb = 3,
    And = 4,
    Sub = 5,
    Xor = 6,
    Cmp = 7,
}

impl Alu {
    const ALL: [Self; 8] = [
        Self::Add,
        Self::Or,
        Self::Adc,
        Self::Sbb,
        Self::And,
        Self::Sub,
        Self::Xor,
        Self::Cmp,
    ];

    /// The opcode of `op rm, r`.
    pub const fn rm_r(self) -> u16 {
        (self as u16) << 3 | 1
    }

    /// The opcode of `op r, rm`.
    pub const fn r_rm(self) -> u16 {
        (self as u16) << 3 | 3
    }

    /// Part of the opcode in the register field of the forms with an immediate.
    pub const fn extension(self) -> u8 {
        self as u8
    }

    /// True if the order of the operands does not matter; not asked of `adc`.
    pub const fn commutes(self) -> bool {
        matches!(self, Self::Add | Self::Or | Self::And | Self::Xor)
    }

    /// True for `adc` and `sbb`.
    pub const fn reads_carry(self) -> bool {
        matches!(self, Self::Adc | Self::Sbb)
    }

    /// The operation if the opcode is that of a form for bytes or for more, on a register and
    /// a register or memory.
    pub const fn of(opcode: u16) -> Option<Self> {
        if opcode < 0x40 && opcode & 7 < 4 {
            Some(Self::ALL[(opcode >> 3) as usize])
        } else {
            None
        }
    }

    /// The operation if the opcode is that of `op rm, r`, except for bytes.
    pub const fn of_rm_r(opcode: u16) -> Option<Self> {
        match Self::of(opcode) {
            Some(op) if op.rm_r() == opcode => Some(op),
            _ => None,
        }
    }

    /// The operation if the opcode is that of `op r, rm`, except for bytes.
    pub const fn of_r_rm(opcode: u16) -> Option<Self> {
        match Self::of(opcode) {
            Some(op) if op.r_rm() == opcode => Some(op),
            _ => None,
        }
    }
}

/// Shifts and rotations, by the part of the opcode in the register field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Shift {
    Rol = 0,
    Ror = 1,
    Shl = 4,
    Shr = 5,
    Sar = 7,
}

impl Shift {
    /// True for rotations, which change CF and OF only.
    pub const fn rotates(self) -> bool {
        matches!(self, Self::Rol | Self::Ror)
    }
}

/// Operations on one operand, by the part of the opcode in the register field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Unary {
    Inc = 0,
    Dec = 1,
    Not = 2,
    Neg = 3,
}

impl Unary {
    /// The opcode.
    pub const fn opcode(self) -> u16 {
        match self {
            Self::Inc | Self::Dec => GROUP_5,
            Self::Not | Self::Neg => GROUP_3,
        }
    }
}

/// Fields of the ModRM byte and of the SIB byte after it.
pub mod modrm {
    /// Mode: the operand is a register.
    pub const REGISTER: u8 = 0xc0;
    /// Mode: memory with a displacement of 8 bits.
    pub const DISP8: u8 = 0x40;
    /// Mode: memory with a displacement of 32 bits.
    pub const DISP32: u8 = 0x80;
    /// In place of a base register, in a mode of memory: a SIB byte follows. It is the number of
    /// rsp, which therefore takes a SIB byte as base.
    pub const SIB: u8 = 4;
    /// In place of a base register, in the mode without a displacement: relative to rip, with a
    /// displacement of 32 bits. It is the number of rbp, which therefore takes a displacement.
    pub const RIP: u8 = 5;
    /// All bits but those of the register field.
    pub const MODE_AND_RM: u8 = 0xc7;
    /// In place of an index register in SIB: none.
    pub const NO_INDEX: u8 = 4;
    /// In place of a base register in SIB, in the mode without a displacement: none, with a
    /// displacement of 32 bits.
    pub const NO_BASE: u8 = 5;

    /// ModRM of a register and a register.
    pub const fn registers(reg: u8, rm: u8) -> u8 {
        REGISTER | (reg & 7) << 3 | rm & 7
    }

    /// ModRM of a register and memory relative to rip.
    pub const fn rip_relative(reg: u8) -> u8 {
        (reg & 7) << 3 | RIP
    }

    /// SIB; the scale is 1, 2, 4 or 8.
    pub const fn sib(scale: u8, index: u8, base: u8) -> u8 {
        (scale.trailing_zeros() as u8) << 6 | (index & 7) << 3 | base & 7
    }
}

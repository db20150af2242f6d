//! Values that an argument of a call can stand for: registers, flags, addresses and
//! contents of memory, as the uninstrumented program would see them at the point.
//!
//! [`operand`](super::operand) finds the value of an argument at a point.

pub use crate::x86::asm::Element;
use crate::x86::asm::{Cond, Gpr};
pub use crate::x86::memory::Segment;

/// An effective address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Address {
    /// Base register; rsp stands for its value in the program.
    pub base: Option<Gpr>,
    /// Index register and scale.
    pub index: Option<(Gpr, u8)>,
    /// True if only the low byte of the index register counts (`xlat`).
    pub index_is_byte: bool,
    /// Index that is an element of a vector register, and its scale; `index` is `None` then.
    pub element: Option<(Element, u8)>,
    /// Register with a signed bit number (`bt`), and the operand's size in bytes: the number's upper
    /// bits count operands of this size from the address.
    pub bits: Option<(Gpr, u8)>,
    /// Address of the original image whose run-time address is added.
    pub image: Option<u64>,
    /// Displacement in bytes.
    pub disp: i64,
    /// True if the address is computed modulo 2^32.
    pub narrow: bool,
    /// Segment whose base is added.
    pub segment: Segment,
}

impl Address {
    /// The address `[base + disp]`; rsp as `base` stands for its value in the program.
    pub const fn at(base: Gpr, disp: i64) -> Self {
        Self {
            base: Some(base),
            index: None,
            index_is_byte: false,
            element: None,
            bits: None,
            image: None,
            disp,
            narrow: false,
            segment: Segment::Flat,
        }
    }
}

/// When an element of a gather or scatter is accessed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Selected {
    /// If the top bit of an element is set.
    Sign(Element),
    /// If a bit of a mask register is set: number of the register (`k1` to `k7`), number of the bit.
    Mask(u8, u8),
}

/// When a conditional branch is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taken {
    /// If a condition of the flags holds.
    Flags(Cond),
    /// If rcx is zero: `jrcxz`, or `jecxz` if narrow.
    CountZero {
        /// True if only ecx counts.
        narrow: bool,
    },
    /// If rcx minus 1 is not zero: `loop`, `loope` (needs ZF set too), `loopne` (needs ZF clear too).
    Loop {
        /// True if only ecx counts.
        narrow: bool,
        /// Value of ZF that is needed too.
        zero: Option<bool>,
    },
}

/// The value of an argument.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value {
    /// A constant.
    Const(u64),
    /// Run-time address of a byte of the plan's data, given by its offset.
    Data(u32),
    /// Run-time address of a byte of the running thread's block. The operand is the byte's address in the main
    /// block with a gs prefix.
    Thread {
        /// Offset of the main block in the plan's data.
        block: u32,
        /// Offset of the byte in the plan's data.
        at: u32,
    },
    /// Run-time address of a byte of the running thread's block, found by calling the runtime.
    ThreadLookup {
        /// Address in the tool's file of the runtime's function.
        routine: u64,
        /// Offset of the main block in the plan's data.
        block: u32,
        /// Offset of the byte in a block.
        offset: u32,
    },
    /// A pointer in a slot of the plan's data, plus an offset.
    Pointed {
        /// Offset of the slot in the plan's data.
        slot: u32,
        /// Offset in bytes that is added.
        offset: u32,
    },
    /// Run-time address of an address of the original image.
    Original(u64),
    /// Run-time address of an address of the tool's file.
    Tool(u64),
    /// A general register other than rsp.
    Reg(Gpr),
    /// rsp plus an offset in bytes.
    Stack(i32),
    /// The address of what the point has pushed before its calls.
    Outcome,
    /// The flags, as `pushfq` stores them.
    Flags,
    /// All ones if the direction flag is set, else 0.
    Direction,
    /// The cycle counter.
    Cycles,
    /// 1 if the branch will be taken, else 0.
    Taken(Taken),
    /// An effective address.
    Address(Address),
    /// Contents of memory at an address: number of bytes (1, 2, 4 or 8), extended by zeros.
    Load(Address, u8),
    /// A part of a general register: first byte (0 or 1) and number of bytes, extended by zeros.
    Part(Gpr, u8, u8),
    /// The low half of a vector register (0 to 31).
    Xmm(u8),
    /// The second 64 bits of a vector register (0 to 31).
    XmmHigh(u8),
    /// The low 32 bits of a vector register, extended by zeros.
    XmmSingle(u8),
    /// The low 16 bits of a mask register (0 to 7), extended by zeros.
    Mask(u8),
    /// An element of a vector register, extended by zeros.
    Element(Element),
    /// The return address at rsp, translated to the original program's.
    Return,
    /// The first address if the branch will be taken, else the second; both are addresses of the original image.
    Next(Taken, u64, u64),
}

impl Address {
    /// General registers other than rsp from which the address is computed, as a bit mask.
    pub fn sources(&self) -> u16 {
        let base = self.base.filter(|b| *b != Gpr::RSP).map_or(0, Gpr::bit);
        let bits = self.bits.map_or(0, |b| b.0.bit());
        base | bits | self.index.map_or(0, |i| i.0.bit())
    }
}

impl Value {
    /// General registers from which the value is computed, as a bit mask.
    pub fn sources(&self) -> u16 {
        match self {
            Self::Reg(reg) => reg.bit(),
            Self::Part(reg, ..) if *reg != Gpr::RSP => reg.bit(),
            Self::Taken(Taken::CountZero { .. } | Taken::Loop { .. })
            | Self::Next(Taken::CountZero { .. } | Taken::Loop { .. }, ..) => Gpr::RCX.bit(),
            Self::Address(a) | Self::Load(a, _) => a.sources(),
            _ => 0,
        }
    }

    /// Vector registers of the first sixteen from which the value is computed, as a bit mask. Analysis
    /// routines do not touch the others and the upper halves.
    pub fn xmm_sources(&self) -> u16 {
        let number = match self {
            Self::Xmm(n) | Self::XmmHigh(n) | Self::XmmSingle(n) => Some(*n),
            Self::Element(e) => Some(e.register),
            Self::Address(a) | Self::Load(a, _) => a.element.map(|e| e.0.register),
            _ => None,
        };
        number.filter(|n| *n < 16).map_or(0, |n| 1 << n)
    }

    /// True if the value is computed from the flags.
    pub fn needs_flags(&self) -> bool {
        matches!(
            self,
            Self::Flags
                | Self::Taken(Taken::Flags(_) | Taken::Loop { zero: Some(_), .. })
                | Self::Next(Taken::Flags(_) | Taken::Loop { zero: Some(_), .. }, ..)
        )
    }

    /// True if the value is computed before the argument registers are filled.
    pub fn is_computed_first(&self) -> bool {
        matches!(
            self,
            Self::Cycles
                | Self::Return
                | Self::Taken(Taken::CountZero { .. } | Taken::Loop { .. })
                | Self::Next(Taken::CountZero { .. } | Taken::Loop { .. }, ..)
        )
    }
}

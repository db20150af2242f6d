//! What an argument of a call can stand for: registers, flags, addresses and
//! contents of memory, as the program itself would see them there.
//!
//! [`operand`](super::operand) says which of these an argument is at a point.

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
    /// Only the low byte of the index register counts (`xlat`).
    pub index_is_byte: bool,
    /// The index is an element of a vector register, which `index` does not name.
    pub element: Option<(Element, u8)>,
    /// A register whose upper bits count operands of this size up or down (`bt`).
    pub bits: Option<(Gpr, u8)>,
    /// The run-time address of this address of the original image is added.
    pub image: Option<u64>,
    /// Displacement.
    pub disp: i64,
    /// Computed modulo 2^32.
    pub narrow: bool,
    /// The base of this segment is added.
    pub segment: Segment,
}

impl Address {
    /// `[base + disp]`; as `base`, rsp stands for its value in the program.
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
    /// If the top bit of this element is set.
    Sign(Element),
    /// If this bit of this mask register (`k1` to `k7`) is set.
    Mask(u8, u8),
}

/// When a conditional branch is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taken {
    /// By the flags.
    Flags(Cond),
    /// `jrcxz`, or `jecxz` if narrow.
    CountZero {
        /// Only ecx counts.
        narrow: bool,
    },
    /// `loop`, `loope` (wants ZF set), `loopne` (wants it clear).
    Loop {
        /// Only ecx counts.
        narrow: bool,
        /// The value of ZF that is wanted beside rcx.
        zero: Option<bool>,
    },
}

/// The value of an argument.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value {
    /// A constant.
    Const(u64),
    /// Run-time address of an offset in the plan's data.
    Data(u32),
    /// Run-time address of the running thread's copy of what lies in the main
    /// block: an operand on it is one on the main block's, with a gs prefix.
    Thread {
        /// Offset of the main block in the plan's data.
        block: u32,
        /// Offset in the plan's data.
        at: u32,
    },
    /// The same, by asking the runtime.
    ThreadLookup {
        /// Address in the tool's file of the function to ask.
        routine: u64,
        /// Offset of the main block in the plan's data.
        block: u32,
        /// Offset in a block.
        offset: u32,
    },
    /// What a slot of the plan's data points to, and an offset added.
    Pointed {
        /// Offset of the slot.
        slot: u32,
        /// What is added.
        offset: u32,
    },
    /// Run-time address of an address of the original image.
    Original(u64),
    /// The run-time address of this address of the tool's file.
    Tool(u64),
    /// A general register other than rsp.
    Reg(Gpr),
    /// rsp, and this added.
    Stack(i32),
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
    /// What memory holds at an address: so many bytes (1, 2, 4 or 8), extended by zeros.
    Load(Address, u8),
    /// A part of a general register: first byte (0 or 1) and number of bytes, extended by zeros.
    Part(Gpr, u8, u8),
    /// The low half of a vector register (0 to 31).
    Xmm(u8),
    /// The second 64 bits of a vector register (0 to 31).
    XmmHigh(u8),
    /// The low 32 bits of a vector register, extended by zeros.
    XmmSingle(u8),
    /// An element of a vector register, extended by zeros.
    Element(Element),
    /// The address that the word at rsp returns to, as the original program has it.
    Return,
    /// The first address if the branch will be taken, else the second; original ones.
    Next(Taken, u64, u64),
}

impl Address {
    /// General registers other than rsp that it is computed from.
    pub fn sources(&self) -> u16 {
        let base = self.base.filter(|b| *b != Gpr::RSP).map_or(0, Gpr::bit);
        let bits = self.bits.map_or(0, |b| b.0.bit());
        base | bits | self.index.map_or(0, |i| i.0.bit())
    }
}

impl Value {
    /// General registers that it is computed from.
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

    /// Vector registers of the first sixteen that it is computed from. The
    /// others, and all upper halves, are out of analysis routines' reach.
    pub fn xmm_sources(&self) -> u16 {
        let number = match self {
            Self::Xmm(n) | Self::XmmHigh(n) | Self::XmmSingle(n) => Some(*n),
            Self::Element(e) => Some(e.register),
            Self::Address(a) | Self::Load(a, _) => a.element.map(|e| e.0.register),
            _ => None,
        };
        number.filter(|n| *n < 16).map_or(0, |n| 1 << n)
    }

    /// True if it is computed from the flags.
    pub fn needs_flags(&self) -> bool {
        matches!(
            self,
            Self::Flags
                | Self::Taken(Taken::Flags(_) | Taken::Loop { zero: Some(_), .. })
                | Self::Next(Taken::Flags(_) | Taken::Loop { zero: Some(_), .. }, ..)
        )
    }

    /// True if it is computed before the argument registers are filled.
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

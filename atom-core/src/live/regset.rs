//! The set of registers and flags that liveness follows.

use std::fmt;
use std::ops::{BitAnd, BitOr, BitOrAssign, Not};

/// General registers, xmm registers and arithmetic flags, as a bit set.
///
/// Bits 0 to 15 are the general registers in hardware order, 16 to 31 the
/// xmm registers, 32 to 37 CF, PF, AF, ZF, SF and OF. Everything else that a
/// program keeps in the processor (x87, mask registers, upper vector halves)
/// is left out: analysis routines are compiled so that they do not touch it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct RegSet(pub u64);

impl RegSet {
    /// Nothing.
    pub const EMPTY: Self = Self(0);
    /// Everything.
    pub const ALL: Self = Self((1 << 38) - 1);
    /// All general registers.
    pub const GPRS: Self = Self(0xffff);
    /// All xmm registers.
    pub const XMMS: Self = Self(0xffff_0000);
    /// Carry flag.
    pub const CF: Self = Self(1 << 32);
    /// Parity flag.
    pub const PF: Self = Self(1 << 33);
    /// Auxiliary carry flag.
    pub const AF: Self = Self(1 << 34);
    /// Zero flag.
    pub const ZF: Self = Self(1 << 35);
    /// Sign flag.
    pub const SF: Self = Self(1 << 36);
    /// Overflow flag.
    pub const OF: Self = Self(1 << 37);
    /// All arithmetic flags.
    pub const FLAGS: Self = Self(0x3f << 32);
    /// Registers that a callee keeps by the System V ABI: rbx, rbp, r12 to r15, and rsp.
    pub const CALLEE_SAVED: Self = Self(0xf038);
    /// Registers and flags that a callee may change by the System V ABI.
    pub const CALLER_SAVED: Self = Self(Self::ALL.0 & !Self::CALLEE_SAVED.0);
    /// Registers that carry arguments into another object's function: the six integer
    /// registers, rax (number of vector arguments) and xmm0 to xmm7.
    pub const ARGUMENTS: Self = Self(0x03c7 | 0xff << 16);
    /// Registers that may carry arguments of a call through a pointer: also r10 (static chain) and r11.
    pub const POINTER_ARGUMENTS: Self = Self(0x0c00 | Self::ARGUMENTS.0);
    /// Registers that may carry results out of a procedure with unknown callers: rax,
    /// rdx, xmm0 and xmm1 by the ABI; rcx, xmm2 and xmm3 because LLVM uses them for larger values.
    pub const RESULTS: Self = Self(0b111 | 0b1111 << 16);

    /// Registers and flags that no call passes, returns or keeps by the ABI but for arguments: rsi, rdi, r8 to r11, xmm4 to xmm15
    /// and flags. [`RegSet::with_read`] notes for these that an instruction reads them.
    const UNUSUAL: Self = Self(0x0fc0 | 0xfff0 << 16 | Self::FLAGS.0);

    /// The set with a note, in bits of its own, that instructions of the program read what is unusual in it. In a set without the note an element may
    /// be there only because code that is not known might read it. Operations on sets treat the notes as further elements.
    pub fn with_read(self) -> Self {
        let set = self.0 & Self::UNUSUAL.0;
        let low = (set >> 6 & 0x3f) << 38;
        let high = (set >> 20) << 44;
        Self(self.0 | low | high)
    }

    /// The unusual elements of which it is noted that instructions read them, with the notes.
    pub fn noted(self) -> Self {
        let low = (self.0 >> 38 & 0x3f) << 6;
        let high = (self.0 >> 44) << 20;
        Self(self.0 & !Self::ALL.0 | low | high)
    }

    /// The set without notes.
    pub fn without_notes(self) -> Self {
        Self(self.0 & Self::ALL.0)
    }

    /// The general register with a hardware number.
    pub const fn gpr(number: usize) -> Self {
        Self(1 << number)
    }

    /// The xmm register with a number from 0 to 15.
    pub const fn xmm(number: usize) -> Self {
        Self(1 << (16 + number))
    }

    /// True if the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// True if all elements of `other` are in the set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// True if any element of `other` is in the set.
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The elements of `self` that are not in `other`.
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Union, usable in constants.
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The general registers as a 16-bit mask.
    pub const fn gpr_mask(self) -> u16 {
        self.0 as u16
    }

    /// The xmm registers as a 16-bit mask.
    pub const fn xmm_mask(self) -> u16 {
        (self.0 >> 16) as u16
    }
}

impl BitOr for RegSet {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for RegSet {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl BitAnd for RegSet {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl Not for RegSet {
    type Output = Self;
    fn not(self) -> Self {
        Self::ALL.without(self)
    }
}

impl fmt::Debug for RegSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const GPRS: [&str; 16] = [
            "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11",
            "r12", "r13", "r14", "r15",
        ];
        const FLAGS: [&str; 6] = ["CF", "PF", "AF", "ZF", "SF", "OF"];
        f.write_str("{")?;
        let mut gap = "";
        for bit in (0..38).filter(|bit| self.0 >> bit & 1 != 0) {
            match bit {
                0..16 => write!(f, "{gap}{}", GPRS[bit])?,
                16..32 => write!(f, "{gap}xmm{}", bit - 16)?,
                _ => write!(f, "{gap}{}", FLAGS[bit - 32])?,
            }
            gap = " ";
        }
        f.write_str("}")
    }
}

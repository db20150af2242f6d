//! General registers.

/// A general register by its number in encodings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gpr(pub u8);

#[allow(missing_docs)]
impl Gpr {
    pub const RAX: Self = Self(0);
    pub const RCX: Self = Self(1);
    pub const RDX: Self = Self(2);
    pub const RBX: Self = Self(3);
    pub const RSP: Self = Self(4);
    pub const RBP: Self = Self(5);
    pub const RSI: Self = Self(6);
    pub const RDI: Self = Self(7);
    pub const R8: Self = Self(8);
    pub const R9: Self = Self(9);
    pub const R10: Self = Self(10);
    pub const R11: Self = Self(11);
    pub const R12: Self = Self(12);
    pub const R13: Self = Self(13);
    pub const R14: Self = Self(14);
    pub const R15: Self = Self(15);

    /// Number of general registers.
    pub const COUNT: usize = 16;

    /// Its bit in a 16-bit mask.
    pub const fn bit(self) -> u16 {
        1 << self.0
    }

    /// Its index in an array of all general registers.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The three bits of its number that are in ModRM, SIB or the opcode; a REX prefix has
    /// the fourth.
    pub(super) const fn low(self) -> u8 {
        self.0 & 7
    }

    /// True if its low byte needs a REX prefix, which turns ah, ch, dh and bh into
    /// spl, bpl, sil and dil.
    pub(super) const fn low_byte_needs_rex(self) -> bool {
        self.0 >= Self::RSP.0
    }
}

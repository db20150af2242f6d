//! Arithmetic flags as sets, and the conditions that instructions test.

use super::ConditionCode;

/// Carry.
pub const CF: u8 = 1;
/// Parity.
pub const PF: u8 = 2;
/// Auxiliary carry.
pub const AF: u8 = 4;
/// Zero.
pub const ZF: u8 = 8;
/// Sign.
pub const SF: u8 = 16;
/// Overflow.
pub const OF: u8 = 32;
/// All of them.
pub const ALL: u8 = 63;
/// Number of arithmetic flags.
pub const COUNT: usize = 6;

/// A condition, as in the low four bits of the opcodes of `jcc`, `setcc` and `cmovcc`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cond(pub u8);

impl Cond {
    /// Overflow.
    pub const O: Self = Self(0);
    /// Below: CF set.
    pub const B: Self = Self(2);
    /// Equal: ZF set.
    pub const E: Self = Self(4);
    /// Not equal: ZF clear.
    pub const NE: Self = Self(5);
    /// Below or equal: CF or ZF set.
    pub const BE: Self = Self(6);
    /// Sign.
    pub const S: Self = Self(8);
    /// Parity.
    pub const P: Self = Self(10);
    /// Less: SF and OF differ.
    pub const L: Self = Self(12);
    /// Less or equal: ZF set, or SF and OF differ.
    pub const LE: Self = Self(14);

    /// The condition that the decoder found; `None` if the instruction tests none.
    pub const fn of(code: ConditionCode) -> Option<Self> {
        match code {
            ConditionCode::None => None,
            // The decoder numbers conditions as encodings do, from 1 on.
            code => Some(Self(code as u8 - 1)),
        }
    }

    /// The opposite.
    pub const fn inverted(self) -> Self {
        Self(self.0 ^ 1)
    }

    /// True if it is the opposite of a condition that this module names first of a pair.
    pub const fn is_negated(self) -> bool {
        self.0 & 1 != 0
    }

    /// The first of the pair of this condition and its opposite.
    pub const fn positive(self) -> Self {
        Self(self.0 & !1)
    }

    /// The flags that it depends on.
    pub const fn flags(self) -> u8 {
        match self.positive() {
            Self::O => OF,
            Self::B => CF,
            Self::E => ZF,
            Self::BE => CF | ZF,
            Self::S => SF,
            Self::P => PF,
            Self::L => SF | OF,
            _ => ZF | SF | OF,
        }
    }
}

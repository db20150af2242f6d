//! Known contents of registers, flags and the stack while a routine's code is followed, and arithmetic
//! on them.

use std::collections::BTreeMap;

use super::ops::{Machine, Op, Symbol, V};
use crate::x86::opcode::{Alu, Shift};
use crate::x86::{Cond, Gpr, flags};

/// Contents of a register or of a word of the stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Val {
    /// The contents at the routine's entry, where these are no argument.
    Nothing,
    /// A number.
    Number(u64),
    /// A symbol, which is known when the output is written.
    Symbol(Symbol),
    /// A value that the body computes.
    Value(V),
    /// rsp at the entry plus this number of bytes.
    Stack(i64),
}

/// Contents of a flag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flag {
    /// Not known and not to be used.
    Undefined,
    /// Known value.
    Known(bool),
    /// The contents of the processor's flag after the body's last instruction.
    Real,
}

/// The state before an instruction.
#[derive(Clone, Debug)]
pub struct State {
    /// Contents of general registers, by [`Gpr::index`].
    pub regs: [Val; Gpr::COUNT],
    /// Contents of flags, in the order of the bits in [`flags`].
    pub flags: [Flag; flags::COUNT],
    /// Words of the stack, by their distance in bytes from rsp at the entry.
    pub stack: BTreeMap<i64, Val>,
    /// What has been stored that the program or the tool may see.
    pub stored: Stored,
}

/// What a path has stored.
#[derive(Clone, Copy, Debug)]
pub enum Stored {
    /// Nothing.
    Nothing,
    /// The result of one operation, which this one takes back.
    Once(Machine),
    /// What cannot be taken back.
    More,
}

impl Stored {
    /// The operations that take back what has been stored; `None` if there are none that do.
    pub fn undo(self) -> Option<Vec<Op>> {
        match self {
            Self::Nothing => Some(Vec::new()),
            Self::Once(op) => Some(vec![Op::Machine(op)]),
            Self::More => None,
        }
    }

    /// The same with an operation that stores after it.
    pub fn and(self, op: &Machine) -> Self {
        match (self, op.inverse()) {
            (Self::Nothing, Some(undo)) => Self::Once(undo),
            _ => Self::More,
        }
    }
}

impl State {
    /// Sets the contents of all flags in a set.
    pub fn set_flags(&mut self, set: u8, to: Flag) {
        for (i, flag) in self.flags.iter_mut().enumerate() {
            if set >> i & 1 != 0 {
                *flag = to;
            }
        }
    }

    /// Contents of the carry flag.
    pub fn carry(&self) -> Flag {
        self.flags[flags::CF.trailing_zeros() as usize]
    }

    /// Whether a condition holds: `None` if the body has to find out, an error if nobody can.
    pub fn condition(&self, condition: Cond) -> Result<Option<bool>, ()> {
        let read = condition.flags();
        let mine = || {
            (0..flags::COUNT)
                .filter(|i| read >> i & 1 != 0)
                .map(|i| self.flags[i])
        };
        if mine().all(|f| f == Flag::Real) {
            return Ok(None);
        }
        if !mine().all(|f| matches!(f, Flag::Known(_))) {
            return Err(());
        }
        let is = |flag: u8| self.flags[flag.trailing_zeros() as usize] == Flag::Known(true);
        let value = match condition.positive() {
            Cond::O => is(flags::OF),
            Cond::B => is(flags::CF),
            Cond::E => is(flags::ZF),
            Cond::BE => is(flags::CF) || is(flags::ZF),
            Cond::S => is(flags::SF),
            Cond::P => is(flags::PF),
            Cond::L => is(flags::SF) != is(flags::OF),
            _ => is(flags::ZF) || is(flags::SF) != is(flags::OF),
        };
        Ok(Some(value != condition.is_negated()))
    }
}

/// Mask of the bits of an operand of this width in bytes.
pub const fn mask(width: u8) -> u64 {
    u64::MAX >> (64 - 8 * width as u32)
}

fn sign(value: u64, width: u8) -> bool {
    value >> (8 * u32::from(width) - 1) & 1 != 0
}

/// Extends a number of this width in bytes to 64 bits by its sign.
pub const fn sign_extend(value: u64, width: u8) -> u64 {
    let shift = 64 - 8 * width as u32;
    ((value << shift) as i64 >> shift) as u64
}

/// Sets the flags that depend on the result alone.
pub fn result_flags(state: &mut State, result: u64, width: u8) {
    let known = |state: &mut State, flag, value| state.set_flags(flag, Flag::Known(value));
    known(state, flags::ZF, result & mask(width) == 0);
    known(state, flags::SF, sign(result, width));
    known(
        state,
        flags::PF,
        (result as u8).count_ones().is_multiple_of(2),
    );
    state.set_flags(flags::AF, Flag::Undefined);
}

/// The result of an operation on numbers, with its flags; `None` if it needs a carry that is
/// not known.
pub fn alu(state: &mut State, op: Alu, a: u64, b: u64, width: u8) -> Option<u64> {
    let (a, b) = (a & mask(width), b & mask(width));
    let carry = match state.carry() {
        _ if !op.reads_carry() => 0,
        Flag::Known(carry) => u64::from(carry),
        _ => return None,
    };
    let (result, carried, overflowed) = match op {
        Alu::Add | Alu::Adc => {
            let sum = u128::from(a) + u128::from(b) + u128::from(carry);
            let result = sum as u64 & mask(width);
            let overflow =
                sign(a, width) == sign(b, width) && sign(a, width) != sign(result, width);
            (result, sum > u128::from(mask(width)), overflow)
        }
        Alu::Sbb | Alu::Sub | Alu::Cmp => {
            let result = a.wrapping_sub(b).wrapping_sub(carry) & mask(width);
            let borrow = u128::from(a) < u128::from(b) + u128::from(carry);
            let overflow =
                sign(a, width) != sign(b, width) && sign(a, width) != sign(result, width);
            (result, borrow, overflow)
        }
        Alu::Or => (a | b, false, false),
        Alu::And => (a & b, false, false),
        Alu::Xor => (a ^ b, false, false),
    };
    result_flags(state, result, width);
    state.set_flags(flags::CF, Flag::Known(carried));
    state.set_flags(flags::OF, Flag::Known(overflowed));
    Some(result)
}

/// The result of a shift or rotation of a number by a count that is not 0; `None` if the count
/// is not less than the number of bits. Flags that are not modelled become undefined.
pub fn shift(state: &mut State, op: Shift, a: u64, count: u32, width: u8) -> Option<u64> {
    let bits = 8 * u32::from(width);
    let a = a & mask(width);
    if count >= bits {
        return None;
    }
    let (result, carry) = match op {
        Shift::Rol => {
            let result = (a << count | a >> (bits - count)) & mask(width);
            (result, result & 1 != 0)
        }
        Shift::Ror => {
            let result = (a >> count | a << (bits - count)) & mask(width);
            (result, sign(result, width))
        }
        Shift::Shl => ((a << count) & mask(width), a >> (bits - count) & 1 != 0),
        Shift::Shr => (a >> count, a >> (count - 1) & 1 != 0),
        Shift::Sar => {
            let wide = sign_extend(a, width) as i64;
            (
                (wide >> count) as u64 & mask(width),
                wide >> (count - 1) & 1 != 0,
            )
        }
    };
    if !op.rotates() {
        result_flags(state, result, width);
    }
    state.set_flags(flags::CF, Flag::Known(carry));
    state.set_flags(flags::OF, Flag::Undefined);
    Some(result)
}

//! What is known while a routine's code is followed, and arithmetic on it.

use std::collections::BTreeMap;

use super::ops::{Symbol, V};
use crate::x86::opcode::{Alu, Shift};
use crate::x86::{Cond, Gpr, flags};

/// What a register or a word of the stack holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Val {
    /// What it held at the routine's entry, if that is no argument.
    Nothing,
    /// A number.
    Number(u64),
    /// Known when the output is written.
    Symbol(Symbol),
    /// Computed by the body.
    Value(V),
    /// rsp at the entry, and this added.
    Stack(i64),
}

/// What a flag holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flag {
    /// Not known, and not to be used.
    Undefined,
    /// Known.
    Known(bool),
    /// What the processor's flag holds after the body's last instruction.
    Real,
}

/// The state before an instruction.
#[derive(Clone, Debug)]
pub struct State {
    /// By hardware number.
    pub regs: [Val; Gpr::COUNT],
    /// In the order of the bits in [`flags`].
    pub flags: [Flag; flags::COUNT],
    /// Words by their distance from rsp at the entry.
    pub stack: BTreeMap<i64, Val>,
    /// Something has been stored that the program or the tool may see.
    pub stored: bool,
}

impl State {
    /// Sets the flags of a set.
    pub fn set_flags(&mut self, set: u8, to: Flag) {
        for (i, flag) in self.flags.iter_mut().enumerate() {
            if set >> i & 1 != 0 {
                *flag = to;
            }
        }
    }

    /// What the carry flag holds.
    pub fn carry(&self) -> Flag {
        self.flags[flags::CF.trailing_zeros() as usize]
    }

    /// Whether a condition holds, if that is known; an error if it never will be.
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

/// The bits that an operation of this width in bytes keeps.
pub const fn mask(width: u8) -> u64 {
    u64::MAX >> (64 - 8 * width as u32)
}

fn sign(value: u64, width: u8) -> bool {
    value >> (8 * u32::from(width) - 1) & 1 != 0
}

/// Sign extension from a width to 64 bits.
pub const fn sign_extend(value: u64, width: u8) -> u64 {
    let shift = 64 - 8 * width as u32;
    ((value << shift) as i64 >> shift) as u64
}

/// The flags that depend on the result alone.
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

//! What is known while a routine's code is followed, and arithmetic on it.

use std::collections::BTreeMap;

use super::ops::{Symbol, V, flags};

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
    pub regs: [Val; 16],
    /// In the order of the bits in [`flags`].
    pub flags: [Flag; 6],
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

    /// Whether a condition holds, if that is known; an error if it never will be.
    pub fn condition(&self, code: u8) -> Result<Option<bool>, ()> {
        let read = flags::of_condition(code);
        let mine = || (0..6).filter(|i| read >> i & 1 != 0).map(|i| self.flags[i]);
        if mine().all(|f| f == Flag::Real) {
            return Ok(None);
        }
        if !mine().all(|f| matches!(f, Flag::Known(_))) {
            return Err(());
        }
        let is = |flag: u8| self.flags[flag.trailing_zeros() as usize] == Flag::Known(true);
        let value = match code >> 1 {
            0 => is(flags::OF),
            1 => is(flags::CF),
            2 => is(flags::ZF),
            3 => is(flags::CF) || is(flags::ZF),
            4 => is(flags::SF),
            5 => is(flags::PF),
            6 => is(flags::SF) != is(flags::OF),
            _ => is(flags::ZF) || is(flags::SF) != is(flags::OF),
        };
        Ok(Some(value != (code & 1 != 0)))
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

/// An operation of the group add, or, adc, sbb, and, sub, xor, cmp on numbers,
/// with its flags; `None` if the carry it needs is not known.
pub fn alu(state: &mut State, op: u8, a: u64, b: u64, width: u8) -> Option<u64> {
    let (a, b) = (a & mask(width), b & mask(width));
    let carry = match (op, state.flags[0]) {
        (2 | 3, Flag::Known(carry)) => u64::from(carry),
        (2 | 3, _) => return None,
        _ => 0,
    };
    let (result, carried, overflowed) = match op {
        0 | 2 => {
            let sum = u128::from(a) + u128::from(b) + u128::from(carry);
            let result = sum as u64 & mask(width);
            let overflow =
                sign(a, width) == sign(b, width) && sign(a, width) != sign(result, width);
            (result, sum > u128::from(mask(width)), overflow)
        }
        3 | 5 | 7 => {
            let result = a.wrapping_sub(b).wrapping_sub(carry) & mask(width);
            let borrow = u128::from(a) < u128::from(b) + u128::from(carry);
            let overflow =
                sign(a, width) != sign(b, width) && sign(a, width) != sign(result, width);
            (result, borrow, overflow)
        }
        1 => (a | b, false, false),
        4 => (a & b, false, false),
        _ => (a ^ b, false, false),
    };
    result_flags(state, result, width);
    state.set_flags(flags::CF, Flag::Known(carried));
    state.set_flags(flags::OF, Flag::Known(overflowed));
    Some(result)
}

/// A shift or rotation, by its number in the opcode's extension, of a number by
/// a count that is not 0. Flags that are not modelled become undefined.
pub fn shift(state: &mut State, op: u8, a: u64, count: u32, width: u8) -> Option<u64> {
    let bits = 8 * u32::from(width);
    let a = a & mask(width);
    if count >= bits {
        return None;
    }
    let (result, carry) = match op {
        0 => {
            let result = (a << count | a >> (bits - count)) & mask(width);
            (result, result & 1 != 0)
        }
        1 => {
            let result = (a >> count | a << (bits - count)) & mask(width);
            (result, sign(result, width))
        }
        4 => ((a << count) & mask(width), a >> (bits - count) & 1 != 0),
        5 => (a >> count, a >> (count - 1) & 1 != 0),
        7 => {
            let wide = sign_extend(a, width) as i64;
            (
                (wide >> count) as u64 & mask(width),
                wide >> (count - 1) & 1 != 0,
            )
        }
        _ => return None,
    };
    if op >= 4 {
        result_flags(state, result, width);
    }
    state.set_flags(flags::CF, Flag::Known(carry));
    state.set_flags(flags::OF, Flag::Undefined);
    Some(result)
}

//! LEB128: integers in as few bytes as their value needs.
//!
//! ABI (DWARF 5, section 7.6): each byte holds seven bits of the value, the lowest ones first; its top
//! bit is set if another byte follows. A signed number is in two's complement, and the
//! sign is bit 6 of the last byte. A number may be *padded*: longer than it needs to be, by bytes that
//! add zeros, or copies of the sign. Readers here accept padding of any length, and refuse numbers
//! that end too early or that do not fit their type.
//!
//! Besides, there is the *zigzag* form, which makes a signed number an unsigned one with the
//! sign in the lowest bit: 0, -1, 1, -2 become 0, 1, 2, 3. Formats of this project write that.
//!
//! The crate needs no allocator except for [`push`] and [`push_signed`], and no `std`: the
//! runtime inside instrumented programs uses it too.
#![no_std]
#![deny(missing_docs)]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::vec::Vec;
use core::fmt;
use core::ops::{BitAnd, BitOrAssign, BitXor, Neg, Shl, Shr};

/// The bits of a byte that belong to the value.
const BITS: u8 = 0x7f;
/// The bit of a byte that says that another one follows.
const MORE: u8 = 0x80;
/// The bit of the last byte that is a signed number's sign.
const SIGN: u8 = 0x40;
/// Number of value bits in a byte.
const WIDTH: u32 = 7;

/// Why no number could be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Error {
    /// The bytes end before the number does.
    Truncated,
    /// The number does not fit its type.
    Overflow,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "a LEB128 number ends early",
            Self::Overflow => "a LEB128 number is too large",
        })
    }
}

impl core::error::Error for Error {}

/// An unsigned type of numbers: `u64`, `u128`.
pub trait Unsigned:
    Copy
    + Eq
    + PartialOrd
    + From<u8>
    + Shl<u32, Output = Self>
    + Shr<u32, Output = Self>
    + BitAnd<Output = Self>
    + BitOrAssign
    + sealed::Sealed
{
    /// The signed type of the same size.
    type Signed: Signed<Unsigned = Self>;
    /// Number of bits.
    const BITS: u32;
    /// The lowest eight bits.
    fn low_byte(self) -> u8;
    /// The same bits as a signed number.
    fn signed(self) -> Self::Signed;
}

/// A signed type of numbers: `i64`, `i128`.
pub trait Signed:
    Copy
    + Shl<u32, Output = Self>
    + Shr<u32, Output = Self>
    + BitXor<Output = Self>
    + Neg<Output = Self>
    + sealed::Sealed
{
    /// The unsigned type of the same size.
    type Unsigned: Unsigned<Signed = Self>;
    /// The same bits as an unsigned number.
    fn unsigned(self) -> Self::Unsigned;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! types {
    ($($unsigned:ty, $signed:ty;)*) => { $(
        impl sealed::Sealed for $unsigned {}
        impl sealed::Sealed for $signed {}

        impl Unsigned for $unsigned {
            type Signed = $signed;
            const BITS: u32 = <$unsigned>::BITS;
            #[inline]
            fn low_byte(self) -> u8 {
                self as u8
            }
            #[inline]
            fn signed(self) -> $signed {
                self as $signed
            }
        }

        impl Signed for $signed {
            type Unsigned = $unsigned;
            #[inline]
            fn unsigned(self) -> $unsigned {
                self as $unsigned
            }
        }
    )* };
}

types! {
    u64, i64;
    u128, i128;
}

/// Reads an unsigned number from bytes that `next` hands out; `None` from it is their end.
///
/// # Errors
/// [`Error::Truncated`] at the end, [`Error::Overflow`] for a number with more bits than `N` has;
/// of one of these no more bytes are asked for.
#[inline]
pub fn read<N: Unsigned>(mut next: impl FnMut() -> Option<u8>) -> Result<N, Error> {
    let first = next().ok_or(Error::Truncated)?;
    let mut value = N::from(first & BITS);
    let (mut byte, mut shift) = (first, WIDTH);
    while byte & MORE != 0 {
        byte = next().ok_or(Error::Truncated)?;
        let bits = N::from(byte & BITS);
        if shift <= N::BITS - WIDTH || shift < N::BITS && (bits << shift) >> shift == bits {
            value |= bits << shift;
        } else if bits != N::from(0) {
            return Err(Error::Overflow);
        }
        shift = shift.saturating_add(WIDTH);
    }
    Ok(value)
}

/// Reads a signed number of 64 bits in two's complement; otherwise as [`read`].
///
/// # Errors
/// As [`read`].
#[inline]
pub fn read_signed(mut next: impl FnMut() -> Option<u8>) -> Result<i64, Error> {
    let (mut value, mut shift) = (0i64, 0u32);
    loop {
        let byte = next().ok_or(Error::Truncated)?;
        // The byte's value with its sign, which counts if it is the last.
        let bits = i64::from((byte << 1) as i8 >> 1);
        let is_last = byte & MORE == 0;
        if shift < i64::BITS - WIDTH || shift < i64::BITS && (bits << shift) >> shift == bits {
            let bits = if is_last || shift >= i64::BITS - WIDTH {
                bits
            } else {
                i64::from(byte & BITS)
            };
            value |= bits << shift;
        } else if bits != value >> (i64::BITS - 1) {
            return Err(Error::Overflow);
        }
        if is_last {
            return Ok(value);
        }
        shift = shift.saturating_add(WIDTH);
    }
}

/// Takes the next unsigned number off the front; `None` if there is none, or if it is malformed. Quick where
/// nearly all numbers are one byte, as in packed facts about blocks.
#[inline]
pub fn next(bytes: &mut &[u8]) -> Option<u64> {
    match bytes.split_first() {
        Some((byte, rest)) if *byte < 0x80 => {
            *bytes = rest;
            Some((*byte).into())
        }
        _ => take(bytes).ok(),
    }
}

/// Reads an unsigned number off the front of `bytes`, which then start after it.
///
/// # Errors
/// As [`read`]; `bytes` then start where reading stopped.
#[inline]
pub fn take<N: Unsigned>(bytes: &mut &[u8]) -> Result<N, Error> {
    read(|| {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        Some(*first)
    })
}

/// Hands the bytes of an unsigned number to `put`, as few as it needs.
#[inline]
pub fn write<N: Unsigned>(mut value: N, mut put: impl FnMut(u8)) {
    while value >= N::from(MORE) {
        put(value.low_byte() | MORE);
        value = value >> WIDTH;
    }
    put(value.low_byte());
}

/// Appends an unsigned number, in as few bytes as it needs.
#[inline]
pub fn push<N: Unsigned>(to: &mut Vec<u8>, value: N) {
    write(value, |byte| to.push(byte));
}

/// Appends a signed number in two's complement, in as few bytes as it needs.
#[inline]
pub fn push_signed(to: &mut Vec<u8>, mut value: i64) {
    let sign = i64::from(SIGN);
    while !(-sign..sign).contains(&value) {
        to.push(value as u8 | MORE);
        value >>= WIDTH;
    }
    to.push(value as u8 & BITS);
}

/// Writes an unsigned number over all of `to`, padded. A number that does not fit becomes the
/// largest that does.
pub fn fill(to: &mut [u8], value: u64) {
    let bits = u32::try_from(to.len()).map_or(u32::MAX, |len| len.saturating_mul(WIDTH));
    let largest = 1u64.checked_shl(bits).map_or(u64::MAX, |end| end - 1);
    let mut value = value.min(largest);
    let Some((last, others)) = to.split_last_mut() else {
        return;
    };
    for byte in others {
        *byte = value as u8 | MORE;
        value >>= WIDTH;
    }
    *last = value as u8;
}

/// The unsigned number that stands for a signed one, with the sign in its lowest bit.
#[inline]
pub fn zigzag<N: Signed>(value: N) -> N::Unsigned {
    ((value << 1) ^ (value >> (N::Unsigned::BITS - 1))).unsigned()
}

/// The inverse of [`zigzag`].
#[inline]
pub fn unzigzag<N: Unsigned>(value: N) -> N::Signed {
    (value >> 1).signed() ^ -(value & N::from(1)).signed()
}

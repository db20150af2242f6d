//! `long double` of x86-64: the 80-bit format of the x87, in software.
//!
//! Rust has no such type, and a Rust program cannot pass one to C's `printf`. The
//! format: 64 bits of significand with an explicit integer bit, then 15 bits
//! of exponent (bias 16383) and the sign, little-endian; ten bytes, padded to
//! sixteen in memory. Conversions to and from decimal use exact integers.
use std::fmt;
use std::str::FromStr;

use num_bigint::BigUint;

/// An 80-bit floating-point number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LongDouble {
    /// Significand with its integer bit.
    significand: u64,
    /// Biased exponent, and the sign in the top bit.
    head: u16,
}

const BIAS: i32 = 16383;
const INTEGER_BIT: u64 = 1 << 63;
/// Exponent field of infinities and NaN.
const SPECIAL: u16 = 0x7fff;
const SIGN: u16 = 0x8000;
/// Number of decimal digits that distinguishes any two values.
const DIGITS: u32 = 21;
/// Number of digits of a decimal number that survive in this format.
const SAFE_DIGITS: u32 = 18;

impl LongDouble {
    /// The value whose representation in memory is `bytes`.
    pub fn from_bytes(bytes: [u8; 10]) -> Self {
        let (low, high) = bytes.split_at(8);
        Self {
            significand: u64::from_le_bytes(low.try_into().expect("eight bytes")),
            head: u16::from_le_bytes(high.try_into().expect("two bytes")),
        }
    }

    /// Its representation in memory.
    pub fn to_bytes(self) -> [u8; 10] {
        let mut bytes = [0; 10];
        bytes[..8].copy_from_slice(&self.significand.to_le_bytes());
        bytes[8..].copy_from_slice(&self.head.to_le_bytes());
        bytes
    }

    /// The value of `n`, exactly.
    pub fn from_u64(n: u64) -> Self {
        if n == 0 {
            return Self::default();
        }
        let shift = n.leading_zeros();
        Self {
            significand: n << shift,
            head: (BIAS + 63 - shift as i32) as u16,
        }
    }

    /// The value of `n`, exactly.
    pub fn from_i64(n: i64) -> Self {
        let mut value = Self::from_u64(n.unsigned_abs());
        if n < 0 {
            value.head |= SIGN;
        }
        value
    }

    /// The value of `x`, exactly.
    pub fn from_f64(x: f64) -> Self {
        let sign = if x.is_sign_negative() { SIGN } else { 0 };
        let magnitude = x.abs();
        let mut value = if magnitude.is_nan() {
            Self {
                significand: INTEGER_BIT | 1 << 62,
                head: SPECIAL,
            }
        } else if magnitude.is_infinite() {
            Self {
                significand: INTEGER_BIT,
                head: SPECIAL,
            }
        } else {
            let bits = magnitude.to_bits();
            let fraction = bits & ((1 << 52) - 1);
            match (bits >> 52) as i32 {
                0 => {
                    // Subnormal: fraction * 2^-1074.
                    let mut value = Self::from_u64(fraction);
                    if fraction != 0 {
                        value.head -= 1074;
                    }
                    value
                }
                exponent => Self {
                    significand: INTEGER_BIT | fraction << 11,
                    head: (exponent - 1023 + BIAS) as u16,
                },
            }
        };
        value.head |= sign;
        value
    }

    /// The nearest `f64`; infinite beyond its range.
    pub fn to_f64(self) -> f64 {
        let magnitude = match self.exponent_field() {
            SPECIAL if self.significand << 1 == 0 => f64::INFINITY,
            SPECIAL => f64::NAN,
            field => {
                let exponent = self.scale(field) + 63;
                // Round once: to 53 bits for normal results, to fewer for subnormal ones.
                let drop = if exponent < -1022 {
                    11 + (-1022 - exponent)
                } else {
                    11
                };
                if drop > 64 {
                    0.0
                } else {
                    let wide = u128::from(self.significand);
                    let half = 1u128 << (drop - 1);
                    let kept = wide >> drop;
                    let rest = wide & ((1 << drop) - 1);
                    let up = rest > half || (rest == half && kept & 1 == 1);
                    let kept = (kept + u128::from(up)) as u64;
                    scale_f64(kept as f64, exponent - 63 + drop)
                }
            }
        };
        if self.is_negative() {
            -magnitude
        } else {
            magnitude
        }
    }

    /// Whether the sign bit is set.
    pub fn is_negative(self) -> bool {
        self.head & SIGN != 0
    }

    fn exponent_field(self) -> u16 {
        self.head & !SIGN
    }

    /// Exponent of the power of two by which the integer `significand` is multiplied.
    fn scale(self, field: u16) -> i32 {
        i32::from(field.max(1)) - BIAS - 63
    }

    /// The value nearest to `numerator / denominator`, ties to even.
    fn from_ratio(numerator: BigUint, denominator: BigUint) -> Self {
        if numerator == BigUint::ZERO {
            return Self::default();
        }
        // Choose a power of two that leaves a quotient of 64 or 65 bits, then one of 64.
        let mut scale = numerator.bits() as i64 - denominator.bits() as i64 - 64;
        scale = scale.max(i64::from(1 - BIAS - 63));
        let quotient = |scale: i64| {
            let (top, bottom) = if scale >= 0 {
                (numerator.clone(), &denominator << scale as u64)
            } else {
                (&numerator << (-scale) as u64, denominator.clone())
            };
            let whole = &top / &bottom;
            let rest = (top - &whole * &bottom) << 1u32;
            let odd = whole.bit(0);
            (whole, rest.cmp(&bottom), odd)
        };
        let mut result = quotient(scale);
        if result.0.bits() > 64 {
            scale += 1;
            result = quotient(scale);
        }
        let (whole, rest, odd) = result;
        let mut significand = u128::try_from(&whole).unwrap_or(u128::MAX);
        if rest.is_gt() || (rest.is_eq() && odd) {
            significand += 1;
        }
        if significand >> 64 != 0 {
            significand >>= 1;
            scale += 1;
        }
        let significand = significand as u64;
        let field = scale + i64::from(BIAS + 63);
        if significand & INTEGER_BIT == 0 {
            return Self {
                significand,
                head: 0,
            };
        }
        if field >= i64::from(SPECIAL) {
            return Self {
                significand: INTEGER_BIT,
                head: SPECIAL,
            };
        }
        Self {
            significand,
            head: field as u16,
        }
    }

    /// Parses digits, a point and an exponent, without sign.
    fn from_decimal(text: &str) -> Option<Self> {
        let (mantissa, exponent) = match text.find(['e', 'E']) {
            Some(at) => (&text[..at], text[at + 1..].parse::<i64>().ok()?),
            None => (text, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = format!("{whole}{fraction}");
        if digits.is_empty() || digits.len() > 20_000 || !digits.bytes().all(|b| b.is_ascii_digit())
        {
            return None;
        }
        let number = BigUint::parse_bytes(digits.as_bytes(), 10)?;
        let exponent = exponent.checked_sub(fraction.len() as i64)?;
        // Beyond these limits the result is 0 or infinite for all digits.
        let exponent = exponent.clamp(-30_000, 30_000);
        let power = BigUint::from(10u32).pow(exponent.unsigned_abs() as u32);
        Some(if exponent < 0 {
            Self::from_ratio(number, power)
        } else {
            Self::from_ratio(number * power, BigUint::from(1u32))
        })
    }
}

/// `x * 2^power`, exactly: `x` must have few enough bits.
fn scale_f64(x: f64, power: i32) -> f64 {
    let step = |p: i32| f64::from_bits(((p + 1023) as u64) << 52);
    let mut x = x;
    let mut power = power;
    while power > 1023 {
        x *= step(1023);
        power -= 1023;
        if x.is_infinite() {
            return x;
        }
    }
    while power < -1022 {
        // The factors of a subnormal result are exact, since its bits were cut before.
        let part = power.max(-1022).max(-537);
        x *= step(part);
        power -= part;
        if x == 0.0 {
            return x;
        }
    }
    x * step(power)
}

impl fmt::Display for LongDouble {
    /// The fewest digits that read as the same value, with an exponent where that is shorter.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let field = self.exponent_field();
        if field == SPECIAL && self.significand << 1 != 0 {
            return f.write_str("nan");
        }
        if self.is_negative() {
            f.write_str("-")?;
        }
        if field == SPECIAL {
            return f.write_str("inf");
        }
        if self.significand == 0 {
            return f.write_str("0.0");
        }
        let magnitude = Self {
            head: field,
            ..*self
        };
        let same = |(digits, point): &(String, i32)| {
            Self::from_decimal(&format!("0.{digits}e{point}")) == Some(magnitude)
        };
        let short = (SAFE_DIGITS..DIGITS)
            .map(|n| self.digits(field, n))
            .find(same);
        let (digits, point) = short.unwrap_or_else(|| self.digits(field, DIGITS));
        let digits = digits.trim_end_matches('0');
        if (-5..=DIGITS as i32).contains(&point) {
            if point <= 0 {
                return write!(f, "0.{}{digits}", "0".repeat(-point as usize));
            }
            let point = point as usize;
            if digits.len() <= point {
                return write!(f, "{digits}{}.0", "0".repeat(point - digits.len()));
            }
            return write!(f, "{}.{}", &digits[..point], &digits[point..]);
        }
        let (first, rest) = digits.split_at(1);
        let dot = if rest.is_empty() { "" } else { "." };
        write!(f, "{first}{dot}{rest}e{}", point - 1)
    }
}

impl LongDouble {
    /// `count` decimal digits `d` and a position such that the magnitude is `0.d * 10^position`.
    fn digits(self, field: u16, count: u32) -> (String, i32) {
        let scale = self.scale(field);
        let significand = BigUint::from(self.significand);
        let (numerator, denominator) = if scale >= 0 {
            (significand << scale as u32, BigUint::from(1u32))
        } else {
            (significand, BigUint::from(1u32) << -scale as u32)
        };
        // log10 of the value, at most one too small.
        let bits = self.significand.ilog2() as i32 + scale;
        let mut position = (f64::from(bits) * std::f64::consts::LOG10_2).floor() as i32 + 1;
        loop {
            let shift = count as i32 - position;
            let ten = BigUint::from(10u32).pow(shift.unsigned_abs());
            let (top, bottom) = if shift >= 0 {
                (&numerator * &ten, denominator.clone())
            } else {
                (numerator.clone(), &denominator * &ten)
            };
            let twice = &bottom << 1u32;
            let rounded = ((top << 1u32) + &bottom) / twice;
            let text = rounded.to_string();
            match text.len().cmp(&(count as usize)) {
                std::cmp::Ordering::Equal => return (text, position),
                std::cmp::Ordering::Greater => position += 1,
                std::cmp::Ordering::Less => position -= 1,
            }
        }
    }
}

/// The text is not a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a floating-point number")]
pub struct ParseLongDoubleError;

impl FromStr for LongDouble {
    type Err = ParseLongDoubleError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (negative, magnitude) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let mut value = match magnitude {
            "inf" => Self::from_f64(f64::INFINITY),
            "nan" => Self::from_f64(f64::NAN),
            digits => Self::from_decimal(digits).ok_or(ParseLongDoubleError)?,
        };
        if negative {
            value.head |= SIGN;
        }
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_survive_both_ways() {
        let values = [
            0.0,
            -0.0,
            1.0,
            -1.5,
            0.1,
            1e300,
            -1e-300,
            f64::MIN_POSITIVE,
            5e-324,
            2.5e-310,
            f64::MAX,
            f64::INFINITY,
            f64::NEG_INFINITY,
            4.0e-320,
            123456789.125,
        ];
        for x in values {
            let long = LongDouble::from_f64(x);
            assert_eq!(long.to_f64().to_bits(), x.to_bits(), "{x:e}");
            let text = long.to_string();
            assert_eq!(text.parse::<LongDouble>(), Ok(long), "{text}");
        }
        assert!(LongDouble::from_f64(f64::NAN).to_f64().is_nan());
    }

    #[test]
    fn known_texts() {
        let text = |x: f64| LongDouble::from_f64(x).to_string();
        assert_eq!(text(1.0), "1.0");
        assert_eq!(text(-0.5), "-0.5");
        assert_eq!(text(1e25), "1.0000000000000000906e25");
        assert_eq!(text(0.1), "0.10000000000000000555");
        assert_eq!(
            LongDouble::from_u64(u64::MAX).to_string(),
            "18446744073709551615.0"
        );
        assert_eq!(
            LongDouble::from_i64(i64::MIN).to_string(),
            "-9223372036854775808.0"
        );
        // 0.1L of a C compiler: 3ffb cccccccccccccccd.
        let tenth: LongDouble = "0.1".parse().unwrap();
        assert_eq!(
            tenth.to_bytes(),
            [0xcd, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xfb, 0x3f]
        );
    }

    #[test]
    fn extremes_and_nonsense() {
        // Largest, smallest normal, smallest subnormal.
        for (significand, head) in [(u64::MAX, 0x7ffe), (INTEGER_BIT, 1), (1, 0), (0x1234, 0)] {
            let value = LongDouble { significand, head };
            assert_eq!(
                value.to_string().parse::<LongDouble>(),
                Ok(value),
                "{value}"
            );
        }
        assert_eq!(
            "1e99999999".parse(),
            Ok(LongDouble::from_f64(f64::INFINITY))
        );
        assert_eq!("1e-99999999".parse(), Ok(LongDouble::default()));
        for bad in [
            "",
            "-",
            "e5",
            "1e",
            ".",
            "0x1",
            "1e99999999999999999999",
            "1.2.3",
        ] {
            assert!(bad.parse::<LongDouble>().is_err(), "{bad}");
        }
        // Above the range of f64, and rounding at the edge of its subnormals.
        assert_eq!(
            "1e4000".parse::<LongDouble>().unwrap().to_f64(),
            f64::INFINITY
        );
        assert_eq!("1e-4000".parse::<LongDouble>().unwrap().to_f64(), 0.0);
        assert_eq!(
            "2.4703282292062328e-324"
                .parse::<LongDouble>()
                .unwrap()
                .to_f64(),
            5e-324
        );
    }
}

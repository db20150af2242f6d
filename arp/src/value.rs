//! Values, and the data areas in which callbacks leave them.
use std::fmt;

use crate::longdouble::LongDouble;
use crate::types::DataType;

/// The data area of one execution of a section in one set of callbacks.
///
/// It starts with one value of the set's type in C's representation. At the start of an execution
/// it is zero; in playback it holds the recorded value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(16))]
pub struct Area(pub [u8; 16]);

impl Area {
    /// The first eight bytes.
    #[inline]
    pub fn word(&self) -> u64 {
        u64::from_le_bytes(self.0[..8].try_into().expect("eight bytes"))
    }

    /// Changes the first eight bytes.
    #[inline]
    pub fn set_word(&mut self, word: u64) {
        self.0[..8].copy_from_slice(&word.to_le_bytes());
    }

    /// The value of type `ty` as 64 bits: integers are extended, a `float` or `double`
    /// is its bits, a `long double` its significand.
    #[inline]
    pub fn bits(&self, ty: DataType) -> u64 {
        let word = self.word();
        match ty {
            DataType::Char => word as i8 as u64,
            DataType::UChar => word as u8 as u64,
            DataType::Short => word as i16 as u64,
            DataType::UShort => word as u16 as u64,
            DataType::Int => word as i32 as u64,
            DataType::UInt | DataType::Float => word as u32 as u64,
            _ => word,
        }
    }

    /// The value of type `ty`.
    #[inline]
    pub fn get(&self, ty: DataType) -> Value {
        match ty {
            DataType::Float => Value::Float(f32::from_bits(self.word() as u32)),
            DataType::Double => Value::Double(f64::from_bits(self.word())),
            DataType::LongDouble => {
                let bytes = self.0[..10].try_into().expect("ten bytes");
                Value::LongDouble(LongDouble::from_bytes(bytes))
            }
            _ => Value::from_bits(ty, self.bits(ty)),
        }
    }

    /// Stores `value` as type `ty`, rounded or truncated if it does not fit.
    pub fn set(&mut self, ty: DataType, value: Value) {
        *self = Self::default();
        match ty {
            DataType::Float => self.set_word(u64::from((value.as_f64() as f32).to_bits())),
            DataType::Double => self.set_word(value.as_f64().to_bits()),
            DataType::LongDouble => {
                let long = match value {
                    Value::LongDouble(long) => long,
                    Value::Signed(n) => LongDouble::from_i64(n),
                    Value::Unsigned(n) => LongDouble::from_u64(n),
                    _ => LongDouble::from_f64(value.as_f64()),
                };
                self.0[..10].copy_from_slice(&long.to_bytes());
            }
            _ => self.set_word(match value {
                Value::Signed(n) => n as u64,
                Value::Unsigned(n) => n,
                float if ty.is_signed() => float.as_f64().round() as i64 as u64,
                float => float.as_f64().round() as u64,
            }),
        }
    }
}

/// A measured value. Its [`ValueSet`](crate::ValueSet) says its exact [`DataType`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// Of a signed integer type.
    Signed(i64),
    /// Of an unsigned integer type.
    Unsigned(u64),
    /// `float`
    Float(f32),
    /// `double`
    Double(f64),
    /// `long double`
    LongDouble(LongDouble),
}

impl Value {
    /// The value of type `ty` with the bits that [`Area::bits`] returned. `ty` is not `long double`.
    #[inline]
    pub fn from_bits(ty: DataType, bits: u64) -> Self {
        match ty {
            DataType::Float => Self::Float(f32::from_bits(bits as u32)),
            DataType::Double => Self::Double(f64::from_bits(bits)),
            DataType::LongDouble => Self::LongDouble(LongDouble::from_u64(bits)),
            ty if ty.is_signed() => Self::Signed(bits as i64),
            _ => Self::Unsigned(bits),
        }
    }

    /// The nearest `f64`.
    #[inline]
    pub fn as_f64(self) -> f64 {
        match self {
            Self::Signed(n) => n as f64,
            Self::Unsigned(n) => n as f64,
            Self::Float(x) => f64::from(x),
            Self::Double(x) => x,
            Self::LongDouble(x) => x.to_f64(),
        }
    }

    /// The integer, if it is one.
    #[inline]
    pub fn as_integer(self) -> Option<i128> {
        match self {
            Self::Signed(n) => Some(i128::from(n)),
            Self::Unsigned(n) => Some(i128::from(n)),
            _ => None,
        }
    }

    /// Parses the text of a value in a data file: an integer for integer types, else a
    /// decimal fraction, `inf` or `nan`.
    pub fn parse(ty: DataType, text: &str) -> Option<Self> {
        fn within<T: TryFrom<i128>>(text: &str) -> Option<T> {
            T::try_from(text.parse::<i128>().ok()?).ok()
        }
        Some(match ty {
            DataType::Char => Self::Signed(within::<i8>(text)?.into()),
            DataType::UChar => Self::Unsigned(within::<u8>(text)?.into()),
            DataType::Short => Self::Signed(within::<i16>(text)?.into()),
            DataType::UShort => Self::Unsigned(within::<u16>(text)?.into()),
            DataType::Int => Self::Signed(within::<i32>(text)?.into()),
            DataType::UInt => Self::Unsigned(within::<u32>(text)?.into()),
            DataType::Long | DataType::LongLong => Self::Signed(within(text)?),
            DataType::ULong | DataType::ULongLong => Self::Unsigned(within(text)?),
            DataType::Float => Self::Float(text.parse().ok()?),
            DataType::Double => Self::Double(text.parse().ok()?),
            DataType::LongDouble => Self::LongDouble(text.parse().ok()?),
        })
    }
}

impl fmt::Display for Value {
    /// The shortest text that reads as the same value. A NaN has no sign.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signed(n) => n.fmt(f),
            Self::Unsigned(n) => n.fmt(f),
            Self::Float(x) if x.is_nan() => f.write_str("nan"),
            Self::Double(x) if x.is_nan() => f.write_str("nan"),
            // Only the debug form switches to an exponent where digits would be zeros.
            Self::Float(x) => write!(f, "{x:?}"),
            Self::Double(x) => write!(f, "{x:?}"),
            Self::LongDouble(x) => x.fmt(f),
        }
    }
}

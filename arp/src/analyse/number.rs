//! Sums and differences of values: exact for integer types.
use std::cmp::Ordering;
use std::fmt;
use std::ops::{AddAssign, Sub};

use crate::stats::Stats;
use crate::types::DataType;

/// A sum or a difference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// Of values of integer types.
    Integer(i128),
    /// Of floating-point values.
    Float(f64),
}

impl Number {
    /// The sum of no values.
    pub fn zero(ty: DataType) -> Self {
        if ty.is_float() {
            Self::Float(0.0)
        } else {
            Self::Integer(0)
        }
    }

    /// The sum of the values in `stats`.
    pub fn sum_of(stats: &Stats) -> Self {
        match stats {
            Stats::Integer { sum, .. } => Self::Integer(*sum),
            Stats::Float { sum, .. } => Self::Float(*sum),
        }
    }

    /// Minimum and maximum of the values in `stats`.
    pub fn range_of(stats: &Stats) -> (Self, Self) {
        match stats {
            Stats::Integer { min, max, .. } => (Self::Integer(*min), Self::Integer(*max)),
            Stats::Float { min, max, .. } => (Self::Float(*min), Self::Float(*max)),
        }
    }

    /// The nearest `f64`.
    pub fn as_f64(self) -> f64 {
        match self {
            Self::Integer(n) => n as f64,
            Self::Float(x) => x,
        }
    }

    /// The magnitude.
    pub fn abs(self) -> Self {
        match self {
            Self::Integer(n) => Self::Integer(n.saturating_abs()),
            Self::Float(x) => Self::Float(x.abs()),
        }
    }

    /// The number with the opposite sign.
    pub fn negated(self) -> Self {
        match self {
            Self::Integer(n) => Self::Integer(n.saturating_neg()),
            Self::Float(x) => Self::Float(-x),
        }
    }

    /// Order of the values; a NaN comes first or last.
    pub fn order(self, other: Self) -> Ordering {
        match (self, other) {
            (Self::Integer(a), Self::Integer(b)) => a.cmp(&b),
            _ => self.as_f64().total_cmp(&other.as_f64()),
        }
    }
}

impl AddAssign for Number {
    fn add_assign(&mut self, other: Self) {
        *self = match (*self, other) {
            (Self::Integer(a), Self::Integer(b)) => Self::Integer(a.saturating_add(b)),
            (a, b) => Self::Float(a.as_f64() + b.as_f64()),
        };
    }
}

impl Sub for Number {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        match (self, other) {
            (Self::Integer(a), Self::Integer(b)) => Self::Integer(a.saturating_sub(b)),
            (a, b) => Self::Float(a.as_f64() - b.as_f64()),
        }
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(n) => n.fmt(f),
            Self::Float(x) if x.is_nan() => f.write_str("nan"),
            Self::Float(x) => x.fmt(f),
        }
    }
}

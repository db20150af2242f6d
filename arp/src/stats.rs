//! Count, sum, minimum and maximum: what modes without single values keep.
use crate::types::DataType;
use crate::value::Value;

/// Count, sum, minimum and maximum of values of one type.
///
/// Sums of integers are exact. Sums of floating-point values are `f64`, for `long double` too.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Stats {
    /// Of an integer type.
    Integer {
        /// Number of values.
        count: u64,
        /// Their sum.
        sum: i128,
        /// Minimum; 0 without values.
        min: i128,
        /// Maximum; 0 without values.
        max: i128,
    },
    /// Of a floating-point type.
    Float {
        /// Number of values.
        count: u64,
        /// Their sum.
        sum: f64,
        /// Minimum; 0 without values.
        min: f64,
        /// Maximum; 0 without values.
        max: f64,
    },
}

impl Stats {
    /// Figures of an empty sequence of values of type `ty`.
    pub fn new(ty: DataType) -> Self {
        if ty.is_float() {
            Self::Float {
                count: 0,
                sum: 0.0,
                min: 0.0,
                max: 0.0,
            }
        } else {
            Self::Integer {
                count: 0,
                sum: 0,
                min: 0,
                max: 0,
            }
        }
    }

    /// Adds a value.
    #[inline]
    pub fn add(&mut self, value: Value) {
        match self {
            Self::Integer {
                count,
                sum,
                min,
                max,
            } => {
                let value = value.as_integer().unwrap_or(0);
                if *count == 0 {
                    (*min, *max) = (value, value);
                } else if value < *min {
                    *min = value;
                } else if value > *max {
                    *max = value;
                }
                *count = count.wrapping_add(1);
                *sum = sum.wrapping_add(value);
            }
            Self::Float {
                count,
                sum,
                min,
                max,
            } => {
                let value = value.as_f64();
                if *count == 0 {
                    (*min, *max) = (value, value);
                }
                *min = min.min(value);
                *max = max.max(value);
                *count = count.wrapping_add(1);
                *sum += value;
            }
        }
    }

    /// Adds the values of `other`, which has the same type.
    pub fn merge(&mut self, other: &Self) {
        if other.count() == 0 {
            return;
        }
        if self.count() == 0 {
            *self = *other;
            return;
        }
        match (self, other) {
            (
                Self::Integer {
                    count,
                    sum,
                    min,
                    max,
                },
                Self::Integer {
                    count: n,
                    sum: s,
                    min: least,
                    max: most,
                },
            ) => {
                *count = count.saturating_add(*n);
                *sum = sum.saturating_add(*s);
                *min = (*min).min(*least);
                *max = (*max).max(*most);
            }
            (
                Self::Float {
                    count,
                    sum,
                    min,
                    max,
                },
                Self::Float {
                    count: n,
                    sum: s,
                    min: least,
                    max: most,
                },
            ) => {
                *count = count.saturating_add(*n);
                *sum += s;
                *min = min.min(*least);
                *max = max.max(*most);
            }
            _ => {}
        }
    }

    /// Number of values.
    pub fn count(&self) -> u64 {
        match self {
            Self::Integer { count, .. } | Self::Float { count, .. } => *count,
        }
    }

    /// Their sum.
    pub fn sum(&self) -> f64 {
        match self {
            Self::Integer { sum, .. } => *sum as f64,
            Self::Float { sum, .. } => *sum,
        }
    }

    /// Mean; 0 without values.
    pub fn mean(&self) -> f64 {
        match (self, self.count()) {
            (_, 0) => 0.0,
            // The integer part is exact even if the sum does not fit an f64 exactly.
            (Self::Integer { sum, .. }, n) => {
                let n = i128::from(n);
                (sum / n) as f64 + (sum % n) as f64 / n as f64
            }
            (Self::Float { sum, .. }, n) => sum / n as f64,
        }
    }

    /// Minimum; 0 without values.
    pub fn min(&self) -> f64 {
        match self {
            Self::Integer { min, .. } => *min as f64,
            Self::Float { min, .. } => *min,
        }
    }

    /// Maximum; 0 without values.
    pub fn max(&self) -> f64 {
        match self {
            Self::Integer { max, .. } => *max as f64,
            Self::Float { max, .. } => *max,
        }
    }

    /// The mean as a value of type `ty`: integers are rounded to the nearest, halves away from 0.
    pub fn mean_value(&self, ty: DataType) -> Value {
        match *self {
            Self::Integer { count, sum, .. } => {
                let n = i128::from(count.max(1));
                let half = if sum < 0 { -(n / 2) } else { n / 2 };
                let mean = sum.saturating_add(half) / n;
                if ty.is_signed() {
                    Value::Signed(mean as i64)
                } else {
                    Value::Unsigned(mean as u64)
                }
            }
            Self::Float { .. } => match ty {
                DataType::Float => Value::Float(self.mean() as f32),
                DataType::LongDouble => {
                    Value::LongDouble(crate::longdouble::LongDouble::from_f64(self.mean()))
                }
                _ => Value::Double(self.mean()),
            },
        }
    }
}

//! Histograms with a bounded relative error for values of any range.
//!
//! An *octave* is the range from one power of two to the next. It is divided into [`PER_OCTAVE`]
//! buckets of equal width. A value is converted to `f64`; its exponent and top fraction bits name
//! the bucket. So each integer up to 256 has a bucket of its own, and any other value differs
//! from the middle of its bucket by at most 1/256 of itself ([`MAX_ERROR`]).
//! Only octaves that occur take memory, 1 KiB each.
//!
//! The order of the buckets' *keys* is the order of their values, negative values included.
use crate::stats::Stats;
use crate::types::DataType;
use crate::value::Value;

/// Number of buckets in an octave.
pub const PER_OCTAVE: usize = 1 << FRACTION_BITS;
/// Largest difference between a value and the middle of its bucket, divided by the value.
pub const MAX_ERROR: f64 = 1.0 / (2 * PER_OCTAVE) as f64;

const FRACTION_BITS: u32 = 7;
const SHIFT: u32 = 52 - FRACTION_BITS;
/// Number of bits of a key: sign, exponent, fraction.
const KEY_BITS: u32 = 12 + FRACTION_BITS;
const SIGN_KEY: u32 = 1 << (KEY_BITS - 1);

/// Number of values in each bucket.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    /// Exact figures. A NaN counts here and in no bucket.
    pub stats: Stats,
    octaves: Vec<Octave>,
    recent: usize,
}

#[derive(Clone, Debug, PartialEq)]
struct Octave {
    /// Bits of the keys above the fraction.
    head: u32,
    counts: Box<[u64; PER_OCTAVE]>,
}

/// The key of the bucket of `x`, which is not NaN.
fn key_of(x: f64) -> u32 {
    let x = x.clamp(f64::MIN, f64::MAX);
    // -0 and 0 have the same bucket.
    let bits = (x + 0.0).to_bits();
    let magnitude = (bits >> SHIFT) as u32 & (SIGN_KEY - 1);
    if bits >> 63 == 0 {
        SIGN_KEY | magnitude
    } else {
        SIGN_KEY - 1 - magnitude
    }
}

/// Smallest and largest magnitude in the bucket of `key`, and the sign.
fn bounds(key: u32) -> (f64, f64, f64) {
    let (magnitude, sign) = if key & SIGN_KEY != 0 {
        (key - SIGN_KEY, 1.0)
    } else {
        (SIGN_KEY - 1 - key, -1.0)
    };
    let low = f64::from_bits(u64::from(magnitude) << SHIFT);
    let high = f64::from_bits(u64::from(magnitude + 1) << SHIFT);
    (low, if high.is_finite() { high } else { f64::MAX }, sign)
}

/// The value that represents the bucket of `key`.
fn middle(key: u32, integers: bool) -> f64 {
    let (low, high, sign) = bounds(key);
    // A bucket of width 1 or less has only one integer.
    if low == 0.0 || (integers && low >= 1.0 && high - low <= 1.0) {
        return sign * low.ceil();
    }
    sign * (low + (high - low) / 2.0)
}

/// A bucket that is not empty.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bucket {
    /// Key; greater for greater values.
    pub key: u32,
    /// Bound nearest to 0; belongs to the bucket.
    pub low: f64,
    /// Bound farthest from 0; belongs to the next bucket.
    pub high: f64,
    /// The value that represents it.
    pub middle: f64,
    /// Number of values in it.
    pub count: u64,
}

impl Histogram {
    /// An empty histogram of values of type `ty`.
    pub fn new(ty: DataType) -> Self {
        Self {
            stats: Stats::new(ty),
            octaves: Vec::new(),
            recent: 0,
        }
    }

    /// Adds a value.
    #[inline]
    pub fn add(&mut self, value: Value) {
        self.stats.add(value);
        let x = value.as_f64();
        if !x.is_nan() {
            self.add_key(key_of(x), 1);
        }
    }

    /// Adds `n` to the bucket of `x`, but nothing to the exact figures.
    pub(crate) fn add_many(&mut self, x: f64, n: u64) {
        if !x.is_nan() {
            self.add_key(key_of(x), n);
        }
    }

    /// Adds `n` to the bucket with this key. False if no bucket can have this key.
    #[inline]
    pub(crate) fn add_key(&mut self, key: u32, n: u64) -> bool {
        if key >> KEY_BITS != 0 {
            return false;
        }
        let head = key >> FRACTION_BITS;
        let slot = key as usize % PER_OCTAVE;
        match self.octaves.get_mut(self.recent) {
            Some(octave) if octave.head == head => {
                octave.counts[slot] = octave.counts[slot].saturating_add(n);
            }
            _ => {
                self.recent = self.octave(head);
                let count = &mut self.octaves[self.recent].counts[slot];
                *count = count.saturating_add(n);
            }
        }
        true
    }

    /// Index of an octave in the sorted list; makes it if it is new.
    #[cold]
    fn octave(&mut self, head: u32) -> usize {
        match self.octaves.binary_search_by_key(&head, |o| o.head) {
            Ok(at) => at,
            Err(at) => {
                let counts = Box::new([0; PER_OCTAVE]);
                self.octaves.insert(at, Octave { head, counts });
                at
            }
        }
    }

    /// Number of octaves in memory, of 1 KiB each.
    pub(crate) fn octaves(&self) -> usize {
        self.octaves.len()
    }

    /// Adds the values of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.stats.merge(&other.stats);
        for bucket in other.buckets() {
            self.add_key(bucket.key, bucket.count);
        }
    }

    /// The buckets that are not empty, in the order of their values.
    pub fn buckets(&self) -> impl Iterator<Item = Bucket> + '_ {
        let integers = matches!(self.stats, Stats::Integer { .. });
        self.octaves.iter().flat_map(move |octave| {
            octave
                .counts
                .iter()
                .enumerate()
                .filter(|(_, n)| **n != 0)
                .map(move |(slot, &count)| {
                    let key = octave.head << FRACTION_BITS | slot as u32;
                    let (low, high, sign) = bounds(key);
                    Bucket {
                        key,
                        low: sign * low,
                        high: sign * high,
                        middle: middle(key, integers),
                        count,
                    }
                })
        })
    }

    /// The `q`-quantile: the fraction `q` of all values is at most this. 0 without values.
    ///
    /// `q` = 0 gives the minimum and `q` = 1 the maximum, both exact. Other results differ from the value at
    /// that position of the sorted sequence by at most [`MAX_ERROR`] times the value.
    pub fn quantile(&self, q: f64) -> f64 {
        let total = self
            .buckets()
            .fold(0u64, |sum, b| sum.saturating_add(b.count));
        if total == 0 {
            return 0.0;
        }
        if q <= 0.0 {
            return self.stats.min();
        }
        if q >= 1.0 {
            return self.stats.max();
        }
        let wanted = ((q * total as f64).ceil() as u64).clamp(1, total);
        let mut seen = 0u64;
        for bucket in self.buckets() {
            seen = bucket.count.saturating_add(seen);
            if seen >= wanted {
                // The figures of a file may contradict its buckets.
                return bucket.middle.max(self.stats.min()).min(self.stats.max());
            }
        }
        self.stats.max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: impl IntoIterator<Item = i64>) -> Histogram {
        let mut histogram = Histogram::new(DataType::Long);
        for value in values {
            histogram.add(Value::Signed(value));
        }
        histogram
    }

    #[test]
    fn small_integers_are_exact() {
        for n in -255..=255 {
            assert_eq!(middle(key_of(n as f64), true), n as f64);
        }
        let keys: Vec<_> = (-256..=256).map(|n| key_of(f64::from(n))).collect();
        assert!(keys.windows(2).all(|w| w[0] < w[1]));
    }

    #[test]
    fn the_error_is_bounded_and_keys_are_ordered() {
        let mut x = 1.0e-300;
        let mut last = 0;
        while x < 1.0e300 {
            let key = key_of(x);
            assert!(key >= last);
            last = key;
            for x in [x, -x] {
                let error = (middle(key_of(x), false) - x).abs() / x.abs();
                assert!(error <= MAX_ERROR, "{x:e}: {error}");
            }
            x *= 1.000_37;
        }
    }

    #[test]
    fn quantiles_of_a_known_sequence() {
        let histogram = of((1..=100_000).rev());
        for (q, exact) in [
            (0.0, 1.0),
            (0.25, 25_000.0),
            (0.5, 50_000.0),
            (0.99, 99_000.0),
            (1.0, 100_000.0),
        ] {
            let found = histogram.quantile(q);
            assert!((found - exact).abs() <= exact * MAX_ERROR, "{q}: {found}");
        }
        assert_eq!(of([7, 200, 255]).quantile(0.5), 200.0);
        assert_eq!(of([]).quantile(0.5), 0.0);
        assert_eq!(of([-5, 5, 0]).quantile(0.5), 0.0);
    }

    #[test]
    fn parts_make_the_whole() {
        let mut left = of((0..5_000).map(|n| n * n));
        let right = of((5_000..10_000).map(|n| -n * n));
        left.merge(&right);
        let whole = of((0..5_000)
            .map(|n| n * n)
            .chain((5_000..10_000).map(|n| -n * n)));
        assert_eq!(left.stats, whole.stats);
        assert!(left.buckets().eq(whole.buckets()));
    }

    #[test]
    fn what_is_no_number_stays_outside() {
        let mut histogram = Histogram::new(DataType::Double);
        for x in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1.0] {
            histogram.add(Value::Double(x));
        }
        assert_eq!(histogram.stats.count(), 4);
        assert_eq!(histogram.buckets().map(|b| b.count).sum::<u64>(), 3);
    }
}

//! Histograms with a bounded relative error, whatever the range of the values is.
//!
//! Each power of two is divided into [`PER_OCTAVE`] buckets of equal width. A
//! value is taken as an `f64`, whose exponent and top fraction bits are its
//! bucket. So each integer up to 256 has a bucket to itself, and any other value differs
//! from the middle of its bucket by at most 1/256 of itself ([`MAX_ERROR`]).
//! Only octaves that occur take memory, 1 KiB each.
//!
//! A bucket's *key* orders like its values, negative ones included.
use crate::stats::Stats;
use crate::types::DataType;
use crate::value::Value;

/// Buckets in an octave, from one power of two to the next.
pub const PER_OCTAVE: usize = 1 << FRACTION_BITS;
/// The middle of a bucket differs from each of its values by at most this part of the value.
pub const MAX_ERROR: f64 = 1.0 / (2 * PER_OCTAVE) as f64;

const FRACTION_BITS: u32 = 7;
const SHIFT: u32 = 52 - FRACTION_BITS;
/// Keys fit into so many bits: sign, exponent, fraction.
const KEY_BITS: u32 = 12 + FRACTION_BITS;
const SIGN_KEY: u32 = 1 << (KEY_BITS - 1);

/// How often values fell into which bucket.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    /// Exact figures. What is not a number counts here and in no bucket.
    pub stats: Stats,
    octaves: Vec<Octave>,
    recent: usize,
}

#[derive(Clone, Debug, PartialEq)]
struct Octave {
    /// The keys' bits above the fraction.
    head: u32,
    counts: Box<[u64; PER_OCTAVE]>,
}

/// The key of the bucket of `x`, which is not NaN.
fn key_of(x: f64) -> u32 {
    let x = x.clamp(f64::MIN, f64::MAX);
    // Both zeros are one.
    let bits = (x + 0.0).to_bits();
    let magnitude = (bits >> SHIFT) as u32 & (SIGN_KEY - 1);
    if bits >> 63 == 0 {
        SIGN_KEY | magnitude
    } else {
        SIGN_KEY - 1 - magnitude
    }
}

/// The least and the greatest magnitude of a key's bucket, and its sign.
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

/// The value that stands for all of a bucket.
fn middle(key: u32, integers: bool) -> f64 {
    let (low, high, sign) = bounds(key);
    // Of integers there is only one in a narrow bucket.
    if low == 0.0 || (integers && low >= 1.0 && high - low <= 1.0) {
        return sign * low.ceil();
    }
    sign * (low + (high - low) / 2.0)
}

/// One bucket that is not empty.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bucket {
    /// Its number; greater for greater values.
    pub key: u32,
    /// The value in it that is nearest to 0, which belongs to it.
    pub low: f64,
    /// The value that is farthest from 0, which belongs to the next.
    pub high: f64,
    /// What stands for its values.
    pub middle: f64,
    /// How many values.
    pub count: u64,
}

impl Histogram {
    /// Of no values.
    pub fn new(ty: DataType) -> Self {
        Self {
            stats: Stats::new(ty),
            octaves: Vec::new(),
            recent: 0,
        }
    }

    /// Accounts for one more value.
    #[inline]
    pub fn add(&mut self, value: Value) {
        self.stats.add(value);
        let x = value.as_f64();
        if !x.is_nan() {
            self.add_key(key_of(x), 1);
        }
    }

    /// Accounts for values of the bucket of `x`, but not in the exact figures.
    pub(crate) fn add_many(&mut self, x: f64, n: u64) {
        if !x.is_nan() {
            self.add_key(key_of(x), n);
        }
    }

    /// Adds to a bucket. Says whether there is such a bucket.
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

    /// The index of an octave, made if it is new. They are sorted.
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

    /// How many KiB the counts take.
    pub(crate) fn octaves(&self) -> usize {
        self.octaves.len()
    }

    /// Accounts for all that `other` accounts for.
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

    /// The value below or at which the part `q` of all values lies; 0 if there is none.
    ///
    /// `q` of 0 is the minimum and of 1 the maximum, both exact; what is between differs from the
    /// value at that place in the sorted sequence by at most [`MAX_ERROR`] of it.
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
                // A file may say anything of these.
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

//! How often each distance occurred.
//!
//! Distances below 16 have a bin each; each doubling from there has eight. So the borders of bins contain all powers of
//! two, at which miss ratios are exact.

/// Distances below have a bin each.
const SINGLE: u64 = 16;
/// Number of bins for a doubling.
const PARTS: u64 = 8;
/// Binary logarithm of the largest distance plus 1.
const LARGEST: u32 = 44;
/// Number of bins.
pub const BINS: usize = (SINGLE + PARTS * (LARGEST as u64 - 4)) as usize;

/// Number of a distance's bin.
pub const fn bin(distance: u64) -> usize {
    if distance < SINGLE {
        return distance as usize;
    }
    let power = distance.ilog2();
    let part = distance >> (power - 3) & (PARTS - 1);
    let bin = SINGLE + PARTS * (power as u64 - 4) + part;
    if bin < BINS as u64 {
        bin as usize
    } else {
        BINS - 1
    }
}

/// Smallest distance of a bin.
pub const fn start(bin: usize) -> u64 {
    let bin = bin as u64;
    if bin < SINGLE {
        return bin;
    }
    let (power, part) = ((bin - SINGLE) / PARTS + 4, (bin - SINGLE) % PARTS);
    (PARTS + part) << (power - 3)
}

/// How often each distance occurred, and how many first touches there were.
#[derive(Clone)]
pub struct Histogram {
    pub bins: Box<[u64; BINS]>,
    pub first: u64,
}

impl Histogram {
    pub fn new() -> Self {
        Self {
            bins: Box::new([0; BINS]),
            first: 0,
        }
    }

    pub fn add(&mut self, distance: Option<u64>, times: u64) {
        match distance {
            Some(distance) => self.bins[bin(distance)] += times,
            None => self.first += times,
        }
    }

    pub fn merge(&mut self, other: &Self) {
        for (sum, more) in self.bins.iter_mut().zip(other.bins.iter()) {
            *sum += more;
        }
        self.first += other.first;
    }

    /// All references.
    pub fn references(&self) -> u64 {
        self.bins.iter().sum::<u64>() + self.first
    }

    /// References that miss a fully associative cache of this number of lines, a power of two.
    pub fn misses(&self, lines: u64) -> u64 {
        self.bins[bin(lines)..].iter().sum::<u64>() + self.first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_follow_each_other() {
        for distance in (0..3000).chain([1 << 20, (1 << 20) + 1, (1 << 30) - 1]) {
            let bin = bin(distance);
            assert!(
                start(bin) <= distance && distance < start(bin + 1),
                "{distance}"
            );
        }
        for power in 0..30 {
            assert_eq!(start(bin(1 << power)), 1 << power);
        }
        assert_eq!(bin(u64::MAX), BINS - 1);
    }

    #[test]
    fn misses_are_far_and_first_references() {
        let mut histogram = Histogram::new();
        for distance in [Some(0), Some(7), Some(8), Some(100), None] {
            histogram.add(distance, 2);
        }
        assert_eq!(histogram.references(), 10);
        assert_eq!(histogram.misses(8), 6);
        assert_eq!(histogram.misses(128), 2);
    }
}

//! Counts of loads and stores of each part of a range, for a picture.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Number of parts of a range.
pub const PARTS: usize = 256;

/// Loads and stores of each part. The size of a part is a power of two; it grows with the range.
pub struct Picture {
    shift: AtomicU32,
    parts: Box<[[AtomicU64; 2]]>,
}

impl Picture {
    /// An empty picture of a range that may grow.
    pub fn new() -> Self {
        Self {
            shift: AtomicU32::new(0),
            parts: (0..PARTS).map(|_| Default::default()).collect(),
        }
    }

    /// Makes room for a range of `size` bytes.
    pub fn make_room(&self, size: u64) {
        while size > (PARTS as u64) << self.shift.load(Relaxed) {
            for i in 0..PARTS {
                for which in 0..2 {
                    let sum = match i * 2 {
                        i if i < PARTS => [i, i + 1]
                            .map(|i| self.parts[i][which].load(Relaxed))
                            .iter()
                            .sum(),
                        _ => 0,
                    };
                    self.parts[i][which].store(sum, Relaxed);
                }
            }
            self.shift.fetch_add(1, Relaxed);
        }
    }

    /// Adds loads and stores that together touch `first..last`: to each part the accesses that touch
    /// it.
    pub fn add(&self, first: u64, last: u64, which: [u64; 2]) {
        let shift = self.shift.load(Relaxed);
        let (from, to) = (first >> shift, (last - 1) >> shift);
        for part in from..=to.min(PARTS as u64 - 1) {
            let bytes = last.min((part + 1) << shift) - first.max(part << shift);
            for (cell, n) in self.parts[part as usize].iter().zip(which) {
                let touching = u128::from(n) * u128::from(bytes);
                let touching = touching.div_ceil(u128::from(last - first)) as u64;
                if touching != 0 {
                    cell.fetch_add(touching, Relaxed);
                }
            }
        }
    }

    /// Size of a part in bytes, and the loads and stores of each part.
    pub fn parts(&self) -> (u64, Vec<[u64; 2]>) {
        let parts = self.parts.iter();
        let values = parts.map(|p| [p[0].load(Relaxed), p[1].load(Relaxed)]);
        (1 << self.shift.load(Relaxed), values.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_grow_and_keep_what_they_have() {
        let picture = Picture::new();
        picture.make_room(200);
        picture.add(3, 4, [1, 0]);
        picture.add(4, 5, [0, 2]);
        picture.make_room(1000);
        let (size, parts) = picture.parts();
        assert_eq!(size, 4);
        assert_eq!((parts[0], parts[1]), ([1, 0], [0, 2]));
        picture.add(0, 16, [8, 0]);
        let (_, parts) = picture.parts();
        let loads: Vec<u64> = parts.iter().take(5).map(|p| p[0]).collect();
        assert_eq!(loads, [3, 2, 2, 2, 0]);
        // A store that touches two parts.
        picture.add(18, 22, [0, 1]);
        let (_, parts) = picture.parts();
        assert_eq!((parts[4], parts[5], parts[6]), ([0, 1], [0, 1], [0, 0]));
    }
}

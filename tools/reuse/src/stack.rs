//! The LRU stack of a thread's lines: how many different lines were touched since a line was touched last.
//!
//! The most recently used lines are in an array that is searched from its start. A line that is the last of it and
//! makes room for another one falls into the *deep* part: a map with the time at which it fell, and a bit for each time
//! at which a line fell that is still there. Lines of the array are more recent than all deep ones, and deep ones are in
//! the order of these times, so a deep line's distance is the array's length plus the number of bits after its time. A
//! tree over the bits' sums (Fenwick) counts them in logarithmic time. When all times are used, they are dealt out anew.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Number of lines in the array.
const TOP: usize = 32;
/// Smallest number of times.
const TIMES: usize = 1 << 14;
const WORD: usize = 64;

/// A hash of a line's number.
#[derive(Default)]
pub struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = mixed(self.0 ^ value);
    }
}

/// Mixes the bits of a number (the finalizer of splitmix64).
pub const fn mixed(value: u64) -> u64 {
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

/// A line in the deep part.
#[derive(Clone, Copy)]
struct Deep {
    time: u32,
    stamp: u32,
}

/// What is known of a line when it is touched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Touched {
    /// Number of different lines that were touched since; `None` at the first time.
    pub distance: Option<u64>,
    /// The stamp with which it was touched last; 0 at the first time.
    pub stamp: u32,
}

/// An LRU stack.
pub struct Stack {
    lines: [u64; TOP],
    stamps: [u32; TOP],
    used: usize,
    deep: HashMap<u64, Deep, BuildHasherDefault<Mix>>,
    /// A bit for each time, set if a line that fell then is still in the deep part.
    bits: Vec<u64>,
    /// Sums of the words' bits, as a Fenwick tree.
    sums: Vec<u32>,
    next: usize,
}

impl Stack {
    pub fn new() -> Self {
        Self {
            lines: [u64::MAX; TOP],
            stamps: [0; TOP],
            used: 0,
            deep: HashMap::default(),
            bits: vec![0; TIMES / WORD],
            sums: vec![0; TIMES / WORD + 1],
            next: 0,
        }
    }

    /// Touches a line.
    #[inline]
    pub fn touch(&mut self, line: u64, stamp: u32) -> Touched {
        if self.lines[0] == line {
            let before = std::mem::replace(&mut self.stamps[0], stamp);
            return Touched {
                distance: Some(0),
                stamp: before,
            };
        }
        let place = self.lines.iter().position(|other| *other == line);
        if let Some(place) = place {
            let before = self.stamps[place];
            self.lines.copy_within(..place, 1);
            self.stamps.copy_within(..place, 1);
            (self.lines[0], self.stamps[0]) = (line, stamp);
            return Touched {
                distance: Some(place as u64),
                stamp: before,
            };
        }
        let touched = match self.deep.remove(&line) {
            Some(found) => {
                let distance = TOP as u64 + self.take(found.time as usize);
                Touched {
                    distance: Some(distance),
                    stamp: found.stamp,
                }
            }
            None => Touched {
                distance: None,
                stamp: 0,
            },
        };
        if self.used == TOP {
            self.fall(self.lines[TOP - 1], self.stamps[TOP - 1]);
        } else {
            self.used += 1;
        }
        self.lines.copy_within(..TOP - 1, 1);
        self.stamps.copy_within(..TOP - 1, 1);
        (self.lines[0], self.stamps[0]) = (line, stamp);
        touched
    }

    /// Adds a line to the deep part.
    fn fall(&mut self, line: u64, stamp: u32) {
        if self.next == self.bits.len() * WORD {
            self.deal_anew();
        }
        let time = self.next;
        self.next += 1;
        self.bits[time / WORD] |= 1 << (time % WORD);
        self.add(time / WORD, 1);
        let time = time as u32;
        self.deep.insert(line, Deep { time, stamp });
    }

    /// Removes the line that fell at a time, which the map does not have any more; returns the number of lines that fell
    /// after it.
    fn take(&mut self, time: usize) -> u64 {
        let behind = self.deep.len() - self.before(time);
        self.bits[time / WORD] &= !(1 << (time % WORD));
        self.add(time / WORD, u32::MAX);
        behind as u64
    }

    /// Number of lines of the deep part that fell before a time.
    fn before(&self, time: usize) -> usize {
        let mut sum = 0;
        let mut at = time / WORD;
        while at > 0 {
            sum += self.sums[at] as usize;
            at &= at - 1;
        }
        let earlier = self.bits[time / WORD] & ((1 << (time % WORD)) - 1);
        sum + earlier.count_ones() as usize
    }

    /// Adds to the sum of a word's bits, and wraps around.
    fn add(&mut self, word: usize, value: u32) {
        let mut at = word + 1;
        while at < self.sums.len() {
            self.sums[at] = self.sums[at].wrapping_add(value);
            at += at & at.wrapping_neg();
        }
    }

    /// Gives all lines the first times, in their order.
    #[cold]
    fn deal_anew(&mut self) {
        let mut deep = std::mem::take(&mut self.deep);
        for found in deep.values_mut() {
            found.time = self.before(found.time as usize) as u32;
        }
        self.deep = deep;
        let lines = self.deep.len();
        let words = (lines * 4).next_power_of_two().max(TIMES) / WORD;
        self.bits = vec![0; words];
        self.sums = vec![0; words + 1];
        for word in 0..lines.div_ceil(WORD) {
            let left = lines - word * WORD;
            let bits = match left {
                WORD.. => u64::MAX,
                left => (1 << left) - 1,
            };
            self.bits[word] = bits;
            self.add(word, bits.count_ones());
        }
        self.next = lines;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with a list that is searched from its start.
    fn compare(lines: impl Iterator<Item = u64>) {
        let mut stack = Stack::new();
        let mut list: Vec<u64> = Vec::new();
        for (i, line) in lines.enumerate() {
            let place = list.iter().position(|other| *other == line);
            place.map(|place| list.remove(place));
            list.insert(0, line);
            let found = stack.touch(line, i as u32 + 1);
            assert_eq!(found.distance, place.map(|n| n as u64), "reference {i}");
            assert_eq!(stack.used + stack.deep.len(), list.len());
        }
    }

    #[test]
    fn distances_are_those_of_a_list() {
        let mut state = 1u64;
        let mut random = move |below: u64| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            mixed(state) % below
        };
        compare((0..20_000).map(|i| i % 700));
        // Near ones more often than far ones.
        compare((0..60_000).map(move |_| {
            let far = random(5000);
            random(far + 1)
        }));
        compare((0..3000).chain((0..3000).rev()).chain(0..10));
    }

    #[test]
    fn stamps_are_the_last_ones() {
        let mut stack = Stack::new();
        for round in 1..4 {
            for line in 0..100 {
                let found = stack.touch(line, round);
                assert_eq!(found.stamp, round - 1);
            }
        }
    }
}

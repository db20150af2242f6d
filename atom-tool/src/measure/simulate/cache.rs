//! A simulated cache: its geometry, and the order of lines in a set.
//!
//! A set holds its lines in the order of use, the most recently used first. A line is kept as its *tag*:
//! the address of its first byte, negated. An address is in the line if the sum of both, which is the
//! offset in the line, is small. 0 is no line, since no program accesses the first page.

use crate::Result;
use crate::data::thread_data::ThreadCell;
use crate::options::WrongOption;

/// Largest number of lines in a cache.
pub const MAX_LINES: usize = 1 << 14;
/// Largest size of a line in bytes. A larger line could contain both address 0 and valid memory.
pub const MAX_LINE: u64 = 4096;

/// The lines of a cache, set by set, as tags.
pub type Lines = [ThreadCell<u64>; MAX_LINES];

/// An empty cache.
pub fn no_lines() -> Lines {
    std::array::from_fn(|_| ThreadCell::new(0))
}

/// Shape of a cache in one word, so that it can be an argument of calls: number of sets (a power of
/// two), number of lines in a set, logarithm of a line's size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape(pub u64);

impl Shape {
    /// 8 KB, direct mapped, lines of 32 bytes.
    pub const DEFAULT: Self = Self::new(256, 1, 32);

    /// A cache of `sets` sets with `ways` lines of `line` bytes each.
    pub const fn new(sets: u64, ways: u64, line: u64) -> Self {
        Self(sets << 32 | ways << 8 | line.trailing_zeros() as u64)
    }

    /// Size of a line in bytes.
    pub const fn line(self) -> u64 {
        1 << (self.0 & 0xff)
    }

    /// Number of sets.
    pub const fn sets(self) -> u64 {
        self.0 >> 32
    }

    /// Number of lines in a set.
    pub const fn ways(self) -> u64 {
        self.0 >> 8 & 0xff_ffff
    }

    /// Number of lines.
    pub const fn lines(self) -> usize {
        (self.sets() * self.ways()) as usize
    }

    /// Index of the first line of the set that an address belongs to.
    pub const fn set(self, address: u64) -> usize {
        ((address >> (self.0 & 0xff) & (self.sets() - 1)) * self.ways()) as usize
    }

    /// Address of the first byte of the line that contains an address.
    pub const fn start(self, address: u64) -> u64 {
        address & !(self.line() - 1)
    }

    /// The lines of the set that an address belongs to.
    pub fn set_of(self, lines: &Lines, address: u64) -> &[ThreadCell<u64>] {
        let first = self.set(address);
        let set = lines.get(first..first + self.ways() as usize);
        set.unwrap_or_default()
    }

    /// The shape of a cache of `size` bytes with sets of `ways` lines of `line` bytes, and its description for reports.
    /// It has at most `most` lines.
    ///
    /// # Errors
    /// The message says why there is no such cache.
    pub fn of(size: u64, ways: u64, line: u64, most: usize) -> Result<(Self, String)> {
        let lines = size / line.max(1);
        let sets = lines / ways.max(1);
        if !sets.is_power_of_two() || !line.is_power_of_two() || sets * ways * line != size {
            let shape = format!("{ways} lines of {line} bytes");
            let message = format!("{size} bytes are not a power of two of sets of {shape}");
            return Err(WrongOption::new(message).into());
        }
        if lines > most as u64 || line > MAX_LINE {
            let reason = format!("at most {most} lines of at most {MAX_LINE} bytes");
            let message = format!("a cache has {reason}, not {lines} of {line}");
            return Err(WrongOption::new(message).into());
        }
        let kind = match ways {
            1 => "direct mapped".to_owned(),
            _ => format!("{ways} ways"),
        };
        let text = format!("{size} bytes, {kind}, lines of {line} bytes");
        Ok((Self::new(sets, ways, line), text))
    }
}

/// Makes a line the most recently used of its set: the line at index `place`, or a new line, which
/// evicts the least recently used one.
#[inline(always)]
pub fn bring_to_front(set: &[ThreadCell<u64>], place: Option<usize>, tag: u64) {
    let mut moving = tag;
    for other in set.iter().take(place.map_or(set.len(), |place| place + 1)) {
        let next = other.get();
        other.set(moving);
        moving = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_tell_their_parts() {
        for (sets, ways, line) in [(256, 1, 32), (1, 16_384, 1), (64, 8, 64), (1, 3, 4096)] {
            let shape = Shape::new(sets, ways, line);
            assert_eq!(
                (shape.sets(), shape.ways(), shape.line()),
                (sets, ways, line)
            );
            assert_eq!(shape.lines() as u64, sets * ways);
            let address = 5 * sets * line + (sets - 1) * line + line / 2;
            assert_eq!(shape.set(address) as u64, (sets - 1) * ways);
            assert_eq!(shape.start(address), address - line / 2);
        }
    }

    #[test]
    fn the_least_recently_used_line_leaves() {
        let lines = no_lines();
        let set = &lines[..3];
        let use_line = |tag: u64| {
            let place = set.iter().position(|other| other.get() == tag);
            bring_to_front(set, place, tag);
        };
        [1, 2, 3, 1, 4].into_iter().for_each(use_line);
        assert!(set.iter().map(ThreadCell::get).eq([4, 1, 3]));
    }
}

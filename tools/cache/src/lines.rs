//! The lines that a cache holds, and how references find them.

use atom_tool::prelude::*;
use atom_tool::simulate::{Comparison, Seen, anew};
use atom_tool::{ThreadCell, thread_state};

/// Lines that a cache may have.
pub const MAX_LINES: usize = 1 << 14;
/// A line of a cache that is larger than this could lie at address 0.
pub const MAX_LINE: u64 = 4096;

thread_state! {
    /// Sets of lines, in each the most recently used first, as the addresses of their first
    /// bytes, negated: an address is in the line if the sum is small. 0 is no line: no program
    /// accesses the first page.
    pub struct Cache {
        pub lines: [ThreadCell<u64>; MAX_LINES],
        pub comparison: Comparison,
    }
}

impl Cache {
    /// An empty one.
    pub fn new() -> Self {
        Self {
            lines: std::array::from_fn(|_| ThreadCell::new(0)),
            comparison: std::array::from_fn(|_| ThreadCell::new(0)),
        }
    }
}

/// Sets (a power of two), lines in a set, logarithm of a line's size; as one argument.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Shape(pub u64);

impl Shape {
    pub const fn new(sets: u64, ways: u64, line: u64) -> Self {
        Self(sets << 32 | ways << 8 | line.trailing_zeros() as u64)
    }

    pub const fn line(self) -> u64 {
        1 << (self.0 & 0xff)
    }

    pub const fn sets(self) -> u64 {
        self.0 >> 32
    }

    pub const fn ways(self) -> u64 {
        self.0 >> 8 & 0xff_ffff
    }

    /// The place of an address's set among the lines.
    pub const fn set(self, address: u64) -> usize {
        ((address >> (self.0 & 0xff) & (self.sets() - 1)) * self.ways()) as usize
    }
}

/// 8 KB, direct mapped, lines of 32 bytes.
pub const DEFAULT: Shape = Shape::new(256, 1, 32);

/// The line of an address's set in a cache of the default shape. The number of a set is a byte,
/// which is extended when it is used: the shortest code for it.
#[inline(always)]
fn line_of(cache: &Cache, address: u64) -> &ThreadCell<u64> {
    const { assert!(DEFAULT.sets() == 1 << 8 && DEFAULT.ways() == 1) };
    &cache.lines[usize::from(anew(address / DEFAULT.line()) as u8)]
}

/// Whether all is in one line; makes that the line of its set.
#[inline(always)]
pub fn is_quick(cache: &Cache, address: u64, size: u64, count: Counter<2>) -> bool {
    const LINE: u64 = DEFAULT.line();
    if size <= LINE && address.wrapping_add(line_of(cache, address).get()) <= LINE - size {
        return true;
    }
    // The usual path keeps nothing for this one.
    let address = anew(address);
    if size <= LINE && address % LINE <= LINE - size {
        line_of(cache, address).set((address & !(LINE - 1)).wrapping_neg());
        count.add_to(Seen::Misses as usize, 1);
        return true;
    }
    false
}

/// Another line than that of its set which was used last, or several lines.
#[cold]
#[inline(never)]
pub fn other(cache: &Cache, shape: Shape, address: u64, size: u64, count: Counter<2>) {
    if shape.ways() == 1 && size <= shape.line() {
        let last = address + size - 1;
        let mut missed = enter(cache, shape, address);
        if (address ^ last) >= shape.line() {
            missed += enter(cache, shape, last);
            count.add_to(Seen::Extra as usize, 1);
        }
        count.add_to(Seen::Misses as usize, missed);
        return;
    }
    touch(cache, shape.0, address, size, 1, count);
    // The first is counted by its block.
    count.add_to(Seen::Extra as usize, u64::MAX);
}

/// A reference to one line of a direct-mapped cache; whether it missed.
fn enter(cache: &Cache, shape: Shape, address: u64) -> u64 {
    let known = &cache.lines[shape.set(address) % MAX_LINES];
    let line = (address & !(shape.line() - 1)).wrapping_neg();
    let is_new = known.get() != line;
    known.set(line);
    is_new.into()
}

/// A reference, `times` times in turn: one for each line that it touches.
pub fn touch(cache: &Cache, shape: u64, address: u64, size: u64, times: u64, count: Counter<2>) {
    let shape = Shape(shape);
    let mut line = address & !(shape.line() - 1);
    while line < address.saturating_add(size) {
        let set = shape.set(line);
        let set = cache
            .lines
            .get(set..set + shape.ways() as usize)
            .unwrap_or_default();
        let mut moving = line.wrapping_neg();
        let place = set.iter().position(|other| other.get() == moving);
        for other in set.iter().take(place.map_or(set.len(), |place| place + 1)) {
            let next = other.get();
            other.set(moving);
            moving = next;
        }
        if place.is_none() {
            count.add_to(Seen::Misses as usize, times);
        }
        count.add_to(Seen::Extra as usize, times);
        line += shape.line();
    }
}

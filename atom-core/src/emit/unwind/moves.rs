//! What moved where: the ranges of code of one FDE that have a copy.

use crate::image::unwind::Fde;
use crate::{Error, Result};

/// From original addresses to those of the rewritten code.
pub trait AddressMap {
    /// Where the instruction at `old`, and whatever was inserted before it,
    /// starts now. Answers at least for every instruction boundary that moved.
    fn new_address(&self, old: u64) -> Option<u64>;
}

impl<F: Fn(u64) -> Option<u64>> AddressMap for F {
    fn new_address(&self, old: u64) -> Option<u64> {
        self(old)
    }
}

/// A range of code, mostly a procedure, that was copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MovedRange {
    /// First original address.
    pub old_start: u64,
    /// The original address behind the range.
    pub old_end: u64,
    /// First new address.
    pub new_start: u64,
    /// The new address behind the range.
    pub new_end: u64,
}

/// The part of an FDE's range that lies in one moved range.
#[derive(Clone, Copy)]
pub(super) struct Piece<'m> {
    pub range: MovedRange,
    map: &'m dyn AddressMap,
}

impl Piece<'_> {
    /// Where `old` lies now. An address that the map does not know stands for
    /// the next one that it knows.
    pub fn new_address(&self, old: u64) -> u64 {
        let r = &self.range;
        if old <= r.old_start {
            return r.new_start;
        }
        (old..r.old_end)
            .find_map(|a| self.exact(a))
            .unwrap_or(r.new_end)
    }

    /// Where the instruction at `old` lies now, if the map knows it.
    pub fn exact(&self, old: u64) -> Option<u64> {
        let r = &self.range;
        self.map
            .new_address(old)
            .filter(|new| (r.new_start..=r.new_end).contains(new))
    }
}

/// All moved ranges, searchable even where they overlap.
pub(super) struct Moves<'m> {
    ranges: &'m [MovedRange],
    /// For each range the highest end of it and all before it.
    reach: Vec<u64>,
    map: &'m dyn AddressMap,
}

impl<'m> Moves<'m> {
    /// Checks that the ranges are sorted and not reversed.
    pub fn new(ranges: &'m [MovedRange], map: &'m dyn AddressMap) -> Result<Self> {
        let mut reach = Vec::with_capacity(ranges.len());
        let (mut highest, mut last) = (0, 0);
        for r in ranges {
            if r.old_start < last || r.old_end < r.old_start || r.new_end < r.new_start {
                return Err(
                    Error::new(super::DOING, "moved ranges are out of order").address(r.old_start)
                );
            }
            last = r.old_start;
            highest = highest.max(r.old_end);
            reach.push(highest);
        }
        Ok(Self { ranges, reach, map })
    }

    fn touching(&self, start: u64, end: u64) -> impl Iterator<Item = &MovedRange> {
        let first = self.reach.partition_point(|&reach| reach <= start);
        self.ranges[first..]
            .iter()
            .take_while(move |r| r.old_start < end)
            .filter(move |r| r.old_end > start && r.old_start < r.old_end)
    }

    /// The pieces of an FDE that moved.
    pub fn pieces(&self, fde: &Fde) -> impl Iterator<Item = Piece<'m>> {
        let (start, end) = (fde.start, fde.end());
        self.touching(start, end).filter_map(move |r| {
            let whole = Piece {
                range: *r,
                map: self.map,
            };
            let mut range = *r;
            if start > r.old_start {
                range.old_start = start;
                range.new_start = whole.new_address(start);
            }
            if end < r.old_end {
                range.old_end = end;
                range.new_end = whole.new_address(end);
            }
            (range.new_start < range.new_end).then_some(Piece {
                range,
                map: self.map,
            })
        })
    }

    /// The new address of a landing pad, or its old one if it did not move:
    /// control that arrives there finds its way by itself.
    pub fn landing_pad(&self, old: u64) -> u64 {
        let inside = |new: &u64, r: &MovedRange| (r.new_start..r.new_end).contains(new);
        self.touching(old, old.saturating_add(1))
            .find_map(|r| self.map.new_address(old).filter(|new| inside(new, r)))
            .unwrap_or(old)
    }

    /// An FDE's whole range as a piece that stays where it is.
    pub fn unmoved(fde: &Fde) -> Piece<'static> {
        fn stay(old: u64) -> Option<u64> {
            Some(old)
        }
        let (start, end) = (fde.start, fde.end());
        let range = MovedRange {
            old_start: start,
            old_end: end,
            new_start: start,
            new_end: end,
        };
        Piece { range, map: &stay }
    }
}

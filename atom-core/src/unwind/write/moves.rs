//! The moved ranges of code, and the parts of an FDE's range that are in them.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::unwind::Fde;
use crate::x86::asm::Frame;
use crate::{Error, Result};

/// Largest number of addresses that are tried one by one. Real tables need few, for procedure
/// linkage tables. Hostile tables could ask for the whole text again and again.
const FUEL: u64 = 1 << 25;

/// A map from original addresses to addresses of the rewritten code.
pub trait AddressMap: Sync {
    /// New address of the instruction at `old`, including the code inserted before it. Known at
    /// least for every moved instruction boundary.
    fn new_address(&self, old: u64) -> Option<u64>;

    /// New address from which the row for `old` holds: after the instruction before `old`, in
    /// front of code that may have been inserted there.
    fn row_address(&self, old: u64) -> Option<u64> {
        self.new_address(old)
    }

    /// True if the code inserted near an original address leaves alone what is below rsp.
    fn keeps_below(&self, _old: u64) -> bool {
        false
    }

    /// The code inserted into a moved range.
    fn inserted(&self, _range: &MovedRange) -> Inserted {
        Inserted::default()
    }
}

/// A change by inserted code: how the original code's rsp is found from this new address on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StackAdjustment {
    /// The new address.
    pub at: u64,
    /// The place of the original code's rsp: [`Frame::Below`] or [`Frame::Stored`].
    pub frame: Frame,
    /// True if inserted code may write below the original rsp from here on.
    pub writes: bool,
}

impl StackAdjustment {
    /// rsp moves; inserted code writes where it is lower.
    pub fn new(at: u64, frame: Frame) -> Self {
        let writes = matches!(frame, Frame::Below(1..));
        Self { at, frame, writes }
    }

    /// Bytes by which rsp is lower than in the original code; 0 where it leads to another stack.
    pub fn depth(&self) -> u32 {
        match self.frame {
            Frame::Below(depth) => depth,
            Frame::Base | Frame::Stored(_) => 0,
        }
    }
}

/// Code that is after the procedure that it belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutOfLine {
    /// New address of the code.
    pub new: u64,
    /// The original address that has the same frame.
    pub old: u64,
}

/// Facts for unwinding about code inserted into a moved range.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Inserted {
    /// Changes of the stack pointer and of what is below it, ascending.
    pub adjustments: Vec<StackAdjustment>,
    /// Code out of order, ascending by new address, each up to the next or to
    /// the range's end. All other code of the range is in front of it.
    pub out_of_line: Vec<OutOfLine>,
}

impl<F: Fn(u64) -> Option<u64> + Sync> AddressMap for F {
    fn new_address(&self, old: u64) -> Option<u64> {
        self(old)
    }
}

/// A range of code, mostly a procedure, that was copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MovedRange {
    /// First original address.
    pub old_start: u64,
    /// The original address after the range.
    pub old_end: u64,
    /// First new address.
    pub new_start: u64,
    /// The new address after the range.
    pub new_end: u64,
}

/// The part of an FDE's range that is in one moved range.
#[derive(Clone, Copy)]
pub(super) struct Piece<'m> {
    pub range: MovedRange,
    /// `None` for code that stays in place.
    moves: Option<&'m Moves<'m>>,
}

impl Piece<'_> {
    /// New address of `old`. An address that the map does not know stands for the next known one.
    pub fn new_address(&self, old: u64) -> u64 {
        let r = &self.range;
        if old <= r.old_start {
            return r.new_start;
        }
        (old..r.old_end)
            .take_while(|&a| a == old || self.spend())
            .find_map(|a| self.exact(a))
            .unwrap_or(r.new_end)
    }

    /// New address from which the row for `old` holds, or the row for the next known address.
    pub fn row_address(&self, old: u64) -> u64 {
        let r = &self.range;
        if old <= r.old_start {
            return r.new_start;
        }
        (old..r.old_end)
            .take_while(|&a| a == old || self.spend())
            .find_map(|a| self.exact_row(a))
            .unwrap_or(r.new_end)
    }

    /// New address from which the row for the instruction at `old` holds, if the map knows it.
    pub fn exact_row(&self, old: u64) -> Option<u64> {
        let Some(moves) = self.moves else {
            return Some(old);
        };
        let r = &self.range;
        let new = moves.map.row_address(old);
        new.filter(|new| (r.new_start..=r.new_end).contains(new))
    }

    /// The inserted code of the piece.
    pub fn inserted(&self) -> Inserted {
        self.moves
            .map_or_else(Inserted::default, |m| m.map.inserted(&self.range))
    }

    /// True if its inserted code leaves alone what is below rsp.
    pub fn keeps_below(&self) -> bool {
        let old = self.range.old_start;
        self.moves.is_none_or(|m| m.map.keeps_below(old))
    }

    /// New address of the instruction at `old`, if the map knows it.
    pub fn exact(&self, old: u64) -> Option<u64> {
        let Some(moves) = self.moves else {
            return Some(old);
        };
        let r = &self.range;
        let new = moves.map.new_address(old);
        new.filter(|new| (r.new_start..=r.new_end).contains(new))
    }

    /// True if the code stays in place.
    pub fn stays(&self) -> bool {
        self.moves.is_none()
    }

    /// Counts another tried address; false if there were too many.
    pub fn spend(&self) -> bool {
        self.moves.is_none_or(|moves| {
            let less = |left: u64| left.checked_sub(1);
            moves
                .fuel
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)
                .is_ok()
        })
    }

    /// True if every search was carried to its end.
    pub fn searched(&self) -> bool {
        self.moves
            .is_none_or(|moves| moves.fuel.load(Ordering::Relaxed) > 0)
    }
}

/// All moved ranges, searchable even where they overlap.
pub(super) struct Moves<'m> {
    ranges: &'m [MovedRange],
    /// For each range the highest end of this range and all ranges before it.
    reach: Vec<u64>,
    map: &'m dyn AddressMap,
    fuel: AtomicU64,
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
        let fuel = AtomicU64::new(FUEL);
        Ok(Self {
            ranges,
            reach,
            map,
            fuel,
        })
    }

    fn touching(&self, start: u64, end: u64) -> impl Iterator<Item = &MovedRange> {
        let first = self.reach.partition_point(|&reach| reach <= start);
        self.ranges[first..]
            .iter()
            .take_while(move |r| r.old_start < end)
            .filter(move |r| r.old_end > start && r.old_start < r.old_end)
    }

    /// The pieces of an FDE that moved.
    pub fn pieces(&self, fde: &Fde) -> impl Iterator<Item = Piece<'_>> {
        let (start, end) = (fde.start, fde.end());
        let moves = Some(self);
        self.touching(start, end).filter_map(move |r| {
            let whole = Piece { range: *r, moves };
            let mut range = *r;
            if start > r.old_start {
                range.old_start = start;
                range.new_start = whole.row_address(start);
            }
            if end < r.old_end {
                range.old_end = end;
                range.new_end = whole.row_address(end);
            }
            (range.new_start < range.new_end).then_some(Piece { range, moves })
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

    /// Size of the new text in bytes.
    pub fn new_size(&self) -> usize {
        let sizes = self.ranges.iter().map(|r| r.new_end - r.new_start);
        sizes.fold(0u64, u64::saturating_add) as usize
    }

    /// Largest number of pieces that real tables can have.
    pub fn most_pieces(&self, fdes: usize) -> usize {
        8 * (fdes + self.ranges.len())
    }
}

/// An FDE's whole range as a piece that stays where it is.
pub(super) fn in_place(fde: &Fde) -> Piece<'static> {
    let (start, end) = (fde.start, fde.end());
    let range = MovedRange {
        old_start: start,
        old_end: end,
        new_start: start,
        new_end: end,
    };
    Piece { range, moves: None }
}

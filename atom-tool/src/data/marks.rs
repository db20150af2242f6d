//! Marks: bytes that are set when control passes a point.
//!
//! A tool that wants to know whether a point was reached, not how often, sets a mark. That is one store of a
//! constant: no register, no flag and no earlier value is needed. All threads share the table, as every thread
//! stores the same value. A forked child keeps the marks of the process before the fork.
//!
//! Layout: the number of marks (u64), then one byte for each mark.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use atom_abi::host::{self, ArgKind};

use crate::calls::params::{Param, code};
use crate::calls::proto::{NamedArg, Placed, PlacedType};
use crate::calls::typed::{Arg, computed};
use crate::navigation::program::Program;

const HEADER: usize = size_of::<u64>();

/// Instrument side: a table of marks, made by [`Program::marks`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MarkTable {
    /// Offset in the data that the tool placed.
    offset: u64,
    rows: usize,
}

impl Program<'_> {
    /// A table of `rows` marks, all of them clear. All threads share it.
    pub fn marks(&self, rows: usize) -> MarkTable {
        MarkTable::new(self, rows)
    }
}

impl MarkTable {
    pub(crate) fn new(program: &Program<'_>, rows: usize) -> Self {
        let size = rows.saturating_add(HEADER);
        let mut bytes = (rows as u64).to_le_bytes().to_vec();
        // If there is no memory of that size, `place` refuses it with a message.
        if bytes.try_reserve_exact(size).is_ok() {
            bytes.resize(size, 0);
        }
        Self {
            offset: program.place("marks", &bytes, size),
            rows,
        }
    }

    /// Number of marks.
    pub fn len(self) -> usize {
        self.rows
    }

    /// True if it has no marks.
    pub fn is_empty(self) -> bool {
        self.rows == 0
    }

    /// The mark `i`, as an argument for a [`Mark`].
    ///
    /// # Panics
    /// If there is no such mark.
    pub fn at(self, i: usize) -> MarkAt {
        assert!(i < self.rows, "mark {i} of a table of {} marks", self.rows);
        MarkAt(self.offset.wrapping_add((HEADER + i) as u64))
    }
}

/// Instrument side: one mark of a [`MarkTable`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MarkAt(u64);

impl Arg<Mark> for MarkAt {
    fn to_host(&self) -> host::Arg {
        computed(ArgKind::Data, self.0)
    }
}

impl Arg<Marks> for MarkTable {
    fn to_host(&self) -> host::Arg {
        computed(ArgKind::Data, self.offset)
    }
}

impl From<MarkAt> for NamedArg<'_> {
    fn from(mark: MarkAt) -> Self {
        Placed::of(PlacedType::Mark, Arg::<Mark>::to_host(&mark))
    }
}

impl From<MarkTable> for NamedArg<'_> {
    fn from(table: MarkTable) -> Self {
        Placed::of(PlacedType::Marks, Arg::<Marks>::to_host(&table))
    }
}

/// Analysis side: one mark.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Mark(&'static AtomicU8);

// SAFETY: transparent over a pointer.
unsafe impl Param for Mark {
    const CODE: u8 = code::OTHER;
}

impl Mark {
    /// Sets the mark.
    #[inline(always)]
    pub fn set(self) {
        self.0.store(1, Relaxed);
    }

    /// True if the mark is set.
    #[inline(always)]
    pub fn is_set(self) -> bool {
        self.0.load(Relaxed) != 0
    }

    /// Takes the mark for a count of 8 bits and adds 1; the count goes from 255 to 1, never back to 0. Threads that
    /// count at the same time may lose counts.
    #[inline(always)]
    pub fn count(self) {
        let (sum, has_wrapped) = self.0.load(Relaxed).overflowing_add(1);
        self.0.store(sum + u8::from(has_wrapped), Relaxed);
    }
}

/// Analysis side: a whole table.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Marks(*const u64);

// SAFETY: transparent over a pointer.
unsafe impl Param for Marks {
    const CODE: u8 = code::OTHER;
}

impl Marks {
    fn all(self) -> &'static [AtomicU8] {
        // SAFETY: only `atom` makes values of this type. They point to a table that `MarkTable::new` laid out.
        unsafe { std::slice::from_raw_parts(self.0.add(1).cast(), *self.0 as usize) }
    }

    /// Number of marks.
    pub fn len(self) -> usize {
        self.all().len()
    }

    /// True if it has no marks.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Address of the first mark; the others follow it.
    pub fn address(self) -> usize {
        self.all().as_ptr().addr()
    }

    /// Sets all marks, or none.
    pub fn set_all(self, is_set: bool) {
        for mark in self.all() {
            mark.store(is_set.into(), Relaxed);
        }
    }

    /// All marks: 0 for each that is not set.
    pub fn copy(self) -> Vec<u8> {
        self.all().iter().map(|mark| mark.load(Relaxed)).collect()
    }

    /// True if the mark `i` is set; false if there is no such mark.
    pub fn is_set(self, i: usize) -> bool {
        self.all()
            .get(i)
            .is_some_and(|mark| mark.load(Relaxed) != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_that_are_set_are_found() {
        #[repr(align(8))]
        struct Aligned([u8; 16]);
        let table = &mut Box::leak(Box::new(Aligned([0; 16]))).0;
        table[0] = 3;
        let table = table.as_ptr();
        let marks = Marks(table.cast());
        assert_eq!((marks.len(), marks.is_empty()), (3, false));
        Mark(&marks.all()[1]).set();
        assert_eq!(
            [0, 1, 2, 3].map(|i| marks.is_set(i)),
            [false, true, false, false]
        );
        assert_eq!(marks.copy(), [0, 1, 0]);
        assert_eq!(marks.address(), table.addr() + 8);
        marks.set_all(true);
        assert_eq!(marks.copy(), [1, 1, 1]);
        marks.set_all(false);
        assert!(!Mark(&marks.all()[1]).is_set());
        let cell = &marks.all()[2];
        let counts: Vec<u8> = (0..256)
            .map(|_| {
                Mark(cell).count();
                cell.load(Relaxed)
            })
            .collect();
        assert_eq!(counts[..3], [1, 2, 3]);
        assert_eq!(counts[253..], [254, 255, 1]);
    }
}

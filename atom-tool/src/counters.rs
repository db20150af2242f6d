//! Counters that are in the instrumented program before it starts.
//!
//! The instrument routine knows how many it needs, so they lie in the rewritten
//! file's data, and each call gets the address of its own as a constant: an
//! analysis routine that counts is one instruction on memory. Nothing has to be
//! allocated at ProgramBefore, so calls that run earlier (from IFUNC resolvers)
//! or later than ProgramAfter count and harm nothing.
//!
//! Layout: a header of two u64 (rows, cells in a row), then the cells, row by row.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use atom_abi::host::{self, ArgKind};

use crate::call::{Arg, computed};
use crate::params::{Param, code};
use crate::program::Program;

const HEADER: usize = 16;

/// Instrument side: a table of rows of `N` counters, made by [`Program::counters`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CounterTable<const N: usize = 1> {
    /// Offset in the data that the tool placed.
    offset: u64,
    rows: usize,
}

impl<const N: usize> CounterTable<N> {
    pub(crate) fn new(program: &Program<'_>, rows: usize) -> Self {
        const { assert!(N > 0, "a row has at least one counter") }
        let size = rows.saturating_mul(N * 8).saturating_add(HEADER);
        let mut bytes = Vec::new();
        // A size that cannot be had is refused below, with a message.
        if bytes.try_reserve_exact(size).is_ok() {
            bytes.extend((rows as u64).to_le_bytes());
            bytes.extend((N as u64).to_le_bytes());
            bytes.resize(size, 0);
        }
        let offset = program.place("counters", &bytes, size);
        Self { offset, rows }
    }

    /// Number of rows.
    pub fn len(self) -> usize {
        self.rows
    }

    /// True if it has no rows.
    pub fn is_empty(self) -> bool {
        self.rows == 0
    }

    /// The row `i`, as an argument for a [`Counter`].
    ///
    /// # Panics
    /// If there is no such row.
    pub fn at(self, i: usize) -> CounterAt<N> {
        assert!(
            i < self.rows,
            "row {i} of a table of {} counters",
            self.rows
        );
        CounterAt {
            offset: self.offset.wrapping_add((HEADER + i * N * 8) as u64),
        }
    }

    /// All rows in order.
    pub fn rows(self) -> impl DoubleEndedIterator<Item = CounterAt<N>> + ExactSizeIterator {
        (0..self.rows).map(move |i| self.at(i))
    }
}

/// Instrument side: one row of a [`CounterTable`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CounterAt<const N: usize = 1> {
    offset: u64,
}

impl<const N: usize> Arg<Counter<N>> for CounterAt<N> {
    fn to_host(&self) -> host::Arg {
        computed(ArgKind::Data, self.offset)
    }
}

impl<const N: usize> Arg<Counters<N>> for CounterTable<N> {
    fn to_host(&self) -> host::Arg {
        computed(ArgKind::Data, self.offset)
    }
}

/// Analysis side: one counter, or a row of `N`.
///
/// Counting is exact with respect to signals: it is one instruction. With
/// threads it is exact with the methods whose names end in `_atomic`, which
/// cost more; ask [`Program::may_have_threads`] which to use.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Counter<const N: usize = 1>(&'static [AtomicU64; N]);

// SAFETY: transparent over a pointer.
unsafe impl<const N: usize> Param for Counter<N> {
    const CODE: u8 = code::OTHER;
}

impl Counter<1> {
    /// Adds 1.
    #[inline(always)]
    pub fn increment(self) {
        self.add_to(0, 1);
    }

    /// Adds 1, exactly with threads too.
    #[inline(always)]
    pub fn increment_atomic(self) {
        self.add_to_atomic(0, 1);
    }

    /// Adds `n`.
    #[inline(always)]
    pub fn add(self, n: u64) {
        self.add_to(0, n);
    }

    /// Adds `n`, exactly with threads too.
    #[inline(always)]
    pub fn add_atomic(self, n: u64) {
        self.add_to_atomic(0, n);
    }
}

impl<const N: usize> Counter<N> {
    /// Adds `n` to the cell `i`; `i` must be less than `N`.
    #[inline(always)]
    pub fn add_to(self, i: usize, n: u64) {
        // Relaxed accesses of one cell: the compiler makes one `add` on memory of them.
        let cell = &self.0[i];
        cell.store(cell.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// Adds `n` to the cell `i`, exactly with threads too; `i` must be less than `N`.
    #[inline(always)]
    pub fn add_to_atomic(self, i: usize, n: u64) {
        self.0[i].fetch_add(n, Relaxed);
    }

    /// What the cells have counted.
    pub fn get(self) -> [u64; N] {
        std::array::from_fn(|i| self.0[i].load(Relaxed))
    }
}

/// Analysis side: a whole table.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Counters<const N: usize = 1>(*const Header);

// SAFETY: transparent over a pointer.
unsafe impl<const N: usize> Param for Counters<N> {
    const CODE: u8 = code::OTHER;
}

/// What precedes the cells.
#[repr(C)]
struct Header {
    rows: u64,
    cells: u64,
}

impl<const N: usize> Counters<N> {
    fn all(self) -> &'static [[AtomicU64; N]] {
        // SAFETY: values of this type are made only by `atom`, which points them
        // to a table of this N that `CounterTable::new` laid out.
        unsafe { std::slice::from_raw_parts(self.0.add(1).cast(), (*self.0).rows as usize) }
    }

    /// Number of rows.
    pub fn len(self) -> usize {
        self.all().len()
    }

    /// True if it has no rows.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The row `i`.
    pub fn at(self, i: usize) -> Counter<N> {
        Counter(&self.all()[i])
    }

    /// What all rows have counted.
    pub fn rows(self) -> impl DoubleEndedIterator<Item = [u64; N]> + ExactSizeIterator {
        self.all().iter().map(|row| Counter(row).get())
    }
}

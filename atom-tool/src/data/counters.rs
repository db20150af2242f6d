//! Counters that are in the instrumented program before it starts.
//!
//! The instrument routine knows how many counters it needs, so they are in the data of the
//! rewritten file, and each call gets the address of its counter. An analysis routine that counts
//! is then one instruction on memory. Nothing is allocated at ProgramBefore, so calls that run
//! earlier (from IFUNC resolvers) or later than ProgramAfter count, too, and do no harm.
//!
//! How threads share them is part of the type. By default each thread has its
//! own counters, and the calls at ProgramAfter get the sums: exact, and as fast as in a program
//! with one thread. [`AtomicCounter`]s exist once and are changed atomically: exact, but slower; a
//! routine that reads one while the program runs gets the sum of all threads. [`PlainCounter`]s
//! exist once and lose counts when two threads change one at the same time.
//!
//! Layout: a header of two u64 (rows, cells in a row), then the cells, row by row.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use atom_abi::ThreadBlock;
use atom_abi::host::{self, ArgKind};

use crate::calls::params::{Param, code};
use crate::calls::proto::{NamedArg, Placed, PlacedType};
use crate::calls::typed::{Arg, computed};
use crate::navigation::program::Program;

const HEADER: usize = 16;

/// How threads share counters: [`Own`], [`Atomic`] or [`Plain`].
pub trait Sharing: sealed::Kind + Copy + 'static {}

mod sealed {
    pub trait Kind {
        /// Each thread has its own counters.
        const PER_THREAD: bool;
        /// Additions are atomic.
        const ATOMIC: bool;
    }
}

/// Each thread has counters of its own; they are summed at the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Own;

/// All threads share the counters and change them atomically.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Atomic;

/// All threads share the counters and may lose counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plain;

macro_rules! sharing {
    ($($name:ident $per_thread:literal $atomic:literal;)*) => {$(
        impl Sharing for $name {}
        impl sealed::Kind for $name {
            const PER_THREAD: bool = $per_thread;
            const ATOMIC: bool = $atomic;
        }
    )*};
}
sharing! {
    Own true false;
    Atomic false true;
    Plain false false;
}

/// Instrument side: a table of rows of `N` counters, made by [`Program::counters`]
/// and its variants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CounterTable<const N: usize = 1, S = Own> {
    /// Offset in the data that the tool placed.
    offset: u64,
    rows: usize,
    sharing: PhantomData<S>,
}

impl<const N: usize, S: Sharing> CounterTable<N, S> {
    pub(crate) fn new(program: &Program<'_>, rows: usize) -> Self {
        const { assert!(N > 0, "a row has at least one counter") }
        let size = rows.saturating_mul(N * 8).saturating_add(HEADER);
        let mut header = Vec::with_capacity(HEADER);
        header.extend((rows as u64).to_le_bytes());
        header.extend((N as u64).to_le_bytes());
        let offset = if S::PER_THREAD {
            program.place_for_threads(&header, size, HEADER)
        } else {
            let mut bytes = header;
            // If there is no memory of that size, `place` refuses it with a message.
            if bytes.try_reserve_exact(size).is_ok() {
                bytes.resize(size, 0);
            }
            program.place_counts("counters", &bytes, size, size.saturating_sub(HEADER))
        };
        Self {
            offset,
            rows,
            sharing: PhantomData,
        }
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
    pub fn at(self, i: usize) -> CounterAt<N, S> {
        assert!(
            i < self.rows,
            "row {i} of a table of {} counters",
            self.rows
        );
        CounterAt {
            offset: self.offset.wrapping_add((HEADER + i * N * 8) as u64),
            sharing: PhantomData,
        }
    }

    /// All rows in order.
    pub fn rows(self) -> impl DoubleEndedIterator<Item = CounterAt<N, S>> + ExactSizeIterator {
        (0..self.rows).map(move |i| self.at(i))
    }
}

/// Instrument side: one row of a [`CounterTable`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CounterAt<const N: usize = 1, S = Own> {
    offset: u64,
    sharing: PhantomData<S>,
}

impl Program<'_> {
    /// A table of `rows` rows of `N` counters, all 0, in the instrumented program.
    /// Each thread counts with its own; ProgramAfter sees the sums. In a program
    /// with one thread they are ordinary data.
    pub fn counters<const N: usize>(&self, rows: usize) -> CounterTable<N> {
        CounterTable::new(self, rows)
    }

    /// A table as of [`Program::counters`] that exists once for all threads, which count atomically.
    pub fn atomic_counters<const N: usize>(&self, rows: usize) -> CounterTable<N, Atomic> {
        CounterTable::new(self, rows)
    }

    /// A table that exists once for all threads and loses counts when two of them change one
    /// counter at the same time.
    pub fn plain_counters<const N: usize>(&self, rows: usize) -> CounterTable<N, Plain> {
        CounterTable::new(self, rows)
    }
}

fn argument<S: Sharing>(offset: u64) -> host::Arg {
    let kind = if S::PER_THREAD {
        ArgKind::ThreadData
    } else {
        ArgKind::Data
    };
    computed(kind, offset)
}

impl<const N: usize, S: Sharing> Arg<Counter<N, S>> for CounterAt<N, S> {
    fn to_host(&self) -> host::Arg {
        argument::<S>(self.offset)
    }
}

impl<const N: usize, S: Sharing> Arg<Counters<N, S>> for CounterTable<N, S> {
    fn to_host(&self) -> host::Arg {
        argument::<S>(self.offset)
    }
}

impl<const N: usize, S: Sharing> From<CounterAt<N, S>> for NamedArg<'_> {
    fn from(row: CounterAt<N, S>) -> Self {
        let arg = Arg::<Counter<N, S>>::to_host(&row);
        Placed::of(PlacedType::Counter, arg)
    }
}

impl<const N: usize, S: Sharing> From<CounterTable<N, S>> for NamedArg<'_> {
    fn from(table: CounterTable<N, S>) -> Self {
        let arg = Arg::<Counters<N, S>>::to_host(&table);
        Placed::of(PlacedType::Counters, arg)
    }
}

/// Analysis side: one counter, or a row of `N`.
///
/// Counting is exact with respect to signals: it is one instruction. It is exact
/// with threads too, as each thread counts on its own, unless the counters are
/// [`PlainCounter`]s.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Counter<const N: usize = 1, S: Sharing = Own> {
    cells: &'static [AtomicU64; N],
    sharing: PhantomData<S>,
}

/// A [`Counter`] that all threads share and change atomically; see
/// [`Program::atomic_counters`].
pub type AtomicCounter<const N: usize = 1> = Counter<N, Atomic>;

/// A [`Counter`] that all threads share, and that loses counts when they meet; see
/// [`Program::plain_counters`].
pub type PlainCounter<const N: usize = 1> = Counter<N, Plain>;

// SAFETY: transparent over a pointer.
unsafe impl<const N: usize, S: Sharing> Param for Counter<N, S> {
    const CODE: u8 = code::OTHER;
}

#[cfg(test)]
impl<const N: usize> Counter<N> {
    /// A counter of one thread, for tests.
    pub(crate) fn of(cells: &'static [AtomicU64; N]) -> Self {
        Self {
            cells,
            sharing: PhantomData,
        }
    }
}

impl<S: Sharing> Counter<1, S> {
    /// Adds 1.
    #[inline(always)]
    pub fn increment(self) {
        self.add_to(0, 1);
    }

    /// Adds `n`.
    #[inline(always)]
    pub fn add(self, n: u64) {
        self.add_to(0, n);
    }
}

impl Counter<1, Own> {
    /// Adds 1 and returns the new value, whose sign the compiler can take from the flags of the one instruction that adds. An
    /// inlined routine then needs no register for it.
    #[inline(always)]
    pub fn count_up(self) -> i64 {
        let cell = self.cells[0].as_ptr();
        // SAFETY: the thread's own cell, which no other thread changes while it runs.
        unsafe {
            *cell = (*cell).wrapping_add(1);
            *cell as i64
        }
    }

    /// Sets it and returns the value before, in one instruction. A tool that uses its counters in this way adds up what it
    /// takes from them itself.
    pub fn replace(self, value: u64) -> u64 {
        self.cells[0].swap(value, Relaxed)
    }
}

impl<const N: usize, S: Sharing> Counter<N, S> {
    /// Adds `n` to the cell `i`; `i` must be less than `N`.
    #[inline(always)]
    pub fn add_to(self, i: usize, n: u64) {
        let cell = &self.cells[i];
        if S::ATOMIC {
            cell.fetch_add(n, Relaxed);
        } else {
            // Relaxed accesses of one cell: the compiler makes one `add` on memory of them.
            cell.store(cell.load(Relaxed).wrapping_add(n), Relaxed);
        }
    }

    /// The counter `rows` rows after this one in its table.
    ///
    /// It serves only the references of a group, whose rows [`Simulation`](crate::simulate::Simulation)
    /// takes from one table.
    pub(crate) fn row_after(self, rows: usize) -> Self {
        // SAFETY: the rows of a group's parts follow the row of its first part in the table
        // from which all of them were taken.
        let cells = unsafe { &*std::ptr::from_ref(self.cells).add(rows) };
        Self { cells, ..self }
    }

    /// The cells themselves.
    pub(crate) fn cells(self) -> &'static [AtomicU64; N] {
        self.cells
    }

    /// The cells' values: counts of this thread while the program runs, of all threads at
    /// ProgramAfter.
    pub fn get(self) -> [u64; N] {
        std::array::from_fn(|i| self.cells[i].load(Relaxed))
    }
}

/// Analysis side: a whole table.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Counters<const N: usize = 1, S: Sharing = Own> {
    header: *const Header,
    sharing: PhantomData<S>,
}

/// The table of [`AtomicCounter`]s.
pub type AtomicCounters<const N: usize = 1> = Counters<N, Atomic>;

/// The table of [`PlainCounter`]s.
pub type PlainCounters<const N: usize = 1> = Counters<N, Plain>;

// SAFETY: transparent over a pointer.
unsafe impl<const N: usize, S: Sharing> Param for Counters<N, S> {
    const CODE: u8 = code::OTHER;
}

/// Analysis side: a whole table of [`Counter`]s, whose rows have any number of cells.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct AnyCounters {
    header: *const Header,
}

// SAFETY: transparent over a pointer.
unsafe impl Param for AnyCounters {
    const CODE: u8 = code::OTHER;
}

impl<const N: usize> Arg<AnyCounters> for CounterTable<N> {
    fn to_host(&self) -> host::Arg {
        Arg::<Counters<N>>::to_host(self)
    }
}

impl AnyCounters {
    /// The same table in the block of a thread. This one is the main block's, as routines at ProgramBefore get it.
    pub(crate) fn of(self, block: *const ThreadBlock) -> Self {
        let distance = analysis_rt::from_main_block(block);
        Self {
            header: self.header.wrapping_byte_add(distance),
        }
    }

    /// The cells of a row; none if there is no such row.
    pub(crate) fn row(self, i: usize) -> &'static [AtomicU64] {
        // SAFETY: only `atom` makes values of this type. They point to a table that `CounterTable::new` laid out.
        unsafe {
            let (rows, cells) = ((*self.header).rows as usize, (*self.header).cells as usize);
            if i >= rows {
                return &[];
            }
            let first = self.header.add(1).cast::<AtomicU64>();
            std::slice::from_raw_parts(first.add(i * cells), cells)
        }
    }
}

/// The header before the cells.
#[repr(C)]
struct Header {
    rows: u64,
    cells: u64,
}

impl<const N: usize, S: Sharing> Counters<N, S> {
    pub(crate) fn address(self) -> *const () {
        self.header.cast()
    }

    /// # Safety
    /// There must be such a table at the address, for as long as the program runs.
    pub(crate) unsafe fn from_address(address: *const ()) -> Self {
        Self {
            header: address.cast(),
            sharing: PhantomData,
        }
    }

    fn all(self) -> &'static [[AtomicU64; N]] {
        // SAFETY: only `atom` makes values of this type. They point to a table with this N that
        // `CounterTable::new` laid out.
        unsafe {
            std::slice::from_raw_parts(self.header.add(1).cast(), (*self.header).rows as usize)
        }
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
    pub fn at(self, i: usize) -> Counter<N, S> {
        Counter {
            cells: &self.all()[i],
            sharing: PhantomData,
        }
    }

    /// The values of all rows; see [`Counter::get`].
    pub fn rows(self) -> impl DoubleEndedIterator<Item = [u64; N]> + ExactSizeIterator {
        (0..self.len()).map(move |i| self.at(i).get())
    }
}

//! Rows of per-thread cells, as many as the instrument routine needs. They differ from
//! [`Counters`](crate::Counters) in that the cells are not summed over threads at the end.
//!
//! Layout: a header of two words, the distance from the start of the thread's block and the
//! number of rows; then the cells, row by row.

use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::atomic::Ordering::Acquire;

use atom_abi::host::{self, ArgKind};
use atom_abi::{THREAD_HEADER, ThreadBlock};

use crate::calls::params::{Element, Param, code};
use crate::calls::typed::{Arg, computed};
use crate::data::thread_data::{PerThread, ThreadCell, ThreadState};
use crate::navigation::program::Program;

const HEAD: usize = 16;

/// Instrument side: rows of `N` cells, made by [`Program::thread_rows`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ThreadRows<const N: usize> {
    offset: u64,
    rows: usize,
}

/// Instrument side: one of [`ThreadRows`]. It may also be part of a plain structure
/// ([`plain_data!`](crate::plain_data)), where [`row`](Self::row) finds it on the analysis side.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ThreadRowAt<const N: usize> {
    /// Offset in bytes from the end of the block's header.
    offset: u64,
}

// SAFETY: one integer.
unsafe impl<const N: usize> Element for ThreadRowAt<N> {}

impl<const N: usize> ThreadRowAt<N> {
    /// Analysis side: this row of the thread that the state belongs to.
    pub fn row<T: ThreadState>(self, state: PerThread<T>) -> ThreadRow<N> {
        let at = THREAD_HEADER + self.offset as usize;
        // SAFETY: only `ThreadRows::at` makes values of this type, for a row that each block has;
        // blocks live for ever.
        let cells = unsafe { &*state.block().byte_add(at).cast::<[ThreadCell<u64>; N]>() };
        ThreadRow {
            cells,
            this_thread: PhantomData,
        }
    }
}

impl Program<'_> {
    /// `rows` rows of `N` cells for each thread, all 0 at first.
    pub fn thread_rows<const N: usize>(&self, rows: usize) -> ThreadRows<N> {
        let size = rows.saturating_mul(N * 8).saturating_add(HEAD);
        // The offset is known only when data is placed, so a first, empty placement finds it out.
        let offset = self.place_for_threads(&[], 0, 0);
        let mut head = [0; HEAD];
        let distance = (THREAD_HEADER as u64).wrapping_add(offset);
        head[..8].copy_from_slice(&distance.to_le_bytes());
        head[8..].copy_from_slice(&(rows as u64).to_le_bytes());
        ThreadRows {
            offset: self.place_for_threads(&head, size, size & !7),
            rows,
        }
    }
}

impl<const N: usize> ThreadRows<N> {
    /// The row `i`, as an argument for a [`ThreadRow`].
    ///
    /// # Panics
    /// If there is no such row.
    pub fn at(self, i: usize) -> ThreadRowAt<N> {
        assert!(i < self.rows, "row {i} of {}", self.rows);
        ThreadRowAt {
            offset: self.offset.wrapping_add((HEAD + i * N * 8) as u64),
        }
    }
}

impl<const N: usize> Arg<ThreadRow<N>> for ThreadRowAt<N> {
    fn to_host(&self) -> host::Arg {
        computed(ArgKind::ThreadData, self.offset)
    }
}

impl<const N: usize> Arg<AllThreadRows<N>> for ThreadRows<N> {
    fn to_host(&self) -> host::Arg {
        computed(ArgKind::ThreadData, self.offset)
    }
}

/// Analysis side: one row of the running thread; use it as a `&[ThreadCell<u64>; N]`.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct ThreadRow<const N: usize> {
    cells: &'static [ThreadCell<u64>; N],
    this_thread: PhantomData<*const ()>,
}

// SAFETY: transparent over a pointer.
unsafe impl<const N: usize> Param for ThreadRow<N> {
    const CODE: u8 = code::OTHER;
}

impl<const N: usize> Deref for ThreadRow<N> {
    type Target = [ThreadCell<u64>; N];

    #[inline(always)]
    fn deref(&self) -> &Self::Target {
        self.cells
    }
}

/// Analysis side, at ProgramAfter: the rows of all threads.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct AllThreadRows<const N: usize> {
    head: *const [u64; 2],
}

// SAFETY: transparent over a pointer.
unsafe impl<const N: usize> Param for AllThreadRows<N> {
    const CODE: u8 = code::OTHER;
}

impl<const N: usize> AllThreadRows<N> {
    /// The rows of each thread.
    pub fn iter(self) -> impl Iterator<Item = &'static [[ThreadCell<u64>; N]]> {
        // SAFETY: only `atom` makes values of this type. They point to data that `thread_rows`
        // laid out, in a block; blocks live for ever, and cells are atomic.
        unsafe {
            let [distance, rows] = (*self.head).map(|n| n as usize);
            let block = self.head.byte_sub(distance).cast::<ThreadBlock>();
            let first = if (*block).is_total != 0 {
                (*block).next.load(Acquire).cast_const()
            } else {
                block
            };
            std::iter::successors(first.as_ref(), |b| b.next.load(Acquire).as_ref()).map(
                move |block| {
                    let cells = std::ptr::from_ref(block).byte_add(distance + HEAD);
                    std::slice::from_raw_parts(cells.cast(), rows)
                },
            )
        }
    }
}

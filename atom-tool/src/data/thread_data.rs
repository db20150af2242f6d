//! State of any shape that each thread has a copy of.
//!
//! It consists of [`ThreadCell`]s, which change through shared references. So a signal handler
//! that interrupts a routine and enters it again finds nothing borrowed, and the report may read
//! cells that another thread still writes.
//!
//! Layout: a header of 16 bytes with the distance from the start of the thread's block, then the
//! value. The distance leads from one copy to the block, and from there to the copies of all
//! other threads.

use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

use atom_abi::host::{self, ArgKind};
use atom_abi::{THREAD_HEADER, ThreadBlock};

use crate::calls::params::{Param, code};
use crate::calls::proto::{Placed, PlacedType};
use crate::calls::typed::{Arg, computed};
use crate::data::counters::Counters;
use crate::navigation::program::Program;

const HEAD: usize = 16;

/// Types that [`PerThread`] state may consist of: [`ThreadCell`]s, arrays of them, and
/// structures that [`thread_state!`](crate::thread_state) defines.
///
/// # Safety
/// Its bytes are copied into the instrumented program, so it has no pointers,
/// and changes through shared references are atomic. Its alignment is at most 16.
/// If all of its bytes are zero, it is a value.
pub unsafe trait ThreadState: Sync + 'static {
    /// The state in which each cell is 0.
    fn zero() -> Self
    where
        Self: Sized,
    {
        // SAFETY: by the trait's contract, all zeros are a value.
        unsafe { std::mem::zeroed() }
    }
}

mod sealed {
    /// Integers that fit an atomic.
    pub trait Int: Copy + 'static {
        type Atomic: Sync + 'static;
        fn new(value: Self) -> Self::Atomic;
        fn load(cell: &Self::Atomic) -> Self;
        fn store(cell: &Self::Atomic, value: Self);
        fn sum(self, other: Self) -> Self;
    }
}
use sealed::Int;

macro_rules! integers {
    ($($int:ty, $atomic:ident;)*) => {$(
        impl Int for $int {
            type Atomic = std::sync::atomic::$atomic;

            #[inline(always)]
            fn new(value: Self) -> Self::Atomic {
                Self::Atomic::new(value)
            }

            #[inline(always)]
            fn load(cell: &Self::Atomic) -> Self {
                cell.load(Relaxed)
            }

            #[inline(always)]
            fn store(cell: &Self::Atomic, value: Self) {
                cell.store(value, Relaxed);
            }

            #[inline(always)]
            fn sum(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
        }
    )*};
}
integers! {
    u8, AtomicU8; u16, AtomicU16; u32, AtomicU32; u64, AtomicU64; usize, AtomicUsize;
    i8, AtomicI8; i16, AtomicI16; i32, AtomicI32; i64, AtomicI64; isize, AtomicIsize;
}

/// An integer in the state of a thread, like a `Cell`. One thread writes it, so
/// nothing needs a lock: `get`, `set` and `add` are plain instructions.
#[repr(transparent)]
pub struct ThreadCell<T: Int>(T::Atomic);

impl<T: Int> ThreadCell<T> {
    /// A cell with this initial value in each thread.
    pub fn new(value: T) -> Self {
        Self(T::new(value))
    }

    /// Cells with 0, in memory that takes no room before it is used.
    pub fn zeros(len: usize) -> Box<[Self]> {
        // SAFETY: all zero is a valid integer.
        let zeros = vec![unsafe { std::mem::zeroed::<T>() }; len].into_boxed_slice();
        // SAFETY: a cell is an atomic integer, which has the layout of the integer.
        unsafe { Box::from_raw(Box::into_raw(zeros) as *mut [Self]) }
    }

    /// The cell's value.
    #[inline(always)]
    pub fn get(&self) -> T {
        T::load(&self.0)
    }

    /// The cell's value, read in a way that lets the compiler compare it where it is in memory. An inlined routine
    /// then needs no register for it.
    ///
    /// # Safety
    /// No other thread writes to the cell at the same time.
    #[inline(always)]
    pub unsafe fn get_in_place(&self) -> T {
        // SAFETY: a valid integer in the thread's own memory; the caller excludes writers.
        unsafe { std::ptr::from_ref(&self.0).cast::<T>().read() }
    }

    /// Sets the cell.
    #[inline(always)]
    pub fn set(&self, value: T) {
        T::store(&self.0, value);
    }

    /// Adds, and wraps around.
    #[inline(always)]
    pub fn add(&self, value: T) {
        self.set(self.get().sum(value));
    }
}

impl ThreadCell<u32> {
    #[inline(always)]
    fn byte(&self, number: usize) -> &AtomicU8 {
        let bytes = self.0.as_ptr().cast::<AtomicU8>();
        // SAFETY: an integer of four bytes consists of four integers of one byte, which live as
        // long. Only the cell's own thread accesses it, so no access to a byte meets an access to
        // the whole.
        unsafe { &*bytes.add(number % 4) }
    }

    /// One of the cell's bytes, counted from the lowest.
    #[inline(always)]
    pub fn get_byte(&self, number: usize) -> u8 {
        self.byte(number).load(Relaxed)
    }

    /// Sets one of the cell's bytes.
    #[inline(always)]
    pub fn set_byte(&self, number: usize, value: u8) {
        self.byte(number).store(value, Relaxed);
    }
}

impl ThreadCell<i64> {
    /// Subtracts, wraps around, and returns the new value. The compiler can take its sign from the flags of the one
    /// instruction that subtracts, so an inlined routine needs no register for it.
    ///
    /// # Safety
    /// No other thread writes to the cell at the same time.
    #[inline(always)]
    pub unsafe fn subtract_in_place(&self, amount: i64) -> i64 {
        let at = self.0.as_ptr();
        // SAFETY: an integer in the thread's own memory; the caller excludes writers.
        unsafe {
            *at = (*at).wrapping_sub(amount);
            *at
        }
    }
}

impl ThreadCell<u64> {
    /// Adds, and returns the value before, in one instruction: a thread and a signal handler that
    /// interrupts it never get the same value.
    #[inline(always)]
    pub fn fetch_add(&self, mut value: u64) -> u64 {
        // SAFETY: the cell is the thread's own memory. Without a lock the instruction is
        // atomic for one processor only, which is enough for one thread.
        unsafe {
            std::arch::asm!(
                "xadd [{cell}], {value}",
                cell = in(reg) self.0.as_ptr(),
                value = inout(reg) value,
                options(nostack)
            );
        }
        value
    }

    /// Adds `SIZE`, and returns the value after it: a thread and a signal handler that interrupts it never get the same
    /// value. In a loop of notes an addition with the comparison takes 0.7 to 0.8 ns, an exchange 2.2 ns.
    ///
    /// A handler that adds between the load and the addition, or after it, leaves a gap: what was added here is nobody's.
    #[inline(always)]
    pub fn claim<const SIZE: u64>(&self) -> u64 {
        let end: u64;
        // SAFETY: the cell is the thread's own memory.
        unsafe {
            std::arch::asm!(
                "mov {end}, [{cell}]",
                "add qword ptr [{cell}], {size}",
                "add {end}, {size}",
                cell = in(reg) self.0.as_ptr(),
                end = out(reg) end,
                size = const SIZE,
                options(nostack)
            );
            if self.get_in_place() == end {
                return end;
            }
        }
        // Here a handler came in between.
        self.fetch_add(SIZE) + SIZE
    }

    /// Sets the cell to `new` if it is `old`. Threads other than the cell's own use it.
    #[inline]
    pub fn replace(&self, old: u64, new: u64) {
        let _ = self.0.compare_exchange(old, new, SeqCst, Relaxed);
    }

    /// Sets the cell, and returns the value before, in one instruction.
    #[inline(always)]
    pub fn swap(&self, mut value: u64) -> u64 {
        // SAFETY: the cell is the thread's own memory.
        unsafe {
            std::arch::asm!(
                "xchg [{cell}], {value}",
                cell = in(reg) self.0.as_ptr(),
                value = inout(reg) value,
                options(nostack, preserves_flags)
            );
        }
        value
    }
}

impl<T: Int + Default> Default for ThreadCell<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

// SAFETY: an atomic integer.
unsafe impl<T: Int> ThreadState for ThreadCell<T> {}
// SAFETY: an array of such state is such state.
unsafe impl<T: ThreadState, const N: usize> ThreadState for [T; N] {}

/// Defines a structure that each thread may have a copy of:
///
/// ```
/// # use atom_tool::{ThreadCell, thread_state};
/// thread_state! {
///     /// What a thread did last.
///     pub struct Last {
///         address: ThreadCell<u64>,
///         lines: [ThreadCell<u32>; 4],
///     }
/// }
/// ```
///
/// `Last::zero()` of [`ThreadState`](crate::ThreadState) makes a value with 0 in each cell, `Last {
/// address: ThreadCell::new(1), .. }` any other value.
///
/// Fields that a thread could not have a copy of do not compile:
///
/// ```compile_fail,E0277
/// # use atom_tool::thread_state;
/// thread_state! { struct Name { text: String } }
/// ```
#[macro_export]
macro_rules! thread_state {
    ($(#[$meta:meta])* $vis:vis struct $name:ident {
        $($(#[$field_meta:meta])* $field_vis:vis $field:ident: $type:ty),* $(,)?
    }) => {
        $(#[$meta])*
        #[repr(C)]
        $vis struct $name {
            $($(#[$field_meta])* $field_vis $field: $type),*
        }
        // SAFETY: all its fields are, which is checked here.
        unsafe impl $crate::ThreadState for $name
        where
            $($type: $crate::ThreadState),*
        {}
    };
}

/// Instrument side: state that each thread has a copy of, made by
/// [`Program::thread_data`].
pub struct ThreadData<T> {
    offset: u64,
    state: PhantomData<T>,
}

impl<T> Clone for ThreadData<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for ThreadData<T> {}

impl Program<'_> {
    /// State of which each thread has a copy with this initial value.
    pub fn thread_data<T: ThreadState>(&self, value: T) -> ThreadData<T> {
        ThreadData::new(self, &value)
    }

    /// As [`Program::thread_data`], for state that a routine in another language gives a shape.
    pub fn thread_bytes(&self, bytes: &[u8]) -> ThreadBytes {
        ThreadBytes::new(self, bytes)
    }
}

impl<T: ThreadState> ThreadData<T> {
    pub(crate) fn new(program: &Program<'_>, value: &T) -> Self {
        const { assert!(align_of::<T>() <= 16, "alignment of at most 16 bytes") }
        let size = size_of::<T>();
        let mut bytes = vec![0; HEAD + size];
        let from = std::ptr::from_ref(value).cast::<u8>();
        // SAFETY: `size` bytes of a value of atomics, which `program.place` only copies;
        // padding is copied with whatever contents it has.
        unsafe { from.copy_to_nonoverlapping(bytes.as_mut_ptr().add(HEAD), size) };
        Self {
            offset: place(program, bytes),
            state: PhantomData,
        }
    }
}

/// Places a value with its header, `HEAD` bytes at the start that are still empty. Returns its offset.
fn place(program: &Program<'_>, mut bytes: Vec<u8>) -> u64 {
    // The offset is known only when data is placed, so a first, empty placement finds it out.
    let offset = program.place_for_threads(&[], 0, 0);
    let distance = (THREAD_HEADER as u64).wrapping_add(offset);
    bytes[..8].copy_from_slice(&distance.to_le_bytes());
    let length = bytes.len();
    program.place_for_threads(&bytes, length, length & !7)
}

/// Instrument side: bytes that each thread has a copy of, made by [`Program::thread_bytes`]. A routine gets
/// their address.
#[derive(Clone, Copy, Debug)]
pub struct ThreadBytes {
    offset: u64,
}

impl ThreadBytes {
    pub(crate) fn new(program: &Program<'_>, bytes: &[u8]) -> Self {
        let mut all = vec![0; HEAD];
        all.extend(bytes);
        // Offsets of what is placed next stay multiples of 8.
        all.resize(all.len().next_multiple_of(8), 0);
        Self {
            offset: place(program, all),
        }
    }

    /// Offset of the running thread's copy.
    pub(crate) fn this_thread(self) -> u64 {
        self.offset.wrapping_add(HEAD as u64)
    }

    /// Offset of the word that leads to the copies of all threads.
    pub(crate) fn all_threads(self) -> u64 {
        self.offset
    }
}

/// Analysis side: the first copy of the data whose `THREADS` argument is `all`.
///
/// # Safety
/// `all` is such an argument, at ProgramAfter.
pub unsafe fn first_copy(all: *const u64) -> *mut u8 {
    // SAFETY: the caller's promise; blocks live for ever.
    unsafe {
        let block = all.byte_sub(*all as usize).cast::<ThreadBlock>();
        let first = match (*block).is_total {
            0 => block,
            _ => (*block).next.load(Acquire).cast_const(),
        };
        copy_in(first, *all)
    }
}

/// Analysis side: the copy after this one, or null.
///
/// # Safety
/// `copy` is an argument of type `THREAD`, or a result of this function or of [`first_copy`].
pub unsafe fn next_copy(copy: *const u8) -> *mut u8 {
    // SAFETY: the caller's promise; in each block the distance between its start and the data is the same.
    unsafe { copy_in((*block_of(copy)).next.load(Acquire), distance_of(copy)) }
}

/// Analysis side: the distance of a copy's header from the start of its block, in bytes.
///
/// # Safety
/// As for [`next_copy`].
pub(crate) unsafe fn distance_of(copy: *const u8) -> u64 {
    // SAFETY: the caller's promise: the header is in front of the data.
    unsafe { *copy.sub(HEAD).cast::<u64>() }
}

/// Analysis side: the number in the system of the thread to which a copy belongs; see
/// [`PerThread::thread_number`].
///
/// # Safety
/// As for [`next_copy`].
pub unsafe fn thread_of_copy(copy: *const u8) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { (*block_of(copy)).tid.load(Relaxed) }
}

/// The block that a copy is in.
///
/// # Safety
/// As for [`next_copy`].
unsafe fn block_of(copy: *const u8) -> *const ThreadBlock {
    // SAFETY: the caller's promise: the header is in front of the data.
    unsafe { copy.sub(HEAD + distance_of(copy) as usize).cast() }
}

impl Placed {
    /// The copies of all threads, for a parameter `THREADS`.
    pub fn all_threads(bytes: ThreadBytes) -> Self {
        Self {
            what: PlacedType::Threads,
            kind: ArgKind::ThreadData,
            offset: bytes.all_threads(),
        }
    }

    /// The running thread's copy, for a parameter `THREAD`.
    pub fn this_thread(bytes: ThreadBytes) -> Self {
        Self {
            what: PlacedType::Thread,
            kind: ArgKind::ThreadData,
            offset: bytes.this_thread(),
        }
    }
}

/// The copy in a block, or null without one.
pub(crate) fn copy_in(block: *const ThreadBlock, distance: u64) -> *mut u8 {
    if block.is_null() {
        std::ptr::null_mut()
    } else {
        block
            .cast::<u8>()
            .wrapping_add(distance as usize + HEAD)
            .cast_mut()
    }
}

impl<T: ThreadState> Arg<PerThread<T>> for ThreadData<T> {
    fn to_host(&self) -> host::Arg {
        computed(ArgKind::ThreadData, self.offset.wrapping_add(HEAD as u64))
    }
}

impl<T: ThreadState> Arg<AllThreads<T>> for ThreadData<T> {
    fn to_host(&self) -> host::Arg {
        computed(ArgKind::ThreadData, self.offset)
    }
}

/// Analysis side: the running thread's copy of the state; use it as a `&T`.
///
/// A thread that begins starts with the value that the instrument routine gave;
/// it may continue with the copy of a thread that has ended, as its thread-local
/// storage does, so that sums over all threads are complete.
#[repr(transparent)]
pub struct PerThread<T: 'static> {
    state: &'static T,
    this_thread: PhantomData<*const ()>,
}

impl<T> Clone for PerThread<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for PerThread<T> {}

// SAFETY: transparent over a pointer.
unsafe impl<T: ThreadState> Param for PerThread<T> {
    const CODE: u8 = code::OTHER;
}

impl<T: ThreadState> PerThread<T> {
    /// The number in the system of the thread to which this copy belongs, if it is known; 0 in a
    /// program with one thread. It changes when a thread takes over the copy of a thread that has
    /// ended.
    #[inline(always)]
    pub fn thread_number(self) -> u32 {
        // SAFETY: blocks live for ever, and fields of their headers that change are atomic.
        unsafe { (*self.block()).tid.load(Relaxed) }
    }

    /// Its address.
    pub(crate) const fn copy(self) -> *const u8 {
        std::ptr::from_ref(self.state).cast()
    }

    /// The copy at an address.
    ///
    /// # Safety
    /// The running thread's copy of such a state is there.
    pub(crate) const unsafe fn from_copy(copy: *mut u8) -> Self {
        Self {
            // SAFETY: the caller's promise; blocks live for ever.
            state: unsafe { &*copy.cast() },
            this_thread: PhantomData,
        }
    }

    /// The block that the copy is in.
    #[inline(always)]
    pub(crate) fn block(self) -> *const ThreadBlock {
        // SAFETY: only `atom` makes values of this type. They point to data that
        // `ThreadData::new` laid out, in a block.
        unsafe {
            let head = std::ptr::from_ref(self.state).byte_sub(HEAD);
            head.byte_sub(*head.cast::<u64>() as usize).cast()
        }
    }
}

impl<T: ThreadState> Deref for PerThread<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        self.state
    }
}

/// Analysis side, at ProgramAfter: the copies of all threads, the first thread's first.
#[repr(transparent)]
pub struct AllThreads<T: 'static> {
    /// Distance of this word from the start of its block, in bytes.
    distance: *const u64,
    state: PhantomData<&'static T>,
}

impl<T> Clone for AllThreads<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for AllThreads<T> {}

// SAFETY: transparent over a pointer.
unsafe impl<T: ThreadState> Param for AllThreads<T> {
    const CODE: u8 = code::OTHER;
}

impl<const N: usize> Counters<N> {
    /// At ProgramAfter: the copies of the table of all threads, in the order of `all`.
    pub fn of_threads<T: ThreadState>(self, all: AllThreads<T>) -> impl Iterator<Item = Self> {
        // Both arguments point into the same block.
        let between = (self.address() as usize).wrapping_sub(all.distance as usize);
        all.iter().map(move |state| {
            let head = std::ptr::from_ref(state).cast::<u8>().wrapping_sub(HEAD);
            // SAFETY: in each block the distance between table and state is the same.
            unsafe { Self::from_address(head.wrapping_add(between).cast()) }
        })
    }
}

impl<T: ThreadState> AllThreads<T> {
    /// For each copy the number in the system of its thread, as [`PerThread::thread_number`] gives it.
    pub fn thread_numbers(self) -> impl Iterator<Item = u32> {
        let this_thread = PhantomData;
        self.iter()
            .map(move |state| PerThread { state, this_thread }.thread_number())
    }

    /// All copies.
    pub fn iter(self) -> impl Iterator<Item = &'static T> {
        // SAFETY: only `atom` makes values of this type. They point to data that
        // `ThreadData::new` laid out, in a block; blocks live for ever, and their contents are
        // atomic.
        unsafe {
            let distance = *self.distance as usize;
            let block = self.distance.byte_sub(distance).cast::<ThreadBlock>();
            let first = if (*block).is_total != 0 {
                (*block).next.load(Acquire).cast_const()
            } else {
                block
            };
            std::iter::successors(first.as_ref(), |b| b.next.load(Acquire).as_ref()).map(
                move |block| {
                    &*std::ptr::from_ref(block)
                        .byte_add(distance + HEAD)
                        .cast::<T>()
                },
            )
        }
    }
}

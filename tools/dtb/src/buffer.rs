//! The buffer itself: which pages it holds, when each was used, and the quick ways to note that.

use atom_tool::simulate::{Comparison, times};
use atom_tool::{ThreadCell, thread_state};

/// Entries that a buffer may have.
pub const MAX_ENTRIES: usize = 1 << 10;
/// Places of the table.
pub const PLACES: usize = 1 << 12;
/// An entry whose place another page has taken has one behind these.
pub const ALL_PLACES: usize = 2 * PLACES;
/// Entries of a group.
pub const GROUP: usize = 8;
/// The page of a place that is free. No program accesses the first page.
pub const NONE: u64 = 0;

thread_state! {
    pub struct Buffer {
        /// The page of the last reference through the stack's registers, as below.
        pub stack: ThreadCell<u64>,
        /// Its place.
        pub stack_place: ThreadCell<u64>,
        /// The time when it was used last through these.
        pub stack_time: ThreadCell<u64>,
        /// What the numbers of references are added to, which gives times.
        clock: ThreadCell<u64>,
        /// By place the page, as the address of its first byte, negated: an address is in
        /// the page if the sum is small.
        pub pages: [ThreadCell<u64>; ALL_PLACES],
        /// When each was used last.
        pub times: [ThreadCell<u64>; ALL_PLACES],
        /// The entry whose page it is.
        pub entries: [ThreadCell<u16>; ALL_PLACES],
        /// The place of each entry.
        pub places: [ThreadCell<u16>; MAX_ENTRIES],
        /// For each group of entries one that was the oldest of them, and its time then: none of
        /// the others is older.
        pub oldest: [ThreadCell<u16>; MAX_ENTRIES / GROUP],
        pub bounds: [ThreadCell<u64>; MAX_ENTRIES / GROUP],
        /// Entries in use.
        pub used: ThreadCell<u64>,
        /// How many of them have lost their places.
        pub moved: ThreadCell<u64>,
        pub comparison: Comparison,
    }
}

/// Number of entries, logarithm of a page's size; as one argument.
#[derive(Clone, Copy)]
pub struct Shape(pub u64);

impl Shape {
    pub const fn page(self) -> u64 {
        1 << (self.0 & 0xff)
    }

    pub const fn entries(self) -> usize {
        (self.0 >> 8) as usize
    }

    pub const fn place(self, address: u64) -> usize {
        (address >> (self.0 & 0xff)) as usize % PLACES
    }
}

impl Buffer {
    /// A reference through another register than the stack's, if it is to one page that has its
    /// place.
    #[inline(always)]
    pub fn refer(&self, shape: Shape, number: u64, address: u64, size: u64) -> bool {
        let place = shape.place(address);
        if address.wrapping_add(self.pages[place].get()) > shape.page() - size {
            return false;
        }
        self.times[place].set(self.clock.get() + number);
        true
    }

    /// The same through the stack's, if it is to the page of the last one.
    #[inline(always)]
    pub fn refer_to_stack(&self, shape: Shape, number: u64, address: u64, size: u64) -> bool {
        if address.wrapping_add(self.stack.get()) > shape.page() - size {
            return false;
        }
        self.stack_time.set(self.clock.get() + number);
        true
    }

    /// Makes this the stack's page, after its use was noted at its place.
    #[inline(always)]
    pub fn enter_stack(&self, place: usize) {
        self.stack.set(self.pages[place].get());
        self.stack_place.set(place as u64);
        self.stack_time.set(0);
    }

    /// Notes at its place when the stack's page was used.
    #[inline(always)]
    pub fn settle_stack(&self) {
        let time = &self.times[self.stack_place.get() as usize % ALL_PLACES];
        time.set(time.get().max(self.stack_time.get()));
    }

    /// Lets the clock go on.
    #[inline(always)]
    pub fn step(&self) {
        self.clock.set(self.now() + times::STEP);
    }

    /// The time of what has no number, just behind a step.
    #[inline(always)]
    pub fn now(&self) -> u64 {
        self.clock.get()
    }
}

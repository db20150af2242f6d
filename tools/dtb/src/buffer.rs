//! The buffer itself: the pages in it, the time at which each was used last, and the fast paths of a reference.

use atom_tool::simulate::{Comparison, times};
use atom_tool::{ThreadCell, thread_state};

/// Largest number of entries of a buffer.
pub const MAX_ENTRIES: usize = 1 << 10;
/// Number of places to which pages are mapped by their numbers.
pub const PLACES: usize = 1 << 12;
/// Number of all places. The second half is for entries whose place in the first another page has taken.
pub const ALL_PLACES: usize = 2 * PLACES;
/// Number of entries in a group.
pub const GROUP: usize = 8;
/// The page of a free place. No program accesses the first page.
pub const NONE: u64 = 0;

thread_state! {
    pub struct Buffer {
        /// The page of the last reference through rsp or the frame pointer, in the form of `pages`.
        pub stack: ThreadCell<u64>,
        /// The place of that page.
        pub stack_place: ThreadCell<u64>,
        /// The time of the last reference to that page through rsp or the frame pointer.
        pub stack_time: ThreadCell<u64>,
        /// The time of a reference is this value plus the reference's number.
        clock: ThreadCell<u64>,
        /// The page at each place, as the negated address of its first byte. An address is in
        /// the page if the sum of both is smaller than a page.
        pub pages: [ThreadCell<u64>; ALL_PLACES],
        /// The time of the last reference to the page at each place.
        pub times: [ThreadCell<u64>; ALL_PLACES],
        /// The entry of the page at each place.
        pub entries: [ThreadCell<u16>; ALL_PLACES],
        /// The place of each entry.
        pub places: [ThreadCell<u16>; MAX_ENTRIES],
        /// The entry of each group that was the oldest when the group was last searched.
        pub oldest: [ThreadCell<u16>; MAX_ENTRIES / GROUP],
        /// The time of that entry at the search. No entry of the group is older.
        pub bounds: [ThreadCell<u64>; MAX_ENTRIES / GROUP],
        /// Number of entries in use.
        pub used: ThreadCell<u64>,
        /// Number of entries in use whose place is in the second half.
        pub moved: ThreadCell<u64>,
        pub comparison: Comparison,
    }
}

/// Number of entries and binary logarithm of a page's size, in one argument.
#[derive(Clone, Copy)]
pub struct Shape(pub u64);

impl Shape {
    /// Size of a page in bytes.
    pub const fn page(self) -> u64 {
        1 << (self.0 & 0xff)
    }

    pub const fn entries(self) -> usize {
        (self.0 >> 8) as usize
    }

    /// The place to which the page of an address is mapped.
    pub const fn place(self, address: u64) -> usize {
        (address >> (self.0 & 0xff)) as usize % PLACES
    }
}

impl Buffer {
    /// Notes a reference through other registers than rsp and the frame pointer. Returns false, and
    /// does nothing, unless all of its bytes are in the page at the place to which that page is mapped.
    #[inline(always)]
    pub fn refer(&self, shape: Shape, number: u64, address: u64, size: u64) -> bool {
        let place = shape.place(address);
        if address.wrapping_add(self.pages[place].get()) > shape.page() - size {
            return false;
        }
        self.times[place].set(self.clock.get() + number);
        true
    }

    /// Notes a reference through rsp or the frame pointer. Returns false, and does nothing, unless all of its
    /// bytes are in the page of the last such reference.
    #[inline(always)]
    pub fn refer_to_stack(&self, shape: Shape, number: u64, address: u64, size: u64) -> bool {
        if address.wrapping_add(self.stack.get()) > shape.page() - size {
            return false;
        }
        self.stack_time.set(self.clock.get() + number);
        true
    }

    /// Makes the page at `place` the page of the stack. The reference has been noted at that place.
    #[inline(always)]
    pub fn enter_stack(&self, place: usize) {
        self.stack.set(self.pages[place].get());
        self.stack_place.set(place as u64);
        self.stack_time.set(0);
    }

    /// Stores the time of the last reference to the stack's page at the page's place.
    #[inline(always)]
    pub fn settle_stack(&self) {
        let time = &self.times[self.stack_place.get() as usize % ALL_PLACES];
        time.set(time.get().max(self.stack_time.get()));
    }

    /// Advances the clock by one step.
    #[inline(always)]
    pub fn step(&self) {
        self.clock.set(self.now() + times::STEP);
    }

    /// The time of a reference without a number, directly after a step.
    #[inline(always)]
    pub fn now(&self) -> u64 {
        self.clock.get()
    }
}

//! The buffer itself: which pages it holds, when each was used, and the quick ways to note that.

use atom_tool::simulate::Comparison;
use atom_tool::{ThreadCell, thread_state};

/// Entries that a buffer may have.
pub const MAX_ENTRIES: usize = 1 << 10;
/// Places of the table.
pub const PLACES: usize = 1 << 10;
/// An entry whose place another page has taken has one behind these. The last of all is nobody's.
pub const ALL_PLACES: usize = 4 * PLACES;
pub const NOBODYS: usize = ALL_PLACES - 1;
/// The oldest entry is looked for among so many at once.
pub const GROUP: usize = 32;
/// The page of a place that is free.
pub const NONE: u64 = 1 << 63;
/// From one time to the next. The stack's page may be used just before a time, or after.
const TICK: u64 = 4;
/// Bytes of the order.
const USED: usize = 0;
const AFTER: usize = 1;
/// The stack's page was used, and nothing since.
const STACK_WAS_LAST: u32 = 1 << (8 * USED) | 2 << (8 * AFTER);

thread_state! {
    pub struct Buffer {
        /// The page of the last reference through other registers than the stack's, as below.
        pub last: ThreadCell<u64>,
        /// The page of the last reference through the stack's.
        pub stack: ThreadCell<u64>,
        /// Its place.
        pub stack_place: ThreadCell<u64>,
        /// Whether the stack's page was used since the time changed last, as one byte,
        /// and whether after the other: 2, or 0.
        order: ThreadCell<u32>,
        /// The time: it changes with the page.
        now: ThreadCell<u64>,
        /// By place the page, as the address of its first byte, negated: an address is in
        /// the page if the sum is small.
        pub pages: [ThreadCell<u64>; ALL_PLACES],
        /// When each was used last.
        pub times: [ThreadCell<u64>; ALL_PLACES],
        /// The entry whose page it is.
        pub entries: [ThreadCell<u16>; ALL_PLACES],
        /// The place of each entry.
        pub places: [ThreadCell<u16>; MAX_ENTRIES],
        /// For each group of entries a time before which none of them was used last.
        pub bounds: [ThreadCell<u64>; MAX_ENTRIES / GROUP],
        /// Entries in use.
        pub used: ThreadCell<u64>,
        /// How many of them have lost their places.
        pub moved: ThreadCell<u64>,
        pub comparison: Comparison,
    }
}

impl Buffer {
    /// An empty one.
    pub fn new() -> Self {
        let zero = || ThreadCell::new(0);
        Self {
            last: ThreadCell::new(NONE),
            stack: ThreadCell::new(NONE),
            stack_place: ThreadCell::new(NOBODYS as u64),
            order: ThreadCell::new(0),
            now: ThreadCell::new(TICK),
            pages: std::array::from_fn(|_| ThreadCell::new(NONE)),
            times: std::array::from_fn(|_| zero()),
            entries: std::array::from_fn(|_| ThreadCell::new(0)),
            places: std::array::from_fn(|_| ThreadCell::new(0)),
            bounds: std::array::from_fn(|_| zero()),
            used: zero(),
            moved: zero(),
            comparison: std::array::from_fn(|_| zero()),
        }
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
    /// place. Of references to the page of the last one only the order with respect to
    /// the stack is noted.
    #[inline(always)]
    pub fn refer(&self, shape: Shape, address: u64, size: u64) -> bool {
        if address.wrapping_add(self.last.get()) <= shape.page() - size {
            self.order.set_byte(AFTER, 0);
            return true;
        }
        let place = shape.place(address);
        let page = self.pages[place].get();
        if address.wrapping_add(page) > shape.page() - size {
            return false;
        }
        self.last.set(page);
        self.times[place].set(self.next_time());
        true
    }

    /// The same through the stack's.
    #[inline(always)]
    pub fn refer_to_stack(&self, shape: Shape, address: u64, size: u64) -> bool {
        if address.wrapping_add(self.stack.get()) <= shape.page() - size {
            self.order.set(STACK_WAS_LAST);
            return true;
        }
        let place = shape.place(address);
        let page = self.pages[place].get();
        if address.wrapping_add(page) > shape.page() - size {
            return false;
        }
        self.next_time();
        self.enter_stack(place, page);
        true
    }

    /// Makes this the stack's page. The other's time has passed: if it is used again, it needs
    /// another.
    #[inline(always)]
    pub fn enter_stack(&self, place: usize, page: u64) {
        self.stack.set(page);
        self.stack_place.set(place as u64);
        self.order.set(STACK_WAS_LAST);
        self.last.set(NONE);
    }

    /// Lets the time go on, after the time of what was used until now was noted.
    #[inline(always)]
    pub fn next_time(&self) -> u64 {
        let now = self.now.get();
        if self.order.get_byte(USED) != 0 {
            let after = u64::from(self.order.get_byte(AFTER));
            let place = self.stack_place.get() as usize;
            self.times[place % ALL_PLACES].set(now + after - 1);
            self.order.set_byte(USED, 0);
        }
        self.now.set(now + TICK);
        now + TICK
    }
}

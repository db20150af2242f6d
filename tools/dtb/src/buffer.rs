//! The buffer itself: which pages it holds, and which of them is the oldest.

use atom_tool::prelude::*;
use atom_tool::simulate::{Comparison, Seen};
use atom_tool::{ThreadCell, thread_state};

/// Entries that a buffer may have.
pub const MAX_ENTRIES: usize = 1 << 10;
/// Places of the table.
const PLACES: usize = 1 << 10;
/// An entry whose place another page has taken has one behind these. The last of all is nobody's.
const ALL_PLACES: usize = 4 * PLACES;
const NOBODYS: usize = ALL_PLACES - 1;
/// The oldest entry is looked for among so many at once.
const GROUP: usize = 32;
/// The page of a place that is free.
const NONE: u64 = 1 << 63;
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
        last: ThreadCell<u64>,
        /// The page of the last reference through the stack's.
        stack: ThreadCell<u64>,
        /// Its place.
        stack_place: ThreadCell<u64>,
        /// Whether the stack's page was used since the time changed last, as one byte,
        /// and whether after the other: 2, or 0.
        order: ThreadCell<u32>,
        /// The time: it changes with the page.
        now: ThreadCell<u64>,
        /// By place the page, as the address of its first byte, negated: an address is in
        /// the page if the sum is small.
        pages: [ThreadCell<u64>; ALL_PLACES],
        /// When each was used last.
        times: [ThreadCell<u64>; ALL_PLACES],
        /// The entry whose page it is.
        entries: [ThreadCell<u16>; ALL_PLACES],
        /// The place of each entry.
        places: [ThreadCell<u16>; MAX_ENTRIES],
        /// For each group of entries a time before which none of them was used last.
        bounds: [ThreadCell<u64>; MAX_ENTRIES / GROUP],
        /// Entries in use.
        used: ThreadCell<u64>,
        /// How many of them have lost their places.
        moved: ThreadCell<u64>,
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

    const fn entries(self) -> usize {
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
    fn enter_stack(&self, place: usize, page: u64) {
        self.stack.set(page);
        self.stack_place.set(place as u64);
        self.order.set(STACK_WAS_LAST);
        self.last.set(NONE);
    }

    /// Lets the time go on, after the time of what was used until now was noted.
    #[inline(always)]
    fn next_time(&self) -> u64 {
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

/// A page that does not have its place, or two pages.
#[cold]
#[inline(never)]
pub fn other(buffer: &Buffer, shape: u64, address: u64, size: u64, count: Counter<2>) {
    let shape = Shape(shape);
    let page = address & !(shape.page() - 1);
    touch_page(buffer, shape, page, 1, count);
    if address - page > shape.page() - size {
        touch_page(buffer, shape, page + shape.page(), 1, count);
        count.add_to(Seen::Extra as usize, 1);
    }
    find_stack(buffer);
}

/// The same through the stack's registers.
#[cold]
#[inline(never)]
pub fn other_of_stack(buffer: &Buffer, shape: u64, address: u64, size: u64, count: Counter<2>) {
    other(buffer, shape, address, size, count);
    let place = Shape(shape).place(address + size - 1);
    buffer.enter_stack(place, buffer.last.get());
}

/// A reference, `times` times in turn: one for each page that it touches.
pub fn touch(buffer: &Buffer, shape: u64, address: u64, size: u64, times: u64, count: Counter<2>) {
    let shape = Shape(shape);
    let mut page = address & !(shape.page() - 1);
    while page < address.saturating_add(size) {
        touch_page(buffer, shape, page, times, count);
        count.add_to(Seen::Extra as usize, times);
        page += shape.page();
    }
    find_stack(buffer);
}

#[inline(always)]
fn touch_page(buffer: &Buffer, shape: Shape, page: u64, times: u64, count: Counter<2>) {
    let place = shape.place(page);
    let page = page.wrapping_neg();
    let now = buffer.next_time();
    if buffer.pages[place].get() != page && enter(buffer, shape.entries(), place, page) {
        count.add_to(Seen::Misses as usize, times);
    }
    buffer.last.set(page);
    buffer.times[place].set(now);
}

/// The stack's page may have lost its place.
#[inline(always)]
fn find_stack(buffer: &Buffer) {
    let place = buffer.stack_place.get() as usize % ALL_PLACES;
    if buffer.pages[place].get() != buffer.stack.get() {
        buffer.stack.set(NONE);
        buffer.stack_place.set(NOBODYS as u64);
    }
}

/// Gives a page its place; whether it was missing.
fn enter(buffer: &Buffer, size: usize, place: usize, page: u64) -> bool {
    let change = |cell: &ThreadCell<u64>, by: u64| cell.set(cell.get().wrapping_add(by));
    if buffer.pages[place].get() != NONE {
        settle(
            buffer,
            PLACES + usize::from(buffer.entries[place].get()) % MAX_ENTRIES,
            place,
        );
        change(&buffer.moved, 1);
    }
    let used = buffer.used.get() as usize;
    let moved = buffer.pages[PLACES..].iter().take(used);
    let found = match buffer.moved.get() {
        0 => None,
        _ => moved.zip(0..).find(|(other, _)| other.get() == page),
    };
    let entry = match found {
        Some((_, entry)) => entry,
        None if used < size => {
            buffer.used.set(used as u64 + 1);
            used
        }
        None => oldest(buffer, used),
    };
    // An index that might be out of range would end in a panic, for which each call of this
    // would have to save all registers.
    let entry = entry % MAX_ENTRIES;
    let old = usize::from(buffer.places[entry].get()) % ALL_PLACES;
    if entry < used {
        buffer.pages[old].set(NONE);
    }
    if entry < used && old >= PLACES {
        change(&buffer.moved, u64::MAX);
    }
    buffer.pages[place].set(page);
    buffer.entries[place].set(entry as u16);
    buffer.places[entry].set(place as u16);
    found.is_none()
}

/// The entry that was used least recently. Only groups are looked through in which it may be.
fn oldest(buffer: &Buffer, used: usize) -> usize {
    let groups = used.min(MAX_ENTRIES).div_ceil(GROUP);
    loop {
        let (mut group, mut bound, mut others) = (0, u64::MAX, u64::MAX);
        for (i, other) in buffer.bounds.iter().take(groups).enumerate() {
            let other = other.get();
            others = others.min(bound.max(other));
            (group, bound) = if other < bound {
                (i, other)
            } else {
                (group, bound)
            };
        }
        let (mut oldest, mut time) = (0, u64::MAX);
        for entry in group * GROUP..used.min((group + 1) * GROUP) {
            let place = usize::from(buffer.places[entry % MAX_ENTRIES].get());
            let other = buffer.times[place % ALL_PLACES].get();
            (oldest, time) = if other < time {
                (entry, other)
            } else {
                (oldest, time)
            };
        }
        buffer.bounds[group % buffer.bounds.len()].set(time);
        if time <= others {
            return oldest % MAX_ENTRIES;
        }
    }
}

/// Moves an entry from one place to another.
fn settle(buffer: &Buffer, to: usize, from: usize) {
    let entry = buffer.entries[from].get();
    buffer.pages[to].set(buffer.pages[from].get());
    buffer.pages[from].set(NONE);
    buffer.times[to].set(buffer.times[from].get());
    buffer.entries[to].set(entry);
    buffer.places[usize::from(entry) % MAX_ENTRIES].set(to as u16);
}

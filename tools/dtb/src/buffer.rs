//! The buffer itself: which pages it holds, and which of them is the oldest.

use atom_tool::prelude::*;
use atom_tool::simulate::{Comparison, Seen};
use atom_tool::{ThreadCell, thread_state};

/// Entries that a buffer may have.
pub const MAX_ENTRIES: usize = 1 << 10;
/// Places of the table.
const PLACES: usize = 1 << 10;
/// An entry whose place another page has taken has one here.
const ALL_PLACES: usize = PLACES + MAX_ENTRIES;
/// The page of a place that is free.
const NONE: u64 = 1 << 63;

thread_state! {
    pub struct Buffer {
        /// The page of the last reference, as below.
        pub last: ThreadCell<u64>,
        /// The time: changes of page so far.
        pub now: ThreadCell<u64>,
        /// By place the page, as the address of its first byte, negated: an address is in
        /// the page if the sum is small.
        pub pages: [ThreadCell<u64>; ALL_PLACES],
        /// When each was used last.
        pub times: [ThreadCell<u64>; ALL_PLACES],
        /// The entry whose page it is.
        entries: [ThreadCell<u16>; ALL_PLACES],
        /// The place of each entry.
        places: [ThreadCell<u16>; MAX_ENTRIES],
        /// The entries, each with a time at which it had been used already: a time above
        /// the entry's number. They stand from the oldest on, in a ring.
        ages: [ThreadCell<u64>; MAX_ENTRIES],
        /// Where in it the oldest is.
        head: ThreadCell<u64>,
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
            now: zero(),
            pages: std::array::from_fn(|_| ThreadCell::new(NONE)),
            times: std::array::from_fn(|_| zero()),
            entries: std::array::from_fn(|_| ThreadCell::new(0)),
            places: std::array::from_fn(|_| ThreadCell::new(0)),
            ages: std::array::from_fn(|_| zero()),
            head: zero(),
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

    pub const fn place(self, address: u64) -> usize {
        (address >> (self.0 & 0xff)) as usize % PLACES
    }
}

/// A page that does not have its place, or two pages.
#[cold]
#[inline(never)]
pub fn other(buffer: &Buffer, shape: u64, address: u64, size: u64, count: Counter<2>) {
    touch(buffer, shape, address, size, 1, count);
    // The first is counted by its block.
    count.add_to(Seen::Extra as usize, u64::MAX);
}

/// A reference, `times` times in turn: one for each page that it touches.
pub fn touch(buffer: &Buffer, shape: u64, address: u64, size: u64, times: u64, count: Counter<2>) {
    let shape = Shape(shape);
    let mut page = address & !(shape.page() - 1);
    while page < address.saturating_add(size) {
        let place = shape.place(page);
        if buffer.pages[place].get() != page.wrapping_neg()
            && enter(buffer, (shape.0 >> 8) as usize, place, page.wrapping_neg())
        {
            count.add_to(Seen::Misses as usize, times);
        }
        buffer.last.set(page.wrapping_neg());
        let now = buffer.now.get() + 1;
        buffer.now.set(now);
        buffer.times[place].set(now);
        count.add_to(Seen::Extra as usize, times);
        page += shape.page();
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
    if found.is_none() {
        let newest = buffer.head.get() as usize + buffer.used.get() as usize - 1;
        buffer.ages[newest % MAX_ENTRIES].set(age(buffer.now.get() + 1, entry));
    }
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

/// Takes the entry that was used least recently out of the ring. What was used
/// since it was put there is put where it belongs now.
fn oldest(buffer: &Buffer, used: usize) -> usize {
    let cell = |at: usize| &buffer.ages[at % MAX_ENTRIES];
    loop {
        let head = buffer.head.get() as usize;
        buffer.head.set(head as u64 + 1);
        let known = cell(head).get();
        let entry = known as usize % MAX_ENTRIES;
        let place = usize::from(buffer.places[entry].get()) % ALL_PLACES;
        let now = age(buffer.times[place].get(), entry);
        if now == known {
            return entry;
        }
        let mut at = head + used;
        while at > head + 1 && cell(at - 1).get() > now {
            cell(at).set(cell(at - 1).get());
            at -= 1;
        }
        cell(at).set(now);
    }
}

fn age(time: u64, entry: usize) -> u64 {
    time * MAX_ENTRIES as u64 + entry as u64
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

//! What is not quick: pages that have no entry or not their place, and references to two pages.

use atom_tool::ThreadCell;
use atom_tool::prelude::*;
use atom_tool::simulate::Seen;

use crate::buffer::{ALL_PLACES, Buffer, GROUP, MAX_ENTRIES, NONE, PLACES, Shape};

/// A page that does not have its place, or two pages; through the stack's registers, or others.
#[cold]
#[inline(never)]
pub fn other<const STACK: bool>(
    buffer: &Buffer,
    shape: u64,
    address: u64,
    size: u64,
    count: Counter<2>,
) {
    let shape = Shape(shape);
    let mut page = address & !(shape.page() - 1);
    loop {
        touch_page(buffer, shape, page, 1, count);
        page += shape.page();
        if address.wrapping_add(size) <= page {
            break;
        }
        // The first is counted by its block.
        count.add_to(Seen::Extra as usize, 1);
    }
    find_stack(buffer);
    if STACK {
        let place = shape.place(page - shape.page());
        buffer.enter_stack(place);
    }
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
    buffer.settle_stack();
    buffer.step();
    if buffer.pages[place].get() != page && enter(buffer, shape.entries(), place, page) {
        count.add_to(Seen::Misses as usize, times);
    }
    buffer.times[place].set(buffer.now());
}

/// The stack's page may have lost its place.
#[inline(always)]
fn find_stack(buffer: &Buffer) {
    let place = buffer.stack_place.get() as usize % ALL_PLACES;
    if buffer.pages[place].get() != buffer.stack.get() {
        buffer.stack.set(NONE);
        buffer.stack_time.set(0);
    }
}

/// Gives a page its place; whether it was missing. One function with its caller: the program's
/// stack, on which they run, may be small.
#[inline(always)]
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

/// The entry that was used least recently: that of the group whose oldest is the oldest of all, if it
/// was not used since this was found out.
#[inline(always)]
fn oldest(buffer: &Buffer, used: usize) -> usize {
    let groups = used.min(MAX_ENTRIES).div_ceil(GROUP);
    loop {
        let (mut group, mut bound) = (0, u64::MAX);
        for (other, time) in buffer.bounds.iter().take(groups).enumerate() {
            let time = time.get();
            (group, bound) = if time < bound {
                (other, time)
            } else {
                (group, bound)
            };
        }
        let entry = usize::from(buffer.oldest[group % buffer.oldest.len()].get());
        if time(buffer, entry) == bound {
            return entry % MAX_ENTRIES;
        }
        let (mut oldest, mut bound) = (0, u64::MAX);
        for entry in group * GROUP..used.min((group + 1) * GROUP) {
            let time = time(buffer, entry);
            (oldest, bound) = if time < bound {
                (entry, time)
            } else {
                (oldest, bound)
            };
        }
        buffer.oldest[group % buffer.oldest.len()].set(oldest as u16);
        buffer.bounds[group % buffer.bounds.len()].set(bound);
    }
}

/// When an entry was used last.
#[inline(always)]
fn time(buffer: &Buffer, entry: usize) -> u64 {
    let place = usize::from(buffer.places[entry % MAX_ENTRIES].get());
    buffer.times[place % ALL_PLACES].get()
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

//! The slow path: pages without an entry, pages that are not at their place, and references to two pages.

use atom_tool::prelude::*;
use atom_tool::simulate::Seen;
use atom_tool::{ThreadCell, lines_of};

use crate::buffer::{ALL_PLACES, Buffer, GROUP, MAX_ENTRIES, NONE, PLACES, Shape};

/// Looks up and counts a reference to any page, or to two pages. `STACK` is true for a reference
/// through rsp or the frame pointer.
#[cold]
#[inline(never)]
pub fn look_up_slow<const STACK: bool>(
    buffer: &Buffer,
    shape: u64,
    address: u64,
    size: u64,
    count: Counter<2>,
) {
    let page = touch(buffer, shape, address, size, 1, count);
    // The block's counter includes one reference, which `touch` has counted, too.
    count.add_to(Seen::Extra as usize, u64::MAX);
    if STACK {
        buffer.enter_stack(Shape(shape).place(page));
    }
}

/// Makes a reference `times` times in succession, and counts one reference for each page that it touches. Returns the
/// last of these pages.
pub fn touch(
    buffer: &Buffer,
    shape: u64,
    address: u64,
    size: u64,
    times: u64,
    count: Counter<2>,
) -> u64 {
    let shape = Shape(shape);
    let mut last = address;
    for page in lines_of(address, size, shape.page()) {
        touch_page(buffer, shape, page, times, count);
        count.add_to(Seen::Extra as usize, times);
        last = page;
    }
    find_stack(buffer);
    last
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

/// Forgets the stack's page if another page has taken its place.
#[inline(always)]
fn find_stack(buffer: &Buffer) {
    let place = buffer.stack_place.get() as usize % ALL_PLACES;
    if buffer.pages[place].get() != buffer.stack.get() {
        buffer.stack.set(NONE);
        buffer.stack_time.set(0);
    }
}

/// Puts a page at its place. Returns true if it had no entry. It is inlined into its caller, because
/// both run on the program's stack, which may be small.
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
    // An index that might be out of range would need code for a panic, for which all registers
    // would have to be saved at each call.
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

/// The least recently used entry. The group with the smallest bound has it, if the group's oldest entry
/// was not used since the group was searched; otherwise the group is searched again.
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

/// The time at which an entry was used last.
#[inline(always)]
fn time(buffer: &Buffer, entry: usize) -> u64 {
    let place = usize::from(buffer.places[entry % MAX_ENTRIES].get());
    buffer.times[place % ALL_PLACES].get()
}

/// Moves an entry from the place `from` to the place `to`.
fn settle(buffer: &Buffer, to: usize, from: usize) {
    let entry = buffer.entries[from].get();
    buffer.pages[to].set(buffer.pages[from].get());
    buffer.pages[from].set(NONE);
    buffer.times[to].set(buffer.times[from].get());
    buffer.entries[to].set(entry);
    buffer.places[usize::from(entry) % MAX_ENTRIES].set(to as u16);
}

//! The lines in a thread's cache, and how references are looked up.

use atom_tool::prelude::*;
use atom_tool::simulate::cache::{Lines, MAX_LINES, Shape, bring_to_front, no_lines};
use atom_tool::simulate::groups::{self, Member};
use atom_tool::simulate::{Comparison, Seen, anew};
use atom_tool::{ThreadCell, lines_of, thread_state};

thread_state! {
    /// A thread's cache.
    pub struct Cache {
        pub lines: Lines,
        pub comparison: Comparison,
    }
}

impl Cache {
    /// An empty cache.
    pub fn new() -> Self {
        Self {
            lines: no_lines(),
            comparison: std::array::from_fn(|_| ThreadCell::new(0)),
        }
    }
}

/// The shape for which there are routines of their own.
pub const DEFAULT: Shape = Shape::DEFAULT;

/// Distance of two sets of the default shape in `Cache::lines`, in words. It is the size of a line, so the offset of a
/// set is the address with all other bits cleared: one instruction computes it.
const APART: usize = DEFAULT.line() as usize / size_of::<u64>();

/// The line of the set that an address belongs to, in a cache of the default shape.
#[inline(always)]
fn line_of(cache: &Cache, address: u64) -> &ThreadCell<u64> {
    const { assert!(DEFAULT.sets() as usize * APART <= MAX_LINES && DEFAULT.ways() == 1) };
    let (sets, _) = cache.lines.as_chunks::<APART>();
    &sets[(address / DEFAULT.line() % DEFAULT.sets()) as usize][0]
}

/// Index of the first line of the set that an address belongs to.
#[inline(always)]
fn place(shape: Shape, address: u64) -> usize {
    match shape {
        DEFAULT => DEFAULT.set(address) * APART,
        _ => shape.set(address),
    }
}

/// Looks up a reference and counts a miss if all of its bytes are in one line. Otherwise does
/// nothing and returns false.
#[inline(always)]
pub fn look_up_fast(cache: &Cache, address: u64, size: u64, count: Counter<2>) -> bool {
    const LINE: u64 = DEFAULT.line();
    if size <= LINE && address.wrapping_add(line_of(cache, address).get()) <= LINE - size {
        return true;
    }
    // Nothing that the path above has computed is used here, so that path need not keep it.
    let address = anew(address);
    if size <= LINE && address % LINE <= LINE - size {
        line_of(cache, address).set((address & !(LINE - 1)).wrapping_neg());
        count.add_to(Seen::Misses as usize, 1);
        return true;
    }
    false
}

/// Looks up the references of a group one by one in a cache of the default shape. A group is shorter than a line.
#[cold]
#[inline(never)]
pub fn look_up_each_default(
    cache: &Cache,
    address: u64,
    count: Counter<2>,
    members: Array<Member>,
) {
    groups::each(address, members, count, |address, size, count| {
        look_up_direct(cache, DEFAULT, address, size, count);
    });
}

/// Looks up a reference to any line of a set, or to several lines, and counts it.
#[cold]
#[inline(never)]
pub fn look_up_slow(cache: &Cache, shape: Shape, address: u64, size: u64, count: Counter<2>) {
    if shape.ways() == 1 && size <= shape.line() {
        return look_up_direct(cache, shape, address, size, count);
    }
    touch(cache, shape.0, address, size, 1, count);
    // The block's counter includes one reference, which `touch` has counted, too.
    count.add_to(Seen::Extra as usize, u64::MAX);
}

/// Looks up a reference to one line or two of a direct-mapped cache, and counts it.
#[inline(always)]
fn look_up_direct(cache: &Cache, shape: Shape, address: u64, size: u64, count: Counter<2>) {
    let last = address.wrapping_add(size - 1);
    let mut missed = enter(cache, shape, address);
    if (address ^ last) >= shape.line() {
        missed += enter(cache, shape, last);
        count.add_to(Seen::Extra as usize, 1);
    }
    count.add_to(Seen::Misses as usize, missed);
}

/// Makes a reference to one line of a direct-mapped cache. Returns 1 for a miss, 0 for a hit.
#[inline(always)]
fn enter(cache: &Cache, shape: Shape, address: u64) -> u64 {
    let known = &cache.lines[place(shape, address) % MAX_LINES];
    let line = shape.start(address).wrapping_neg();
    let is_new = known.get() != line;
    known.set(line);
    is_new.into()
}

/// Makes a reference `times` times in succession, and counts one reference for each line that it touches.
pub fn touch(cache: &Cache, shape: u64, address: u64, size: u64, times: u64, count: Counter<2>) {
    visit(&cache.lines, Shape(shape), address, size, |_, missed| {
        if missed {
            count.add_to(Seen::Misses as usize, times);
        }
        count.add_to(Seen::Extra as usize, times);
    });
}

/// Makes a reference to each line that `size` bytes touch. `each` gets the line's address, and whether it was missed.
#[inline(always)]
pub fn visit(
    lines: &Lines,
    shape: Shape,
    address: u64,
    size: u64,
    mut each: impl FnMut(u64, bool),
) {
    for line in lines_of(address, size, shape.line()) {
        let first = place(shape, line);
        let set = lines.get(first..first + shape.ways() as usize);
        let set = set.unwrap_or_default();
        let tag = line.wrapping_neg();
        let place = set.iter().position(|other| other.get() == tag);
        bring_to_front(set, place, tag);
        each(line, place.is_none());
    }
}

//! One reference to memory: the cache, and the ranges.
//!
//! The cache is the same as in the tool `cache`: the hot path compares only the line of a set that was used last.
//! The tag of a line that contains a byte of a data range is marked, so outside of all ranges a
//! reference costs the same as in `cache`, whatever the number of ranges. If the tag is marked, the hot path
//! compares the reference with the window that the instruction's last reference was in, and only counts it if
//! it is in the same window. The rest is on the cold path.

use std::ops::Range;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, fence};

use atom_tool::intervals::Entry;
use atom_tool::prelude::*;
use atom_tool::simulate;
use atom_tool::simulate::cache::{MAX_LINES, Shape, bring_to_front};
use atom_tool::{AllThreadRows, ThreadRow, ThreadRowAt, lines_of, repeated};

use crate::cache::{PLAIN, State};
use crate::live::{self, MAP, Set, WINDOW, WINDOWS};
use crate::tally::{self, Tally};

/// Ranges appear and disappear, and other threads may make references meanwhile.
pub static CHANGING: AtomicBool = AtomicBool::new(false);
/// The shape for which there are routines of their own.
pub const DEFAULT: Shape = Shape::DEFAULT;

/// The cells of a memory operand in one thread.
pub type Row = ThreadRow<CELLS>;
/// The cells of all operands in all threads, an argument of the report.
pub type AllRows = AllThreadRows<CELLS>;
/// Number of cells in a [`Row`].
pub const CELLS: usize = 4;
/// Cell with the window of the last references (upper 16 bits), and the number of references to it since the
/// window last changed (see [`word`]).
pub const WORD: usize = 0;
/// Cell with the number of misses.
pub const MISSES: usize = 1;
/// Cell with the number of references beyond one for each execution.
pub const EXTRA: usize = 2;
/// Cell with the number of misses in the window.
pub const WINDOW_MISSES: usize = 3;

/// Sets the counts of all operands to 0 in all threads. Each operand's window stays.
pub fn clear(rows: AllRows) {
    for row in rows.iter().flatten() {
        let window = row[WORD].get() >> 48 << 48;
        for (cell, value) in row.iter().zip([window, 0, 0, 0]) {
            // A page that was never written stays so.
            if cell.get() != value {
                cell.set(value);
            }
        }
    }
}

/// Splits the cell [`WORD`] into window and count.
pub const fn word(word: u64) -> (u32, u64) {
    ((word >> 48) as u32, word & ((1 << 48) - 1))
}

/// Number of a memory operand and flags about it, in one argument.
#[derive(Clone, Copy)]
pub struct OperandTag(pub u64);

impl OperandTag {
    /// Flag: the operand's references to ranges are counted.
    pub const COUNTED: u64 = 1;
    /// Flag: the operand is read.
    pub const LOADS: u64 = 2;
    /// Flag: the operand is written.
    pub const STORES: u64 = 4;

    pub const fn new(number: usize, flags: u64) -> Self {
        Self((number as u64) << 3 | flags)
    }

    const fn has(self, flag: u64) -> bool {
        self.0 & flag != 0
    }

    const fn number(self) -> u32 {
        (self.0 >> 3) as u32
    }
}

/// Makes a reference of an operand whose references to ranges are counted. The hot path stores only if
/// it completes the reference.
#[inline(always)]
fn refer_to(state: &PerThread<State>, shape: Shape, address: u64, size: u64, row: Row, tag: u64) {
    let line = state.lines[shape.set(address) % MAX_LINES].get();
    let offset = address.wrapping_add(line);
    if size <= shape.line() && offset <= shape.line() - size {
        return;
    }
    let is_there = size <= shape.line() && offset.wrapping_add(PLAIN) <= shape.line() - size;
    if is_there && is_in_window(row, address, size) {
        row[WORD].add(1);
        return;
    }
    look_up_slow(state, shape.0, address, size, row, tag);
}

/// Whether a reference is in the window of the operand's last reference.
#[inline(always)]
fn is_in_window(row: Row, address: u64, size: u64) -> bool {
    let window = &WINDOW[(row[WORD].get() >> 48) as usize % WINDOWS];
    let (start, len) = (window.start.load(Relaxed), window.len.load(Relaxed));
    let offset = address.wrapping_sub(start);
    offset < len && len - offset >= size
}

/// Makes a reference in a cache of the default shape, which is a constant here. Misses in the window are on the hot
/// path, too. If ranges do not change while other threads run, which is `FIXED`, so are misses in memory where the
/// map's filter excludes ranges.
#[inline(always)]
fn refer_in_line<const FIXED: bool>(state: &State, address: u64, size: u64, row: Row, tag: u64) {
    const LINE: u64 = DEFAULT.line();
    let cell = &state.lines[DEFAULT.set(address)];
    let offset = address.wrapping_add(cell.get());
    if size <= LINE && offset <= LINE - size {
        return;
    }
    let start = address & !(LINE - 1);
    if size <= LINE && address - start <= LINE - size {
        let is_there = offset.wrapping_add(PLAIN) < LINE;
        if is_in_window(row, address, size) {
            row[WORD].add(1);
            if !is_there {
                row[MISSES].add(1);
                row[WINDOW_MISSES].add(1);
                cell.set(start.wrapping_neg() ^ PLAIN);
            }
            return;
        }
        if FIXED && !is_there && !MAP.may_cover_part_of(address) {
            row[MISSES].add(1);
            cell.set(start.wrapping_neg());
            return;
        }
    }
    look_up_slow(state, DEFAULT.0, address, size, row, tag);
}

/// One reference to a cache of the default shape, while ranges do not change.
#[analysis]
#[rustfmt::skip]
pub fn refer_default(state: PerThread<State>, _: u64, address: u64, size: u64, row: Row, tag: u64) {
    refer_in_line::<true>(&state, address, size, row, tag);
}

/// One reference to a cache of the default shape, while ranges may change.
#[analysis]
#[rustfmt::skip]
pub fn refer_changing(state: PerThread<State>, _: u64, address: u64, size: u64, row: Row, tag: u64) {
    refer_in_line::<false>(&state, address, size, row, tag);
}

/// One reference to a cache of any shape.
#[analysis]
#[rustfmt::skip]
pub fn refer(state: PerThread<State>, shape: u64, address: u64, size: u64, row: Row, tag: u64) {
    refer_to(&state, Shape(shape), address, size, row, tag);
}

/// Makes a reference that is not counted for ranges.
#[inline(always)]
fn pass_to(state: &PerThread<State>, shape: Shape, address: u64, size: u64, row: Row, tag: u64) {
    let line = state.lines[shape.set(address) % MAX_LINES].get();
    let offset = address.wrapping_add(line) & !PLAIN;
    if size > shape.line() || offset > shape.line() - size {
        look_up_slow(state, shape.0, address, size, row, tag);
    }
}

/// One reference to a cache of the default shape, not counted for ranges.
#[analysis]
#[rustfmt::skip]
pub fn pass_default(state: PerThread<State>, _: u64, address: u64, size: u64, row: Row, tag: u64) {
    pass_to(&state, DEFAULT, address, size, row, tag);
}

/// One reference to a cache of any shape, not counted for ranges.
#[analysis]
#[rustfmt::skip]
pub fn pass(state: PerThread<State>, shape: u64, address: u64, size: u64, row: Row, tag: u64) {
    pass_to(&state, Shape(shape), address, size, row, tag);
}

/// A memory operand in the running thread.
#[derive(Clone, Copy)]
struct Operand {
    row: Row,
    tag: OperandTag,
}

/// Makes a reference that the hot path does not complete.
#[cold]
#[inline(never)]
fn look_up_slow(state: &State, shape: u64, address: u64, size: u64, row: Row, tag: u64) {
    let (shape, tag) = (Shape(shape), OperandTag(tag));
    let operand = Operand { row, tag };
    let end = address.saturating_add(size);
    let line = shape.start(address);
    if shape.ways() == 1
        && end <= line + shape.line()
        && tag.has(OperandTag::COUNTED)
        && is_in_window(row, address, size)
    {
        // The window shows that a range is in the line, so the map need not be searched.
        let cell = &state.lines[shape.set(address) % MAX_LINES];
        let plain = line.wrapping_neg();
        if cell.get() | PLAIN != plain {
            row[MISSES].add(1);
            row[WINDOW_MISSES].add(1);
        }
        cell.set(plain ^ PLAIN);
        row[WORD].add(1);
        return;
    }
    touch(state, shape, address..end, 1, operand);
    // The block's counter includes one reference, which `touch` has counted, too.
    row[EXTRA].add(u64::MAX);
    if tag.has(OperandTag::COUNTED) && !count(operand, address..end, size, 1) {
        // Ranges that were in this line may have disappeared.
        bring(state, shape, line, true);
    }
}

/// Brings the bytes that a reference touches into the cache, `times` times in succession.
fn touch(state: &State, shape: Shape, bytes: Range<u64>, times: u64, operand: Operand) {
    let Operand { row, tag } = operand;
    for line in lines_of(bytes.start, bytes.end - bytes.start, shape.line()) {
        row[EXTRA].add(times);
        if bring(state, shape, line, false) {
            // All `times` references find the same state. If they miss, the lines of the instruction's two operands evict
            // each other in turn, so each reference misses.
            row[MISSES].add(times);
            if tag.has(OperandTag::COUNTED) {
                missed(
                    tag,
                    line.max(bytes.start)..line.saturating_add(shape.line()).min(bytes.end),
                    times,
                );
            }
        }
    }
}

/// Brings a line to the front of its set; returns true if it was not in the set. With `look`, the mark of the line is
/// made anew even if the line is at the front already.
fn bring(state: &State, shape: Shape, line: u64, look: bool) -> bool {
    let set = shape.set_of(&state.lines, line);
    let sequence = MAP.sequence();
    let mark = |line: u64| {
        if MAP.covers(line, line + shape.line()) {
            line.wrapping_neg() ^ PLAIN
        } else {
            line.wrapping_neg()
        }
    };
    let plain = line.wrapping_neg();
    let place = set.iter().position(|other| other.get() | PLAIN == plain);
    if place == Some(0) && !look {
        // The line is at the front, and its mark is right.
        return false;
    }
    bring_to_front(set, place, mark(line));
    if CHANGING.load(Relaxed) {
        // A thread that makes a range appear marks lines in all caches. It may have missed a line that moved in the
        // set at that moment. It changes the sequence number before it marks lines.
        fence(SeqCst);
        let mut before = sequence;
        // In the child of a fork during a change, the number stays odd for ever.
        for _ in 0..1000 {
            if before & 1 == 0 && MAP.sequence() == before {
                break;
            }
            before = MAP.sequence();
            for other in set.iter().filter(|other| other.get() != 0) {
                let line = (other.get() | PLAIN).wrapping_neg();
                other.set(mark(line));
            }
            fence(SeqCst);
        }
    }
    place.is_none()
}

/// Counts misses of these bytes for the ranges in them.
fn missed(tag: OperandTag, bytes: Range<u64>, misses: u64) {
    let Range { start, end } = bytes;
    if !MAP.may_cover(start, end) {
        return;
    }
    let mut seen: Vec<u32> = Vec::new();
    let tally = Tally {
        misses,
        ..Tally::default()
    };
    MAP.overlapping(start, end, |entry| {
        let Some(set) = live::set_of(entry.piece) else {
            return;
        };
        if entry.start <= start && end <= entry.end {
            tally::add(tag.number(), set.id, tally);
            return;
        }
        // A range may have several of these pieces, and counts the misses once.
        for range in &set.ranges {
            if !seen.contains(range) {
                seen.push(*range);
                tally::add(tag.number(), live::alone(*range), tally);
            }
        }
    });
}

/// Counts `times` consecutive references of `size` bytes each in `bytes` for the ranges
/// in these bytes. Returns false if there are none.
fn count(operand: Operand, bytes: Range<u64>, size: u64, times: u64) -> bool {
    let (Range { start, end }, tag) = (bytes, operand.tag);
    if size == 0 || end <= start || !MAP.may_cover(start, end) {
        return false;
    }
    let mut found = false;
    let sequence = MAP.sequence();
    let of = |flag, n| if tag.has(flag) { n } else { 0 };
    let which = |n| [of(OperandTag::LOADS, n), of(OperandTag::STORES, n)];
    // Ranges, each with the index of the last reference that was counted for it, plus 1.
    let mut seen: Vec<(u32, u64)> = Vec::new();
    MAP.overlapping(start, end, |entry| {
        let Some(set) = live::set_of(entry.piece) else {
            return;
        };
        found = true;
        if entry.start <= start && end <= entry.end {
            live::touched(entry, set, start..end, sequence, which(times));
            count_in_piece(operand, entry, set, size, times);
            return;
        }
        // The references reach into several pieces, or into memory without ranges. If a range has more than one of
        // these pieces, a reference still counts once for it.
        let (low, high) = (start.max(entry.start), end.min(entry.end));
        let (first, behind) = ((low - start) / size, (high - 1 - start) / size + 1);
        live::touched(entry, set, low..high, sequence, which(behind - first));
        for range in &set.ranges {
            let at = seen.iter().position(|(r, _)| r == range);
            let counted = at.map_or(0, |at| seen[at].1);
            let tally = Tally {
                references: behind.saturating_sub(first.max(counted)),
                bytes: high - low,
                misses: 0,
            };
            tally::add(tag.number(), live::alone(*range), tally);
            match at {
                Some(at) => seen[at].1 = behind,
                None => seen.push((*range, behind)),
            }
        }
    });
    found
}

/// Counts references that are in one piece. A single reference makes the piece's window the operand's window.
fn count_in_piece(operand: Operand, entry: Entry, set: &Set, size: u64, times: u64) {
    let Operand { row, tag } = operand;
    if times != 1 || entry.piece as usize >= WINDOWS {
        let tally = Tally {
            references: times,
            bytes: times * size,
            misses: 0,
        };
        tally::add(tag.number(), set.id, tally);
        return;
    }
    let before = word(row[WORD].get()).0;
    if before == entry.piece {
        row[WORD].add(1);
        return;
    }
    if live::set_of(before).is_some_and(|old| old.id == set.id) {
        // The count remains valid, because both windows are of the same set of ranges.
        let further = u64::from(entry.piece).wrapping_sub(before.into()) << 48;
        row[WORD].fetch_add(further.wrapping_add(1));
        return;
    }
    let (window, n) = word(row[WORD].swap(u64::from(entry.piece) << 48 | 1));
    let misses = row[WINDOW_MISSES].swap(0);
    if (n != 0 || misses != 0)
        && let Some(set) = live::set_of(window)
    {
        let tally = Tally {
            references: n,
            bytes: n * size,
            misses,
        };
        tally::add(tag.number(), set.id, tally);
    }
}

plain_data! {
    /// Constants about the references of a string instruction, or of an element of a vector.
    pub struct Repeated {
        /// The cache, a [`Shape`].
        pub shape: u64,
        /// Size of one access in bytes.
        pub size: u64,
        /// The memory operands; both are the same if there is only one.
        pub operands: [RepeatedOperand; 2],
    }

    /// A memory operand of such an instruction.
    pub struct RepeatedOperand {
        /// Its cells.
        pub row: ThreadRowAt<CELLS>,
        /// An [`OperandTag`].
        pub tag: u64,
    }
}

/// Makes the references of a repeated string instruction, or of an element of a vector. `b` is 0 if
/// there is only one operand. Only this routine counts these references.
#[analysis]
pub fn repeat(
    state: PerThread<State>,
    what: Record<Repeated>,
    a: u64,
    b: u64,
    times: u64,
    down: u64,
) {
    refer_repeatedly(state, &what, [a, b], times, down);
}

/// Makes the references of a repeated instruction. Its operands begin at the addresses `at`; the second address
/// is 0 if there is only one operand.
fn refer_repeatedly(state: PerThread<State>, what: &Repeated, at: [u64; 2], times: u64, down: u64) {
    let (shape, size) = (Shape(what.shape), what.size);
    let operands = what.operands.map(|operand| Operand {
        row: operand.row.row(state),
        tag: OperandTag(operand.tag),
    });
    let mut turn = 0;
    repeated(at, times, size, down, shape.line(), |address, n| {
        let operand = operands[if at[1] == 0 { 0 } else { turn }];
        let bytes = address..address.saturating_add(size);
        touch(&state, shape, bytes, n, operand);
        turn ^= 1;
    });
    let operands = at.iter().zip(operands);
    for (at, operand) in operands.filter(|(at, _)| **at != 0) {
        if !operand.tag.has(OperandTag::COUNTED) || times == 0 || size == 0 {
            continue;
        }
        let bytes = times.saturating_mul(size);
        let start = match down {
            0 => *at,
            _ => at.wrapping_sub(bytes - size),
        };
        count(operand, start..start.saturating_add(bytes), size, times);
    }
}

/// Stores the operands before a string comparison, which may end early.
#[analysis]
pub fn compare(state: PerThread<State>, a: u64, b: u64, times: u64) {
    simulate::begin(&state.comparison, [a, b, times]);
}

/// Makes the references of a string comparison after it; `rcx` has the number of repetitions that were not made.
#[analysis]
pub fn compared(state: PerThread<State>, what: Record<Repeated>, rcx: u64, down: u64) {
    let (at, times) = simulate::end(&state.comparison, rcx);
    refer_repeatedly(state, &what, at, times, down);
}

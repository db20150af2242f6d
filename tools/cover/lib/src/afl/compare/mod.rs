//! AFL++'s map of comparisons (cmplog): what the program compares its input with.
//!
//! Each comparison of numbers, and each call that may compare memory, is a site that logs its two operands in a map
//! which the fuzzer shares (`log`). `sites` finds them. A site has a mark that is set when nothing more is to be logged
//! there: when its room in the map is full, and everywhere if no fuzzer wants a map. All that a site in a loop costs is
//! then a look at its mark.
//!
//! Operands of comparisons of memory are pointers by guess. The kernel reads what they point to, so that a wrong guess
//! does no harm.

mod log;
mod sites;

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use atom_tool::prelude::*;
use atom_tool::{MarkTable, read_memory};

use super::sys;
use log::{Entry, MOST_BYTES, SITES};

/// Bytes of a word.
const WORD: usize = 8;

/// What a call that compares memory takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Two pieces of memory and their length.
    Bytes,
    /// Two texts that end in 0.
    Texts,
    /// Two texts and how much of them is compared at most.
    Beginnings,
    /// Perhaps two pieces of memory.
    Any,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Bytes, Self::Texts, Self::Beginnings, Self::Any];
}

/// Which part of a comparison an instruction makes. Compilers compare 9 to 16 bytes by two instructions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    /// All of it.
    Whole,
    /// The low word, before the high one.
    LowFirst,
    /// The high word, before the low one.
    HighFirst,
    /// The low word of a comparison whose high one is logged already.
    LowSecond,
    /// The high word of a comparison whose low one is logged already.
    HighSecond,
}

impl Part {
    const ALL: [Self; 5] = [
        Self::Whole,
        Self::LowFirst,
        Self::HighFirst,
        Self::LowSecond,
        Self::HighSecond,
    ];

    fn is_high(self) -> bool {
        matches!(self, Self::HighFirst | Self::HighSecond)
    }

    fn is_second(self) -> bool {
        matches!(self, Self::LowSecond | Self::HighSecond)
    }
}

/// A site's constants, as one argument of its routine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct What {
    /// Number of the site in the map.
    site: usize,
    /// Size of an operand, or of an element of memory, in bytes.
    size: usize,
    attribute: u8,
    kind: Kind,
    part: Part,
}

impl What {
    fn pack(self) -> u64 {
        self.site as u64
            | (self.size as u64) << 16
            | u64::from(self.attribute) << 24
            | (self.kind as u64) << 32
            | (self.part as u64) << 40
    }

    fn unpack(word: u64) -> Self {
        let byte = |at: u32| (word >> at) as u8;
        Self {
            site: word as usize % SITES,
            size: byte(16).into(),
            attribute: byte(24),
            kind: Kind::ALL[usize::from(byte(32)) % Kind::ALL.len()],
            part: Part::ALL[usize::from(byte(40)) % Part::ALL.len()],
        }
    }

    fn entry(self) -> Entry {
        Entry {
            site: self.site,
            attribute: self.attribute,
        }
    }
}

#[analysis]
fn numbers(is_done: Mark, what: u64, first: u64, second: u64) {
    if !is_done.is_set() {
        log_numbers(is_done, what, first, second);
    }
}

#[analysis]
fn vectors(is_done: Mark, what: u64, low: RegV, high: RegV, other_low: RegV, other_high: RegV) {
    if !is_done.is_set() {
        log_vectors(is_done, what, [low.0, high.0], [other_low.0, other_high.0]);
    }
}

#[analysis]
fn vector_and_memory(is_done: Mark, what: u64, low: RegV, high: RegV, address: u64) {
    if !is_done.is_set() {
        log_vector_and_memory(is_done, what, [low.0, high.0], address);
    }
}

#[analysis]
fn memory(is_done: Mark, what: u64, first: u64, second: u64, length: u64) {
    if !is_done.is_set() {
        log_memory(is_done, what, [first, second], length);
    }
}

#[cold]
#[inline(never)]
fn log_numbers(is_done: Mark, what: u64, first: u64, second: u64) {
    let what = What::unpack(what);
    let (size, word) = if what.part.is_high() {
        (what.size - WORD, 1)
    } else {
        (what.size.min(WORD), 0)
    };
    let used = match size {
        1..WORD => (1 << (8 * size)) - 1,
        _ => u64::MAX,
    };
    let values = [first, second].map(|value| {
        let mut words = [0; 2];
        words[word] = value & used;
        words
    });
    if what.part.is_second() {
        what.entry().complete(word, values);
    } else if !what.entry().numbers(what.size, values) {
        is_done.set();
    }
}

#[cold]
#[inline(never)]
fn log_vectors(is_done: Mark, what: u64, first: [u64; 2], second: [u64; 2]) {
    let what = What::unpack(what);
    if !what.entry().numbers(what.size, [first, second]) {
        is_done.set();
    }
}

#[cold]
#[inline(never)]
fn log_vector_and_memory(is_done: Mark, what: u64, first: [u64; 2], address: u64) {
    let mut bytes = [0; 16];
    if log::is_attached() && read_memory(address, &mut bytes) < bytes.len() {
        return;
    }
    let [low, high] = [0, 8].map(|at| {
        let half: [u8; 8] = std::array::from_fn(|i| bytes[at + i]);
        u64::from_le_bytes(half)
    });
    log_vectors(is_done, what, first, [low, high]);
}

#[cold]
#[inline(never)]
fn log_memory(is_done: Mark, what: u64, at: [u64; 2], length: u64) {
    if !log::is_attached() {
        is_done.set();
        return;
    }
    let what = What::unpack(what);
    let most = match what.kind {
        Kind::Bytes | Kind::Beginnings => length.saturating_mul(what.size as u64),
        Kind::Texts | Kind::Any => MOST_BYTES as u64,
    };
    let most = most.min(MOST_BYTES as u64) as usize;
    let mut bytes = [[0; MOST_BYTES]; 2];
    let mut lengths = [0; 2];
    for ((bytes, length), at) in bytes.iter_mut().zip(&mut lengths).zip(at) {
        *length = read_memory(at, &mut bytes[..most]);
        if *length == 0 {
            return give_up_later(is_done, what.site);
        }
    }
    let is_text = matches!(what.kind, Kind::Texts | Kind::Beginnings);
    for (bytes, length) in bytes.iter().zip(&mut lengths).filter(|_| is_text) {
        let end = bytes[..*length].iter().position(|byte| *byte == 0);
        *length = end.map_or(*length, |end| end + 1);
    }
    if !is_text {
        lengths = [lengths[0].min(lengths[1]); 2];
    }
    let pieces = [&bytes[0][..lengths[0]], &bytes[1][..lengths[1]]];
    if !what.entry().memory(pieces, is_text) {
        is_done.set();
    }
}

/// Counts an execution of a site that gave nothing to log; after some, the site is not looked at any more. A call whose
/// arguments are numbers would be looked at each time else.
fn give_up_later(is_done: Mark, site: usize) {
    const MOST: u8 = 64;
    static FAILED: [AtomicU8; SITES] = [const { AtomicU8::new(0) }; SITES];
    let failed = FAILED[site].load(Relaxed);
    if failed < MOST {
        FAILED[site].store(failed + 1, Relaxed);
    } else {
        is_done.set();
    }
}

/// Attaches the fuzzer's map, if there is one, and returns the version of the server's protocol that belongs to it.
pub fn begin(done: Marks) -> Option<u32> {
    if done.is_empty() {
        return None;
    }
    let protocol = log::attach().unwrap_or_else(|message| {
        eprintln!("afl: {message}");
        sys::exit(1)
    });
    done.set_all(protocol.is_none());
    protocol
}

/// Makes all sites log again, for the next input of a persistent process.
pub fn begin_input(done: Marks) {
    if log::is_attached() {
        done.set_all(false);
    }
}

/// Adds the calls at all sites. Returns their marks.
pub fn instrument(program: &Program) -> MarkTable {
    let (sites, count) = sites::find(program);
    let done = program.marks(count.clamp(1, SITES));
    for site in sites {
        site.add_call(done);
    }
    done
}

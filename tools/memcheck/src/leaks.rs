//! Blocks that nothing leads to at the end.
//!
//! Roots are all words in memory that the process can write and that is not the tool's: data of all objects, stacks, memory of
//! threads, the program's own mappings. A pointer to a block's start leads to the block; one to its inside only perhaps, unless the
//! block begins as one of which only the inside is known.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::ptr::with_exposed_provenance;
use std::sync::atomic::Ordering::Relaxed;

use crate::caches::Cache;
use crate::errors::{self, Sum};
use crate::names::{Does, Family};
use crate::out::{self, grouped};
use crate::slots::{self, Block};
use crate::suppressions;
use crate::told::{Kind, Leak, Told};
use atom_tool::prelude::*;

/// How a block is reached, in the order in which a better way replaces a worse one.
const INDIRECT: u8 = 1;
const POSSIBLE: u8 = 2;
const REACHABLE: u8 = 3;

plain_data! {
    /// How much is told of leaks.
    pub struct Detail {
        /// Nothing is looked for.
        pub is_off: u8,
        /// A record for each call stack.
        pub is_full: u8,
        /// Kinds that have records, and kinds that are errors, as bits.
        pub shown: u8,
        pub errors: u8,
    }
}

/// Memory that has roots: start and end.
fn roots(sp: u64) -> Vec<[u64; 2]> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mut found = Vec::new();
    let mut area_end = 0;
    for line in maps.lines() {
        let mut words = line.split_ascii_whitespace();
        let (Some(range), Some(rights)) = (words.next(), words.next()) else {
            continue;
        };
        let path = words.nth(3).unwrap_or_default();
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        let Some((start, end)) = range
            .split_once('-')
            .and_then(|(start, end)| Some((number(start)?, number(end)?)))
        else {
            continue;
        };
        // The tool's data is in the file of the area, and right after it.
        if path.ends_with("/area") || (path.is_empty() && start == area_end) {
            area_end = end;
            continue;
        }
        let is_own = slots::is_own(start)
            || (0x7fff_8000..0x1000_7fff_8000).contains(&start)
            || (0x5500_0000_0000..0x5555_0000_0000).contains(&start)
            || (0x5660_0000_0000..0x5680_0000_0000).contains(&start);
        if rights.starts_with("rw") && !is_own && !path.starts_with("/dev/") {
            let is_stack = (start..end).contains(&sp);
            found.push([if is_stack { sp } else { start }, end]);
        }
    }
    found
}

/// Goes through the words between two addresses; tells the blocks that they lead to, and whether it is certain.
fn scan([start, end]: [u64; 2], mut found: impl FnMut(&'static Block, bool)) {
    let mut at = start.next_multiple_of(8);
    while at + 8 <= end {
        let word = word(at);
        at += 8;
        if let Some(block) = slots::find(word)
            && block.is_live()
            && word >= block.start()
            && word < block.start() + block.size().max(1)
        {
            found(block, word == block.start() || is_known_inside(block, word));
        }
    }
}

/// A word of mapped memory of the process, which ends.
fn word(at: u64) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { with_exposed_provenance::<u64>(at as usize).read_volatile() }
}

/// True for the place inside a block that is kept instead of its start: after the number of an array's elements, after the
/// length of a block, or after the head of a string of old versions of C++'s library.
fn is_known_inside(block: &Block, at: u64) -> bool {
    let (start, size) = (block.start(), block.size());
    let inside = at - start;
    if size < 24 || inside != 8 && inside != 24 {
        return false;
    }
    let first = word(start);
    match inside {
        8 if block.does().family() == Family::NewArray => {
            first != 0 && (size - 8).is_multiple_of(first)
        }
        8 => first == size - 8 || first == (size - 8).next_multiple_of(16),
        _ => {
            let capacity = word(start + 8);
            first <= capacity && capacity.checked_add(25) == Some(size)
        }
    }
}

fn set(block: &Block, mark: u8) {
    block.mark.store(mark, Relaxed);
}

fn mark_of(block: &Block) -> u8 {
    block.mark.load(Relaxed)
}

fn range_of(block: &Block) -> [u64; 2] {
    [block.start(), block.start() + block.size()]
}

fn follow(work: &mut Vec<[u64; 2]>) {
    while let Some(range) = work.pop() {
        scan(range, |block, is_certain| {
            let mark = if is_certain { REACHABLE } else { POSSIBLE };
            if mark_of(block) < mark {
                set(block, mark);
                if mark == REACHABLE {
                    work.push(range_of(block));
                }
            }
        });
    }
}

/// Blocks that only possibly reached ones lead to are so, too.
fn follow_possible() {
    let possible = slots::live().filter(|block| mark_of(block) == POSSIBLE);
    let mut work: Vec<_> = possible.map(range_of).collect();
    while let Some(range) = work.pop() {
        scan(range, |block, _| {
            if mark_of(block) < POSSIBLE {
                set(block, POSSIBLE);
                work.push(range_of(block));
            }
        });
    }
}

/// Bytes and blocks.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Amount {
    bytes: u64,
    blocks: u64,
}

impl Amount {
    fn add(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.blocks += other.blocks;
    }

    fn of(block: &Block) -> Self {
        Self {
            bytes: block.size(),
            blocks: 1,
        }
    }
}

/// What only lost blocks lead to is lost with them. Returns for the others, by their starts, what each leads to.
fn follow_lost() -> HashMap<u64, Amount> {
    let mut led_to: HashMap<u64, Amount> = HashMap::new();
    let lost: Vec<_> = slots::live().filter(|block| mark_of(block) == 0).collect();
    for leader in lost {
        if mark_of(leader) != 0 {
            continue;
        }
        let own = leader.start();
        let mut sum = Amount::default();
        let mut inner = vec![range_of(leader)];
        while let Some(range) = inner.pop() {
            scan(range, |block, _| {
                if mark_of(block) != 0 || block.start() == own {
                    return;
                }
                set(block, INDIRECT);
                sum.add(Amount::of(block));
                match led_to.remove(&block.start()) {
                    // What this one leads to is marked already.
                    Some(more) => sum.add(more),
                    None => inner.push(range_of(block)),
                }
            });
        }
        led_to.insert(own, sum);
    }
    led_to
}

/// Blocks of one kind that one call stack allocated.
#[derive(Clone, Copy, Default)]
struct Record {
    own: Amount,
    /// What they lead to.
    more: Amount,
}

/// What tells records from each other.
type Key = (Leak, Does, u32);

fn leak_of(mark: u8) -> Leak {
    match mark {
        0 => Leak::Definite,
        INDIRECT => Leak::Indirect,
        POSSIBLE => Leak::Possible,
        _ => Leak::Reachable,
    }
}

/// Finds the leaks and tells them. Returns what of them are errors.
///
/// Below `sp` the stack that it is in has no roots.
pub fn report(detail: Detail, caches: AllThreads<Cache>, sp: u64) -> Sum {
    let (mut allocations, mut frees, mut bytes) = (0, 0, 0);
    for cache in caches.iter() {
        allocations += cache.allocations.get();
        frees += cache.frees.get();
        bytes += cache.bytes.get();
    }
    let mut live = Amount::default();
    slots::live().for_each(|block| live.add(Amount::of(block)));
    let [size, blocks, allocations, frees, bytes] =
        [live.bytes, live.blocks, allocations, frees, bytes].map(grouped);
    out::note(&format!(
        "\nHEAP SUMMARY:\n    in use at exit: {size} bytes in {blocks} blocks\n  total heap usage: {allocations} allocs, {frees} frees, {bytes} bytes allocated\n\n"
    ));
    if live.blocks == 0 {
        out::note("All heap blocks were freed -- no leaks are possible\n\n");
        return Sum::default();
    }
    if detail.is_off != 0 {
        return Sum::default();
    }
    leaks(detail, sp)
}

fn leaks(detail: Detail, sp: u64) -> Sum {
    follow(&mut roots(sp));
    follow_possible();
    let led_to = follow_lost();
    let mut records: HashMap<Key, Record> = HashMap::new();
    for block in slots::live() {
        let key = (leak_of(mark_of(block)), block.does(), block.allocated());
        let record = records.entry(key).or_default();
        record.own.add(Amount::of(block));
        if let Some(more) = led_to.get(&block.start()) {
            record.more.add(*more);
        }
    }
    let mut in_order: Vec<_> = records.into_iter().collect();
    in_order.sort_unstable_by_key(|((leak, does, stack), record)| {
        let bytes = record.own.bytes + record.more.bytes;
        (bytes, std::cmp::Reverse(*leak), *does as u8, *stack)
    });
    let mut sums = [Amount::default(); 5];
    let mut sum = Sum::default();
    let count = in_order.len() as u64;
    for (i, ((leak, does, stack), record)) in in_order.iter().enumerate() {
        let has = |bits: u8| detail.is_full != 0 && bits >> *leak as u8 & 1 != 0;
        let mut place = *leak as usize;
        if has(detail.shown | detail.errors) {
            let told = Told {
                kind: Kind::Leak(*leak),
                what: what(*leak, record, [i as u64 + 1, count]),
                stack: errors::frames_of(*does, *stack),
                parts: Vec::new(),
                leaked: Some((record.own.bytes + record.more.bytes, record.own.blocks)),
            };
            let is_error = has(detail.errors);
            if suppressions::suppresses(&told) {
                place = 4;
                sum.suppressed += u64::from(is_error);
                sum.suppressed_places += u64::from(is_error);
            } else {
                sum.errors += u64::from(is_error);
                sum.places += u64::from(is_error);
                if has(detail.shown) {
                    out::error(&told);
                }
            }
        }
        sums[place].add(record.own);
    }
    let mut text = String::from("LEAK SUMMARY:\n");
    let names = Leak::ALL.map(Leak::text).into_iter().chain(["suppressed"]);
    for (name, sum) in names.zip(sums) {
        let (bytes, blocks) = (grouped(sum.bytes), grouped(sum.blocks));
        let _ = writeln!(text, "   {name:>15}: {bytes} bytes in {blocks} blocks");
    }
    if detail.is_full == 0 {
        text.push_str("Rerun with --leak-check=full to see details of leaked memory\n");
    }
    text.push('\n');
    out::note(&text);
    sum
}

/// The first line of a record.
fn what(leak: Leak, record: &Record, [number, count]: [u64; 2]) -> String {
    let (own, more) = (record.own.bytes, record.more.bytes);
    let bytes = match more {
        0 => grouped(own),
        more => {
            let [all, own, more] = [own + more, own, more].map(grouped);
            format!("{all} ({own} direct, {more} indirect)")
        }
    };
    let [blocks, number, count] = [record.own.blocks, number, count].map(grouped);
    let text = leak.text();
    format!("{bytes} bytes in {blocks} blocks are {text} in loss record {number} of {count}")
}

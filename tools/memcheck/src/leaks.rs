//! Blocks that nothing leads to at the end.
//!
//! Roots are all words in memory that the process can write and that is not the tool's: data of all objects, stacks, memory of
//! threads, the program's own mappings. A pointer to a block's start leads to the block; one to its inside only perhaps, unless the
//! block begins as one of which only the inside is known.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, OnceLock};

use crate::caches::Cache;
use crate::custom;
use crate::errors::{self, Sum};
use crate::memory::Memory;
use crate::names::{Does, Family};
use crate::out::{self, grouped};
use crate::slots::Block;
use crate::suppressions;
use crate::told::{Kind, Leak, Told};
use crate::traces;
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
        /// Calls by which records are told apart, the allocator's own included; 0 for all.
        pub resolution: u8,
    }
}

/// What the program's stack and registers were: rsp, then the registers that callees keep.
struct Noted([AtomicU64; 7]);

impl Noted {
    const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; 7])
    }

    fn set(&self, values: [u64; 7]) {
        (self.0.iter().zip(values)).for_each(|(word, value)| word.store(value, Relaxed));
    }

    fn get(&self) -> [u64; 7] {
        self.0.each_ref().map(|word| word.load(Relaxed))
    }
}

/// When the program ended itself.
static AT_EXIT: Noted = Noted::new();
/// At the last client request.
static AT_REQUEST: Noted = Noted::new();
/// How much is told.
static DETAIL: OnceLock<Detail> = OnceLock::new();
/// What the last search has found.
static LAST: Mutex<Option<Found>> = Mutex::new(None);

/// What a search has found.
#[derive(Default)]
struct Found {
    /// By the kinds of [`Leak`], and suppressed.
    sums: [Amount; 5],
    records: HashMap<Key, Amount>,
}

/// Which records a search tells, by how they differ from the search before.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Changes {
    All,
    Increased,
    Any,
    New,
}

impl Changes {
    fn has(self, before: Option<&Amount>, now: Amount) -> bool {
        let known = before.copied().unwrap_or_default();
        match self {
            Self::All => true,
            Self::Increased => now.bytes > known.bytes || now.blocks > known.blocks,
            Self::Any => now != known,
            Self::New => before.is_none(),
        }
    }
}

/// Most bytes of stack between the call of `exit` and the end of the process.
const NEAR: u64 = 1 << 16;
/// Functions that end the process.
const ENDING: [&str; 4] = ["exit", "quick_exit", "_exit", "_Exit"];

pub fn begin(detail: Detail) {
    let _ = DETAIL.set(detail);
}

/// Adds what notes [`AT_EXIT`].
pub fn add(program: &Program<'_>) {
    let mut added = HashSet::new();
    for proc in ENDING.iter().flat_map(|name| program.procs_named(name)) {
        if !proc.is_stub() && !proc.is_opaque() && added.insert(proc.index()) {
            use Reg as R;
            let args = (R::Rsp, R::Rbx, R::Rbp, R::R12, R::R13, R::R14, R::R15);
            proc.add_call(Before, exiting, args);
        }
    }
}

/// The frames of `exit` have nothing of the program's but registers. They are not written as a whole, so they still have
/// pointers of calls that have ended: the `_exit` in which `exit` ends is not noted.
#[analysis]
fn exiting(rsp: u64, rbx: u64, rbp: u64, r12: u64, r13: u64, r14: u64, r15: u64) {
    let outer = AT_EXIT.0[0].load(Relaxed);
    if outer <= rsp || outer - rsp > NEAR {
        AT_EXIT.set([rsp, rbx, rbp, r12, r13, r14, r15]);
    }
}

/// Adds the note of [`AT_REQUEST`].
pub fn add_note(request: Inst<'_>) {
    use Reg as R;
    let args = (R::Rsp, R::Rbx, R::Rbp, R::R12, R::R13, R::R14, R::R15);
    request.add_call(Before, requesting, args);
}

#[analysis]
fn requesting(rsp: u64, rbx: u64, rbp: u64, r12: u64, r13: u64, r14: u64, r15: u64) {
    AT_REQUEST.set([rsp, rbx, rbp, r12, r13, r14, r15]);
}

/// Looks for leaks while the program runs, as it asks for that. They are told, and do not count as errors.
pub fn look(is_summary: bool, told: Changes) {
    let Some(detail) = DETAIL.get() else { return };
    let detail = Detail {
        is_off: 0,
        is_full: u8::from(!is_summary),
        ..*detail
    };
    // Another thread looks just now: what it finds serves both.
    if let Ok(mut last) = LAST.try_lock() {
        custom::begin_leaks();
        let _ = leaks(detail, &AT_REQUEST, told, &mut last);
    }
}

/// What the last search has found: bytes or blocks that are lost (directly or not), possibly lost, reachable, and suppressed.
pub fn counts(of_blocks: bool) -> [u64; 4] {
    let last = LAST.try_lock().ok();
    let sums = last.and_then(|last| Some(last.as_ref()?.sums));
    let amount = |sum: Amount| if of_blocks { sum.blocks } else { sum.bytes };
    let sums = sums.unwrap_or_default().map(amount);
    let of = |leak: Leak| sums[leak as usize];
    [
        of(Leak::Definite) + of(Leak::Indirect),
        of(Leak::Possible),
        of(Leak::Reachable),
        sums[4],
    ]
}

/// Calls `found` for a block that a word leads to, and says whether that is certain.
fn lead(memory: &Memory, word: u64, found: &mut impl FnMut(&'static Block, bool)) {
    if let Some(block) = custom::find(word)
        && block.is_live()
        && word >= block.start()
        && word < block.start() + block.size().max(1)
    {
        let is_certain = word == block.start() || is_known_inside(memory, block, word);
        found(block, is_certain);
    }
}

/// Goes through the words between two addresses; tells the blocks that they lead to, and whether it is certain.
fn scan(memory: &Memory, range: [u64; 2], mut found: impl FnMut(&'static Block, bool)) {
    memory.words(range, |word| lead(memory, word, &mut found));
}

/// True for the place inside a block that is kept instead of its start: after the number of an array's elements, after the
/// length of a block, or after the head of a string of old versions of C++'s library.
fn is_known_inside(memory: &Memory, block: &Block, at: u64) -> bool {
    let (start, size) = (block.start(), block.size());
    let inside = at - start;
    if size < 24 || inside != 8 && inside != 24 {
        return false;
    }
    let first = memory.word(start);
    match inside {
        8 if block.does().family() == Family::NewArray => {
            first != 0 && (size - 8).is_multiple_of(first)
        }
        8 => first == size - 8 || first == (size - 8).next_multiple_of(16),
        _ => {
            let capacity = memory.word(start + 8);
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

/// Notes that a block is reached, perhaps in a better way than before. What it leads to is work then, if that is certain.
fn reach(block: &Block, is_certain: bool, work: &mut Vec<[u64; 2]>) {
    let mark = if is_certain { REACHABLE } else { POSSIBLE };
    if mark_of(block) < mark {
        set(block, mark);
        if mark == REACHABLE {
            work.push(range_of(block));
        }
    }
}

/// Marks what the roots lead to, and what that leads to.
fn follow(memory: &Memory, from: &Noted) {
    let [rsp, registers @ ..] = from.get();
    let mut work = memory.roots(rsp);
    for word in registers {
        lead(memory, word, &mut |block, is_certain| {
            reach(block, is_certain, &mut work)
        });
    }
    while let Some(range) = work.pop() {
        scan(memory, range, |block, is_certain| {
            reach(block, is_certain, &mut work)
        });
    }
}

/// Blocks that only possibly reached ones lead to are so, too.
fn follow_possible(memory: &Memory) {
    let possible = custom::live().filter(|block| mark_of(block) == POSSIBLE);
    let mut work: Vec<_> = possible.map(range_of).collect();
    while let Some(range) = work.pop() {
        scan(memory, range, |block, _| {
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
fn follow_lost(memory: &Memory) -> HashMap<u64, Amount> {
    let mut led_to: HashMap<u64, Amount> = HashMap::new();
    let lost: Vec<_> = custom::live().filter(|block| mark_of(block) == 0).collect();
    for leader in lost {
        if mark_of(leader) != 0 {
            continue;
        }
        let own = leader.start();
        let mut sum = Amount::default();
        let mut inner = vec![range_of(leader)];
        while let Some(range) = inner.pop() {
            scan(memory, range, |block, _| {
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
    /// The stack that is shown.
    stack: u32,
}

/// What tells records from each other. The number is of the stack's first calls, or of all.
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
pub fn report(detail: Detail, caches: AllThreads<Cache>) -> Sum {
    let (mut allocations, mut frees, mut bytes) = (0, 0, 0);
    for cache in caches.iter() {
        allocations += cache.allocations.get();
        frees += cache.frees.get();
        bytes += cache.bytes.get();
    }
    let mut live = Amount::default();
    custom::begin_leaks();
    custom::live().for_each(|block| live.add(Amount::of(block)));
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
    // The lock may be held for ever, by a thread that is not in this process.
    match LAST.try_lock() {
        Ok(mut last) => leaks(detail, &AT_EXIT, Changes::All, &mut last),
        Err(_) => leaks(detail, &AT_EXIT, Changes::All, &mut None),
    }
}

/// Finds the leaks by a stack and registers, and tells some. `last` is what the search before has found, then this one.
fn leaks(detail: Detail, from: &Noted, told: Changes, last: &mut Option<Found>) -> Sum {
    let Some(memory) = Memory::of_process() else {
        out::note("Leaks are not looked for: /proc/self/maps cannot be read\n\n");
        return Sum::default();
    };
    follow(&memory, from);
    follow_possible(&memory);
    let led_to = follow_lost(&memory);
    let mut records: HashMap<Key, Record> = HashMap::new();
    for block in custom::live() {
        let (does, stack) = (block.does(), block.allocated());
        let own = usize::from(does.family() != Family::Custom);
        let group = match usize::from(detail.resolution) {
            0 => stack,
            calls => traces::first_calls(stack, calls - own),
        };
        let key = (leak_of(mark_of(block)), does, group);
        let record = records.entry(key).or_insert(Record {
            stack,
            ..Record::default()
        });
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
    let before = last.take().unwrap_or_default();
    let mut sums = [Amount::default(); 5];
    let mut sum = Sum::default();
    let count = in_order.len() as u64;
    for (i, (key, record)) in in_order.iter().enumerate() {
        let (leak, does, _) = key;
        let is_told = detail.is_full != 0 && told.has(before.records.get(key), record.own);
        let has = |bits: u8| is_told && bits >> *leak as u8 & 1 != 0;
        let mut place = *leak as usize;
        if has(detail.shown | detail.errors) {
            let told = Told {
                kind: Kind::Leak(*leak),
                what: what(*leak, record, [i as u64 + 1, count]),
                stack: errors::frames_of(*does, record.stack),
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
    let own = in_order.iter().map(|(key, record)| (*key, record.own));
    let records = own.collect();
    *last = Some(Found { sums, records });
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

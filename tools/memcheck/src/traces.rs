//! Call stacks by numbers.
//!
//! A stack is a list of numbers of calls. A list that was seen before is known by its hash: the same 53 bits are taken for the
//! same list. Most stacks need no walk: each thread keeps walks with the words that they have read.

use std::alloc::{Layout, alloc_zeroed};
use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::hint::spin_loop;
use std::ptr::{with_exposed_provenance, with_exposed_provenance_mut};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

use atom_tool::ThreadCell;
use atom_tool::Uninterrupted;
use atom_tool::stacks::{self, FrameRule, Words};

/// Usual and largest number of calls of a stack.
pub const USUAL: usize = 12;
pub const MOST: usize = 48;

static DEPTH: AtomicUsize = AtomicUsize::new(USUAL);

/// Number of entries of [`SEEN`], as a power of two.
const SEEN_BITS: u32 = 16;
/// Bits of an entry for the number of the stack, counted from 1; the others are of its hash.
const NUMBER_BITS: u32 = 24;
static SEEN: [AtomicU64; 1 << SEEN_BITS] = [const { AtomicU64::new(0) }; 1 << SEEN_BITS];

#[derive(Default)]
struct Known {
    stacks: Vec<Box<[u32]>>,
    /// Their numbers by their hashes.
    numbers: HashMap<u64, u32, BuildHasherDefault<Same>>,
}

/// The hash of a hash.
#[derive(Default)]
struct Same(u64);

impl Hasher for Same {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _bytes: &[u8]) {}

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

struct Locked {
    is_locked: AtomicBool,
    known: UnsafeCell<Option<Known>>,
}
// SAFETY: what is known is used by the holder of the lock alone.
unsafe impl Sync for Locked {}

static KNOWN: Locked = Locked {
    is_locked: AtomicBool::new(false),
    known: UnsafeCell::new(None),
};

fn with<R>(work: impl FnOnce(&mut Known) -> R) -> R {
    while KNOWN.is_locked.swap(true, Acquire) {
        spin_loop();
    }
    // SAFETY: the lock is held.
    let known = unsafe { &mut *KNOWN.known.get() };
    let result = work(known.get_or_insert_default());
    KNOWN.is_locked.store(false, Release);
    result
}

/// In a forked child: a thread that is not there may have held the lock.
pub fn in_child() {
    KNOWN.is_locked.store(false, Release);
}

/// Stacks have this number of calls at most.
pub fn begin(depth: usize) {
    DEPTH.store(depth.clamp(1, MOST), Relaxed);
}

/// The number of a stack.
#[inline]
fn intern(calls: &[u32]) -> u32 {
    let mut hash = calls.len() as u64;
    for call in calls {
        hash = (hash ^ u64::from(*call)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash ^= hash >> 29;
    }
    let entry = &SEEN[(hash >> (64 - SEEN_BITS)) as usize];
    let seen = entry.load(Relaxed);
    let number = seen & ((1 << NUMBER_BITS) - 1);
    if (seen ^ (hash << NUMBER_BITS)) >> NUMBER_BITS == 0 && number != 0 {
        return number as u32 - 1;
    }
    first_sight(calls, hash, entry)
}

#[cold]
#[inline(never)]
fn first_sight(calls: &[u32], hash: u64, entry: &AtomicU64) -> u32 {
    Uninterrupted::run(|_| {
        let number = with(|known| {
            if let Some(number) = known.numbers.get(&hash) {
                return *number;
            }
            let number = known.stacks.len() as u32;
            known.stacks.push(calls.into());
            known.numbers.insert(hash, number);
            number
        });
        if number + 1 < 1 << NUMBER_BITS {
            entry.store(hash << NUMBER_BITS | u64::from(number + 1), Relaxed);
        }
        number
    })
}

/// The calls of a stack, the innermost first.
pub fn calls(stack: u32) -> Option<Box<[u32]>> {
    with(|known| known.stacks.get(stack as usize).cloned())
}

/// The number of the stack of a stack's first calls.
pub fn first_calls(stack: u32, count: usize) -> u32 {
    let calls = calls(stack).unwrap_or_default();
    intern(calls.get(..count).unwrap_or(&calls))
}

/// True if a stack has all calls, so it was not cut.
pub fn is_whole(calls: &[u32]) -> bool {
    calls.len() < DEPTH.load(Relaxed).min(MOST)
}

/// Number of words that an entry of a thread's memory has.
const WORDS: usize = 26;
/// Number of entries, as a power of two.
const KEPT_BITS: u32 = 10;
/// Number of entries in which a walk may be.
const PROBES: usize = 4;

/// A walk that a thread has made, and its result.
#[derive(Clone, Copy)]
struct Walk {
    sp: u64,
    rbp: u64,
    changes: u64,
    stack: u32,
    words: Words<WORDS>,
}

/// The walks that a thread has made lately, by a hash of where they began.
struct Walks([Walk; 1 << KEPT_BITS]);

/// What is told of a walk that was kept.
enum Kept {
    /// It has this result now.
    Holds(u32),
    /// It has not; a hash of the first word that is another one.
    Differs(u64),
    /// There is none, or it is too old.
    None,
}

impl Walk {
    /// Compares what the walk has read.
    #[inline]
    fn compare(&self, sp: u64, rbp: u64) -> Kept {
        if self.sp == 0 || self.changes != stacks::changes() {
            return Kept::None;
        }
        let is_same = self.sp == sp && self.rbp == rbp;
        let Some(seen) = self.words.seen.get(..self.words.len).filter(|_| is_same) else {
            return Kept::Differs(1);
        };
        // The place of a word follows from those before it: as long as they are the same, the next one is on the stack.
        for [address, word] in seen {
            let now = load(*address);
            if now != *word {
                return Kept::Differs(now ^ *address << 32);
            }
        }
        Kept::Holds(self.stack)
    }
}

/// A word of the thread's stack.
#[inline]
fn load(address: u64) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { with_exposed_provenance::<u64>(address as usize).read_volatile() }
}

/// The stack at a procedure's entry.
#[inline]
pub fn at_entry(walks: &ThreadCell<u64>, sp: u64, rbp: u64) -> u32 {
    let at = walks.get();
    if at == 0 {
        return first_walk(walks, sp, rbp);
    }
    // SAFETY: the thread's own memory, which is never freed.
    let walks = unsafe { &mut (*with_exposed_provenance_mut::<Walks>(at as usize)).0 };
    let mut hash = load(sp) ^ sp << 20;
    let mut place = 0;
    for _ in 0..PROBES {
        hash = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        place = (hash >> (64 - KEPT_BITS)) as usize % (1 << KEPT_BITS);
        match walks[place].compare(sp, rbp) {
            Kept::Holds(stack) => return stack,
            Kept::Differs(more) => hash ^= more,
            Kept::None => break,
        }
    }
    walk_again(&mut walks[place], sp, rbp)
}

/// The walk of a thread that has no memory of walks yet.
#[cold]
#[inline(never)]
fn first_walk(walks: &ThreadCell<u64>, sp: u64, rbp: u64) -> u32 {
    // SAFETY: the size is not 0; integers may be zeros.
    let at = Uninterrupted::run(|_| unsafe { alloc_zeroed(Layout::new::<Walks>()) });
    let at = at.expose_provenance();
    walks.set(at as u64);
    at_entry_anew(sp, rbp)
}

#[inline(never)]
fn walk_again(walk: &mut Walk, sp: u64, rbp: u64) -> u32 {
    let depth = DEPTH.load(Relaxed);
    if depth > USUAL {
        return deep(sp, rbp, depth);
    }
    let mut calls = [0; USUAL];
    walk.sp = 0;
    walk.words.len = 0;
    let room = calls.get_mut(..depth).unwrap_or_default();
    let count = stacks::at_entry_by(sp, rbp, room, &mut walk.words);
    walk.stack = intern(calls.get(..count).unwrap_or_default());
    walk.changes = stacks::changes();
    walk.rbp = rbp;
    walk.sp = sp;
    walk.stack
}

/// As [`at_entry`], without memory.
#[inline(never)]
pub fn at_entry_anew(sp: u64, rbp: u64) -> u32 {
    deep(sp, rbp, DEPTH.load(Relaxed))
}

#[inline(never)]
fn deep(sp: u64, rbp: u64, depth: usize) -> u32 {
    let mut calls = [0; MOST];
    let count = stacks::at_entry(sp, rbp, calls.get_mut(..depth).unwrap_or_default());
    intern(calls.get(..count).unwrap_or_default())
}

/// The stack at an instruction: at a call if `call` has its number, else without the instruction itself.
pub fn at_inst(call: Option<u32>, rule: FrameRule, sp: u64, rbp: u64) -> u32 {
    let depth = DEPTH.load(Relaxed).min(MOST);
    let mut calls = [0; MOST];
    let own = usize::from(call.is_some());
    calls[0] = call.unwrap_or_default();
    let count = stacks::at_inst(rule, sp, rbp, calls.get_mut(own..depth).unwrap_or_default());
    intern(calls.get(..own + count).unwrap_or_default())
}

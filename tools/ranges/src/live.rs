//! The ranges that are live: what covers which memory, and how far it has been touched.
//!
//! Changing that takes a lock, during which signals wait. What the usual path of a
//! reference reads is a *window*: the part of a piece that has been touched before, so that
//! nothing is to be noted there but a count. An instruction remembers the number of
//! a window; a number is used again for the same set of ranges only, so what an instruction has
//! counted under it keeps its meaning when blocks of the heap come and go.

use std::collections::HashMap;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicPtr, AtomicU64};

use atom_tool::{AllThreads, SpinLock, Uninterrupted};

use crate::map::{Change, Chunk, Entry, Map};
use crate::model::{self, State};
use crate::picture::Picture;

/// Windows that there can be. Number 0 is none.
pub const WINDOWS: usize = 1 << 16;
/// Pieces beyond those with a window, in tables of the same size.
const TABLES: usize = 1 << 10;

/// Addresses from the first byte to behind the last.
type ByteRange = std::ops::Range<u64>;

/// All pieces.
pub static MAP: Map = Map::new();

/// The part of a piece where references only have to be counted.
#[repr(C)]
pub struct Window {
    /// Its first byte.
    pub start: AtomicU64,
    /// Its size; 0 while it is closed.
    pub len: AtomicU64,
}

/// Those of the pieces with the first numbers.
pub static WINDOW: [Window; WINDOWS] = [const {
    Window {
        start: AtomicU64::new(0),
        len: AtomicU64::new(0),
    }
}; WINDOWS];

/// A set of ranges that cover something together.
pub struct Set {
    /// Its number.
    pub id: u32,
    /// Its ranges, ascending.
    pub ranges: Box<[u32]>,
}

/// What is known of a piece beside its bounds.
struct Piece {
    set: AtomicPtr<Set>,
    /// Where the block or variable begins that it belongs to, if that comes and goes.
    base: AtomicU64,
}

static FIRST_PIECES: [Piece; WINDOWS] = [const {
    Piece {
        set: AtomicPtr::new(std::ptr::null_mut()),
        base: AtomicU64::new(0),
    }
}; WINDOWS];
static PIECES: [AtomicPtr<Piece>; TABLES] = {
    let mut tables = [const { AtomicPtr::new(std::ptr::null_mut()) }; TABLES];
    tables[0] = AtomicPtr::new(&raw const FIRST_PIECES as *mut Piece);
    tables
};

/// A range that was asked for, and what is known of it as a whole.
pub struct Range {
    /// Where it begins, if it is always there.
    pub fixed: Option<u64>,
    /// What its address at run time is more than in the file.
    pub bias: u64,
    /// Bytes of it: of what comes and goes, of the largest so far.
    pub size: AtomicU64,
    /// How often it has appeared.
    pub times: AtomicU64,
    /// Where it appeared last.
    pub last: AtomicU64,
    /// The lowest offset that was touched; all ones if none was.
    pub low: AtomicU64,
    /// Behind the highest.
    pub high: AtomicU64,
    /// What was touched how often, where that was asked for.
    pub picture: Option<Picture>,
}

static RANGES: OnceLock<Vec<Range>> = OnceLock::new();
/// State of all threads, the first one's first.
static THREADS: OnceLock<Threads> = OnceLock::new();

struct Threads(AllThreads<State>);
// SAFETY: what threads share is atomic.
unsafe impl Send for Threads {}
// SAFETY: as above.
unsafe impl Sync for Threads {}

/// All ranges.
pub fn ranges() -> &'static [Range] {
    RANGES.get().map_or(&[], Vec::as_slice)
}

/// What the lock protects.
#[derive(Default)]
pub struct Live {
    spare: Vec<&'static Chunk>,
    sets: HashMap<Vec<u32>, &'static Set>,
    /// Numbers of pieces that are not used, by set.
    free: HashMap<u32, Vec<u32>>,
    pieces: u32,
    /// Blocks of the heap that are in ranges, by address.
    pub blocks: HashMap<u64, Block>,
    /// Variables of procedures that run.
    pub variables: Vec<Variable>,
}

/// A block of the heap: its size, and the ranges that it belongs to.
#[derive(Clone, Debug)]
pub struct Block {
    pub size: u64,
    pub ranges: Vec<u32>,
}

/// A variable of a procedure that runs.
#[derive(Clone, Copy, Debug)]
pub struct Variable {
    pub thread: u64,
    /// rsp before the call that entered the procedure.
    pub frame: u64,
    pub range: u32,
    pub start: u64,
    pub size: u64,
    /// An inner call of the procedure has put it aside.
    pub is_hidden: bool,
}

/// Protects [`LIVE`].
static LOCK: SpinLock = SpinLock::new();
/// Held while windows change.
static WINDOWS_LOCK: SpinLock = SpinLock::new();

struct Shared(std::cell::UnsafeCell<Option<Live>>);
// SAFETY: only `locked` looks inside.
unsafe impl Sync for Shared {}
static LIVE: Shared = Shared(std::cell::UnsafeCell::new(None));

/// Does something under the lock, while signals wait.
pub fn locked<R>(work: impl FnOnce(&mut Live) -> R) -> R {
    let _signals_wait = Uninterrupted::begin();
    LOCK.lock_for_process();
    // SAFETY: this thread has the lock, and no signal handler of it runs meanwhile.
    let live = unsafe { &mut *LIVE.0.get() };
    let result = work(live.get_or_insert_with(Live::default));
    LOCK.unlock();
    result
}

/// Begins with ranges, of which some are always there.
pub fn begin(ranges: Vec<Range>, threads: AllThreads<State>) {
    if RANGES.set(ranges).is_err() || THREADS.set(Threads(threads)).is_err() {
        return;
    }
    // Sets of one range have the numbers that `alone` tells.
    locked(|live| {
        for number in 0..self::ranges().len() {
            live.set(vec![number as u32]);
        }
    });
    for (number, range) in self::ranges().iter().enumerate() {
        if let Some(start) = range.fixed {
            let size = range.size.load(Relaxed);
            locked(|live| live.appear(&[number as u32], start, size));
        }
    }
}

/// The number of the set of one range.
pub const fn alone(range: u32) -> u32 {
    range + 1
}

fn piece(number: u32) -> Option<&'static Piece> {
    let table = PIECES.get(number as usize / WINDOWS)?.load(Acquire);
    // SAFETY: null or a table of so many pieces, which lives for ever.
    (!table.is_null()).then(|| unsafe { &*table.add(number as usize % WINDOWS) })
}

/// The set of a piece; it never becomes another one.
pub fn set_of(number: u32) -> Option<&'static Set> {
    // SAFETY: null or a set, which lives for ever.
    unsafe { piece(number)?.set.load(Acquire).as_ref() }
}

impl Live {
    /// These ranges cover so many bytes from now on.
    pub fn appear(&mut self, numbers: &[u32], start: u64, size: u64) {
        let Some(end) = start.checked_add(size).filter(|end| *end > start) else {
            return;
        };
        let mut spare = std::mem::take(&mut self.spare);
        let mut change = Change::begin(&MAP, &mut spare);
        for number in numbers {
            let Some(range) = ranges_at(*number) else {
                continue;
            };
            range.times.fetch_add(1, Relaxed);
            range.last.store(start, Relaxed);
            range.size.fetch_max(size, Relaxed);
            if let Some(picture) = &range.picture {
                picture.make_room(size);
            }
            self.cover(&mut change, *number, start, end);
        }
        // Lines of other threads are marked before the change ends, so that who has looked
        // at a line before sees that something has changed.
        if let Some(Threads(all)) = THREADS.get() {
            all.iter().for_each(|state| model::mark(state, start, end));
        }
        drop(change);
        self.spare = spare;
    }

    /// They do not any more.
    pub fn vanish(&mut self, numbers: &[u32], start: u64, size: u64) {
        let Some(end) = start.checked_add(size).filter(|end| *end > start) else {
            return;
        };
        let mut spare = std::mem::take(&mut self.spare);
        let mut change = Change::begin(&MAP, &mut spare);
        for number in numbers {
            self.uncover(&mut change, *number, start, end);
        }
        self.join(&mut change, start, end);
        drop(change);
        self.spare = spare;
    }

    fn set(&mut self, ranges: Vec<u32>) -> &'static Set {
        let id = self.sets.len() as u32 + 1;
        self.sets.entry(ranges).or_insert_with_key(|ranges| {
            Box::leak(Box::new(Set {
                id,
                ranges: ranges.clone().into(),
            }))
        })
    }

    /// A new piece.
    fn add(&mut self, change: &mut Change<'_>, ranges: Vec<u32>, start: u64, end: u64, base: u64) {
        let set = self.set(ranges);
        let number = match self.free.get_mut(&set.id).and_then(Vec::pop) {
            Some(number) => number,
            None => {
                self.pieces += 1;
                let table = self.pieces as usize / WINDOWS;
                let Some(slot) = PIECES.get(table) else {
                    return;
                };
                if slot.load(Relaxed).is_null() {
                    let fresh: Box<[Piece]> = (0..WINDOWS)
                        .map(|_| Piece {
                            set: AtomicPtr::default(),
                            base: AtomicU64::new(0),
                        })
                        .collect();
                    slot.store(Box::leak(fresh).as_mut_ptr(), Release);
                }
                self.pieces
            }
        };
        let Some(piece) = piece(number) else { return };
        let pointer: *const Set = set;
        piece.set.store(pointer.cast_mut(), Release);
        piece.base.store(base, Relaxed);
        change.insert(Entry {
            start,
            end,
            piece: number,
        });
        // As far as all its ranges have been touched, nothing has to be noted.
        let (mut low, mut high) = (start, end);
        for range in set.ranges.iter().filter_map(|r| ranges_at(*r)) {
            let base = range.fixed.unwrap_or(base);
            let (first, last) = (range.low.load(Relaxed), range.high.load(Relaxed));
            low = low.max(base.saturating_add(first));
            high = high.min(base.saturating_add(last));
            if range.picture.is_some() {
                high = 0;
            }
        }
        windows(true, || open(number, low, high.saturating_sub(low)));
    }

    fn drop_piece(&mut self, change: &mut Change<'_>, entry: Entry) -> (Vec<u32>, u64) {
        change.remove(entry.start);
        windows(true, || open(entry.piece, 0, 0));
        let ranges = set_of(entry.piece).map_or(Vec::new(), |set| {
            self.free.entry(set.id).or_default().push(entry.piece);
            set.ranges.to_vec()
        });
        let base = piece(entry.piece).map_or(0, |p| p.base.load(Relaxed));
        (ranges, base)
    }

    fn cover(&mut self, change: &mut Change<'_>, range: u32, start: u64, end: u64) {
        let is_fixed = ranges_at(range).is_some_and(|r| r.fixed.is_some());
        let mut at = start;
        while at < end {
            let next = change.first_behind(at).filter(|e| e.start < end);
            let Some(entry) = next else {
                self.add(change, vec![range], at, end, start);
                return;
            };
            if entry.start > at {
                self.add(change, vec![range], at, entry.start, start);
                at = entry.start;
            }
            let to = entry.end.min(end);
            let (ranges, base) = self.drop_piece(change, entry);
            let mut with = ranges.clone();
            if let Err(i) = with.binary_search(&range) {
                with.insert(i, range);
            }
            let new_base = if is_fixed { base } else { start };
            self.add_parts(change, entry, at..to, (ranges, base), (with, new_base));
            at = to;
        }
    }

    fn uncover(&mut self, change: &mut Change<'_>, range: u32, start: u64, end: u64) {
        let mut at = start;
        while let Some(entry) = change
            .first_behind(at)
            .filter(|e| e.start < end && at < end)
        {
            let (from, to) = (entry.start.max(start), entry.end.min(end));
            at = to;
            if !set_of(entry.piece).is_some_and(|s| s.ranges.contains(&range)) {
                continue;
            }
            let (ranges, base) = self.drop_piece(change, entry);
            let mut without = ranges.clone();
            without.retain(|r| *r != range);
            self.add_parts(change, entry, from..to, (ranges, base), (without, base));
        }
    }

    /// What was one piece becomes up to three: its middle has other ranges.
    fn add_parts(
        &mut self,
        change: &mut Change<'_>,
        whole: Entry,
        middle: ByteRange,
        (outer, outer_base): (Vec<u32>, u64),
        (inner, inner_base): (Vec<u32>, u64),
    ) {
        if whole.start < middle.start {
            let end = middle.start;
            self.add(change, outer.clone(), whole.start, end, outer_base);
        }
        if !inner.is_empty() {
            self.add(change, inner, middle.start, middle.end, inner_base);
        }
        if middle.end < whole.end {
            self.add(change, outer, middle.end, whole.end, outer_base);
        }
    }

    /// Makes one of neighbours that are alike, so that blocks which came and went leave no trace.
    fn join(&mut self, change: &mut Change<'_>, start: u64, end: u64) {
        let mut at = start.saturating_sub(1);
        while let Some(first) = change.first_behind(at).filter(|e| e.start <= end) {
            at = first.end;
            let next = change
                .first_behind(first.end)
                .filter(|e| e.start == first.end);
            let Some(second) = next else { continue };
            let same_set = match (set_of(first.piece), set_of(second.piece)) {
                (Some(a), Some(b)) => a.id == b.id,
                _ => false,
            };
            let fixed = |r: &u32| ranges_at(*r).is_some_and(|r| r.fixed.is_some());
            if same_set && set_of(first.piece).is_some_and(|s| s.ranges.iter().all(fixed)) {
                let (ranges, base) = self.drop_piece(change, first);
                self.drop_piece(change, second);
                self.add(change, ranges, first.start, second.end, base);
                at = first.start;
            }
        }
    }
}

fn ranges_at(number: u32) -> Option<&'static Range> {
    ranges().get(number as usize)
}

/// Changes windows while no other thread does. Without `must` nothing happens if another thread is changing them;
/// with it, the change is made after a long wait in any case.
fn windows(must: bool, work: impl FnOnce()) {
    // The holder may be the code that a signal handler, in which this runs, has interrupted.
    const PATIENCE: u32 = 10_000;
    let is_locked = if must {
        WINDOWS_LOCK.lock_within(PATIENCE)
    } else {
        WINDOWS_LOCK.try_lock()
    };
    if must || is_locked {
        work();
        WINDOWS_LOCK.unlock();
    }
}

fn open(number: u32, start: u64, len: u64) {
    if let Some(window) = WINDOW.get(number as usize).filter(|_| number != 0) {
        // Closed first: between the two, no wrong part is open.
        window.len.store(0, SeqCst);
        window.start.store(start, SeqCst);
        window.len.store(len, SeqCst);
    }
}

/// Notes that these bytes of a piece, which was found when the map's number was `sequence`, were
/// touched; `which` are the numbers of loads and of stores.
pub fn touched(entry: Entry, set: &Set, bytes: ByteRange, sequence: u64, which: [u64; 2]) {
    let (low, high) = (bytes.start, bytes.end);
    let own_base = piece(entry.piece).map_or(0, |p| p.base.load(Relaxed));
    let mut has_picture = false;
    for range in set.ranges.iter().filter_map(|r| ranges_at(*r)) {
        let base = range.fixed.unwrap_or(own_base);
        let (first, last) = (low.wrapping_sub(base), high.wrapping_sub(base));
        if range.low.load(Relaxed) > first {
            range.low.fetch_min(first, Relaxed);
        }
        if range.high.load(Relaxed) < last {
            range.high.fetch_max(last, Relaxed);
        }
        if let Some(picture) = &range.picture {
            has_picture = true;
            picture.add(first, last, which);
        }
    }
    let Some(window) = WINDOW.get(entry.piece as usize).filter(|_| !has_picture) else {
        return;
    };
    let is_current = || sequence & 1 == 0 && MAP.sequence() == sequence;
    let (start, len) = (window.start.load(Relaxed), window.len.load(Relaxed));
    if len != 0 && start <= low && high <= start + len {
        return;
    }
    windows(false, || {
        if !is_current() {
            return;
        }
        let (start, len) = (window.start.load(Relaxed), window.len.load(Relaxed));
        let (from, to) = match len {
            0 => (low, high),
            _ => (low.min(start), high.max(start + len)),
        };
        if from < start || len == 0 {
            open(entry.piece, from, to - from);
        } else {
            window.len.store(to - from, SeqCst);
        }
        if !is_current() {
            open(entry.piece, 0, 0);
        }
    });
}

/// All sets by number.
pub fn sets() -> HashMap<u32, &'static Set> {
    locked(|live| live.sets.values().map(|set| (set.id, *set)).collect())
}

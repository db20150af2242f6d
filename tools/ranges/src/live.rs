//! The live ranges: the memory that each covers, and the bytes of it that have been touched.
//!
//! A change takes a lock, during which signals are blocked. The hot path of a reference reads a *window*:
//! the bytes of a piece (a part of memory that one set of ranges covers) from the lowest to the highest touched one. A reference in a window only has
//! to be counted. An instruction stores the number of a window with its count. A number is reused for the same set
//! of ranges only, so the count remains valid when blocks of the heap appear and disappear.

use std::collections::{BTreeMap, HashMap};
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicPtr, AtomicU64};

use atom_tool::intervals::{Change, Chunk, Entry, Map};
use atom_tool::{Address, AllThreads, ObjectEvent, Shared, SpinLock};

use crate::cache::{self, State};
use crate::picture::Picture;

/// Largest number of windows. Number 0 is no window.
pub const WINDOWS: usize = 1 << 16;
/// Largest number of tables of pieces, each with [`WINDOWS`] pieces. The pieces of the first table have windows.
const TABLES: usize = 1 << 10;

/// Addresses from the first byte to the byte after the last.
type ByteRange = std::ops::Range<u64>;

/// All pieces.
pub static MAP: Map = Map::new();

/// The bytes of a piece where references only have to be counted.
#[repr(C)]
pub struct Window {
    /// Address of the first byte.
    pub start: AtomicU64,
    /// Size in bytes; 0 while the window is closed.
    pub len: AtomicU64,
}

/// The window of each piece with a number below [`WINDOWS`].
pub static WINDOW: [Window; WINDOWS] = [const {
    Window {
        start: AtomicU64::new(0),
        len: AtomicU64::new(0),
    }
}; WINDOWS];

/// A set of ranges that cover the same memory.
pub struct Set {
    /// Its number.
    pub id: u32,
    /// Numbers of its ranges, ascending.
    pub ranges: Box<[u32]>,
}

/// Data of a piece except its bounds.
struct Piece {
    set: AtomicPtr<Set>,
    /// Address of the first byte of the block or variable that it belongs to, if it belongs to a moving range.
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

/// A range that the user named, and its totals.
pub struct Range {
    /// Address of its first byte, if it does not move.
    pub fixed: Option<u64>,
    /// Address in the file of its object, if it has one. The range of a library that is not mapped yet has
    /// such an address and moves.
    pub in_file: Option<u64>,
    /// Size in bytes; for a moving range the largest size so far.
    pub size: AtomicU64,
    /// Number of times that it has appeared.
    pub times: AtomicU64,
    /// Address at which it appeared last.
    pub last: AtomicU64,
    /// The lowest offset in bytes that was touched; all ones if there is none.
    pub low: AtomicU64,
    /// The highest offset that was touched, plus 1.
    pub high: AtomicU64,
    /// Counts of the references to each part, if the user wants pictures.
    pub picture: Option<Picture>,
}

static RANGES: OnceLock<Vec<Range>> = OnceLock::new();
/// State of all threads, the first thread first.
static THREADS: OnceLock<Threads> = OnceLock::new();

struct Threads(AllThreads<State>);
// SAFETY: threads share only atomic data.
unsafe impl Send for Threads {}
// SAFETY: as above.
unsafe impl Sync for Threads {}

/// All ranges.
pub fn ranges() -> &'static [Range] {
    RANGES.get().map_or(&[], Vec::as_slice)
}

/// The data that the lock protects.
#[derive(Default)]
pub struct Live {
    /// Chunks for the map that are not used.
    spare: Vec<&'static Chunk>,
    sets: HashMap<Vec<u32>, &'static Set>,
    /// Unused numbers of pieces for each set, by the set's number.
    free: HashMap<u32, Vec<u32>>,
    /// The largest number of a piece.
    pieces: u32,
    /// Blocks of the heap that are in ranges, by address.
    pub blocks: BTreeMap<u64, Block>,
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
    /// An inner call of the procedure has replaced it as the range's variable.
    pub is_hidden: bool,
}

/// Held while windows change.
static WINDOWS_LOCK: SpinLock = SpinLock::new();

static LIVE: Shared<Option<Live>> = Shared::new(None);

/// Calls `work` under the lock, with signals blocked.
pub fn locked<R>(work: impl FnOnce(&mut Live) -> R) -> R {
    LIVE.with(|live| work(live.get_or_insert_with(Live::default)))
}

/// Begins with these ranges. Ranges that do not move appear now.
pub fn begin(ranges: Vec<Range>, threads: AllThreads<State>) {
    if RANGES.set(ranges).is_err() || THREADS.set(Threads(threads)).is_err() {
        return;
    }
    // The sets of a single range get the numbers that `alone` returns.
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

/// The ranges of a library appear when it is mapped, and disappear when it is unmapped.
pub fn object_moves(object: usize, event: ObjectEvent) {
    for (number, range) in ranges().iter().enumerate() {
        let address = range.in_file.filter(|_| range.fixed.is_none()).map(Address);
        let Some(address) = address.filter(|a| a.object_number() == object) else {
            continue;
        };
        let (number, size) = (number as u32, range.size.load(Relaxed));
        match (event, address.at_run_time()) {
            (ObjectEvent::Mapped, Some(start)) => {
                locked(|live| live.appear(&[number], start, size));
            }
            (ObjectEvent::Unmapped, Some(start)) => {
                locked(|live| live.vanish(&[number], start, size));
            }
            (_, None) => {}
        }
    }
}

/// The number of the set that has only this range.
pub const fn alone(range: u32) -> u32 {
    range + 1
}

fn piece(number: u32) -> Option<&'static Piece> {
    let table = PIECES.get(number as usize / WINDOWS)?.load(Acquire);
    // SAFETY: null or a table of `WINDOWS` pieces, which is never freed.
    (!table.is_null()).then(|| unsafe { &*table.add(number as usize % WINDOWS) })
}

/// The set of a piece, given by its number. It never changes.
pub fn set_of(number: u32) -> Option<&'static Set> {
    // SAFETY: null or a set, which is never freed.
    unsafe { piece(number)?.set.load(Acquire).as_ref() }
}

impl Live {
    /// Makes ranges appear: they cover `size` bytes at `start` from now on.
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
        // Lines in the caches of all threads are marked before the change ends. So a thread that has looked at a
        // line before the marking sees that the sequence number has changed.
        if let Some(Threads(all)) = THREADS.get() {
            all.iter().for_each(|state| cache::mark(state, start, end));
        }
        drop(change);
        self.spare = spare;
    }

    /// Makes ranges disappear: they do not cover `size` bytes at `start` any more.
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

    /// The set of these ranges, ascending.
    fn set(&mut self, ranges: Vec<u32>) -> &'static Set {
        let id = self.sets.len() as u32 + 1;
        self.sets.entry(ranges).or_insert_with_key(|ranges| {
            Box::leak(Box::new(Set {
                id,
                ranges: ranges.clone().into(),
            }))
        })
    }

    /// Adds a piece to the map. `base` is the start of the block or variable for moving ranges.
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
        // The window has the bytes between the lowest and the highest touched offset of all ranges of the set.
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

    /// Removes a piece from the map; returns its ranges and its base.
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

    /// Adds a range to the sets of all pieces in `start..end`, and adds pieces where there are none.
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
            self.split(change, entry, at..to, (ranges, base), (with, new_base));
            at = to;
        }
    }

    /// Removes a range from the sets of all pieces in `start..end`.
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
            self.split(change, entry, from..to, (ranges, base), (without, base));
        }
    }

    /// Replaces a removed piece by up to three: `middle` gets the ranges and base `inner`, the memory around it
    /// keeps `outer`.
    fn split(
        &mut self,
        change: &mut Change<'_>,
        piece: Entry,
        middle: ByteRange,
        (outer, outer_base): (Vec<u32>, u64),
        (inner, inner_base): (Vec<u32>, u64),
    ) {
        if piece.start < middle.start {
            let end = middle.start;
            self.add(change, outer.clone(), piece.start, end, outer_base);
        }
        if !inner.is_empty() {
            self.add(change, inner, middle.start, middle.end, inner_base);
        }
        if middle.end < piece.end {
            self.add(change, outer, middle.end, piece.end, outer_base);
        }
    }

    /// Joins adjacent pieces in `start..end` with the same set of fixed ranges, so that disappeared blocks leave no
    /// splits.
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

/// Calls `work`, which changes windows, while no other thread changes them. If another thread does, then `work` is not
/// called without `must`, and it is called after a long wait with `must`.
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

/// Sets the window of a piece; a length of 0 closes it.
fn open(number: u32, start: u64, len: u64) {
    if let Some(window) = WINDOW.get(number as usize).filter(|_| number != 0) {
        // The window is closed first, because a reader may see the new start before the new length.
        window.len.store(0, SeqCst);
        window.start.store(start, SeqCst);
        window.len.store(len, SeqCst);
    }
}

/// Notes that bytes of a piece were touched. `sequence` is the map's sequence number from before the piece was
/// found, `which` the number of loads and the number of stores.
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

/// All sets, by their numbers.
pub fn sets() -> HashMap<u32, &'static Set> {
    locked(|live| live.sets.values().map(|set| (set.id, *set)).collect())
}

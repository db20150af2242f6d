//! A map from addresses to numbers: pieces of memory that do not overlap, for tools that follow what is where at run
//! time.
//!
//! Pieces are in chunks of sorted entries under a sorted directory, so adding and removing one among many takes little time,
//! and a look-up is one search.
//!
//! There are many readers and few writers, so the map is a sequence lock. A writer holds a lock of the tool's,
//! during which signals wait, and makes a sequence number odd. A reader takes no lock, and reads
//! again if the number was odd or has changed. So signal handlers can read, and data from the
//! middle of a change is never used. Memory of chunks is never freed, so it can always be read.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, fence};

/// Number of entries of a chunk.
const CHUNK: usize = 128;
/// Number of slots of the first directory.
const SLOTS: usize = 64;
/// Number of bits of the filter; each bit stands for many small parts of memory.
const FILTER: usize = 1 << 19;
/// Binary logarithm of the size of such a part in bytes.
const PART: u32 = 6;
/// Number of attempts after which a reader ignores an odd number: the thread that made it odd is
/// then not in this process, which is a forked child.
const PATIENCE: u32 = 1 << 20;

/// A piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// First byte.
    pub start: u64,
    /// After the last byte.
    pub end: u64,
    /// A number that the map's user chooses.
    pub piece: u32,
}

/// Some entries in the order of their addresses.
pub struct Chunk {
    len: AtomicUsize,
    starts: [AtomicU64; CHUNK],
    ends: [AtomicU64; CHUNK],
    pieces: [AtomicU32; CHUNK],
}

struct Directory {
    len: AtomicUsize,
    /// First address of each chunk; the first chunk's counts as 0.
    starts: Box<[AtomicU64]>,
    chunks: Box<[AtomicPtr<Chunk>]>,
}

/// The map, which is a static of the tool.
pub struct Map {
    sequence: AtomicU64,
    directory: AtomicPtr<Directory>,
    filter: [AtomicU64; FILTER / 64],
}

impl Default for Map {
    fn default() -> Self {
        Self::new()
    }
}

impl Map {
    /// An empty map.
    pub const fn new() -> Self {
        Self {
            sequence: AtomicU64::new(0),
            directory: AtomicPtr::new(std::ptr::null_mut()),
            filter: [const { AtomicU64::new(0) }; FILTER / 64],
        }
    }

    /// The sequence number, which each change changes.
    pub fn sequence(&self) -> u64 {
        self.sequence.load(Acquire)
    }

    /// False if certainly no piece overlaps `start..end`.
    #[inline]
    pub fn may_cover(&self, start: u64, end: u64) -> bool {
        let (first, last) = (start >> PART, (end - 1) >> PART);
        last - first >= FILTER as u64
            || (first..=last).any(|part| {
                let bit = part as usize % FILTER;
                self.filter[bit / 64].load(Relaxed) >> (bit % 64) & 1 != 0
            })
    }

    /// False if certainly no piece overlaps the part of memory that contains an address. A part is
    /// not smaller than a line of the default cache.
    #[inline(always)]
    pub fn may_cover_part_of(&self, address: u64) -> bool {
        let bit = (address >> PART) as usize % FILTER;
        self.filter[bit / 64].load(Relaxed) >> (bit % 64) & 1 != 0
    }

    /// The first piece that ends after an address.
    #[inline]
    pub fn first_behind(&self, address: u64) -> Option<Entry> {
        let mut patience = PATIENCE;
        loop {
            let before = self.sequence.load(Acquire);
            if before & 1 != 0 && patience > 0 {
                patience -= 1;
                std::hint::spin_loop();
                continue;
            }
            let found = self.search(address);
            fence(Acquire);
            if self.sequence.load(Relaxed) == before || patience == 0 {
                return found;
            }
            patience -= 1;
        }
    }

    /// True if a piece overlaps `start..end`.
    #[inline]
    pub fn covers(&self, start: u64, end: u64) -> bool {
        self.may_cover(start, end) && self.first_behind(start).is_some_and(|e| e.start < end)
    }

    /// Calls `each` with the pieces that overlap `start..end`.
    #[inline]
    pub fn overlapping(&self, start: u64, end: u64, mut each: impl FnMut(Entry)) {
        let mut at = start;
        while at < end
            && let Some(entry) = self.first_behind(at)
            && entry.start < end
        {
            each(entry);
            at = entry.end.max(at + 1);
        }
    }

    fn directory(&self) -> Option<&'static Directory> {
        // SAFETY: null or a directory, which lives for ever.
        unsafe { self.directory.load(Acquire).as_ref() }
    }

    fn search(&self, address: u64) -> Option<Entry> {
        let directory = self.directory()?;
        let slots = directory.len.load(Relaxed).min(directory.starts.len());
        let starts = directory.starts.get(..slots)?;
        let slot = starts.partition_point(|s| s.load(Relaxed) <= address);
        let mut slot = slot.saturating_sub(1);
        let chunk = directory.chunk(slot)?;
        let len = chunk.len.load(Relaxed).min(CHUNK);
        let mut i = chunk.ends[..len].partition_point(|e| e.load(Relaxed) <= address);
        let mut chunk = chunk;
        while i >= chunk.len.load(Relaxed).min(CHUNK) {
            slot += 1;
            if slot >= slots {
                return None;
            }
            (chunk, i) = (directory.chunk(slot)?, 0);
        }
        Some(chunk.get(i))
    }
}

impl Directory {
    fn with_slots(n: usize) -> &'static Self {
        Box::leak(Box::new(Self {
            len: AtomicUsize::new(0),
            starts: (0..n).map(|_| AtomicU64::new(0)).collect(),
            chunks: (0..n).map(|_| AtomicPtr::default()).collect(),
        }))
    }

    fn chunk(&self, slot: usize) -> Option<&'static Chunk> {
        // SAFETY: null or a chunk, which lives for ever.
        unsafe { self.chunks.get(slot)?.load(Relaxed).as_ref() }
    }
}

impl Chunk {
    fn leaked() -> &'static Self {
        Box::leak(Box::new(Self {
            len: AtomicUsize::new(0),
            starts: [const { AtomicU64::new(0) }; CHUNK],
            ends: [const { AtomicU64::new(0) }; CHUNK],
            pieces: [const { AtomicU32::new(0) }; CHUNK],
        }))
    }

    fn get(&self, i: usize) -> Entry {
        Entry {
            start: self.starts[i].load(Relaxed),
            end: self.ends[i].load(Relaxed),
            piece: self.pieces[i].load(Relaxed),
        }
    }

    fn set(&self, i: usize, entry: Entry) {
        self.starts[i].store(entry.start, Relaxed);
        self.ends[i].store(entry.end, Relaxed);
        self.pieces[i].store(entry.piece, Relaxed);
    }
}

/// A change of the map. Its maker must hold a lock of the tool's, with signals blocked
/// ([`Uninterrupted`](crate::Uninterrupted)).
pub struct Change<'m> {
    map: &'m Map,
    spare: &'m mut Vec<&'static Chunk>,
}

impl<'m> Change<'m> {
    /// Begins a change. `spare` keeps unused chunks.
    pub fn begin(map: &'m Map, spare: &'m mut Vec<&'static Chunk>) -> Self {
        // In a child that was forked in the middle of a change, the number is odd already.
        map.sequence.fetch_or(1, SeqCst);
        fence(SeqCst);
        Self { map, spare }
    }

    /// The first piece that ends after an address.
    pub fn first_behind(&self, address: u64) -> Option<Entry> {
        self.map.search(address)
    }

    /// Adds a piece, which overlaps no other. An empty one is none: no address leads to it, so it could not be removed.
    pub fn insert(&mut self, entry: Entry) {
        if entry.start >= entry.end {
            return;
        }
        for part in (entry.start >> PART..=(entry.end - 1) >> PART).take(FILTER) {
            let bit = part as usize % FILTER;
            let (word, bit) = (&self.map.filter[bit / 64], 1 << (bit % 64));
            if word.load(Relaxed) & bit == 0 {
                word.fetch_or(bit, Relaxed);
            }
        }
        let directory = match self.map.directory() {
            Some(directory) => directory,
            None => {
                let directory = Directory::with_slots(SLOTS);
                self.put(directory, 0, 0, Chunk::leaked());
                self.publish(directory);
                directory
            }
        };
        let slots = directory.len.load(Relaxed);
        let starts = &directory.starts[..slots];
        let slot = starts.partition_point(|s| s.load(Relaxed) <= entry.start);
        let slot = slot.saturating_sub(1);
        let Some(chunk) = directory.chunk(slot) else {
            return;
        };
        let len = chunk.len.load(Relaxed);
        if len == CHUNK {
            self.split(directory, slot, chunk);
            return self.insert(entry);
        }
        let i = chunk.starts[..len].partition_point(|s| s.load(Relaxed) < entry.start);
        for to in (i..len).rev() {
            chunk.set(to + 1, chunk.get(to));
        }
        chunk.set(i, entry);
        chunk.len.store(len + 1, Relaxed);
    }

    /// Takes the pieces, and parts of pieces, that overlap `start..end` out of the map.
    pub fn cut(&mut self, start: u64, end: u64) {
        while let Some(entry) = self.first_behind(start).filter(|entry| entry.start < end) {
            self.remove(entry.start);
            if entry.start < start {
                self.insert(Entry {
                    end: start,
                    ..entry
                });
            }
            if entry.end > end {
                self.insert(Entry {
                    start: end,
                    ..entry
                });
            }
        }
    }

    /// Removes the piece that starts at an address.
    pub fn remove(&mut self, start: u64) {
        let Some((directory, slot, chunk, i)) = self.find(start) else {
            return;
        };
        let len = chunk.len.load(Relaxed);
        for to in i..len - 1 {
            chunk.set(to, chunk.get(to + 1));
        }
        chunk.len.store(len - 1, Relaxed);
        if i == 0 && slot > 0 && len > 1 {
            // A piece of the chunk before may reach up to here now, and is looked for in that chunk.
            directory.starts[slot].store(chunk.starts[0].load(Relaxed), Relaxed);
        }
        if len == 1 && slot > 0 {
            let slots = directory.len.load(Relaxed);
            for to in slot..slots - 1 {
                directory.starts[to].store(directory.starts[to + 1].load(Relaxed), Relaxed);
                directory.chunks[to].store(directory.chunks[to + 1].load(Relaxed), Relaxed);
            }
            directory.len.store(slots - 1, Relaxed);
            self.spare.push(chunk);
        }
    }

    fn find(&self, start: u64) -> Option<(&'static Directory, usize, &'static Chunk, usize)> {
        let directory = self.map.directory()?;
        let starts = &directory.starts[..directory.len.load(Relaxed)];
        let slot = starts.partition_point(|s| s.load(Relaxed) <= start);
        let slot = slot.saturating_sub(1);
        let chunk = directory.chunk(slot)?;
        let starts = &chunk.starts[..chunk.len.load(Relaxed)];
        let i = starts.partition_point(|s| s.load(Relaxed) < start);
        (starts.get(i)?.load(Relaxed) == start).then_some((directory, slot, chunk, i))
    }

    fn put(&self, directory: &Directory, slot: usize, start: u64, chunk: &'static Chunk) {
        let slots = directory.len.load(Relaxed);
        for to in (slot..slots).rev() {
            directory.starts[to + 1].store(directory.starts[to].load(Relaxed), Relaxed);
            directory.chunks[to + 1].store(directory.chunks[to].load(Relaxed), Relaxed);
        }
        directory.starts[slot].store(start, Relaxed);
        let chunk: *const Chunk = chunk;
        directory.chunks[slot].store(chunk.cast_mut(), Relaxed);
        directory.len.store(slots + 1, Relaxed);
    }

    fn publish(&self, directory: &'static Directory) {
        let directory: *const Directory = directory;
        self.map.directory.store(directory.cast_mut(), Release);
    }

    /// Gives the upper half of a full chunk to a new one.
    fn split(&mut self, directory: &'static Directory, slot: usize, chunk: &'static Chunk) {
        let upper = self.spare.pop().unwrap_or_else(Chunk::leaked);
        for i in CHUNK / 2..CHUNK {
            upper.set(i - CHUNK / 2, chunk.get(i));
        }
        upper.len.store(CHUNK - CHUNK / 2, Relaxed);
        chunk.len.store(CHUNK / 2, Relaxed);
        let mut directory = directory;
        let slots = directory.len.load(Relaxed);
        if slots == directory.starts.len() {
            let larger = Directory::with_slots(slots * 2);
            for i in 0..slots {
                larger.starts[i].store(directory.starts[i].load(Relaxed), Relaxed);
                larger.chunks[i].store(directory.chunks[i].load(Relaxed), Relaxed);
            }
            larger.len.store(slots, Relaxed);
            self.publish(larger);
            directory = larger;
        }
        let start = upper.starts[0].load(Relaxed);
        self.put(directory, slot + 1, start, upper);
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        fence(Release);
        self.map.sequence.fetch_add(1, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_leaves_what_is_outside() {
        static MAP: Map = Map::new();
        let mut spare = Vec::new();
        let mut change = Change::begin(&MAP, &mut spare);
        let pieces = [(10, 20, 1), (20, 30, 2), (35, 40, 3), (50, 90, 4)];
        for (start, end, piece) in pieces {
            change.insert(Entry { start, end, piece });
        }
        change.cut(15, 37);
        change.cut(60, 70);
        change.cut(41, 50);
        drop(change);
        let mut all = Vec::new();
        MAP.overlapping(0, 1000, |entry| {
            all.push((entry.start, entry.end, entry.piece))
        });
        assert_eq!(all, [(10, 15, 1), (37, 40, 3), (50, 60, 4), (70, 90, 4)]);
    }

    /// `malloc(0)` gives an address at which another block may be later.
    #[test]
    fn an_empty_piece_is_none() {
        static MAP: Map = Map::new();
        let mut spare = Vec::new();
        let mut change = Change::begin(&MAP, &mut spare);
        for (start, end, piece) in [(10, 20, 2), (10, 10, 1)] {
            change.insert(Entry { start, end, piece });
        }
        // This did not end.
        change.cut(15, 18);
        drop(change);
        let mut all = Vec::new();
        MAP.overlapping(0, 1000, |entry| {
            all.push((entry.start, entry.end, entry.piece))
        });
        assert_eq!(all, [(10, 15, 2), (18, 20, 2)]);
    }

    /// A piece of one chunk may reach over the address at which the next chunk once began.
    #[test]
    fn a_piece_in_place_of_the_first_of_a_chunk_is_found() {
        static MAP: Map = Map::new();
        let count = 4 * CHUNK as u64;
        let mut spare = Vec::new();
        let mut change = Change::begin(&MAP, &mut spare);
        for i in 0..count {
            let (start, end) = (10 * i, 10 * i + 10);
            change.insert(Entry {
                start,
                end,
                piece: 0,
            });
        }
        for i in (1..count - 3).step_by(2) {
            let (start, end) = (10 * i + 5, 10 * i + 25);
            change.cut(start, end);
            change.insert(Entry {
                start,
                end,
                piece: 1,
            });
            for address in start..end {
                let found = change.first_behind(address);
                assert_eq!(
                    found,
                    Some(Entry {
                        start,
                        end,
                        piece: 1
                    })
                );
            }
        }
    }

    /// Compares the map with a plain list, with many chunks and splits.
    #[test]
    fn finds_what_a_plain_list_finds() {
        static MAP: Map = Map::new();
        let mut spare = Vec::new();
        let mut plain: Vec<Entry> = Vec::new();
        let mut random = 12345u64;
        for round in 0..20_000u32 {
            random = random
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let start = 0x10000 + (random >> 40) % 60_000 * 16;
            let mut change = Change::begin(&MAP, &mut spare);
            match plain.iter().position(|e| e.start == start) {
                Some(i) => {
                    change.remove(start);
                    plain.swap_remove(i);
                }
                None => {
                    let end = start + 1 + (random >> 20) % 16;
                    let entry = Entry {
                        start,
                        end,
                        piece: round,
                    };
                    change.insert(entry);
                    plain.push(entry);
                }
            }
            drop(change);
            if round % 50 == 0 {
                let at = 0x10000 + (random >> 33) % (60_000 * 16);
                let next = plain.iter().filter(|e| e.end > at).min_by_key(|e| e.start);
                assert_eq!(MAP.first_behind(at), next.copied());
            }
        }
        assert!(plain.len() > 5000, "{}", plain.len());
        assert_eq!(MAP.sequence() % 2, 0);
        plain.sort_by_key(|e| e.start);
        let mut all = Vec::new();
        MAP.overlapping(0, u64::MAX >> 1, |e| all.push(e));
        assert!(!MAP.may_cover(1 << 40, (1 << 40) + 8) || MAP.may_cover(0x10000, 0x10001));
        assert_eq!(all, plain);
    }
}

//! Blocks of the heap by the calls that have allocated them.
//!
//! All threads share the map of live blocks. What the allocator itself does in a new block (`calloc` clears it) counts for the block.
//!
//! References of other threads may still wait in their buffers. With several threads a block that is freed therefore
//! stays in the map until its memory is allocated again.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use atom_tool::Shared;
use atom_tool::allocations::New;
use atom_tool::intervals::{Change, Chunk, Entry, Map};

/// Size of a page in bytes, of which mappings have a whole number.
pub const PAGE: u64 = 4096;
/// A caller: the number of its call, plus 1, and its procedure's, plus 1; 0 if there is none.
pub type Caller = [u32; 2];

/// What blocks of one origin have in common.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Key {
    /// The blocks are mapped memory.
    pub is_mapping: bool,
    /// The callers of the allocator, the innermost first.
    pub callers: Vec<Caller>,
}

/// Where blocks come from.
pub struct Origin {
    pub key: Key,
    /// Number of blocks, and their bytes.
    pub blocks: u64,
    pub bytes: u64,
}

/// What a change of the heap needs.
pub struct Heap {
    /// Unused memory of the map.
    spare: Vec<&'static Chunk>,
    pub origins: Vec<Origin>,
    numbers: BTreeMap<Key, u32>,
}

/// The heap.
pub static HEAP: Shared<Heap> = Shared::new(Heap {
    spare: Vec::new(),
    origins: Vec::new(),
    numbers: BTreeMap::new(),
});
/// The live blocks, with the numbers of their origins.
static BLOCKS: Map = Map::new();
/// Number of changes of mappings.
pub static MAPPINGS: AtomicU64 = AtomicU64::new(0);
/// Number of changes of the blocks that are remembered.
const REMEMBERED: usize = 256;
/// The first address of each change of the blocks, and the one after the last, by the change's number modulo their number.
static CHANGED: [[AtomicU64; 2]; REMEMBERED] =
    [const { [AtomicU64::new(0), AtomicU64::new(0)] }; REMEMBERED];

/// The changes that a thread knows of.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Changes {
    /// The map's sequence number, which a change increases by 2.
    blocks: u64,
    /// Number of changes of mappings.
    pub mappings: u64,
}

impl Changes {
    /// Those up to now.
    #[inline]
    pub fn now() -> Self {
        Self {
            blocks: BLOCKS.sequence(),
            mappings: MAPPINGS.load(Relaxed),
        }
    }

    /// Gives the addresses of each change from these on to `each`, up to a later time, and perhaps further ones. False if not
    /// all are remembered.
    pub fn each_until(self, later: Self, mut each: impl FnMut(u64, u64)) -> bool {
        // A change that had begun is given again.
        for number in self.blocks / 2..later.blocks.div_ceil(2) {
            let [start, end] = &CHANGED[number as usize % REMEMBERED];
            each(start.load(Relaxed), end.load(Relaxed));
            // Then another change may have taken its place.
            if BLOCKS.sequence() / 2 >= number + REMEMBERED as u64 {
                return false;
            }
        }
        true
    }
}

/// Start, end and origin of the block at an address.
#[inline]
pub fn block(address: u64) -> Option<(u64, u64, u32)> {
    if !BLOCKS.may_cover_part_of(address) {
        return None;
    }
    let entry = BLOCKS.first_behind(address)?;
    (entry.start <= address).then_some((entry.start, entry.end, entry.piece))
}

/// Gives each origin to `each`, in the order of their numbers.
pub fn origins(mut each: impl FnMut(&Origin)) {
    HEAP.with(|heap| heap.origins.iter().for_each(&mut each));
}

impl Heap {
    /// The number of an origin.
    pub fn number(&mut self, key: Key) -> u32 {
        if let Some(number) = self.numbers.get(&key) {
            return *number;
        }
        let number = self.origins.len() as u32;
        self.origins.push(Origin {
            key: key.clone(),
            blocks: 0,
            bytes: 0,
        });
        self.numbers.insert(key, number);
        number
    }

    /// Begins a change of these addresses.
    fn change(&mut self, start: u64, end: u64) -> Change<'_> {
        let place = &CHANGED[(BLOCKS.sequence() / 2) as usize % REMEMBERED];
        place[0].store(start, Relaxed);
        place[1].store(end, Relaxed);
        Change::begin(&BLOCKS, &mut self.spare)
    }

    /// Memory is no block's any more.
    pub fn forget(&mut self, start: u64, end: u64) {
        self.change(start, end).cut(start, end);
    }

    /// The block that begins at an address is there no more.
    pub fn free(&mut self, block: u64) {
        let found = BLOCKS.first_behind(block);
        if let Some(found) = found.filter(|found| found.start == block) {
            self.change(found.start, found.end).remove(block);
        }
    }

    pub fn allocate(&mut self, new: New, end: u64) {
        let origin = &mut self.origins[new.tag as usize];
        origin.blocks += 1;
        origin.bytes += new.size;
        // A block that becomes smaller in its place leaves nothing behind.
        self.free(new.block);
        let mut change = self.change(new.block, end);
        change.cut(new.block, end);
        change.insert(Entry {
            start: new.block,
            end,
            piece: new.tag as u32,
        });
    }
}

/// The address after a block. Mappings have whole pages.
pub fn end(start: u64, size: u64, is_mapping: bool) -> u64 {
    let unit = if is_mapping { PAGE } else { 1 };
    let end = start.saturating_add(size);
    end.checked_next_multiple_of(unit).unwrap_or(end)
}

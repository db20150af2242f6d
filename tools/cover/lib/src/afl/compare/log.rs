//! AFL++'s map of comparisons, as the instrumented program writes it.
//!
//! The map has 65,536 sites. Each has a header, and all headers are in front; after them each has room for 32
//! comparisons of numbers or for fewer pairs of memory. The bits and sizes differ between versions of AFL++, and so does
//! the size of the whole map, by which the version is recognised.

use std::ptr;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};

use super::super::shared::Shared;

/// The variable that names the shared memory.
const VARIABLE: &str = "__AFL_CMPLOG_SHM_ID";

/// Number of sites.
pub const SITES: usize = 1 << 16;

/// Number of comparisons of numbers at a site.
const NUMBERS: usize = 32;

/// Bytes of memory that are logged at most: with more, older versions take the length for unknown.
pub const MOST_BYTES: usize = 31;

/// Added to the length of a text that ends in 0.
const IS_TEXT: u8 = 0x80;

/// A layout of the map.
struct Layout {
    /// Bytes of a header.
    header: usize,
    /// Bits of the number of hits, of the shape's place, of the type's place and of the attribute's place.
    hits_bits: u32,
    shape_at: u32,
    type_at: u32,
    attribute_at: u32,
    /// The types of comparisons of numbers and of memory, and the bits of a type.
    types: [u64; 2],
    type_bits: u64,
    /// Bytes of two numbers.
    numbers: usize,
    /// Places of the words of a pair of numbers: the low ones, and the high ones.
    words: [[usize; 2]; 2],
    /// Number of pairs of memory, bytes of one, and places of the bytes and of the lengths.
    pairs: usize,
    pair: usize,
    bytes: [usize; 2],
    lengths: [usize; 2],
    /// Version of the fork server's protocol that belongs to it.
    protocol: u32,
}

impl Layout {
    const fn size(&self) -> usize {
        SITES * (self.header + NUMBERS * self.numbers)
    }

    /// Address of a site's entries.
    fn logs(&self, map: usize, site: usize) -> usize {
        map + SITES * self.header + site * NUMBERS * self.numbers
    }
}

/// The layout of 4.20 and 4.21.
const OF_4_20: Layout = Layout {
    header: 2,
    hits_bits: 6,
    shape_at: 6,
    type_at: 11,
    attribute_at: 12,
    types: [0, 1],
    type_bits: 1,
    numbers: 42,
    words: [[0, 8], [16, 24]],
    pairs: 16,
    pair: 66,
    bytes: [0, 33],
    lengths: [32, 65],
    protocol: 1,
};

/// From 4.00 on, from 4.20 on, and from 4.22 on. The first has 8 pairs of memory up to 4.06, and more later.
static LAYOUTS: [Layout; 3] = [
    Layout {
        header: 8,
        hits_bits: 24,
        shape_at: 48,
        type_at: 53,
        attribute_at: 55,
        types: [1, 2],
        type_bits: 3,
        numbers: 32,
        words: [[0, 8], [16, 24]],
        pairs: 8,
        pair: 64,
        bytes: [0, 32],
        lengths: [31, 63],
        protocol: 0,
    },
    OF_4_20,
    Layout {
        numbers: 72,
        words: [[0, 32], [8, 40]],
        pair: 72,
        bytes: [0, 32],
        lengths: [64, 65],
        ..OF_4_20
    },
];

/// Address of the map; 0 if there is none.
static MAP: AtomicUsize = AtomicUsize::new(0);
/// Number of its layout.
static LAYOUT: AtomicU8 = AtomicU8::new(0);

/// Attaches the map that the environment names. Returns the protocol's version that belongs to it, and `None` if there
/// is no map.
pub fn attach() -> Result<Option<u32>, String> {
    let Some(Shared { at, size }) = Shared::attach(VARIABLE)? else {
        return Ok(None);
    };
    let number = (LAYOUTS.iter().position(|layout| layout.size() == size))
        .ok_or_else(|| format!("{VARIABLE}: a map of {size} bytes is of an unknown version"))?;
    LAYOUT.store(number as u8, Relaxed);
    MAP.store(at, Relaxed);
    Ok(Some(LAYOUTS[number].protocol))
}

/// True if there is a map.
pub fn is_attached() -> bool {
    MAP.load(Relaxed) != 0
}

/// A comparison to log.
#[derive(Clone, Copy)]
pub struct Entry {
    /// Number of the site, below [`SITES`].
    pub site: usize,
    /// AFL++'s attribute: what is compared for.
    pub attribute: u8,
}

impl Entry {
    /// Adds one of the words, the low or the high one, to the last comparison of two numbers that the site has.
    pub fn complete(self, word: usize, values: [[u64; 2]; 2]) {
        let map = MAP.load(Relaxed);
        let layout = &LAYOUTS[usize::from(LAYOUT.load(Relaxed))];
        if map == 0 {
            return;
        }
        // SAFETY: a header of the map, which stays attached.
        let header = unsafe { read(map + self.site * layout.header, layout.header) };
        let hits = header as usize & ((1 << layout.hits_bits) - 1);
        if !(1..=NUMBERS).contains(&hits) {
            return;
        }
        let at = layout.logs(map, self.site) + (hits - 1) * layout.numbers;
        for (value, place) in values.iter().zip(layout.words[word]) {
            // SAFETY: words of the entry.
            unsafe { write(at + place, 8, value[word]) };
        }
    }

    /// Finds room for one more entry, and counts it. `None` if there is none.
    fn place(self, shape: u64, kind: usize) -> Option<(usize, &'static Layout)> {
        let map = MAP.load(Relaxed);
        let layout = &LAYOUTS[usize::from(LAYOUT.load(Relaxed))];
        if map == 0 {
            return None;
        }
        let (room, each) = match kind {
            0 => (NUMBERS, layout.numbers),
            _ => (layout.pairs, layout.pair),
        };
        let at = map + self.site * layout.header;
        let (attribute, own_type) = (u64::from(self.attribute), layout.types[kind]);
        // SAFETY: a header of the map, which stays attached.
        let before = unsafe { read(at, layout.header) };
        let hits = before & ((1 << layout.hits_bits) - 1);
        let type_before = before >> layout.type_at & layout.type_bits;
        if hits >= room as u64 || hits != 0 && type_before != own_type {
            return None;
        }
        let shape_before = match hits {
            0 => 0,
            _ => before >> layout.shape_at & 31,
        };
        let header = (hits + 1)
            | shape.max(shape_before) << layout.shape_at
            | own_type << layout.type_at
            | attribute << layout.attribute_at;
        // SAFETY: as above.
        unsafe { write(at, layout.header, header) };
        Some((layout.logs(map, self.site) + hits as usize * each, layout))
    }

    /// Logs a comparison of two numbers of `size` bytes, each in a low and a high word. False if there is no room.
    pub fn numbers(self, size: usize, values: [[u64; 2]; 2]) -> bool {
        let Some((at, layout)) = self.place(size as u64 - 1, 0) else {
            return false;
        };
        for (low_or_high, places) in layout.words.iter().enumerate() {
            for (value, place) in values.iter().zip(places) {
                // SAFETY: words of the entry.
                unsafe { write(at + place, 8, value[low_or_high]) };
            }
        }
        true
    }

    /// Logs a comparison of two pieces of memory. False if there is no room.
    pub fn memory(self, pieces: [&[u8]; 2], is_text: bool) -> bool {
        let longest = pieces[0].len().max(pieces[1].len()).max(1);
        let Some((at, layout)) = self.place(longest as u64 - 1, 1) else {
            return false;
        };
        for (i, piece) in pieces.into_iter().enumerate() {
            let length = piece.len() as u8 | if is_text { IS_TEXT } else { 0 };
            // SAFETY: a piece has 31 bytes at most, which the entry has room for.
            unsafe {
                let to = ptr::with_exposed_provenance_mut::<u8>(at + layout.bytes[i]);
                ptr::write_bytes(to, 0, MOST_BYTES);
                ptr::copy_nonoverlapping(piece.as_ptr(), to, piece.len().min(MOST_BYTES));
                write(at + layout.lengths[i], 1, length.into());
            }
        }
        true
    }
}

/// Reads `size` bytes, 8 at most, as a number.
///
/// # Safety
/// The bytes can be read.
unsafe fn read(at: usize, size: usize) -> u64 {
    let mut bytes = [0; 8];
    // SAFETY: the caller's promise.
    unsafe {
        let from = ptr::with_exposed_provenance::<u8>(at);
        ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), size)
    };
    u64::from_le_bytes(bytes)
}

/// Writes a number in `size` bytes, 8 at most.
///
/// # Safety
/// The bytes belong to the map.
unsafe fn write(at: usize, size: usize, value: u64) {
    let bytes = value.to_le_bytes();
    // SAFETY: the caller's promise.
    unsafe {
        let to = ptr::with_exposed_provenance_mut::<u8>(at);
        ptr::copy_nonoverlapping(bytes.as_ptr(), to, size)
    };
}

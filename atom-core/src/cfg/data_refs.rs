//! Which bytes of the file's data the code refers to: a table ends where the next
//! thing starts.
//!
//! A bit for each byte costs an eighth of the file's size, and no sorting.

use crate::image::Image;

/// Addresses of data that code refers to.
pub(super) struct DataRefs {
    /// By segment, in the order of addresses.
    parts: Vec<SegmentBits>,
}

struct SegmentBits {
    start: u64,
    /// Bytes that come from the file.
    size: u64,
    /// Made when there is something to note.
    bits: Vec<u64>,
}

impl DataRefs {
    /// None yet.
    pub fn new(image: &Image) -> Self {
        let part = |(start, size)| SegmentBits {
            start,
            size,
            bits: Vec::new(),
        };
        let segments = image.segments.iter().map(|s| (s.address, s.file_size));
        Self {
            parts: segments.map(part).collect(),
        }
    }

    /// Notes an address, if there are bytes of the file.
    pub fn insert(&mut self, address: u64) {
        let after = self.parts.partition_point(|p| p.start <= address);
        let Some(part) = after.checked_sub(1).map(|i| &mut self.parts[i]) else {
            return;
        };
        let at = address - part.start;
        if at >= part.size {
            return;
        }
        if part.bits.is_empty() {
            part.bits = vec![0; (part.size / 64 + 1) as usize];
        }
        part.bits[(at / 64) as usize] |= 1 << (at % 64);
    }

    /// The first one at an address or behind it.
    pub fn next_from(&self, address: u64) -> Option<u64> {
        let first = self.parts.partition_point(|p| p.start <= address);
        let first = first.saturating_sub(1);
        self.parts[first..].iter().find_map(|part| {
            let from = address.saturating_sub(part.start);
            let word = usize::try_from(from / 64).ok()?;
            let rest = part.bits.get(word..)?;
            let masked = rest.first()? & !0 << (from % 64);
            let (i, bits) = match masked {
                0 => {
                    let i = 1 + rest[1..].iter().position(|w| *w != 0)?;
                    (i, rest[i])
                }
                _ => (0, masked),
            };
            Some(part.start + 64 * (word + i) as u64 + u64::from(bits.trailing_zeros()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_one_is_found() {
        let part = |start, size| SegmentBits {
            start,
            size,
            bits: Vec::new(),
        };
        let mut refs = DataRefs {
            parts: vec![part(0x1000, 0x1000), part(0x3000, 0x200), part(0x8000, 1)],
        };
        assert_eq!(refs.next_from(0x1000), None);
        // Some lie in no part or at the limits of one.
        let noted = [0x1000, 0x103f, 0x1040, 0x1fff, 0x3001, 0x31ff, 0x8000];
        let ignored = [0, 0xfff, 0x2000, 0x2fff, 0x3200, 0x8001, u64::MAX];
        noted.iter().chain(&ignored).for_each(|a| refs.insert(*a));
        let around = noted.iter().chain(&ignored);
        for from in around.flat_map(|a| [a.saturating_sub(1), *a, a.saturating_add(1)]) {
            let expected = noted.iter().copied().find(|a| *a >= from);
            assert_eq!(refs.next_from(from), expected, "{from:#x}");
        }
    }
}

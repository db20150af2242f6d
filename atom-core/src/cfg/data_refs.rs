//! Bytes of the file's data to which the code refers. A jump table ends at the latest where the next
//! such byte follows.
//!
//! A bit for each byte costs an eighth of the data's size, and needs no sorting.

use crate::image::Image;

/// Addresses of data to which code refers.
pub(super) struct DataRefs {
    /// The segments, in the order of addresses.
    parts: Vec<SegmentBits>,
}

/// The addresses in one segment.
struct SegmentBits {
    start: u64,
    /// Number of bytes that come from the file.
    size: u64,
    /// A bit for each byte; empty until an address is noted.
    bits: Vec<u64>,
}

impl DataRefs {
    /// No addresses.
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

    /// Notes an address; addresses outside of the file's bytes are ignored.
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

    /// The first noted address that is not below an address.
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
        // Some addresses lie in no segment or at the limits of a segment.
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

//! Sets of addresses of the file's bytes: data to which the code refers (a jump table ends at the latest where the next
//! such byte follows), code whose address is taken, instructions that were examined.
//!
//! A bit for each byte costs an eighth of a segment's size, and needs no sorting. Neighbours are found at once.

use crate::image::Image;

/// A set of addresses of the file's bytes.
#[derive(Default)]
pub(super) struct Addresses {
    /// The segments, in the order of addresses.
    parts: Vec<SegmentBits>,
}

/// Where the bit of an address is: the segment, and the distance of the address from its start. It is the same in all
/// sets of a file's addresses.
#[derive(Clone, Copy)]
pub(super) struct BitPlace(usize, u64);

/// Noted addresses of 64 bytes in a row.
#[derive(Clone, Copy)]
pub(super) struct Word {
    /// The segment, and the number of the word in it.
    place: (u32, u32),
    bits: u64,
}

/// The addresses in one segment.
struct SegmentBits {
    start: u64,
    /// Number of bytes that come from the file.
    size: u64,
    /// A bit for each byte; empty until an address is noted.
    bits: Vec<u64>,
}

impl SegmentBits {
    /// The bits, which are made where there are none.
    fn all_bits(&mut self) -> &mut [u64] {
        if self.bits.is_empty() {
            self.bits = vec![0; (self.size / 64 + 1) as usize];
        }
        &mut self.bits
    }
}

impl Addresses {
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

    /// True if no address was noted.
    pub fn is_empty(&self) -> bool {
        self.parts.iter().all(|p| p.bits.is_empty())
    }

    /// The place of an address of the file's bytes.
    pub fn place(&self, address: u64) -> Option<BitPlace> {
        let after = self.parts.partition_point(|p| p.start <= address);
        let part = after.checked_sub(1)?;
        let at = address - self.parts[part].start;
        (at < self.parts[part].size).then_some(BitPlace(part, at))
    }

    /// Notes an address; addresses outside of the file's bytes are ignored. True if it was not noted before.
    pub fn insert(&mut self, address: u64) -> bool {
        self.place(address).is_some_and(|place| self.set(place))
    }

    /// Notes the address of a place. True if it was not noted before.
    pub fn set(&mut self, BitPlace(part, at): BitPlace) -> bool {
        let word = &mut self.parts[part].all_bits()[(at / 64) as usize];
        let is_new = *word & 1 << (at % 64) == 0;
        *word |= 1 << (at % 64);
        is_new
    }

    /// Forgets an address.
    pub fn remove(&mut self, address: u64) {
        self.take(address, address, &mut Vec::new());
    }

    /// Forgets the addresses from `first` to `last`, and adds them to `words`.
    pub fn take(&mut self, first: u64, last: u64, words: &mut Vec<Word>) {
        let (Some(BitPlace(part, from)), Some(BitPlace(_, to))) =
            (self.place(first), self.place(last))
        else {
            return;
        };
        let place = |word: u64| (part as u32, word as u32);
        let bits = &mut self.parts[part].bits;
        for word in from / 64..=to / 64 {
            let Some(own) = bits.get_mut(word as usize) else {
                return;
            };
            let after = !0 << from.saturating_sub(64 * word);
            let until = !0 >> (63 - (to - 64 * word).min(63));
            let taken = *own & after & until;
            *own &= !taken;
            if taken != 0 {
                let (place, bits) = (place(word), taken);
                words.push(Word { place, bits });
            }
        }
    }

    /// Notes what another set of the same file's addresses had.
    pub fn add(&mut self, words: &[Word]) {
        for word in words {
            let part = &mut self.parts[word.place.0 as usize];
            part.all_bits()[word.place.1 as usize] |= word.bits;
        }
    }

    /// True if an address was noted.
    pub fn contains(&self, address: u64) -> bool {
        self.place(address).is_some_and(|place| self.has(place))
    }

    /// True if the address of a place was noted.
    pub fn has(&self, BitPlace(part, at): BitPlace) -> bool {
        let word = self.parts[part].bits.get((at / 64) as usize);
        word.is_some_and(|word| word & 1 << (at % 64) != 0)
    }

    /// All noted addresses, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u64> {
        std::iter::successors(self.next_from(0), |a| self.next_from(a + 1))
    }

    /// True if an address from `first` to `last` was noted.
    pub fn any_in(&self, first: u64, last: u64) -> bool {
        let (BitPlace(part, from), to) = match (self.place(first), self.place(last)) {
            (Some(from), Some(to)) if from.0 == to.0 => (from, to.1),
            _ => return self.next_from(first).is_some_and(|next| next <= last),
        };
        let bits = &self.parts[part].bits;
        (from / 64..=to / 64).any(|word| {
            let all = bits.get(word as usize).copied().unwrap_or(0);
            let after = all & !0 << from.saturating_sub(64 * word);
            let until = 63 - (to - 64 * word).min(63);
            after & (!0 >> until) != 0
        })
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
        let mut refs = Addresses {
            parts: vec![part(0x1000, 0x1000), part(0x3000, 0x200), part(0x8000, 1)],
        };
        assert_eq!(refs.next_from(0x1000), None);
        // Some addresses are in no segment or at the limits of a segment.
        let noted = [0x1000, 0x103f, 0x1040, 0x1fff, 0x3001, 0x31ff, 0x8000];
        let ignored = [0, 0xfff, 0x2000, 0x2fff, 0x3200, 0x8001, u64::MAX];
        for address in noted.iter().chain(&ignored) {
            refs.insert(*address);
        }
        let around = noted.iter().chain(&ignored);
        assert!(refs.iter().eq(noted));
        assert!(noted.iter().all(|a| refs.contains(*a) && !refs.insert(*a)));
        assert!(!ignored.iter().any(|a| refs.contains(*a)));
        for from in around.flat_map(|a| [a.saturating_sub(1), *a, a.saturating_add(1)]) {
            let expected = noted.iter().copied().find(|a| *a >= from);
            assert_eq!(refs.next_from(from), expected, "{from:#x}");
            for size in [0, 1, 62, 63, 64, 65, 127, 128, 1000, 0x10000] {
                let last = from.saturating_add(size);
                let is_in = expected.is_some_and(|next| next <= last);
                assert_eq!(refs.any_in(from, last), is_in, "{from:#x} to {last:#x}");
            }
        }
        let (all, mut words) = (refs.iter().collect::<Vec<_>>(), Vec::new());
        for (first, last) in [
            (0x1001, 0x103e),
            (0x103f, 0x1fff),
            (0x3001, 0x3001),
            (0x2000, 0x2fff),
        ] {
            refs.take(first, last, &mut words);
        }
        assert!(refs.iter().eq([0x1000, 0x31ff, 0x8000]));
        refs.add(&words);
        assert!(refs.iter().eq(all));
    }
}

//! V8's built-in code in programs without symbols (Chromium).
//!
//! V8 has its built-in functions in the program's text as one piece, looks return addresses in this piece up in a table, and
//! may copy the piece elsewhere. So all of it has to stay as it is. Nothing but the table tells where it is. In the data
//! are one after the other:
//!
//! - three hashes of 8 bytes;
//! - for each function, by number: its offset from the start of the piece, its length, the offset of what belongs to it in
//!   the data;
//! - for each function, in the order of the code: the offset at which the next one starts, and its number.
//!
//! All are numbers of 32 bits. No other data agrees with itself in this way. Where the piece starts is told by the padding
//! between its functions.

use std::ops::Range;

use crate::image::Image;

/// Number of functions at least; there are more than two thousand.
const FEWEST: usize = 500;

/// Alignment of functions in bytes at least.
const ALIGN: u32 = 32;

/// Size in bytes of the code of a program with V8 at least.
const LEAST_CODE: u64 = 8 << 20;

/// The byte that fills the space between functions (`int3`).
const PADDING: u8 = 0xcc;

/// The places of the functions in the piece.
#[derive(Debug, PartialEq, Eq)]
struct Functions {
    /// The offsets between the end of a function and the start of the next one, where they differ.
    gaps: Vec<Range<usize>>,
    /// Size of the piece in bytes.
    size: usize,
}

impl Functions {
    /// The offset at which the piece starts in some code, the first byte of which is at an address.
    fn start_in(&self, code: &[u8], address: u64) -> Option<usize> {
        let first = address.next_multiple_of(u64::from(ALIGN)) - address;
        let starts = (first as usize..).step_by(ALIGN as usize);
        let mut starts =
            starts.map_while(|start| Some((start, code.get(start..start + self.size)?)));
        let is_padding = |bytes: &[u8]| bytes.iter().all(|b| *b == PADDING);
        let fits = |piece: &[u8]| {
            piece[0] != PADDING && self.gaps.iter().all(|gap| is_padding(&piece[gap.clone()]))
        };
        starts.find_map(|(start, piece)| fits(piece).then_some(start))
    }
}

/// The words of some bytes.
struct Words<'a>(&'a [u8]);

impl Words<'_> {
    fn get(&self, i: usize) -> Option<u32> {
        let word = self.0.get(4 * i..4 * i + 4)?;
        word.try_into().ok().map(u32::from_le_bytes)
    }

    /// Searches for the table.
    fn functions(&self) -> Option<Functions> {
        (0..2).find_map(|first| {
            let mut start = first;
            let mut at = first;
            // Pairs follow one another while their first words ascend.
            while let (Some(end), Some(number), Some(next)) =
                (self.get(at), self.get(at + 1), self.get(at + 2))
            {
                let goes_on = next > end
                    && end.is_multiple_of(ALIGN)
                    && next.is_multiple_of(ALIGN)
                    && (number as usize) < self.0.len();
                at += 2;
                if goes_on {
                    continue;
                }
                if at - start >= 2 * FEWEST
                    && let Some(found) = self.within(start, (at - start) / 2)
                {
                    return Some(found);
                }
                start = at;
            }
            None
        })
    }

    /// The table if its second part is in `count` pairs from a word on, perhaps with a pair too many at either end.
    fn within(&self, start: usize, count: usize) -> Option<Functions> {
        let trimmed = [(0, 0), (0, 1), (1, 0), (1, 1)];
        trimmed
            .into_iter()
            .find_map(|(front, back)| self.at(start + 2 * front, count - front - back))
    }

    /// The table if its second part begins at a word and has `count` pairs.
    fn at(&self, pairs: usize, count: usize) -> Option<Functions> {
        let layout = pairs.checked_sub(3 * count)?;
        let mut is_listed = vec![false; count];
        let mut gaps = Vec::new();
        let mut before = 0;
        for pair in 0..count {
            let next = self.get(pairs + 2 * pair)?;
            let number = self.get(pairs + 2 * pair + 1)? as usize;
            let listed = is_listed.get_mut(number).filter(|listed| !**listed)?;
            let offset = self.get(layout + 3 * number)?;
            let end = offset.checked_add(self.get(layout + 3 * number + 1)?)?;
            if offset < before || end > next {
                return None;
            }
            *listed = true;
            before = next;
            if end < next {
                gaps.push(end as usize..next as usize);
            }
        }
        (gaps.len() >= count / 4).then_some(Functions {
            gaps,
            size: before as usize,
        })
    }
}

/// The table of a program.
fn functions(image: &Image) -> Option<Functions> {
    let code = image.segments.iter().filter(|s| s.is_executable());
    if code.map(|s| s.file_size).sum::<u64>() < LEAST_CODE {
        return None;
    }
    let data = image.segments.iter().filter(|s| !s.is_executable());
    let mut data = data.filter_map(|s| image.bytes_at(s.address, s.file_size as usize));
    data.find_map(|bytes| Words(bytes).functions())
}

/// The addresses of V8's built-in code, if the program has V8. `regions` are the ranges of its code.
pub(super) fn built_in_code(image: &Image, regions: &[(u64, u64)]) -> Option<Range<u64>> {
    let functions = functions(image)?;
    regions.iter().find_map(|&(from, to)| {
        let code = image.bytes_at(from, (to - from) as usize)?;
        let start = from + functions.start_in(code, from)? as u64;
        Some(start..start + functions.size as u64)
    })
}

#[cfg(test)]
mod tests {
    use super::{FEWEST, Functions, PADDING, Words};

    /// Data with a table of `count` functions of 40 bytes, the last of which comes first, and numbers around it.
    fn data(count: u32, first: u32) -> Vec<u8> {
        let place = |number: u32| (number + 1) % count;
        let mut words = vec![7; first as usize];
        words.extend((0..6).map(|hash| 0x9e37_79b9_u32.wrapping_mul(hash)));
        for number in 0..count {
            words.extend([64 * place(number), 40, 100 * number]);
        }
        for at in 0..count {
            words.extend([64 * (at + 1), (at + count - 1) % count]);
        }
        words.extend([3, 1, 2, 9]);
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn a_table_is_found_at_any_word() {
        let count = 2 * FEWEST as u32;
        for first in [0, 1, 2, 31] {
            let found = Words(&data(count, first)).functions();
            let found = found.expect("there is a table");
            assert_eq!(found.size, 64 * count as usize);
            assert_eq!(found.gaps.len(), count as usize);
            assert_eq!(found.gaps[..2], [40..64, 104..128]);
        }
    }

    #[test]
    fn padding_tells_where_the_code_starts() {
        let count = 2 * FEWEST as u32;
        let found = Words(&data(count, 0))
            .functions()
            .expect("there is a table");
        let function = [[0x90; 40].as_slice(), &[PADDING; 24]].concat();
        let piece = function.repeat(count as usize);
        let code = [&[0x90; 100][..], &piece, &[0x90; 50]].concat();
        assert_eq!(found.start_in(&code, 0x101c), Some(100));
        // Not at a multiple of the alignment; a function that is longer; padding alone.
        assert_eq!(found.start_in(&code, 0x1000), None);
        let mut longer = code.clone();
        longer[100 + 64 * 9 + 40] = 0x90;
        assert_eq!(found.start_in(&longer, 0x101c), None);
        assert_eq!(found.start_in(&vec![PADDING; code.len()], 0x101c), None);
    }

    #[test]
    fn numbers_that_disagree_are_no_table() {
        let count = 2 * FEWEST as u32;
        let right = data(count, 0);
        let changed = |word: usize, value: u32| -> Option<Functions> {
            let mut bytes = right.clone();
            bytes[4 * word..4 * word + 4].copy_from_slice(&value.to_le_bytes());
            Words(&bytes).functions()
        };
        // A function that is longer than its place, one that starts before its place, and one that is listed twice.
        assert_eq!(changed(6 + 3 * 5 + 1, 65), None);
        assert_eq!(changed(6 + 3 * 5, 64), None);
        assert_eq!(changed(6 + 3 * count as usize + 2 * 9 + 1, 3), None);
        assert_eq!(Words(&right[..right.len() / 2]).functions(), None);
        assert_eq!(Words(&[]).functions(), None);
    }
}

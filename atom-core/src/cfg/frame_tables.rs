//! Tables of return addresses.
//!
//! OCaml's garbage collector walks the stack by tables that the compiler wrote. For
//! each call they have the return address, the size of the frame and the places of
//! values in the frame. The running program looks return addresses up in the tables, so calls
//! have to push the original return addresses.

use object::elf;

use crate::image::Image;

/// What looks like a descriptor of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Descriptor<T> {
    /// The return address, or what is known of it.
    pub(super) back: T,
    /// True for a frame at which OCaml's stack ends. OCaml's runtime has one or two of them, in a
    /// table of their own.
    pub(super) ends_stack: bool,
}

/// What looks like descriptors of frames, in the order in which they are.
/// A descriptor is an address of code, two bytes of size, two bytes with the number of values, and
/// two bytes for each value. The size is a multiple of eight with two
/// flags, or all ones for the frame at which OCaml's stack ends.
pub(super) fn described(image: &Image) -> Vec<Descriptor<u64>> {
    let in_data = |slot: u64, back: u64| {
        let ends_stack = image.is_code(back).then(|| kind(image, slot))??;
        Some(Descriptor { back, ends_stack })
    };
    if image.kind.is_position_independent() {
        let mut slots: Vec<(u64, Descriptor<u64>)> = image
            .relocs
            .iter()
            .filter(|r| r.kind == elf::R_X86_64_RELATIVE)
            .filter_map(|r| Some((r.address, in_data(r.address, r.addend as u64)?)))
            .collect();
        slots.sort_unstable_by_key(|(slot, _)| *slot);
        return slots.into_iter().map(|(_, found)| found).collect();
    }
    let mut found = Vec::new();
    for segment in image.segments.iter().filter(|s| !s.is_executable()) {
        let bytes = image
            .bytes_at(segment.address, segment.file_size as usize)
            .unwrap_or_default();
        let skip = (segment.address.wrapping_neg() & 7) as usize;
        let words = bytes.get(skip..).unwrap_or_default().chunks_exact(8);
        for (i, word) in words.enumerate() {
            let slot = segment.address + (skip + 8 * i) as u64;
            let address = u64::from_le_bytes(word.try_into().expect("eight bytes"));
            found.extend(in_data(slot, address));
        }
    }
    found
}

/// Whether a frame ends OCaml's stack; `None` if what follows the address in a slot is no descriptor.
fn kind(image: &Image, slot: u64) -> Option<bool> {
    let bytes = image.rest_at(slot.checked_add(8)?)?;
    let half = |i: usize| {
        let bytes = bytes.get(2 * i..2 * i + 2)?;
        Some(u16::from_le_bytes(bytes.try_into().expect("two bytes")))
    };
    let (size, count) = (half(0)?, half(1)?);
    if size == u16::MAX {
        return (count == 0).then_some(true);
    }
    // An odd number stands for a register, an even number for an offset in the frame.
    let is_value = |v: u16| v & 1 != 0 && v < 64 || v & 7 == 0 && v < size;
    let is_plain = size & 4 == 0
        && size & !3 != 0
        && usize::from(count) <= usize::from(size) / 8 + 16
        && (0..usize::from(count)).all(|i| half(2 + i).is_some_and(is_value));
    is_plain.then_some(false)
}

/// The descriptors that are in tables. `words` is all that looks like descriptors,
/// in the order in which it is; `back` is `Some` if the address is a return address. Such a
/// word is a descriptor if more than half of the words around it have a return address, too. In a program that has
/// `ENOUGH` of these, a frame at which the stack ends needs no neighbours.
pub(super) fn in_tables<T: Copy>(words: &[Descriptor<Option<T>>]) -> Vec<Descriptor<T>> {
    const AROUND: usize = 8;
    const ENOUGH: usize = 32;
    let certain = |i: &usize| {
        let around = &words[i.saturating_sub(AROUND)..words.len().min(i + AROUND + 1)];
        2 * around.iter().filter(|w| w.back.is_some()).count() > around.len()
    };
    let (usual, last): (Vec<_>, Vec<_>) = (0..words.len())
        .filter(|i| words[*i].back.is_some())
        .partition(certain);
    if usual.len() < ENOUGH {
        return Vec::new();
    }
    let last = last.into_iter().filter(|i| words[*i].ends_stack);
    let word = |i: usize| {
        let (back, ends_stack) = (words[i].back?, words[i].ends_stack);
        Some(Descriptor { back, ends_stack })
    };
    usual.into_iter().chain(last).filter_map(word).collect()
}

#[cfg(test)]
mod tests {
    use super::{Descriptor, in_tables};

    #[test]
    fn a_table_is_told_from_what_looks_like_one() {
        // Functions, of which each seventh happens to be after a call, around a table with
        // one address that is not understood.
        let functions = |n: usize| (0..n).map(|i| (i % 7 == 0).then_some(1000 + i));
        let table = (0..40).map(|i| (i != 20).then_some(i));
        let plain = |back| Descriptor {
            back,
            ends_stack: false,
        };
        let ends = |back| Descriptor {
            back,
            ends_stack: true,
        };
        let words = functions(500).chain(table).chain(functions(500));
        let mut words: Vec<_> = words.map(plain).collect();
        words.push(ends(Some(5000)));
        words.push(ends(None));
        let found: Vec<usize> = in_tables(&words).iter().map(|word| word.back).collect();
        assert!(found.contains(&5000), "{found:?}");
        let of_table = found.iter().filter(|n| **n < 40).count();
        assert!(of_table >= 38, "{of_table}");
        assert!(found.len() - of_table <= 3, "{found:?}");
        // A few words prove nothing.
        assert!(in_tables(&[ends(Some(1)); 3]).is_empty());
        assert!(in_tables::<u8>(&[]).is_empty());
    }
}

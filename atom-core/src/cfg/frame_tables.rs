//! Tables of return addresses.
//!
//! OCaml's garbage collector walks the stack by tables that the compiler wrote. For
//! each call they have the return address, the size of the frame and the places of
//! values in the frame. The running program looks return addresses up in the tables, so calls
//! have to push the original return addresses.

use object::elf;

use crate::image::Image;

/// The return addresses in what looks like descriptors of frames, in the order of the descriptors.
/// A descriptor is an address of code, two bytes of size, two bytes with the number of values, and
/// two bytes for each value. The size is a multiple of eight with two
/// flags, or all ones for the frame at which OCaml's stack ends.
pub(super) fn described(image: &Image) -> Vec<u64> {
    let in_data = |slot: u64, address: u64| {
        (image.is_code(address) && is_descriptor(image, slot)).then_some(address)
    };
    if image.kind.is_position_independent() {
        let mut slots: Vec<(u64, u64)> = image
            .relocs
            .iter()
            .filter(|r| r.kind == elf::R_X86_64_RELATIVE)
            .filter_map(|r| Some((r.address, in_data(r.address, r.addend as u64)?)))
            .collect();
        slots.sort_unstable();
        return slots.into_iter().map(|(_, address)| address).collect();
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

fn is_descriptor(image: &Image, slot: u64) -> bool {
    let Some(bytes) = slot.checked_add(8).and_then(|at| image.rest_at(at)) else {
        return false;
    };
    let half = |i: usize| {
        let bytes = bytes.get(2 * i..2 * i + 2)?;
        Some(u16::from_le_bytes(bytes.try_into().expect("two bytes")))
    };
    let (Some(size), Some(count)) = (half(0), half(1)) else {
        return false;
    };
    if size == u16::MAX {
        return count == 0;
    }
    // An odd number stands for a register, an even number for an offset in the frame.
    let is_value = |v: u16| v & 1 != 0 && v < 64 || v & 7 == 0 && v < size;
    size & 4 == 0
        && size & !3 != 0
        && usize::from(count) <= usize::from(size) / 8 + 16
        && (0..usize::from(count)).all(|i| half(2 + i).is_some_and(is_value))
}

/// The words that stand in a table of descriptors. `words` are all words that look like descriptors,
/// in the order in which they lie; a word is `Some` if its address is a return address. It
/// stands in a table if it is `Some` and more than half of the words around it are.
pub(super) fn in_tables<T: Copy>(words: &[Option<T>]) -> Vec<T> {
    const AROUND: usize = 8;
    let certain = |i: usize| {
        let around = &words[i.saturating_sub(AROUND)..words.len().min(i + AROUND + 1)];
        2 * around.iter().flatten().count() > around.len()
    };
    let numbered = words.iter().enumerate();
    numbered
        .filter_map(|(i, word)| word.filter(|_| certain(i)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::in_tables;

    #[test]
    fn a_table_is_told_from_what_looks_like_one() {
        // Functions, of which each seventh happens to lie behind a call, around a table with
        // one address that is not understood.
        let functions = |n: usize| (0..n).map(|i| (i % 7 == 0).then_some(1000 + i));
        let table = (0..40).map(|i| (i != 20).then_some(i));
        let words: Vec<_> = functions(500).chain(table).chain(functions(500)).collect();
        let found = in_tables(&words);
        let of_table = found.iter().filter(|n| **n < 40).count();
        assert!(of_table >= 38, "{of_table}");
        assert!(found.len() - of_table <= 2, "{found:?}");
        assert_eq!(in_tables(&[Some(1); 3]), [1; 3]);
        assert!(in_tables::<u8>(&[]).is_empty());
    }
}

//! Code addresses in the program's data.

use object::elf;

use super::regions::{code_regions, region_end};
use crate::image::Image;

/// Code addresses that are in data, each with true if it is certainly an address. In a
/// position-independent program they are in relocations. In other programs every aligned word of data
/// may be a code address; it counts as certain only beside another code address, as in a table of labels.
pub(crate) fn data_pointers(image: &Image) -> Vec<(u64, bool)> {
    let mut pointers: Vec<(u64, bool)> = image
        .relocs
        .iter()
        .filter_map(|r| match r.kind {
            elf::R_X86_64_RELATIVE | elf::R_X86_64_IRELATIVE => Some(r.addend as u64),
            elf::R_X86_64_64 | elf::R_X86_64_GLOB_DAT | elf::R_X86_64_JUMP_SLOT => {
                let symbol = image.dynamic_symbols.get(r.symbol as usize)?;
                Some(symbol.address.wrapping_add_signed(r.addend))
            }
            _ => None,
        })
        .map(|address| (address, true))
        .collect();
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    // Until it is bound, a slot of the PLT holds the address of its entry's second half.
    let slots = image
        .relocs
        .iter()
        .filter(|r| r.kind == elf::R_X86_64_JUMP_SLOT);
    pointers.extend(slots.filter_map(|r| Some((word(image.bytes_at(r.address, 8)?), true))));
    if !image.kind.is_position_independent() {
        let regions = code_regions(image);
        let in_text =
            |address: u64| image.is_code(address) && region_end(&regions, address).is_some();
        for (start, size) in data_ranges(image) {
            let bytes = image.bytes_at(start, size as usize).unwrap_or_default();
            let skip = (start.wrapping_neg() & 7) as usize;
            let words = bytes.get(skip..).unwrap_or_default();
            let word_at = |i: usize| Some(word(words.get(8 * i..8 * i + 8)?));
            for (i, address) in words.chunks_exact(8).map(word).enumerate() {
                if !in_text(address) {
                    continue;
                }
                let beside = [i.checked_sub(1), i.checked_add(1)];
                let mut beside = beside.into_iter().flatten().filter_map(word_at);
                pointers.push((address, beside.any(in_text)));
            }
        }
    }
    pointers.retain(|(p, _)| image.is_code(*p));
    // Of equal addresses the certain one comes first and is kept.
    pointers.sort_unstable_by_key(|(p, certain)| (*p, !certain));
    pointers.dedup_by_key(|(p, _)| *p);
    pointers
}

/// The address in a word of data that the program does not change before it starts.
pub(super) fn word_at(image: &Image, address: u64) -> Option<u64> {
    let mut relocs = image.relocs.iter().filter(|r| r.address == address);
    match relocs.next() {
        Some(r) => (r.kind == elf::R_X86_64_RELATIVE).then_some(r.addend as u64),
        None => {
            let bytes = image.bytes_at(address, 8)?;
            Some(u64::from_le_bytes(bytes.try_into().ok()?))
        }
    }
}

/// Address and size of loaded data. Some linkers put constants
/// into the segment of the code.
fn data_ranges(image: &Image) -> Vec<(u64, u64)> {
    let segments = image
        .segments
        .iter()
        .filter(|s| !s.is_executable())
        .map(|s| (s.address, s.file_size));
    let constants = image
        .sections
        .iter()
        .filter(|s| s.is_loaded() && !s.has_code() && s.kind == elf::SHT_PROGBITS)
        .filter(|s| image.is_code(s.address))
        .map(|s| (s.address, s.size));
    segments.chain(constants).collect()
}

/// Kinds of objects in info tables, with space for kinds of later versions.
const OBJECT_KINDS: std::ops::RangeInclusive<u32> = 1..=80;

/// True if the eight bytes in front of an address may be the end of an info
/// table. Haskell's compiler (GHC) puts an info table in front of each piece of code
/// that an object or a stack frame refers to. The table's last word holds the kind of
/// the object and an offset.
pub(super) fn has_info_table(image: &Image, address: u64) -> bool {
    if !address.is_multiple_of(8) {
        return false;
    }
    let Some(word) = address.checked_sub(8).and_then(|a| image.bytes_at(a, 8)) else {
        return false;
    };
    let kind = u32::from_le_bytes(word[..4].try_into().expect("four bytes"));
    OBJECT_KINDS.contains(&kind)
}

/// True if a program's code is after info tables: at least 500 pointers to text, and more than 70 % of
/// them, lead to code after an info table, which is so in no other program.
pub(super) fn has_info_tables(image: &Image, pointers: &[(u64, bool)]) -> bool {
    const ENOUGH: usize = 500;
    let in_text = pointers.iter().map(|p| p.0).filter(|p| {
        image
            .section_at(*p)
            .is_none_or(|section| section.has_code())
    });
    let (mut with, mut all) = (0, 0);
    for address in in_text {
        all += 1;
        with += usize::from(has_info_table(image, address));
    }
    with >= ENOUGH && with * 10 > all * 7
}

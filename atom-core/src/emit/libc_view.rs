//! The program headers that a static program's libc gets to see.
//!
//! The kernel tells a program where its program headers are (`AT_PHDR`,
//! `AT_PHNUM` in the auxiliary vector, on the process stack). A static program
//! has no other description of itself: libc finds its thread-local storage
//! there, the unwinder the exception tables and whose code an address is.
//! The start-up code lets the vector point to a table made here:
//!
//! - all addresses are link-time addresses of the original image, whatever the
//!   file's headers say (see [`crate::rewrite::Region`]);
//! - it names the new text and the new exception tables;
//! - it has as many loadable entries as the original. glibc allocates 32 bytes
//!   for each (`_dl_find_object`) before the program's first allocation, and
//!   another size would move the heap's contents. Two neighbours are therefore
//!   told as one; only look-ups by address care.
//!
//! The writable segment for analysis data is not in it: a garbage collector
//! that scans the program's writable segments would take it for the program's.

use object::elf;

use crate::image::{Image, ProgramHeader};

use super::program_headers::spare_rank;

/// The entries. `place` is the table's own address, `file_offset` its offset.
pub fn build(
    image: &Image,
    text: ProgramHeader,
    eh_frame_hdr: Option<ProgramHeader>,
    place: u64,
    file_offset: u64,
) -> Vec<ProgramHeader> {
    let mut entries = image.program_headers.clone();
    if let Some(header) = eh_frame_hdr {
        let place = (0..entries.len())
            .find(|i| entries[*i].kind == elf::PT_GNU_EH_FRAME)
            .or_else(|| {
                (0..entries.len())
                    .filter_map(|i| Some((spare_rank(image, &entries[i])?, i)))
                    .min()
                    .map(|spare| spare.1)
            });
        match place {
            Some(i) => entries[i] = header,
            None => entries.push(header),
        }
    }
    merge_two(&mut entries);
    let last = entries.iter().rposition(|p| p.kind == elf::PT_LOAD);
    entries.insert(last.map_or(0, |i| i + 1), text);
    let size = 56 * entries.len() as u64;
    if let Some(own) = entries.iter_mut().find(|p| p.kind == elf::PT_PHDR) {
        (own.address, own.offset) = (place, file_offset);
        (own.file_size, own.mem_size) = (size, size);
    }
    entries
}

/// Makes one loadable entry of two neighbours, if there are any two that can
/// be told as one.
fn merge_two(entries: &mut Vec<ProgramHeader>) {
    let loads: Vec<usize> = (0..entries.len())
        .filter(|i| entries[*i].kind == elf::PT_LOAD && entries[*i].mem_size > 0)
        .collect();
    let pair = loads
        .windows(2)
        .map(|w| (w[0], w[1]))
        .filter_map(|(a, b)| Some((cost(&entries[a], &entries[b])?, a, b)))
        .min();
    let Some((_, a, b)) = pair else {
        return;
    };
    let second = entries.remove(b);
    let first = &mut entries[a];
    let distance = second.address - first.address;
    if second.offset.checked_sub(first.offset) == Some(distance) {
        first.file_size = distance + second.file_size;
    }
    first.mem_size = distance + second.mem_size;
    first.flags |= second.flags;
    first.align = first.align.max(second.align);
}

/// What is wrong with telling two entries as one; `None` if it cannot be done.
/// Garbage collectors read writable segments from end to end, so a writable
/// one must not grow over a hole.
fn cost(first: &ProgramHeader, second: &ProgramHeader) -> Option<u32> {
    const PAGE: u64 = 0x1000;
    let writable = |p: &ProgramHeader| p.flags & elf::PF_W != 0;
    let end = first.address.checked_add(first.mem_size)?;
    if second.address < end {
        return None;
    }
    let hole = end.checked_next_multiple_of(PAGE)? < second.address & !(PAGE - 1);
    match (writable(first), writable(second)) {
        (false, false) => Some(u32::from(hole)),
        _ if hole => None,
        (true, true) => Some(2),
        _ => Some(3),
    }
}

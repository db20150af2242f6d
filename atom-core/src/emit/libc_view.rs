//! The program headers that a static program's libc gets to see.
//!
//! The kernel tells a program where its program headers are (`AT_PHDR`,
//! `AT_PHNUM` in the auxiliary vector, on the process stack). A static program
//! has no loader that knows more: its libc finds its thread-local storage
//! there, the unwinder the exception tables and whose code an address is.
//! Some read the ELF header in memory (`__ehdr_start`) instead, for example to
//! find their build id. The start-up code lets both point to a table made here:
//!
//! - all addresses are link-time addresses of the original image, whatever the
//!   file's headers say (see [`crate::layout::Region`]);
//! - it names the new text and the new exception tables; where the original has
//!   no entry for these, they take the place of a note that can be spared, so
//!   that libc's loops over the table run as often as before;
//! - it has as many loadable entries as the original. glibc allocates 32 bytes
//!   for each (`_dl_find_object`) before the program's first allocation, and
//!   another size would move the heap's contents. Two neighbours are therefore
//!   told as one; only look-ups by address care. If there is a hole between
//!   them and one is writable, the first is made to reach the second in the file's
//!   headers too, because garbage collectors read what is writable from end to
//!   end.
//!
//! The writable segment for analysis data is not in it: a garbage collector
//! that scans the program's writable segments would take it for the program's.

use object::elf;

use crate::PAGE;
use crate::image::{Image, ProgramHeader};

use super::program_headers::spare_rank;

/// Most bytes by which the file may grow to fill a hole: the largest usual
/// page size of linkers.
const MAX_PADDING: u64 = 2 << 20;

/// A table of program headers for libc.
pub struct View {
    /// Entries of the table.
    pub entries: Vec<ProgramHeader>,
    /// A loadable segment of the original that must reach further in the file's
    /// headers: its address and its new size.
    pub extended: Option<(u64, u64)>,
}

/// Makes the table. `place` is its own address, `file_offset` its offset; the
/// output has at least `file_size` bytes so far.
pub fn build(
    image: &Image,
    text: ProgramHeader,
    eh_frame_hdr: Option<ProgramHeader>,
    place: u64,
    file_offset: u64,
    file_size: u64,
) -> View {
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
    let extended = merge_two(&mut entries, file_size);
    let last = entries.iter().rposition(|p| p.kind == elf::PT_LOAD);
    entries.insert(last.map_or(0, |i| i + 1), text);
    let size = 56 * entries.len() as u64;
    if let Some(own) = entries.iter_mut().find(|p| p.kind == elf::PT_PHDR) {
        (own.address, own.offset) = (place, file_offset);
        (own.file_size, own.mem_size) = (size, size);
    }
    View { entries, extended }
}

/// Makes one loadable entry of two neighbours, if there are any two that can
/// be told as one. Returns [`View::extended`].
fn merge_two(entries: &mut Vec<ProgramHeader>, file_size: u64) -> Option<(u64, u64)> {
    let loads: Vec<usize> = (0..entries.len())
        .filter(|i| entries[*i].kind == elf::PT_LOAD && entries[*i].mem_size > 0)
        .collect();
    let (cost, a, b) = loads
        .windows(2)
        .map(|w| (w[0], w[1]))
        .filter_map(|(a, b)| Some((cost(&entries[a], &entries[b], file_size)?, a, b)))
        .min()?;
    let second = entries.remove(b);
    let first = &mut entries[a];
    let distance = second.address - first.address;
    let reach = second.address & !(PAGE - 1);
    let extended = (cost == Cost::Extend).then_some((first.address, reach - first.address));
    if second.offset.checked_sub(first.offset) == Some(distance) {
        first.file_size = distance + second.file_size;
    }
    first.mem_size = distance + second.mem_size;
    first.flags |= second.flags;
    first.align = first.align.max(second.align);
    extended
}

/// Drawbacks of describing two segments by one entry, the least first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Cost {
    /// Nothing.
    None,
    /// There is a hole between two read-only segments.
    Hole,
    /// Both are writable.
    Writable,
    /// One is writable.
    Mixed,
    /// One is writable and there is a hole, to be filled.
    Extend,
}

fn cost(first: &ProgramHeader, second: &ProgramHeader, file_size: u64) -> Option<Cost> {
    let writable = |p: &ProgramHeader| p.flags.contains(elf::PF_W);
    let end = first.address.checked_add(first.mem_size)?;
    let reach = second.address & !(PAGE - 1);
    if second.address < end {
        return None;
    }
    let hole = end.checked_next_multiple_of(PAGE)? < reach;
    match (writable(first), writable(second)) {
        (false, false) if hole => Some(Cost::Hole),
        (false, false) => Some(Cost::None),
        (true, true) if !hole => Some(Cost::Writable),
        _ if !hole => Some(Cost::Mixed),
        // A map of the file must not reach beyond its end, so the file grows if need be.
        (false, true) if first.mem_size == first.file_size => {
            let last = first.offset.checked_add(reach - first.address)?;
            (last <= file_size + MAX_PADDING).then_some(Cost::Extend)
        }
        _ => None,
    }
}

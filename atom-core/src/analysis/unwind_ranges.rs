//! Where functions begin and end, from unwind information and symbols.
//!
//! Code does not tell where a function ends: the bytes after a call that never returns may belong to
//! the next function. Unwind information is there even in a stripped tool.

use std::ops::Range;

use gimli::{BaseAddresses, CieOrFde, EhFrame, LittleEndian, UnwindSection};
use object::{Object, ObjectSection};

use super::Symbol;

/// Ranges of functions inside `code`, in ascending order and disjoint.
pub(super) fn functions(bytes: &[u8], symbols: &[Symbol], code: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut found: Vec<Range<u64>> = symbols
        .iter()
        .filter(|s| s.is_function && s.size > 0)
        .map(|s| s.address..s.address + s.size)
        .collect();
    if let Ok(file) = object::File::parse(bytes)
        && let Some(section) = file.section_by_name(".eh_frame")
        && let Ok(data) = section.data()
    {
        from_eh_frame(data, section.address(), &mut found);
    }
    found.retain(|f| {
        code.iter()
            .any(|c| c.start <= f.start && f.end <= c.end && f.start < f.end)
    });
    found.sort_by_key(|f| (f.start, std::cmp::Reverse(f.end)));
    found.dedup_by_key(|f| f.start);
    // Where two overlap, the earlier ends where the later begins.
    for i in 1..found.len() {
        found[i - 1].end = found[i - 1].end.min(found[i].start);
    }
    found
}

/// Adds the ranges of all frame descriptions up to the first broken one.
fn from_eh_frame(data: &[u8], address: u64, found: &mut Vec<Range<u64>>) {
    let section = EhFrame::new(data, LittleEndian);
    let bases = BaseAddresses::default().set_eh_frame(address);
    let mut entries = section.entries(&bases);
    while let Ok(Some(entry)) = entries.next() {
        if let CieOrFde::Fde(partial) = entry
            && let Ok(fde) = partial.parse(|s, b, o| s.cie_from_offset(b, o))
            && let Some(end) = fde.initial_address().checked_add(fde.len())
        {
            found.push(fde.initial_address()..end);
        }
    }
}

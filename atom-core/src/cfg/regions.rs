//! The ranges of the program in which there may be code.

use object::elf;

use crate::image::Image;

/// Executable ranges, as start and end address: sections if there are any, else segments.
pub fn code_regions(image: &Image) -> Vec<(u64, u64)> {
    let mut regions: Vec<_> = image
        .sections
        .iter()
        .filter(|s| s.is_loaded() && s.has_code() && s.kind == elf::SHT_PROGBITS && s.size > 0)
        .filter(|s| {
            image.is_code(s.address) && image.bytes_at(s.address, s.size as usize).is_some()
        })
        .map(|s| (s.address, s.address + s.size))
        .collect();
    if regions.is_empty() {
        regions = image
            .segments
            .iter()
            .filter(|s| s.is_executable())
            .map(|s| (s.address, s.address + s.file_size))
            .collect();
    }
    regions.sort_unstable();
    regions
}

/// End of the range in which an address is.
pub(super) fn region_end(regions: &[(u64, u64)], address: u64) -> Option<u64> {
    let i = regions.partition_point(|r| r.0 <= address).checked_sub(1)?;
    (address < regions[i].1).then_some(regions[i].1)
}

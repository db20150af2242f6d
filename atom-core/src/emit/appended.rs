//! Data that was appended to the program's file after linking.
//!
//! Self-extracting archives, bundled scripts and the like read their own file. They find what
//! they look for from the file's end, from the end of the section table or by an offset from the
//! start. The original file stays where it is in the output, which serves the last; a copy after it
//! the new section table, at the very end, serves the others.

use object::Endianness;
use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};

use crate::image::Image;

/// The bytes after everything that the headers describe; empty if these are only zeros.
pub(super) fn find(image: &Image) -> &[u8] {
    let file: &[u8] = &image.file;
    let rest = described(file).and_then(|end| file.get(usize::try_from(end).ok()?..));
    rest.filter(|bytes| bytes.iter().any(|b| *b != 0))
        .unwrap_or_default()
}

/// Offset of the end of everything that the headers describe; `None` if they cannot be read.
fn described(file: &[u8]) -> Option<u64> {
    let header = FileHeader64::<Endianness>::parse(file).ok()?;
    let endian = header.endian().ok()?;
    let programs = header.program_headers(endian, file).ok()?;
    let sections = header.section_headers(endian, file).ok()?;
    let table = header.e_shoff(endian);
    let ends = programs
        .iter()
        .map(|p| p.p_offset(endian).checked_add(p.p_filesz(endian)))
        .chain(
            sections
                .iter()
                .filter(|s| s.sh_type(endian) != elf::SHT_NOBITS)
                .map(|s| s.sh_offset(endian).checked_add(s.sh_size(endian))),
        )
        .chain([
            table.checked_add(size_of_val(sections) as u64),
            header
                .e_phoff(endian)
                .checked_add(size_of_val(programs) as u64),
        ]);
    ends.flatten().max()
}

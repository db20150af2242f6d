//! The headers of the area's file, so that gdb, perf and objdump see the analysis routines of a whole process.
//!
//! Nothing at run time needs them: the program interpreter maps the file's two parts by their offsets. The
//! file begins with the tool's own ELF header, as the tool's read-only part does. Here the header becomes
//! the header of an executable file at fixed addresses (`ET_EXEC`), whose program headers, sections and
//! symbols are after the last part, where no process maps them.

use std::ops::Range;

use object::elf;

use crate::PAGE;
use crate::analysis::AnalysisImage;
use crate::image::ProgramHeader;
use crate::layout::Area;

use super::area::file_offset;
use super::debug::DebugSection;
use super::output::Output;
use super::program_headers;
use super::symbols::Symbols;
use super::tables::{LOADED, LOADED_CODE, LOADED_DATA, NewSection, Table};

/// Offsets of fields in the ELF header.
const E_TYPE: u64 = 16;
const E_ENTRY: u64 = 24;
const E_PHOFF: u64 = 32;
const E_PHNUM: u64 = 56;

/// Appends program headers, symbols, debug information and section headers to the area's file, and ends it.
pub fn append<'a>(
    area: &Area,
    analysis: &'a AnalysisImage,
    debug: &'a [DebugSection],
    out: &mut Output<'a>,
) {
    if analysis.text.starts_with(&elf::ELFMAG) {
        headers(area, analysis, debug, out);
    }
    out.close();
}

fn headers<'a>(
    area: &Area,
    analysis: &'a AnalysisImage,
    debug: &'a [DebugSection],
    out: &mut Output<'a>,
) {
    out.change(E_TYPE, &elf::ET_EXEC.0.to_le_bytes());
    out.change(E_ENTRY, &0u64.to_le_bytes());
    let segments = [
        segment(elf::PF_X, 0, area.start..area.rw),
        segment(elf::PF_W, file_offset(area), area.rw..area.end),
    ];
    let count = segments.len() as u16;
    // A page of the area must not show them.
    let offset = out.append(PAGE, program_headers::to_bytes(&segments));
    out.change(E_PHOFF, &offset.to_le_bytes());
    out.change(E_PHNUM, &count.to_le_bytes());

    let mut table = Table::new();
    let code = add_sections(area, analysis, &mut table);
    let mut symbols = Symbols::new();
    symbols.add_analysis(analysis, area.start, code);
    symbols.append(&mut table, out);
    table.add_debug(debug, out);
    table.append(out);
}

/// A program header (`PT_LOAD`). `flags` are given beside `PF_R`.
fn segment(flags: elf::ProgramFlags, offset: u64, addresses: Range<u64>) -> ProgramHeader {
    let size = addresses.end - addresses.start;
    ProgramHeader {
        kind: elf::PT_LOAD,
        flags: elf::PF_R | flags,
        offset,
        address: addresses.start,
        file_size: size,
        mem_size: size,
        align: PAGE,
    }
}

/// Adds the sections of what is mapped; returns the index of the tool's code.
fn add_sections(area: &Area, analysis: &AnalysisImage, table: &mut Table) -> usize {
    let start = analysis.code.iter().map(|c| c.start).min().unwrap_or(0);
    let end = analysis.code.iter().map(|c| c.end).max().unwrap_or(0);
    let code = table.add(&NewSection {
        name: ".text.analysis",
        flags: LOADED_CODE,
        address: area.start + start,
        offset: start,
        size: end - start,
        ..NewSection::default()
    });
    let unwind = &analysis.eh_frame;
    if !unwind.is_empty() {
        table.add(&NewSection {
            name: ".eh_frame",
            flags: LOADED,
            address: area.start + unwind.start,
            offset: unwind.start,
            size: unwind.end - unwind.start,
            align: 8,
            ..NewSection::default()
        });
    }
    table.add(&NewSection {
        name: ".data.analysis",
        flags: LOADED_DATA,
        address: area.rw,
        offset: file_offset(area),
        size: area.end - area.rw,
        ..NewSection::default()
    });
    code
}

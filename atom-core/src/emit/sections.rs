//! Section headers and symbols for the new segments, so that gdb, perf and objdump see the new text
//! and name its procedures.
//!
//! Nothing at run time needs them. The original table is kept, and the new entries follow it. The
//! new `.eh_frame` describes old and new text and takes the name; the original section becomes
//! `.eh_frame.original`.

use std::ops::Range;

use object::elf;

use crate::image::{Image, NEW_TEXT};
use crate::layout::Placed;
use crate::plan::Version;

use super::debug::{self, DebugSection};
use super::output::Output;
use super::symbols::Symbols;
use super::tables::{
    LOADED, LOADED_CODE, LOADED_DATA, NewSection, SH_ADDR, SH_FLAGS, SH_TYPE, Table, field,
};
use crate::unwind::write::MovedRange;

/// What the tables describe.
pub struct Facts<'a> {
    /// The program and all new addresses.
    pub placed: &'a Placed<'a>,
    /// Debug information of the output.
    pub debug: &'a [DebugSection],
    /// File offset of the read-execute segment.
    pub rx_offset: u64,
    /// File offset of the read-write segment.
    pub rw_offset: u64,
}

impl<'a> Facts<'a> {
    fn image(&self) -> &'a Image {
        self.placed.object.image
    }
}

/// Appends strings, symbols and the section header table to the file. Yields the ranges of the original file that the
/// output does not need.
pub fn append<'a>(facts: &Facts<'a>, out: &mut Output<'a>) -> Vec<Range<u64>> {
    let Some(mut table) = Table::of(&facts.image().file) else {
        return Vec::new();
    };
    let mut replaced = rename_original(facts, &mut table);
    move_strings(facts, &mut table);
    let (text, analysis_text) = add_sections(facts, &mut table);
    replaced.extend(symbols(facts, &mut table, out, [text, analysis_text]));
    table.add_debug(facts.debug, out);
    shift_sections(facts, &mut table);
    table.append(out);
    unneeded(facts.image(), &replaced)
}

/// Ranges of the original file with nothing but contents of the sections with these indexes.
fn unneeded(image: &Image, replaced: &[usize]) -> Vec<Range<u64>> {
    let range = |offset: u64, size: u64| offset..offset.saturating_add(size);
    let headers = (image.program_headers.iter()).map(|p| range(p.offset, p.file_size));
    let is_kept = |i: usize| !replaced.contains(&i) && image.sections[i].kind != elf::SHT_NOBITS;
    let sections = (0..image.sections.len()).filter(|i| is_kept(*i));
    let sections = sections.map(|i| range(image.sections[i].offset, image.sections[i].size));
    let needed: Vec<_> = headers.chain(sections).collect();
    let length = image.file.len() as u64;
    let is_free = |range: &Range<u64>| {
        let meets = |other: &Range<u64>| other.start < range.end && range.start < other.end;
        range.start < range.end && range.end <= length && !needed.iter().any(meets)
    };
    let replaced = replaced.iter().map(|i| &image.sections[*i]);
    replaced
        .map(|section| range(section.offset, section.size))
        .filter(is_free)
        .collect()
}

/// Gives other names to sections of the original that the output replaces, or that would mislead, and empties the latter if
/// they are not loaded. Yields the indexes of those.
fn rename_original(facts: &Facts<'_>, table: &mut Table) -> Vec<usize> {
    let sections = &facts.image().sections;
    if facts.placed.placement.unwind.is_some() {
        for (name, kept) in [
            (".eh_frame", ".eh_frame.original"),
            (".eh_frame_hdr", ".eh_frame_hdr.original"),
        ] {
            if let Some(i) = sections.iter().position(|s| s.name == name) {
                table.rename(i, kept);
            }
        }
    }
    let mut empty = Vec::new();
    for (i, section) in sections.iter().enumerate() {
        if debug::misleads(&section.name) {
            table.rename(i, &format!(".original{}", section.name));
            if section.kind == elf::SHT_NOTE {
                table.headers[i][SH_TYPE..SH_TYPE + 4]
                    .copy_from_slice(&elf::SHT_PROGBITS.0.to_le_bytes());
            }
            if !section.is_loaded() {
                table.place(i, 0, 0);
                empty.push(i);
            }
        }
    }
    empty
}

/// The strings of the dynamic section, if they moved.
fn move_strings(facts: &Facts<'_>, table: &mut Table) {
    let image = facts.image();
    let (Some(strings), Some(address)) = (&image.strings, facts.placed.placement.strings) else {
        return;
    };
    let old = image.dynamic_value(elf::DT_STRTAB);
    let is_table = |s: &crate::image::Section| s.kind == elf::SHT_STRTAB && Some(s.address) == old;
    if let Some(i) = image.sections.iter().position(is_table) {
        let offset = facts.rx_offset + (address - facts.placed.layout.start);
        table.place(i, offset, strings.bytes.len() as u64);
        table.headers[i][SH_ADDR..SH_ADDR + 8].copy_from_slice(&address.to_le_bytes());
    }
}

/// Adds the sections of the new segments. Indexes of the new text and of the tool's code, 0 if
/// there is no tool.
fn add_sections(facts: &Facts<'_>, table: &mut Table) -> (usize, usize) {
    let (layout, placement) = (&facts.placed.layout, &facts.placed.placement);
    let rx = |address: u64| facts.rx_offset + (address - layout.start);
    let text = table.add(&NewSection {
        name: NEW_TEXT,
        flags: LOADED_CODE,
        address: layout.start,
        offset: facts.rx_offset,
        size: layout.end - layout.start,
        align: 64,
        ..NewSection::default()
    });
    if let Some(unwind) = &placement.unwind {
        for (name, blob) in [
            (".gcc_except_table.atom", &unwind.except_table),
            (".eh_frame", &unwind.eh_frame),
            (".eh_frame_hdr", &unwind.eh_frame_hdr),
        ] {
            if !blob.bytes.is_empty() {
                table.add(&NewSection {
                    name,
                    flags: LOADED,
                    address: blob.address,
                    offset: rx(blob.address),
                    size: blob.bytes.len() as u64,
                    ..NewSection::default()
                });
            }
        }
    }
    let mut analysis_text = 0;
    if let Some(analysis) = facts.placed.analysis {
        analysis_text = table.add(&NewSection {
            name: ".text.analysis",
            flags: LOADED_CODE,
            address: placement.analysis,
            offset: rx(placement.analysis),
            size: analysis.text.len() as u64,
            ..NewSection::default()
        });
    }
    if placement.has_rw() {
        table.add(&NewSection {
            name: ".data.analysis",
            flags: LOADED_DATA,
            address: placement.rw,
            offset: facts.rw_offset,
            size: placement.end - placement.rw,
            ..NewSection::default()
        });
    }
    (text, analysis_text)
}

/// The original's symbols, with other names for functions that moved; an empty table if there are none.
fn original_symbols<'a>(facts: &Facts<'a>, table: &Table, moved: &[MovedRange]) -> Symbols<'a> {
    let image = facts.image();
    let contents = |i: usize| {
        let (offset, size) = table.range(i);
        let bytes = image.file.get(offset..offset.saturating_add(size));
        bytes.unwrap_or_default()
    };
    let index = image
        .sections
        .iter()
        .position(|s| s.kind == elf::SHT_SYMTAB);
    match index.map(|i| (i, table.link(i))) {
        Some((i, link)) if link < image.sections.len() => {
            Symbols::of(contents(i), contents(link), Some(i), |address| {
                let found = moved.binary_search_by_key(&address, |range| range.old_start);
                found.is_ok()
            })
        }
        _ => Symbols::new(),
    }
}

/// Appends the symbol table: the original's symbols and those of the new text. `sections` are the
/// indexes of the new text and of the tool's code. Yields the indexes of the original's sections that it replaces.
fn symbols<'a>(
    facts: &Facts<'a>,
    table: &mut Table,
    out: &mut Output<'a>,
    [text, analysis_text]: [usize; 2],
) -> Vec<usize> {
    let (cfg, layout) = (&facts.placed.object.cfg, &facts.placed.layout);
    let moved = layout.moved_ranges(cfg);
    let mut symbols = original_symbols(facts, table, &moved);
    let before = symbols.len();
    for version in facts.placed.versions() {
        for range in &version.moved_ranges(cfg) {
            let proc = cfg.proc_at(range.old_start).map(|p| cfg.proc(p));
            if let Some(name) = proc.and_then(|p| p.name.as_deref()) {
                let size = range.new_end - range.new_start;
                match version.version {
                    Version::Full => symbols.add(name, range.new_start, size, text),
                    Version::Light => symbols.add_light(name, range.new_start, size, text),
                }
            }
        }
    }
    if let Some(analysis) = facts.placed.analysis {
        symbols.add_analysis(analysis, facts.placed.placement.analysis, analysis_text);
    }
    if symbols.len() == before && layout.region.shift == 0 {
        return Vec::new();
    }
    symbols.shift(layout.region.shift);
    symbols.append(table, out)
}

/// Where new text is below the image, the addresses of the program headers
/// are shifted, and a debugger takes these for the file's: all others follow.
fn shift_sections(facts: &Facts, table: &mut Table) {
    for header in &mut table.headers {
        if elf::SectionFlags(field(header, SH_FLAGS)).contains(elf::SHF_ALLOC) {
            let address = field(header, SH_ADDR).wrapping_add(facts.placed.layout.region.shift);
            header[SH_ADDR..SH_ADDR + 8].copy_from_slice(&address.to_le_bytes());
        }
    }
}

//! Section headers and symbols for the new segments, so that gdb, perf and objdump see the new text
//! and name its procedures.
//!
//! Nothing at run time needs them. The original table is kept, and the new entries follow it. The
//! new `.eh_frame` describes old and new text and takes the name; the original section becomes
//! `.eh_frame.original`.

use object::elf;

use crate::image::{Image, NEW_TEXT};
use crate::layout::Placed;

use super::debug::{self, DebugSection};
use super::output::Output;
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

/// Size in bytes of a section header.
const HEADER: usize = 64;
/// Size in bytes of a symbol.
const SYMBOL: usize = 24;

/// Offsets of fields in the ELF header.
const E_SHOFF: usize = 40;
const E_SHNUM: usize = 60;
const E_SHSTRNDX: usize = 62;

/// Offsets of fields in a section header.
const SH_TYPE: usize = 4;
const SH_FLAGS: usize = 8;
const SH_ADDR: usize = 16;
const SH_OFFSET: usize = 24;
const SH_SIZE: usize = 32;
const SH_LINK: usize = 40;
const SH_INFO: usize = 44;

/// Flags of sections that are loaded.
const LOADED: u64 = elf::SHF_ALLOC as u64;
const LOADED_CODE: u64 = LOADED | elf::SHF_EXECINSTR as u64;
const LOADED_DATA: u64 = LOADED | elf::SHF_WRITE as u64;

/// Appends strings, symbols and the section header table to the file.
pub fn append<'a>(facts: &Facts<'a>, out: &mut Output<'a>) {
    let Some(mut table) = Table::of(&facts.image().file) else {
        return;
    };
    rename_original(facts, &mut table);
    move_strings(facts, &mut table);
    let (text, analysis_text) = add_sections(facts, &mut table);
    symbols(facts, &mut table, out, [text, analysis_text]);
    for section in facts.debug {
        let offset = out.append(8, &section.bytes[..]);
        table.add(&NewSection {
            name: section.name,
            offset,
            size: section.bytes.len() as u64,
            align: 1,
            ..NewSection::default()
        });
    }
    shift_sections(facts, &mut table);

    let names_size = table.names.len() as u64;
    let names_offset = out.append(1, std::mem::take(&mut table.names));
    table.place(table.names_index, names_offset, names_size);
    let offset = out.append(8, table.headers.concat());
    out.change(E_SHOFF as u64, &offset.to_le_bytes());
    let count = table.headers.len() as u16;
    out.change(E_SHNUM as u64, &count.to_le_bytes());
}

/// Gives other names to sections of the original that the output replaces, or that would mislead.
fn rename_original(facts: &Facts<'_>, table: &mut Table) {
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
    for (i, section) in sections.iter().enumerate() {
        if debug::misleads(&section.name) {
            table.rename(i, &format!(".original{}", section.name));
            if section.kind == elf::SHT_NOTE {
                table.headers[i][SH_TYPE..SH_TYPE + 4]
                    .copy_from_slice(&elf::SHT_PROGBITS.to_le_bytes());
            }
        }
    }
}

/// The strings of the dynamic section, if they moved.
fn move_strings(facts: &Facts<'_>, table: &mut Table) {
    let (image, address) = (facts.image(), facts.placed.placement.strings);
    let (Some(strings), true) = (&image.strings, address != 0) else {
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

/// A symbol table in the making: the original's symbols, and new ones behind them.
struct Symbols {
    bytes: Vec<u8>,
    strings: Vec<u8>,
    /// Indexes of the original's sections of symbols and of their names, if it has them.
    sections: Option<(usize, usize)>,
}

impl Symbols {
    /// The original's symbols; an empty table if there are none.
    fn of(facts: &Facts<'_>, table: &Table) -> Self {
        let image = facts.image();
        let contents = |i: usize| {
            let (offset, size) = table.range(i);
            let bytes = image.file.get(offset..offset.saturating_add(size));
            bytes.unwrap_or_default().to_vec()
        };
        let index = image
            .sections
            .iter()
            .position(|s| s.kind == elf::SHT_SYMTAB);
        match index.map(|i| (i, table.link(i))) {
            Some((i, link)) if link < image.sections.len() => Self {
                bytes: contents(i),
                strings: contents(link),
                sections: Some((i, link)),
            },
            _ => Self {
                bytes: vec![0; SYMBOL],
                strings: vec![0],
                sections: None,
            },
        }
    }

    /// Adds a function.
    fn add(&mut self, name: &str, address: u64, size: u64, section: usize) {
        self.bytes.extend((self.strings.len() as u32).to_le_bytes());
        // A global function: local symbols would have to precede all others.
        self.bytes.push((elf::STB_GLOBAL << 4) | elf::STT_FUNC);
        self.bytes.push(0);
        self.bytes.extend((section as u16).to_le_bytes());
        self.bytes.extend(address.to_le_bytes());
        self.bytes.extend(size.to_le_bytes());
        self.strings.extend(name.as_bytes());
        self.strings.push(0);
    }

    /// Appends the tables, and points the sections to them.
    fn append(self, table: &mut Table, out: &mut Output<'_>) {
        let (size, strings_size) = (self.bytes.len() as u64, self.strings.len() as u64);
        let offset = out.append(8, self.bytes);
        let strings_offset = out.append(1, self.strings);
        if let Some((symbols, strings)) = self.sections {
            table.place(symbols, offset, size);
            table.place(strings, strings_offset, strings_size);
            return;
        }
        let strings = table.add(&NewSection {
            name: ".strtab",
            kind: elf::SHT_STRTAB,
            offset: strings_offset,
            size: strings_size,
            align: 1,
            ..NewSection::default()
        });
        let symbols = table.add(&NewSection {
            name: ".symtab",
            kind: elf::SHT_SYMTAB,
            offset,
            size,
            align: 8,
            entry_size: SYMBOL as u64,
            ..NewSection::default()
        });
        let header = &mut table.headers[symbols];
        header[SH_LINK..SH_LINK + 4].copy_from_slice(&(strings as u32).to_le_bytes());
        header[SH_INFO..SH_INFO + 4].copy_from_slice(&1u32.to_le_bytes());
    }
}

/// Appends the symbol table: the original's symbols and those of the new text. `sections` are the
/// indexes of the new text and of the tool's code.
fn symbols<'a>(
    facts: &Facts<'a>,
    table: &mut Table,
    out: &mut Output<'a>,
    [text, analysis_text]: [usize; 2],
) {
    let (cfg, layout) = (&facts.placed.object.cfg, &facts.placed.layout);
    let mut symbols = Symbols::of(facts, table);
    let before = symbols.bytes.len();
    let moved = layout.moved_ranges(cfg);
    rename_old(&mut symbols.bytes, &mut symbols.strings, &moved);
    for range in &moved {
        let proc = cfg.proc_at(range.old_start).map(|p| cfg.proc(p));
        if let Some(name) = proc.and_then(|p| p.name.as_deref()) {
            symbols.add(name, range.new_start, range.new_end - range.new_start, text);
        }
    }
    if let Some(analysis) = facts.placed.analysis {
        let is_code = |address| address < analysis.data_start;
        let functions = analysis.symbols.iter();
        for symbol in functions.filter(|s| s.is_function && is_code(s.address)) {
            let address = facts.placed.placement.analysis + symbol.address;
            symbols.add(&symbol.name, address, symbol.size, analysis_text);
        }
    }
    if symbols.bytes.len() == before && layout.region.shift == 0 {
        return;
    }
    shift_symbols(&mut symbols.bytes, layout.region.shift);
    symbols.append(table, out);
}

/// The original's functions that moved get `original.` in front of their names: at
/// their addresses are pads, and a breakpoint by name belongs in the new text.
fn rename_old(symbols: &mut [u8], strings: &mut Vec<u8>, moved: &[MovedRange]) {
    for symbol in symbols.chunks_exact_mut(SYMBOL) {
        let section = u16::from_le_bytes([symbol[6], symbol[7]]);
        let is_code = matches!(symbol[4] & 15, elf::STT_FUNC | elf::STT_NOTYPE);
        let address = field(symbol, 8);
        let is_moved = || {
            moved
                .binary_search_by_key(&address, |range| range.old_start)
                .is_ok()
        };
        if !is_code || section == elf::SHN_UNDEF || section >= elf::SHN_LORESERVE || !is_moved() {
            continue;
        }
        let name = u32::from_le_bytes([symbol[0], symbol[1], symbol[2], symbol[3]]) as usize;
        let Some(end) = strings
            .get(name..)
            .and_then(|s| s.iter().position(|b| *b == 0))
        else {
            continue;
        };
        if end == 0 {
            continue;
        }
        let new = strings.len() as u32;
        strings.extend(b"original.");
        strings.extend_from_within(name..name + end + 1);
        symbol[..4].copy_from_slice(&new.to_le_bytes());
    }
}

/// Where new text lies below the image, the addresses of the program headers
/// are shifted, and a debugger takes these for the file's: all others follow.
fn shift_sections(facts: &Facts, table: &mut Table) {
    for header in &mut table.headers {
        if field(header, SH_FLAGS) & u64::from(elf::SHF_ALLOC) != 0 {
            let address = field(header, SH_ADDR).wrapping_add(facts.placed.layout.region.shift);
            header[SH_ADDR..SH_ADDR + 8].copy_from_slice(&address.to_le_bytes());
        }
    }
}

/// The same for symbols that have an address.
fn shift_symbols(symbols: &mut [u8], shift: u64) {
    for symbol in symbols.chunks_exact_mut(SYMBOL).filter(|_| shift != 0) {
        let section = u16::from_le_bytes([symbol[6], symbol[7]]);
        let has_address = section != elf::SHN_UNDEF && section < elf::SHN_LORESERVE;
        if has_address && symbol[4] & 15 != elf::STT_TLS {
            let address = field(symbol, 8).wrapping_add(shift);
            symbol[8..16].copy_from_slice(&address.to_le_bytes());
        }
    }
}

fn field(header: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes"))
}

/// A section to be added.
struct NewSection<'n> {
    name: &'n str,
    kind: u32,
    flags: u64,
    address: u64,
    offset: u64,
    size: u64,
    align: u64,
    entry_size: u64,
}

impl Default for NewSection<'_> {
    fn default() -> Self {
        Self {
            name: "",
            kind: elf::SHT_PROGBITS,
            flags: 0,
            address: 0,
            offset: 0,
            size: 0,
            align: 16,
            entry_size: 0,
        }
    }
}

/// The section header table in the making.
struct Table {
    headers: Vec<Vec<u8>>,
    /// Contents of the section of section names.
    names: Vec<u8>,
    /// Index of that section.
    names_index: usize,
}

impl Table {
    /// The original's table; `None` if it has none with names.
    fn of(file: &[u8]) -> Option<Self> {
        let short = |at: usize| usize::from(u16::from_le_bytes([file[at], file[at + 1]]));
        let offset = field(file, E_SHOFF) as usize;
        let (count, names_index) = (short(E_SHNUM), short(E_SHSTRNDX));
        let headers = file.get(offset..offset + count * HEADER)?;
        let headers: Vec<_> = headers.chunks_exact(HEADER).map(<[u8]>::to_vec).collect();
        let mut table = Self {
            headers,
            names: Vec::new(),
            names_index,
        };
        table.headers.get(names_index)?;
        let (offset, size) = table.range(names_index);
        table.names = file.get(offset..offset.saturating_add(size))?.to_vec();
        Some(table)
    }

    /// Offset and size of a section's contents in the original file.
    fn range(&self, index: usize) -> (usize, usize) {
        let header = &self.headers[index];
        (
            field(header, SH_OFFSET) as usize,
            field(header, SH_SIZE) as usize,
        )
    }

    /// Index of the section that a section refers to.
    fn link(&self, index: usize) -> usize {
        let bytes = &self.headers[index][SH_LINK..SH_LINK + 4];
        u32::from_le_bytes(bytes.try_into().expect("four bytes")) as usize
    }

    /// Sets where a section's contents are in the output.
    fn place(&mut self, index: usize, offset: u64, size: u64) {
        let header = &mut self.headers[index];
        header[SH_OFFSET..SH_OFFSET + 8].copy_from_slice(&offset.to_le_bytes());
        header[SH_SIZE..SH_SIZE + 8].copy_from_slice(&size.to_le_bytes());
    }

    fn name(&mut self, name: &str) -> u32 {
        let at = self.names.len() as u32;
        self.names.extend(name.as_bytes());
        self.names.push(0);
        at
    }

    fn rename(&mut self, index: usize, name: &str) {
        let at = self.name(name);
        if let Some(header) = self.headers.get_mut(index) {
            header[..4].copy_from_slice(&at.to_le_bytes());
        }
    }

    /// Adds a section, and yields its index.
    fn add(&mut self, section: &NewSection<'_>) -> usize {
        let mut header = Vec::with_capacity(HEADER);
        header.extend(self.name(section.name).to_le_bytes());
        header.extend(section.kind.to_le_bytes());
        for field in [
            section.flags,
            section.address,
            section.offset,
            section.size,
            // Link and info.
            0,
            section.align,
            section.entry_size,
        ] {
            header.extend(field.to_le_bytes());
        }
        self.headers.push(header);
        self.headers.len() - 1
    }
}

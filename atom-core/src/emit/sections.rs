//! Section headers and symbols for what is new, so that gdb, perf and objdump
//! see the new text and name its procedures.
//!
//! Nothing at run time needs them. The original table is kept, the new entries
//! follow it; the whole `.eh_frame` (for old and new text) takes the name, the
//! original one is kept as `.eh_frame.original`.

use object::elf;

use crate::image::NEW_TEXT;
use crate::layout::Placed;

use super::debug::{self, DebugSection};
use super::output::Output;
use crate::unwind::write::MovedRange;

/// What the tables describe.
pub struct Facts<'a> {
    /// The program and where everything of it went.
    pub placed: &'a Placed<'a>,
    /// Debug information of the output.
    pub debug: &'a [DebugSection],
    /// File offset of the read-execute segment.
    pub rx_offset: u64,
    /// File offset of the read-write segment.
    pub rw_offset: u64,
}

const HEADER: usize = 64;

/// Appends strings, symbols and the section header table to the file.
pub fn append<'a>(facts: &Facts<'a>, out: &mut Output<'a>) {
    let file = &facts.placed.object.image.file[..];
    let old_offset = u64::from_le_bytes(file[40..48].try_into().expect("eight bytes")) as usize;
    let old_count = usize::from(u16::from_le_bytes([file[60], file[61]]));
    let strings_index = usize::from(u16::from_le_bytes([file[62], file[63]]));
    let Some(old) = file
        .get(old_offset..old_offset + old_count * HEADER)
        .map(<[u8]>::to_vec)
    else {
        return;
    };
    if old_count == 0 || strings_index >= old_count {
        return;
    }
    let mut table = Table {
        headers: old.chunks_exact(HEADER).map(<[u8]>::to_vec).collect(),
        names: Vec::new(),
    };
    let names = &table.headers[strings_index];
    let (offset, size) = (field(names, 24) as usize, field(names, 32) as usize);
    let Some(bytes) = file.get(offset..offset.saturating_add(size)) else {
        return;
    };
    table.names = bytes.to_vec();

    if facts.placed.placement.unwind.is_some()
        && let Some(i) = facts
            .placed
            .object
            .image
            .sections
            .iter()
            .position(|s| s.name == ".eh_frame")
    {
        table.rename(i, ".eh_frame.original");
    }
    if facts.placed.placement.unwind.is_some()
        && let Some(i) = facts
            .placed
            .object
            .image
            .sections
            .iter()
            .position(|s| s.name == ".eh_frame_hdr")
    {
        table.rename(i, ".eh_frame_hdr.original");
    }
    for (i, section) in facts.placed.object.image.sections.iter().enumerate() {
        if debug::misleads(&section.name) {
            table.rename(i, &format!(".original{}", section.name));
            if section.kind == elf::SHT_NOTE {
                table.headers[i][4..8].copy_from_slice(&elf::SHT_PROGBITS.to_le_bytes());
            }
        }
    }
    let rx = |address: u64| facts.rx_offset + (address - facts.placed.layout.start);
    let text = table.add(
        NEW_TEXT,
        &[
            elf::SHT_PROGBITS as u64,
            6,
            facts.placed.layout.start,
            facts.rx_offset,
            facts.placed.layout.end - facts.placed.layout.start,
            64,
            0,
        ],
    );
    if let Some(unwind) = &facts.placed.placement.unwind {
        for (name, blob) in [
            (".gcc_except_table.atom", &unwind.except_table),
            (".eh_frame", &unwind.eh_frame),
            (".eh_frame_hdr", &unwind.eh_frame_hdr),
        ] {
            if !blob.bytes.is_empty() {
                table.add(
                    name,
                    &[
                        elf::SHT_PROGBITS as u64,
                        2,
                        blob.address,
                        rx(blob.address),
                        blob.bytes.len() as u64,
                        16,
                        0,
                    ],
                );
            }
        }
    }
    let mut analysis_text = 0;
    if let Some(analysis) = facts.placed.analysis {
        let start = facts.placed.placement.analysis;
        analysis_text = table.add(
            ".text.analysis",
            &[
                elf::SHT_PROGBITS as u64,
                6,
                start,
                rx(start),
                analysis.text.len() as u64,
                16,
                0,
            ],
        );
    }
    if facts.placed.placement.has_rw() {
        let size = facts.placed.placement.end - facts.placed.placement.rw;
        table.add(
            ".data.analysis",
            &[
                elf::SHT_PROGBITS as u64,
                3,
                facts.placed.placement.rw,
                facts.rw_offset,
                size,
                16,
                0,
            ],
        );
    }
    symbols(facts, &mut table, out, text, analysis_text);
    for section in facts.debug {
        let size = section.bytes.len() as u64;
        let offset = out.append(8, &section.bytes[..]);
        let fields = [u64::from(elf::SHT_PROGBITS), 0, 0, offset, size, 1, 0];
        table.add(section.name, &fields);
    }
    shift_sections(facts, &mut table);

    let names_size = table.names.len() as u64;
    let names_offset = out.append(1, std::mem::take(&mut table.names));
    let header = &mut table.headers[strings_index];
    header[24..32].copy_from_slice(&names_offset.to_le_bytes());
    header[32..40].copy_from_slice(&names_size.to_le_bytes());
    let offset = out.append(8, table.headers.concat());
    out.change(40, &offset.to_le_bytes());
    out.change(60, &(table.headers.len() as u16).to_le_bytes());
}

/// Appends the symbol table: the original's symbols and those of the new text.
fn symbols<'a>(
    facts: &Facts<'a>,
    table: &mut Table,
    out: &mut Output<'a>,
    text: usize,
    analysis_text: usize,
) {
    let old = facts
        .placed
        .object
        .image
        .sections
        .iter()
        .position(|s| s.kind == elf::SHT_SYMTAB);
    let contents = |i: usize| {
        let header = &table.headers[i];
        let (offset, size) = (field(header, 24) as usize, field(header, 32) as usize);
        facts
            .placed
            .object
            .image
            .file
            .get(offset..offset.saturating_add(size))
    };
    let strings_of = |i: usize| {
        u32::from_le_bytes(table.headers[i][40..44].try_into().expect("four bytes")) as usize
    };
    let (old_symbols, old_names, old_strings): (&[u8], &[u8], _) = match old {
        Some(i) if strings_of(i) < facts.placed.object.image.sections.len() => {
            let link = strings_of(i);
            (
                contents(i).unwrap_or_default(),
                contents(link).unwrap_or_default(),
                Some(link),
            )
        }
        _ => (&[0; 24], &[0], None),
    };
    let (mut symbols, mut strings) = (old_symbols.to_vec(), old_names.to_vec());
    let before = symbols.len();
    let moved = facts.placed.layout.moved_ranges(&facts.placed.object.cfg);
    rename_old(&mut symbols, &mut strings, &moved);
    let mut add = |name: &str, address: u64, size: u64, section: usize| {
        symbols.extend((strings.len() as u32).to_le_bytes());
        // A global function: local symbols would have to precede all others.
        symbols.push((elf::STB_GLOBAL << 4) | elf::STT_FUNC);
        symbols.push(0);
        symbols.extend((section as u16).to_le_bytes());
        symbols.extend(address.to_le_bytes());
        symbols.extend(size.to_le_bytes());
        strings.extend(name.as_bytes());
        strings.push(0);
    };
    for range in &moved {
        let proc = facts
            .placed
            .object
            .cfg
            .proc_at(range.old_start)
            .map(|p| facts.placed.object.cfg.proc(p));
        if let Some(name) = proc.and_then(|p| p.name.as_deref()) {
            add(name, range.new_start, range.new_end - range.new_start, text);
        }
    }
    if let Some(analysis) = facts.placed.analysis {
        for symbol in analysis
            .symbols
            .iter()
            .filter(|s| s.is_function && s.address < analysis.data_start)
        {
            add(
                &symbol.name,
                facts.placed.placement.analysis + symbol.address,
                symbol.size,
                analysis_text,
            );
        }
    }
    if symbols.len() == before && facts.placed.layout.region.shift == 0 {
        return;
    }
    shift_symbols(&mut symbols, facts.placed.layout.region.shift);
    let (symbols_size, strings_size) = (symbols.len() as u64, strings.len() as u64);
    let symbols_offset = out.append(8, symbols);
    let strings_offset = out.append(1, strings);
    match (old, old_strings) {
        (Some(i), Some(link)) => {
            for (header, offset, size) in [
                (i, symbols_offset, symbols_size),
                (link, strings_offset, strings_size),
            ] {
                table.headers[header][24..32].copy_from_slice(&offset.to_le_bytes());
                table.headers[header][32..40].copy_from_slice(&size.to_le_bytes());
            }
        }
        _ => {
            let strings_section = table.add(
                ".strtab",
                &[
                    u64::from(elf::SHT_STRTAB),
                    0,
                    0,
                    strings_offset,
                    strings_size,
                    1,
                    0,
                ],
            );
            let section = table.add(
                ".symtab",
                &[
                    u64::from(elf::SHT_SYMTAB),
                    0,
                    0,
                    symbols_offset,
                    symbols_size,
                    8,
                    24,
                ],
            );
            let header = &mut table.headers[section];
            header[40..44].copy_from_slice(&(strings_section as u32).to_le_bytes());
            header[44..48].copy_from_slice(&1u32.to_le_bytes());
        }
    }
}

/// The original's functions that moved get `original.` in front of their names: at
/// their addresses are pads, and a breakpoint by name belongs in the new text.
fn rename_old(symbols: &mut [u8], strings: &mut Vec<u8>, moved: &[MovedRange]) {
    for symbol in symbols.chunks_exact_mut(24) {
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
        if field(header, 8) & u64::from(elf::SHF_ALLOC) != 0 {
            let address = field(header, 16).wrapping_add(facts.placed.layout.region.shift);
            header[16..24].copy_from_slice(&address.to_le_bytes());
        }
    }
}

/// The same for symbols that have an address.
fn shift_symbols(symbols: &mut [u8], shift: u64) {
    for symbol in symbols.chunks_exact_mut(24).filter(|_| shift != 0) {
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

struct Table {
    headers: Vec<Vec<u8>>,
    names: Vec<u8>,
}

impl Table {
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

    /// `[sh_type, sh_flags, sh_addr, sh_offset, sh_size, sh_addralign, sh_entsize]`
    fn add(&mut self, name: &str, fields: &[u64; 7]) -> usize {
        let mut header = Vec::with_capacity(HEADER);
        header.extend(self.name(name).to_le_bytes());
        header.extend((fields[0] as u32).to_le_bytes());
        for f in &fields[1..5] {
            header.extend(f.to_le_bytes());
        }
        header.extend([0; 8]);
        header.extend(fields[5].to_le_bytes());
        header.extend(fields[6].to_le_bytes());
        self.headers.push(header);
        self.headers.len() - 1
    }
}

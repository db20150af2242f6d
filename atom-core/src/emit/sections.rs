//! Section headers and symbols for what is new, so that gdb, perf and objdump
//! see the new text and name its procedures.
//!
//! Nothing at run time needs them. The original table is kept, the new entries
//! follow it; the whole `.eh_frame` (for old and new text) takes the name, the
//! original one is kept as `.eh_frame.original`.

use object::elf;

use crate::analysis::AnalysisImage;
use crate::cfg::Cfg;
use crate::image::Image;
use crate::rewrite::Layout;

use super::output::Output;
use super::placement::Placement;

/// What the tables describe.
pub struct Facts<'a> {
    /// The program.
    pub image: &'a Image,
    /// Its procedures.
    pub cfg: &'a Cfg,
    /// Where they went.
    pub layout: &'a Layout,
    /// Where the rest went.
    pub placement: &'a Placement,
    /// The tool.
    pub analysis: Option<&'a AnalysisImage>,
    /// File offset of the read-execute segment.
    pub rx_offset: u64,
    /// File offset of the read-write segment.
    pub rw_offset: u64,
}

const HEADER: usize = 64;

/// Appends strings, symbols and the section header table to the file.
pub fn append<'a>(facts: &Facts<'a>, out: &mut Output<'a>) {
    let file = &facts.image.file[..];
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

    if facts.placement.unwind.is_some()
        && let Some(i) = facts
            .image
            .sections
            .iter()
            .position(|s| s.name == ".eh_frame")
    {
        table.rename(i, ".eh_frame.original");
    }
    if facts.placement.unwind.is_some()
        && let Some(i) = facts
            .image
            .sections
            .iter()
            .position(|s| s.name == ".eh_frame_hdr")
    {
        table.rename(i, ".eh_frame_hdr.original");
    }
    let rx = |address: u64| facts.rx_offset + (address - facts.layout.start);
    let text = table.add(
        ".text.atom",
        &[
            elf::SHT_PROGBITS as u64,
            6,
            facts.layout.start,
            facts.rx_offset,
            facts.layout.end - facts.layout.start,
            64,
            0,
        ],
    );
    if let Some(unwind) = &facts.placement.unwind {
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
    if let Some(analysis) = facts.analysis {
        let start = facts.placement.analysis;
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
    if facts.placement.has_rw() {
        let size = facts.placement.end - facts.placement.rw;
        table.add(
            ".data.analysis",
            &[
                elf::SHT_PROGBITS as u64,
                3,
                facts.placement.rw,
                facts.rw_offset,
                size,
                16,
                0,
            ],
        );
    }
    symbols(facts, &mut table, out, text, analysis_text);

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
        .image
        .sections
        .iter()
        .position(|s| s.kind == elf::SHT_SYMTAB);
    let contents = |i: usize| {
        let header = &table.headers[i];
        let (offset, size) = (field(header, 24) as usize, field(header, 32) as usize);
        facts.image.file.get(offset..offset.saturating_add(size))
    };
    let strings_of = |i: usize| {
        u32::from_le_bytes(table.headers[i][40..44].try_into().expect("four bytes")) as usize
    };
    let (old_symbols, old_names, old_strings): (&[u8], &[u8], _) = match old {
        Some(i) if strings_of(i) < facts.image.sections.len() => {
            let link = strings_of(i);
            (
                contents(i).unwrap_or_default(),
                contents(link).unwrap_or_default(),
                Some(link),
            )
        }
        _ => (&[0; 24], &[0], None),
    };
    let (mut symbols, mut strings) = (Vec::new(), Vec::new());
    let mut add = |name: &str, address: u64, size: u64, section: usize| {
        symbols.extend(((old_names.len() + strings.len()) as u32).to_le_bytes());
        // A global function: local symbols would have to precede all others.
        symbols.push((elf::STB_GLOBAL << 4) | elf::STT_FUNC);
        symbols.push(0);
        symbols.extend((section as u16).to_le_bytes());
        symbols.extend(address.to_le_bytes());
        symbols.extend(size.to_le_bytes());
        strings.extend(name.as_bytes());
        strings.push(0);
    };
    let moved = facts.layout.moved_ranges();
    for range in &moved {
        let proc = facts
            .cfg
            .proc_at(range.old_start)
            .map(|p| facts.cfg.proc(p));
        if let Some(name) = proc.and_then(|p| p.name.as_deref()) {
            add(name, range.new_start, range.new_end - range.new_start, text);
        }
    }
    if let Some(analysis) = facts.analysis {
        for symbol in analysis
            .symbols
            .iter()
            .filter(|s| s.is_function && s.address < analysis.data_start)
        {
            add(
                &symbol.name,
                facts.placement.analysis + symbol.address,
                symbol.size,
                analysis_text,
            );
        }
    }
    if symbols.is_empty() {
        return;
    }
    let symbols_size = (old_symbols.len() + symbols.len()) as u64;
    let symbols_offset = out.append(8, old_symbols);
    out.append(1, symbols);
    let strings_size = (old_names.len() + strings.len()) as u64;
    let strings_offset = out.append(1, old_names);
    out.append(1, strings);
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

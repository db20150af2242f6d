//! Laying out a tool's shared object.
//!
//! ABI, in short: loadable segments have ascending addresses. The dynamic section has the addresses of
//! the tables. Bytes that are writable, or that relocation writes, are data.

use std::collections::HashMap;
use std::path::Path;

use object::elf;
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, Object, ObjectSection, ObjectSymbol, SymbolKind};

use super::image::{AnalysisImage, DOING, Symbol, Tls, Value};
use super::unwind_ranges;
use crate::error::Reason;
use crate::tool::ToolFacts;
use crate::{Error, PAGE, Result, memory};

/// Largest size of an image in bytes: more than any tool needs, so that a broken file cannot make
/// `atom` allocate all memory.
const MAX_SIZE: u64 = 512 << 20;
/// Largest gap between segments in bytes, as linkers leave it for pages of 2 MB.
const MAX_GAPS: u64 = 64 << 20;

/// Values of the dynamic section's entries that are used here, by tag.
pub(super) type Dynamic = HashMap<elf::DynamicTag, u64>;

pub(super) struct Reader<'a> {
    file: &'a Path,
    bytes: &'a [u8],
    pub(super) facts: &'a ToolFacts,
}

impl AnalysisImage {
    /// Reads and prepares the tool in `file`.
    pub fn read(file: &Path, facts: ToolFacts) -> Result<Self> {
        let bytes = memory::Contents::of(file).map_err(|e| Error::new(DOING, e).file(file))?;
        Self::parse(file, &bytes, facts)
    }

    /// Prepares the tool with these bytes of its file. Error messages name `file`.
    pub fn parse(file: &Path, bytes: &[u8], facts: ToolFacts) -> Result<Self> {
        let mut image = Reader::new(file, bytes, &facts).lay_out()?;
        image.facts = facts;
        image.check_facts()?;
        Ok(image)
    }
}

impl<'a> Reader<'a> {
    pub(super) fn new(file: &'a Path, bytes: &'a [u8], facts: &'a ToolFacts) -> Self {
        Self { file, bytes, facts }
    }

    pub(super) fn error(&self, reason: impl Into<Reason>) -> Error {
        Error::new(DOING, reason).file(self.file)
    }

    /// Reads the whole file.
    pub(super) fn lay_out(&self) -> Result<AnalysisImage> {
        let broken = |e: object::Error| self.error(e.to_string());
        let header = elf::FileHeader64::<Endianness>::parse(self.bytes).map_err(broken)?;
        let endian = header.endian().map_err(broken)?;
        if header.e_machine(endian) != elf::EM_X86_64 || header.e_type(endian) != elf::ET_DYN {
            return Err(self
                .error("not a shared object for x86-64")
                .advice("build the tool as a cdylib for x86_64-unknown-linux-gnu"));
        }
        let segments = header.program_headers(endian, self.bytes).map_err(broken)?;
        let mut image = AnalysisImage::empty(self.file);
        let mut dynamic = Dynamic::new();
        let mut data_end = None;
        for ph in segments {
            let (start, size) = (ph.p_vaddr(endian), ph.p_memsz(endian));
            let end = start.checked_add(size).filter(|e| *e <= MAX_SIZE);
            match ph.p_type(endian) {
                elf::PT_LOAD if size > 0 => {
                    let end = end.ok_or_else(|| self.error("a segment is too large"))?;
                    let bytes = ph
                        .data(endian, self.bytes)
                        .map_err(|()| self.error("a segment lies outside the file"))?;
                    let bytes = &bytes[..bytes.len().min(size as usize)];
                    if ph.p_flags(endian).contains(elf::PF_W) {
                        let data_start = start & !(PAGE - 1);
                        let first = *data_end.get_or_insert(data_start);
                        if first == data_start && image.data.is_empty() {
                            image.data_start = data_start;
                        }
                        self.place(&mut image.data, start.checked_sub(image.data_start), bytes)?;
                        data_end = Some(end);
                    } else {
                        if data_end.is_some() {
                            return Err(self
                                .error("a read-only segment follows a writable one")
                                .advice("link the tool without a linker script of its own"));
                        }
                        self.place(&mut image.text, Some(start), bytes)?;
                        if ph.p_flags(endian).contains(elf::PF_X) {
                            image.code.push(start..start + bytes.len() as u64);
                        }
                    }
                }
                elf::PT_TLS if size > 0 => {
                    image.tls = Some(Tls {
                        address: start,
                        file_size: ph.p_filesz(endian).min(size),
                        mem_size: size,
                        align: ph.p_align(endian).max(1),
                    });
                    let align = ph.p_align(endian).max(1);
                    if end.is_none() || !align.is_power_of_two() || align > PAGE {
                        return Err(self.error("the thread-local segment is malformed"));
                    }
                }
                elf::PT_GNU_RELRO => image.constant_slots = start..start.saturating_add(size),
                elf::PT_DYNAMIC => {
                    let entries = ph.dynamic(endian, self.bytes).map_err(broken)?;
                    for d in entries.unwrap_or_default() {
                        if d.d_tag.get(endian) == elf::DT_NULL {
                            break;
                        }
                        dynamic.insert(d.d_tag.get(endian), d.d_val.get(endian));
                    }
                }
                _ => {}
            }
        }
        let text_end = image.text.len() as u64;
        match data_end {
            Some(end) => {
                image.zero_size = end.saturating_sub(image.data_start + image.data.len() as u64)
            }
            None => image.data_start = text_end.next_multiple_of(PAGE),
        }
        if image.data_start < text_end {
            return Err(self
                .error("constants and variables share a page")
                .advice("link the tool with -z separate-code"));
        }
        self.relocate(&mut image, &dynamic)?;
        self.initialisers(&mut image, &dynamic)?;
        self.symbols(&mut image);
        image.functions = unwind_ranges::functions(self.bytes, &image.symbols, &image.code);
        Ok(image)
    }

    /// Puts a segment's bytes at the offset `at` of a part, with zeros before them.
    fn place(&self, part: &mut Vec<u8>, at: Option<u64>, bytes: &[u8]) -> Result<()> {
        match at.map(|a| a as usize) {
            Some(at) if at >= part.len() && (at - part.len()) as u64 <= MAX_GAPS => {
                part.resize(at, 0);
                part.extend_from_slice(bytes);
                Ok(())
            }
            _ => Err(self.error("segments overlap, do not ascend, or are far apart")),
        }
    }

    fn initialisers(&self, image: &mut AnalysisImage, dynamic: &Dynamic) -> Result<()> {
        let get = |tag: elf::DynamicTag| dynamic.get(&tag).copied().unwrap_or(0);
        image.init_array = get(elf::DT_INIT_ARRAY);
        for i in 0..get(elf::DT_INIT_ARRAYSZ) / 8 {
            let slot = image.init_array.wrapping_add(i * 8);
            match image.slots.get(&slot) {
                Some(Value::Relative(f)) if image.is_code(*f) => image.init_functions.push(*f),
                _ => {
                    return Err(self
                        .error("an initialiser is not a function of the tool")
                        .address(slot));
                }
            }
        }
        Ok(())
    }

    /// Symbols by address. Symbols serve messages and tables only, so a broken symbol table counts as
    /// empty. The same holds for unwind tables.
    fn symbols(&self, image: &mut AnalysisImage) {
        let Ok(file) = object::File::parse(self.bytes) else {
            return;
        };
        let convert = |s: object::Symbol<'_, '_>| {
            let is_function = s.kind() == SymbolKind::Text;
            let keep = s.is_definition() && (is_function || s.kind() == SymbolKind::Data);
            let name = s.name().ok().filter(|n| keep && !n.is_empty())?;
            Some(Symbol {
                name: name.into(),
                address: s.address(),
                size: s.size(),
                is_function,
            })
        };
        if let Some(section) = file.section_by_name(".eh_frame") {
            let end = section.address().saturating_add(section.size());
            if end <= image.text.len() as u64 {
                image.eh_frame = section.address()..end;
            }
        }
        image.symbols = file.symbols().filter_map(convert).collect();
        if image.symbols.is_empty() {
            image.symbols = file.dynamic_symbols().filter_map(convert).collect();
        }
        image
            .symbols
            .retain(|s| s.address.checked_add(s.size).is_some());
        image
            .symbols
            .sort_by(|a, b| (a.address, &a.name).cmp(&(b.address, &b.name)));
    }
}

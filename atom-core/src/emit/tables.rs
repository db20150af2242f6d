//! Section headers and symbols in the making.

use object::elf::{self, SectionFlags, SectionType};

use crate::analysis::{AnalysisImage, Symbol};

use super::debug::DebugSection;
use super::output::Output;

/// Size in bytes of a section header.
const HEADER: usize = 64;
/// Size in bytes of a symbol.
pub(super) const SYMBOL: usize = 24;

/// Offsets of fields in the ELF header.
const E_SHOFF: usize = 40;
const E_SHNUM: usize = 60;
const E_SHSTRNDX: usize = 62;

/// Offsets of fields in a section header.
pub(super) const SH_TYPE: usize = 4;
pub(super) const SH_FLAGS: usize = 8;
pub(super) const SH_ADDR: usize = 16;
const SH_OFFSET: usize = 24;
const SH_SIZE: usize = 32;
const SH_LINK: usize = 40;
const SH_INFO: usize = 44;

/// Flags of sections that are loaded.
pub(super) const LOADED: SectionFlags = elf::SHF_ALLOC;
pub(super) const LOADED_CODE: SectionFlags = SectionFlags(LOADED.0 | elf::SHF_EXECINSTR.0);
pub(super) const LOADED_DATA: SectionFlags = SectionFlags(LOADED.0 | elf::SHF_WRITE.0);

/// A symbol table in the making: a file's symbols, if it had any, and new ones behind them.
pub(super) struct Symbols {
    /// Symbols as they will stand in the file.
    pub bytes: Vec<u8>,
    /// Their names.
    pub strings: Vec<u8>,
    /// Indexes of the sections of symbols and of their names, if the file had them.
    pub sections: Option<(usize, usize)>,
}

impl Symbols {
    /// A table with nothing but its null symbol.
    pub fn new() -> Self {
        Self {
            bytes: vec![0; SYMBOL],
            strings: vec![0],
            sections: None,
        }
    }

    /// Adds a function.
    pub fn add(&mut self, name: &str, address: u64, size: u64, section: usize) {
        self.bytes.extend((self.strings.len() as u32).to_le_bytes());
        // A global function: local symbols would have to precede all others.
        self.bytes.push((elf::STB_GLOBAL | elf::STT_FUNC).0);
        self.bytes.push(0);
        self.bytes.extend((section as u16).to_le_bytes());
        self.bytes.extend(address.to_le_bytes());
        self.bytes.extend(size.to_le_bytes());
        self.strings.extend(name.as_bytes());
        self.strings.push(0);
    }

    /// Adds the tool's functions. `base` is the address at which the tool's address 0 lies, `section` the
    /// index of the section of its code.
    pub fn add_analysis(&mut self, analysis: &AnalysisImage, base: u64, section: usize) {
        let is_code = |symbol: &&Symbol| symbol.is_function && symbol.address < analysis.data_start;
        for symbol in analysis.symbols.iter().filter(is_code) {
            self.add(&symbol.name, base + symbol.address, symbol.size, section);
        }
    }

    /// Appends the tables, and points the sections to them.
    pub fn append(self, table: &mut Table, out: &mut Output<'_>) {
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

/// The number of 8 bytes at an offset of a header or symbol.
pub(super) fn field(header: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes"))
}

/// A section to be added.
pub(super) struct NewSection<'n> {
    /// Its name.
    pub name: &'n str,
    /// Its type (`sh_type`).
    pub kind: SectionType,
    /// Its flags (`sh_flags`).
    pub flags: SectionFlags,
    /// Its address; 0 if it is not loaded.
    pub address: u64,
    /// File offset of its contents.
    pub offset: u64,
    /// Its size in bytes.
    pub size: u64,
    /// The alignment of its address in bytes.
    pub align: u64,
    /// The size in bytes of an entry, if it has entries of one size.
    pub entry_size: u64,
}

impl Default for NewSection<'_> {
    fn default() -> Self {
        Self {
            name: "",
            kind: elf::SHT_PROGBITS,
            flags: SectionFlags(0),
            address: 0,
            offset: 0,
            size: 0,
            align: 16,
            entry_size: 0,
        }
    }
}

/// The section header table in the making.
pub(super) struct Table {
    /// The headers.
    pub headers: Vec<Vec<u8>>,
    /// Contents of the section of section names.
    names: Vec<u8>,
    /// Index of that section.
    names_index: usize,
}

impl Table {
    /// A table of a file that has no sections yet: the null section, and the section of names.
    pub fn new() -> Self {
        let mut table = Self {
            headers: vec![vec![0; HEADER]],
            names: vec![0],
            names_index: 1,
        };
        table.add(&NewSection {
            name: ".shstrtab",
            kind: elf::SHT_STRTAB,
            align: 1,
            ..NewSection::default()
        });
        table
    }

    /// Adds debug sections, and appends their contents.
    pub fn add_debug<'a>(&mut self, sections: &'a [DebugSection], out: &mut Output<'a>) {
        for section in sections {
            let offset = out.append(8, &section.bytes[..]);
            self.add(&NewSection {
                name: section.name,
                offset,
                size: section.bytes.len() as u64,
                align: 1,
                ..NewSection::default()
            });
        }
    }

    /// Appends the names and the headers, and enters them into the ELF header.
    pub fn append(mut self, out: &mut Output<'_>) {
        let names = std::mem::take(&mut self.names);
        let size = names.len() as u64;
        let offset = out.append(1, names);
        self.place(self.names_index, offset, size);
        let offset = out.append(8, self.headers.concat());
        out.change(E_SHOFF as u64, &offset.to_le_bytes());
        let words = [self.headers.len() as u16, self.names_index as u16];
        for (at, word) in [E_SHNUM, E_SHSTRNDX].into_iter().zip(words) {
            out.change(at as u64, &word.to_le_bytes());
        }
    }

    /// The original's table; `None` if it has none with names.
    pub fn of(file: &[u8]) -> Option<Self> {
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
    pub fn range(&self, index: usize) -> (usize, usize) {
        let header = &self.headers[index];
        (
            field(header, SH_OFFSET) as usize,
            field(header, SH_SIZE) as usize,
        )
    }

    /// Index of the section that a section refers to.
    pub fn link(&self, index: usize) -> usize {
        let bytes = &self.headers[index][SH_LINK..SH_LINK + 4];
        u32::from_le_bytes(bytes.try_into().expect("four bytes")) as usize
    }

    /// Sets where a section's contents are in the output.
    pub fn place(&mut self, index: usize, offset: u64, size: u64) {
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

    pub fn rename(&mut self, index: usize, name: &str) {
        let at = self.name(name);
        if let Some(header) = self.headers.get_mut(index) {
            header[..4].copy_from_slice(&at.to_le_bytes());
        }
    }

    /// Adds a section, and yields its index.
    pub fn add(&mut self, section: &NewSection<'_>) -> usize {
        let mut header = Vec::with_capacity(HEADER);
        header.extend(self.name(section.name).to_le_bytes());
        header.extend(section.kind.0.to_le_bytes());
        for field in [
            section.flags.0,
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

//! Section headers in the making.

use object::elf::{self, SectionFlags, SectionType};

use super::debug::DebugSection;
use super::output::Output;

/// Size in bytes of a section header.
const HEADER: usize = 64;

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
pub(super) const SH_LINK: usize = 40;
pub(super) const SH_INFO: usize = 44;

/// Flags of sections that are loaded.
pub(super) const LOADED: SectionFlags = elf::SHF_ALLOC;
pub(super) const LOADED_CODE: SectionFlags = SectionFlags(LOADED.0 | elf::SHF_EXECINSTR.0);
pub(super) const LOADED_DATA: SectionFlags = SectionFlags(LOADED.0 | elf::SHF_WRITE.0);

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
    pub names_index: usize,
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

    /// Index of the section of a symbol table's strings if that has no other use.
    pub fn own_strings(&self, symbols: usize) -> Option<usize> {
        let strings = self.link(symbols);
        let header = self.headers.get(strings)?;
        let is_loaded = SectionFlags(field(header, SH_FLAGS)).contains(LOADED);
        let has_type = header[SH_TYPE..SH_TYPE + 4] == elf::SHT_STRTAB.0.to_le_bytes();
        let is_shared = (0..self.headers.len()).any(|i| i != symbols && self.link(i) == strings);
        let is_own = has_type && !is_loaded && !is_shared && strings != self.names_index;
        is_own.then_some(strings)
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

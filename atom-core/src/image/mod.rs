//! The program as it is in its file: segments, sections, symbols, relocations.
//!
//! Everything is validated once, here; later stages may index freely.

pub mod debug;
pub(crate) mod debug_section;
mod decoder;
pub mod imports;
mod inlined;
mod kind;
pub mod labels;
mod lines;
mod open;
mod origin;
pub mod separate;
mod symtab;
pub mod variables;
pub mod versions;

pub use decoder::{ImageDecoder, decoded};

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use memmap2::UncheckedAdvice;
use object::elf::{
    self, DynamicTag, ProgramFlags, ProgramType, RelocationType, SectionFlags, SectionType,
};

use imports::CodeParameters;

pub use kind::{Interpreter, LoaderFamily, ObjectKind};
pub use lines::{LineInfo, LineSource, SourceFrame, SourceRow};
pub use open::MONO;
pub use origin::Strings;

/// A loaded segment (`PT_LOAD`).
#[derive(Clone, Debug)]
pub struct Segment {
    /// First virtual address.
    pub address: u64,
    /// Size in memory.
    pub mem_size: u64,
    /// Offset in the file.
    pub offset: u64,
    /// Size in the file.
    pub file_size: u64,
    /// `PF_R | PF_W | PF_X`.
    pub flags: ProgramFlags,
}

impl Segment {
    /// True if the kernel maps the segment executable.
    pub fn is_executable(&self) -> bool {
        self.flags.contains(elf::PF_X)
    }

    /// True if the kernel maps the segment writable.
    pub fn is_writable(&self) -> bool {
        self.flags.contains(elf::PF_W)
    }
}

/// A program header as it is in the file.
#[derive(Clone, Copy, Debug)]
pub struct ProgramHeader {
    /// `PT_*`.
    pub kind: ProgramType,
    /// `PF_*`.
    pub flags: ProgramFlags,
    /// Offset in the file.
    pub offset: u64,
    /// Virtual address.
    pub address: u64,
    /// Size in the file.
    pub file_size: u64,
    /// Size in memory.
    pub mem_size: u64,
    /// Alignment.
    pub align: u64,
}

/// A section header, for names and bounds; programs may have none.
#[derive(Clone, Debug)]
pub struct Section {
    /// Name.
    pub name: String,
    /// `sh_type`.
    pub kind: SectionType,
    /// `sh_flags`.
    pub flags: SectionFlags,
    /// Virtual address, 0 if it is not loaded.
    pub address: u64,
    /// Offset in the file.
    pub offset: u64,
    /// Size in bytes.
    pub size: u64,
}

impl Section {
    /// True if the section is in memory while the program runs.
    pub fn is_loaded(&self) -> bool {
        self.flags.contains(elf::SHF_ALLOC)
    }

    /// True if the section has instructions.
    pub fn has_code(&self) -> bool {
        self.flags.contains(elf::SHF_EXECINSTR)
    }
}

/// A symbol of `.symtab` or `.dynsym`.
#[derive(Clone, Debug)]
pub struct Symbol {
    /// Name as it is in the table.
    pub name: String,
    /// Virtual address; 0 for an import.
    pub address: u64,
    /// Size in bytes, 0 if not stated.
    pub size: u64,
    /// `STT_FUNC` or `STT_GNU_IFUNC`.
    pub is_func: bool,
    /// `STT_GNU_IFUNC`: the address is the resolver's.
    pub is_ifunc: bool,
    /// `STT_OBJECT`.
    pub is_object: bool,
    /// Defined in the dynamic symbol table: visible to other objects.
    pub is_exported: bool,
    /// Not defined here.
    pub is_undefined: bool,
}

/// A dynamic relocation.
#[derive(Clone, Copy, Debug)]
pub struct Reloc {
    /// Virtual address of the slot.
    pub address: u64,
    /// `R_X86_64_*`.
    pub kind: RelocationType,
    /// Index into [`Image::dynamic_symbols`]; 0 means none.
    pub symbol: u32,
    /// The addend.
    pub addend: i64,
}

/// The section of the new text, by which an instrumented program is known.
pub(crate) const NEW_TEXT: &str = ".text.atom";

/// A linked program.
pub struct Image {
    /// Path of the file.
    pub path: PathBuf,
    /// Contents of the file.
    pub file: std::sync::Arc<memmap2::Mmap>,
    /// Kind of the object.
    pub kind: ObjectKind,
    /// True for a shared object that is instrumented alone, without the process that loads it. The runtime is
    /// in it, and starts with its initialisers.
    pub is_lone: bool,
    /// Entry point; a shared object may have none.
    pub entry: Option<u64>,
    /// Lowest virtual address of a loaded segment, rounded down to a page.
    pub base: u64,
    /// One past the highest virtual address of a loaded segment.
    pub end: u64,
    /// Loaded segments by address.
    pub segments: Vec<Segment>,
    /// Sections in file order; empty if there is no section table.
    pub sections: Vec<Section>,
    /// `.symtab`; in a stripped program the symbols of its [separate files](separate), if there are any.
    pub symbols: Vec<Symbol>,
    /// `.dynsym`, index 0 included.
    pub dynamic_symbols: Vec<Symbol>,
    /// All dynamic relocations, those of the PLT included.
    pub relocs: Vec<Reloc>,
    /// Entries of the dynamic section: (tag, value).
    pub dynamic: Vec<(DynamicTag, u64)>,
    /// The strings of the output's dynamic section, if they are other ones: [`Image::expand_origin`].
    pub strings: Option<Strings>,
    /// The program interpreter that the object names (`PT_INTERP`).
    pub interpreter: Option<Interpreter>,
    /// The program header table.
    pub program_headers: Vec<ProgramHeader>,
    /// Offset of the program header table in the file.
    pub program_header_offset: u64,
    code_parameters: OnceLock<CodeParameters>,
}

impl Image {
    /// True for an object in which the runtime is and which the dynamic loader starts: a dynamic program, or a
    /// shared object, that is instrumented alone.
    pub fn is_started_by_loader(&self) -> bool {
        self.kind.is_dynamic_program() || self.is_lone
    }

    /// Address of the ELF header in memory, with the flags of its segment (`PF_R | PF_W | PF_X`); zeros if no
    /// segment holds it.
    pub fn header_in_memory(&self) -> (u64, ProgramFlags) {
        let size = size_of::<object::elf::FileHeader64<object::LittleEndian>>() as u64;
        let holds = |s: &&Segment| s.offset == 0 && s.file_size >= size;
        let segment = self.segments.iter().find(holds);
        segment.map_or((0, ProgramFlags(0)), |s| (s.address, s.flags))
    }

    /// `len` bytes at a virtual address, as they are in the file.
    pub fn bytes_at(&self, address: u64, len: usize) -> Option<&[u8]> {
        self.rest_at(address)?.get(..len)
    }

    /// Gives back the memory that the mapped file takes. Pages that are read again come from the
    /// system's page cache.
    pub fn release_pages(&self) {
        // SAFETY: the mapping is of a file and read-only, so dropping its pages
        // loses nothing: they are read again when they are touched.
        let advised = unsafe { self.file.unchecked_advise(UncheckedAdvice::DontNeed) };
        // If the system does not take the advice, no harm is done.
        advised.unwrap_or_default();
    }

    /// The bytes from a virtual address to the end of its segment's file contents.
    pub fn rest_at(&self, address: u64) -> Option<&[u8]> {
        let i = self
            .segments
            .partition_point(|s| s.address <= address)
            .checked_sub(1)?;
        let segment = &self.segments[i];
        let skip = address - segment.address;
        if skip >= segment.file_size {
            return None;
        }
        let start = (segment.offset + skip) as usize;
        let end = (segment.offset + segment.file_size) as usize;
        self.file.get(start..end)
    }

    /// True if these bytes are, in the file, part of the ELF header or of the program
    /// headers; very small programs have code there.
    pub fn is_header(&self, address: u64, len: u64) -> bool {
        const ELF_HEADER: u64 = 64;
        const PROGRAM_HEADER: u64 = 56;
        let table = self.program_header_offset;
        let table = table..table + PROGRAM_HEADER * self.program_headers.len() as u64;
        self.segments.iter().any(|s| {
            let skip = address.wrapping_sub(s.address);
            let start = s.offset.wrapping_add(skip);
            let touches = |r: &std::ops::Range<u64>| start < r.end && r.start < start + len;
            skip < s.file_size && (touches(&(0..ELF_HEADER)) || touches(&table))
        })
    }

    /// The executable segment whose file contents have the address.
    fn code_segment(&self, address: u64) -> Option<&Segment> {
        // This test rejects most numbers in data.
        if !(self.base..self.end).contains(&address) {
            return None;
        }
        let i = self.segments.partition_point(|s| s.address <= address);
        let segment = &self.segments[i.checked_sub(1)?];
        let is_there = segment.is_executable() && address - segment.address < segment.file_size;
        is_there.then_some(segment)
    }

    /// True if the address is in an executable segment's file contents.
    pub fn is_code(&self, address: u64) -> bool {
        self.code_segment(address).is_some()
    }

    /// True if an address is in code that the program can change without a system call.
    pub fn is_writable_code(&self, address: u64) -> bool {
        self.code_segment(address).is_some_and(Segment::is_writable)
    }

    /// Registers in which imported functions get addresses of functions.
    pub fn code_parameters(&self) -> &CodeParameters {
        self.code_parameters
            .get_or_init(|| CodeParameters::new(self))
    }

    /// The section that contains an address.
    pub fn section_at(&self, address: u64) -> Option<&Section> {
        self.sections
            .iter()
            .find(|s| s.is_loaded() && address >= s.address && address - s.address < s.size)
    }

    /// The section with a name.
    pub fn section(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|s| s.name == name)
    }

    /// Value of a dynamic tag (`DT_*`).
    pub fn dynamic_value(&self, tag: DynamicTag) -> Option<u64> {
        self.dynamic.iter().find(|d| d.0 == tag).map(|d| d.1)
    }

    /// True for a program that the Go tool chain linked. Go's runtime walks the stack by its own
    /// tables of return addresses.
    pub fn is_go(&self) -> bool {
        let names = [".gopclntab", ".go.buildinfo", ".note.go.buildid"];
        let has_name = |s: &Section| names.iter().any(|n| s.name.ends_with(n));
        self.sections.iter().any(has_name)
            || self.sections.is_empty() && self.go_build_info().is_some()
    }

    /// True for a compiled image of Mono. Mono finds methods by the addresses of their code, and
    /// changes the code's calls.
    pub fn is_mono(&self) -> bool {
        let is_info = |s: &Symbol| s.name == "mono_aot_file_info" && !s.is_undefined;
        self.dynamic_symbols.iter().any(is_info)
    }

    /// The build information of a program that the Go tool chain linked. It has a section of its own; without
    /// section headers its magic tells where it is.
    pub fn go_build_info(&self) -> Option<&[u8]> {
        const MAGIC: &[u8] = b"\xff Go buildinf:";
        const ALIGNMENT: usize = 16;
        if let Some(section) = self.section(".go.buildinfo") {
            return self.bytes_at(section.address, section.size as usize);
        }
        let writable = self.segments.iter().filter(|s| s.is_writable());
        writable.filter(|_| self.sections.is_empty()).find_map(|s| {
            let bytes = self.rest_at(s.address)?;
            let mut places = (0..bytes.len()).step_by(ALIGNMENT);
            let at = places.find(|at| bytes[*at..].starts_with(MAGIC))?;
            Some(&bytes[at..])
        })
    }

    /// The file that the program was read from.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

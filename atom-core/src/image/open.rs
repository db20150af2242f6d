//! Reading and validating the ELF file.
//!
//! All numbers by which later stages index are checked here: segment bounds, table bounds, the
//! distance between the lowest and the highest address. A file that fails is refused with the
//! reason. No input makes this module panic.

use std::fs::File;
use std::path::Path;
use std::sync::OnceLock;

use object::elf;
use object::read::elf::{Dyn, FileHeader, ProgramHeader, Rela, SectionHeader, Sym};
use object::{Endianness, LittleEndian};

use super::kind::Marks;
use super::separate;
use super::symtab::{read_symtab, symbol};
use super::{Image, Interpreter, NEW_TEXT, ObjectKind, Reloc, Section, Segment, Symbol};
use crate::PAGE;
use crate::error::{Error, Reason, Result};

const DOING: &str = "reading the program";

/// Largest size of an image in bytes: the gap and the new text must fit into 2 GiB together with
/// it.
const MAX_SPAN: u64 = 512 << 20;

/// Why a compiled image of Mono stays as it is.
pub const MONO: &str = "it is a compiled image of Mono, which looks up the addresses of its code";

type Header = elf::FileHeader64<Endianness>;

impl Image {
    /// Reads the program at `path`, or the shared object that is to be instrumented alone. A program interpreter
    /// is refused, and so is a library that runs before the runtime could start.
    pub fn open(path: &Path) -> Result<Self> {
        let mut image = Self::read(path)?;
        image.is_lone = image.kind == ObjectKind::SharedObject;
        match refusal(&image) {
            None => Ok(image),
            Some(error) => Err(error.file(path)),
        }
    }

    /// Reads an object of any kind.
    pub fn read(path: &Path) -> Result<Self> {
        Self::read_inner(path).map_err(|e| e.file(path))
    }

    fn read_inner(path: &Path) -> Result<Self> {
        let metadata = std::fs::metadata(path).map_err(|e| Error::new(DOING, io_reason(e)))?;
        if metadata.is_dir() {
            return Err(Error::new(DOING, "it is a directory").advice("name the program's file"));
        }
        if !metadata.is_file() {
            return Err(Error::new(DOING, "it is not a regular file"));
        }
        let handle = File::open(path).map_err(|e| Error::new(DOING, io_reason(e)))?;
        if metadata.len() == 0 {
            return Err(not_elf("the file is empty"));
        }
        // SAFETY: the map is private and read-only. If another process truncates
        // the file meanwhile, reads fault; every tool that maps files shares that.
        let file = unsafe { memmap2::Mmap::map(&handle) }
            .map_err(|e| Error::new(DOING, format!("it cannot be mapped: {e}")))?;
        check_identity(&file)?;
        parse(path, std::sync::Arc::new(file))
    }
}

/// Why an object is not instrumented, if its kind is the reason. Everything else about the
/// kind is for [`ObjectKind`] to say.
fn refusal(image: &Image) -> Option<Error> {
    let reason = match (image.kind, image.entry) {
        (ObjectKind::Interpreter, _) => "it is a program interpreter, not a program",
        (ObjectKind::SharedObject, _) => no_lone_library(image)?,
        (_, None) => "it has no entry point",
        (_, Some(_)) => return None,
    };
    let advice = match image.kind {
        ObjectKind::Interpreter => {
            "name the program that it is to load: only then program, interpreter and libraries are instrumented"
        }
        _ => "instrument a program that loads it, with --libs",
    };
    Some(Error::new(DOING, reason).advice(advice))
}

/// Why a shared object cannot be instrumented alone.
fn no_lone_library(image: &Image) -> Option<&'static str> {
    let needs = |name: &str| image.needed().iter().any(|needed| needed.starts_with(name));
    let file = image.path.file_name().unwrap_or_default();
    if image.dynamic.is_empty() {
        Some("it is a shared object without a dynamic section")
    } else if image.is_mono() {
        Some(MONO)
    } else if file.to_string_lossy().starts_with("libc.so") && !needs("libc.so") {
        Some("it is the C library, which runs long before its own initialiser")
    } else if needs("libc.musl") || needs("libc.so") && !needs("libc.so.6") {
        Some("it is a library for musl, whose loader passes nothing to initialisers")
    } else {
        None
    }
}

fn io_reason(error: std::io::Error) -> Reason {
    match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such file".into(),
        std::io::ErrorKind::PermissionDenied => "permission denied".into(),
        _ => error.into(),
    }
}

fn not_elf(reason: &str) -> Error {
    Error::new(DOING, reason).advice("atom instruments linked ELF programs for x86-64 Linux")
}

fn malformed(reason: impl Into<Reason>) -> Error {
    Error::new(DOING, reason).advice("the file seems truncated or damaged; copy or link it again")
}

/// Refuses files that users pass by mistake, each with its own reason.
fn check_identity(data: &[u8]) -> Result<()> {
    if data.starts_with(b"#!") {
        let line = data[2..].split(|b| *b == b'\n').next().unwrap_or_default();
        let interpreter = String::from_utf8_lossy(&line[..line.len().min(100)])
            .trim()
            .to_string();
        return Err(
            not_elf("it is a script, not an ELF program").advice(format!(
                "instrument its interpreter ({interpreter}) and run the script with the result"
            )),
        );
    }
    if !data.starts_with(b"\x7fELF") {
        return Err(not_elf("it is not an ELF file"));
    }
    if data.len() < 64 {
        return Err(malformed("the ELF header is cut off"));
    }
    if data[4] == 1 {
        return Err(not_elf("it is a 32-bit ELF file"));
    }
    if data[4] != 2 || data[5] != 1 {
        return Err(not_elf("it is not a little-endian 64-bit ELF file"));
    }
    let machine = elf::Machine(u16::from_le_bytes([data[18], data[19]]));
    if machine != elf::EM_X86_64 {
        let name = match machine {
            elf::EM_AARCH64 => "Arm (AArch64)".to_string(),
            elf::EM_ARM => "Arm".to_string(),
            elf::EM_RISCV => "RISC-V".to_string(),
            elf::EM_386 => "i386".to_string(),
            other => format!("machine number {other}"),
        };
        return Err(not_elf(&format!("it is built for {name}, not for x86-64")));
    }
    match elf::FileType(u16::from_le_bytes([data[16], data[17]])) {
        elf::ET_EXEC | elf::ET_DYN => Ok(()),
        elf::ET_REL => Err(not_elf("it is an object file that has not been linked")
            .advice("link it to a program first")),
        elf::ET_CORE => Err(not_elf("it is a core file, not a program")),
        other => Err(not_elf(&format!(
            "its ELF type {other} is not that of a program"
        ))),
    }
}

fn parse(path: &Path, map: std::sync::Arc<memmap2::Mmap>) -> Result<Image> {
    let data: &[u8] = &map;
    let header = Header::parse(data).map_err(|e| malformed(e.to_string()))?;
    let endian = header.endian().map_err(|e| malformed(e.to_string()))?;
    let phdrs = header
        .program_headers(endian, data)
        .map_err(|_| malformed("the program header table is cut off"))?;
    if header.e_phoff(endian) < size_of::<Header>() as u64 {
        return Err(
            Error::new(DOING, "its program headers overlap the ELF header")
                .advice("programs that are squeezed like this cannot be written again"),
        );
    }
    let is_dyn = header.e_type(endian) == elf::ET_DYN;
    let entry = Some(header.e_entry(endian)).filter(|entry| *entry != 0);

    let segments = read_segments(phdrs, endian, data.len() as u64)?;
    let base = segments[0].address & !(PAGE - 1);
    let end = segments.last().map_or(0, |s| s.address + s.mem_size);
    if end - base > MAX_SPAN {
        let sections = header.sections(endian, data);
        let ours = |s: &object::read::elf::SectionTable<'_, _>| {
            s.section_by_name(endian, NEW_TEXT.as_bytes()).is_some()
        };
        return Err(if sections.is_ok_and(|s| ours(&s)) {
            Error::new(DOING, "it is instrumented already")
                .advice("instrument the original; a tool can do several things at once")
        } else {
            Error::new(DOING, format!("its image spans {} MB", (end - base) >> 20))
                .advice("programs of more than 512 MB are not supported yet")
        });
    }

    let interpreter = phdrs
        .iter()
        .find(|p| p.p_type(endian) == elf::PT_INTERP)
        .and_then(|p| p.data(endian, data).ok())
        .map(|b| {
            let path = String::from_utf8_lossy(b);
            Interpreter::new(path.trim_end_matches('\0').to_string())
        });

    let sections = read_sections(header, endian, data)?;
    let mut image = Image {
        path: path.to_path_buf(),
        // Decided below, when the tables have been read.
        kind: ObjectKind::SharedObject,
        is_lone: false,
        entry,
        base,
        end,
        segments,
        sections,
        symbols: Vec::new(),
        dynamic_symbols: Vec::new(),
        relocs: Vec::new(),
        dynamic: Vec::new(),
        interpreter,
        program_headers: phdrs
            .iter()
            .map(|p| super::ProgramHeader {
                kind: p.p_type(endian),
                flags: p.p_flags(endian),
                offset: p.p_offset(endian),
                address: p.p_vaddr(endian),
                file_size: p.p_filesz(endian),
                mem_size: p.p_memsz(endian),
                align: p.p_align(endian),
            })
            .collect(),
        strings: None,
        program_header_offset: header.e_phoff(endian),
        file: map.clone(),
        code_parameters: OnceLock::new(),
    };
    image.dynamic = read_dynamic(&image);
    image.symbols = read_symtab(&image.file);
    if image.symbols.is_empty() {
        image.symbols = separate::symbols(&image);
    }
    image.dynamic_symbols = read_dynsym(&image);
    image.relocs = read_relocs(&image)?;
    image.kind = Marks::of(&image, is_dyn).kind();

    if let Some(entry) = entry
        && !image.is_code(entry)
        && image.kind.is_program()
    {
        return Err(malformed("the entry point is outside the executable segments").address(entry));
    }
    Ok(image)
}

fn read_segments(
    phdrs: &[elf::ProgramHeader64<Endianness>],
    endian: Endianness,
    file_len: u64,
) -> Result<Vec<Segment>> {
    let mut segments = Vec::new();
    for p in phdrs.iter().filter(|p| p.p_type(endian) == elf::PT_LOAD) {
        let segment = Segment {
            address: p.p_vaddr(endian),
            mem_size: p.p_memsz(endian),
            offset: p.p_offset(endian),
            file_size: p.p_filesz(endian),
            flags: p.p_flags(endian),
        };
        // The kernel refuses a segment with more contents than memory, even if the memory is empty.
        if segment.mem_size == 0 && segment.file_size == 0 {
            continue;
        }
        let in_file = segment
            .offset
            .checked_add(segment.file_size)
            .is_some_and(|e| e <= file_len);
        if !in_file {
            return Err(
                malformed("a segment reaches past the end of the file").address(segment.address)
            );
        }
        let in_space = segment
            .address
            .checked_add(segment.mem_size)
            .is_some_and(|e| e < 1 << 47);
        if segment.file_size > segment.mem_size || !in_space {
            return Err(malformed("a segment has impossible bounds").address(segment.address));
        }
        segments.push(segment);
    }
    segments.sort_by_key(|s| s.address);
    if segments
        .windows(2)
        .any(|w| w[0].address + w[0].mem_size > w[1].address)
    {
        return Err(malformed("its segments overlap"));
    }
    if !segments.iter().any(Segment::is_executable) {
        return Err(malformed("it has no executable segment"));
    }
    Ok(segments)
}

fn read_sections(header: &Header, endian: Endianness, data: &[u8]) -> Result<Vec<Section>> {
    let table = header
        .sections(endian, data)
        .map_err(|_| malformed("the section header table is cut off"))?;
    Ok(table
        .iter()
        .map(|s| Section {
            name: table
                .section_name(endian, s)
                .map(|n| String::from_utf8_lossy(n).into_owned())
                .unwrap_or_default(),
            kind: s.sh_type(endian),
            flags: s.sh_flags(endian),
            address: s.sh_addr(endian),
            offset: s.sh_offset(endian),
            size: s.sh_size(endian),
        })
        .collect())
}

fn read_dynamic(image: &Image) -> Vec<(elf::DynamicTag, u64)> {
    let Some(p) = image
        .program_headers
        .iter()
        .find(|p| p.kind == elf::PT_DYNAMIC)
    else {
        return Vec::new();
    };
    let Some(bytes) = image.rest_at(p.address) else {
        return Vec::new();
    };
    let bytes = &bytes[..bytes.len().min(p.file_size as usize)];
    let mut entries = Vec::new();
    for chunk in bytes.chunks_exact(16) {
        let (entry, _) = object::pod::from_bytes::<elf::Dyn64<LittleEndian>>(chunk)
            .expect("a chunk is as large as an entry");
        let tag = entry.d_tag(LittleEndian);
        if tag == elf::DT_NULL {
            break;
        }
        entries.push((tag, entry.d_val(LittleEndian)));
    }
    entries
}

/// `.dynsym`, found by the dynamic section, which stripped programs keep too.
fn read_dynsym(image: &Image) -> Vec<Symbol> {
    let (Some(symtab), Some(strtab)) = (
        image.dynamic_value(elf::DT_SYMTAB),
        image.dynamic_value(elf::DT_STRTAB),
    ) else {
        return Vec::new();
    };
    let strsz = image.dynamic_value(elf::DT_STRSZ).unwrap_or(0) as usize;
    let Some(strings) = image.rest_at(strtab) else {
        return Vec::new();
    };
    let strings = &strings[..strings.len().min(strsz)];
    let by_section = image
        .sections
        .iter()
        .find(|s| s.kind == elf::SHT_DYNSYM && s.address == symtab);
    let bytes = match by_section {
        Some(section) => image.bytes_at(symtab, section.size as usize),
        // Linkers place the string table right after the symbols.
        None if strtab > symtab => image.bytes_at(symtab, (strtab - symtab) as usize),
        None => None,
    };
    let endian = Endianness::Little;
    bytes
        .unwrap_or_default()
        .chunks_exact(24)
        .map(|chunk| {
            let (s, _) = object::pod::from_bytes::<elf::Sym64<Endianness>>(chunk)
                .expect("a chunk is as large as a symbol");
            let start = (s.st_name(endian) as usize).min(strings.len());
            let name = strings[start..]
                .split(|b| *b == 0)
                .next()
                .unwrap_or_default();
            symbol(endian, s, name, true)
        })
        .collect()
}

fn read_relocs(image: &Image) -> Result<Vec<Reloc>> {
    let mut relocs = Vec::new();
    let mut table = |address: u64, size: u64| {
        if size == 0 {
            return Ok(());
        }
        let bytes = image.bytes_at(address, size as usize).ok_or_else(|| {
            malformed("a relocation table lies outside the file").address(address)
        })?;
        relocs.extend(bytes.chunks_exact(24).map(|chunk| {
            let (r, _) = object::pod::from_bytes::<elf::Rela64<LittleEndian>>(chunk)
                .expect("a chunk is as large as a relocation");
            Reloc {
                address: r.r_offset(LittleEndian),
                kind: r.r_type(LittleEndian, false),
                symbol: r.r_sym(LittleEndian, false),
                addend: r.r_addend(LittleEndian),
            }
        }));
        Ok::<(), Error>(())
    };
    if image.dynamic.is_empty() {
        // A static program: its start-up code applies these (IRELATIVE only).
        for section in image
            .sections
            .iter()
            .filter(|s| s.kind == elf::SHT_RELA && s.is_loaded())
        {
            table(section.address, section.size)?;
        }
        return Ok(relocs);
    }
    if let (Some(address), Some(size)) = (
        image.dynamic_value(elf::DT_RELA),
        image.dynamic_value(elf::DT_RELASZ),
    ) {
        table(address, size)?;
    }
    if let (Some(address), Some(size)) = (
        image.dynamic_value(elf::DT_JMPREL),
        image.dynamic_value(elf::DT_PLTRELSZ),
    ) {
        table(address, size)?;
    }
    if let (Some(address), Some(size)) = (
        image.dynamic_value(elf::DT_RELR),
        image.dynamic_value(elf::DT_RELRSZ),
    ) {
        // mold states an empty table at address 0.
        if size != 0 {
            let bytes = image
                .bytes_at(address, size as usize)
                .ok_or_else(|| malformed("DT_RELR lies outside the file").address(address))?;
            read_relr(image, bytes, &mut relocs);
        }
    }
    Ok(relocs)
}

/// DT_RELR: an even word is an address; an odd one is a bitmap of the 63
/// words that follow the last address.
fn read_relr(image: &Image, bytes: &[u8], relocs: &mut Vec<Reloc>) {
    let mut next = 0u64;
    let mut push = |address: u64| {
        let addend = image.bytes_at(address, 8).map_or(0, |b| {
            i64::from_le_bytes(b.try_into().expect("eight bytes"))
        });
        relocs.push(Reloc {
            address,
            kind: elf::R_X86_64_RELATIVE,
            symbol: 0,
            addend,
        });
    };
    for chunk in bytes.chunks_exact(8) {
        let word = u64::from_le_bytes(chunk.try_into().expect("eight bytes"));
        if word & 1 == 0 {
            push(word);
            next = word.wrapping_add(8);
        } else {
            for bit in 1..64 {
                if word >> bit & 1 != 0 {
                    push(next.wrapping_add((bit - 1) * 8));
                }
            }
            next = next.wrapping_add(63 * 8);
        }
    }
}

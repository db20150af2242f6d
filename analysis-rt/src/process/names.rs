//! Names of code for messages about a process that ends: the symbols and the frame descriptions of the files that are mapped.
//!
//! The files are found by `/proc/self/maps` and are mapped again as a whole, since symbols are not loaded. Nothing is given back.

use core::mem::offset_of;
use core::ptr::with_exposed_provenance as pointer;

use libc::Elf64_Ehdr;

use crate::process::frames::Description;
use crate::process::maps::{Line, Maps};
use crate::sys::call::{is_error, syscall};
use crate::sys::memory;
use crate::sys::sandbox;

/// Largest number of files.
const MOST_FILES: usize = 32;
/// Largest length of a path in bytes, with its null.
const MOST_PATH: usize = 4096;

/// Sizes in bytes of headers and of symbols.
const PROGRAM_HEADER: usize = size_of::<libc::Elf64_Phdr>();
const SECTION_HEADER: usize = size_of::<libc::Elf64_Shdr>();
const SYMBOL: usize = size_of::<libc::Elf64_Sym>();

// Types of sections and symbols, which `libc` does not name.
const SHT_SYMTAB: u32 = 2;
const SHT_DYNSYM: u32 = 11;
const STT_FUNC: u8 = 2;
const STT_GNU_IFUNC: u8 = 10;

/// What the symbol of a pad's procedure has in front of its name.
const ORIGINAL: &[u8] = b"original.";

/// The files that are mapped.
#[derive(Clone, Copy)]
pub(crate) struct Names {
    maps: Maps,
    files: [Option<File>; MOST_FILES],
}

/// A file whose code is mapped.
#[derive(Clone, Copy)]
pub(crate) struct File {
    bytes: &'static [u8],
    /// The path, as the kernel tells it.
    pub path: &'static [u8],
    /// Run-time address minus address in the file.
    pub bias: u64,
}

/// A function, and the distance of an address from its start.
pub(crate) type Named = (&'static [u8], u64);

impl Names {
    /// Asks the kernel what is mapped; no names if the process may not ask.
    pub(crate) fn read() -> Self {
        let maps = sandbox::is_allowed(libc::SYS_lseek)
            .then(Maps::read)
            .flatten();
        Self {
            maps: maps.unwrap_or_default(),
            files: [None; MOST_FILES],
        }
    }

    /// The file whose contents are mapped at an address.
    pub(crate) fn file(&mut self, address: u64) -> Option<File> {
        let is_there = |line: &Line| (line.start..line.end).contains(&address);
        let line = self.maps.lines().find(is_there)?;
        let (path, offset) = (line.path, line.offset + (address - line.start));
        if path.is_empty() {
            return None;
        }
        let with_bias = |file: File| {
            let bias = address.wrapping_sub(file.address_of(offset)?);
            Some(File { bias, ..file })
        };
        if let Some(known) = self.files.iter().flatten().find(|f| f.path == path) {
            return with_bias(*known);
        }
        let file = File {
            bytes: map_file(path)?,
            path,
            bias: 0,
        };
        if let Some(free) = self.files.iter_mut().find(|f| f.is_none()) {
            *free = Some(file);
        }
        with_bias(file)
    }
}

fn open(path: &[u8]) -> Option<usize> {
    let mut name = [0u8; MOST_PATH];
    name.get_mut(..path.len() + 1)?[..path.len()].copy_from_slice(path);
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: the kernel reads the path.
    let file = unsafe { syscall!(libc::SYS_openat, libc::AT_FDCWD, name.as_ptr(), flags) };
    (!is_error(file)).then_some(file as usize)
}

fn map_file(path: &[u8]) -> Option<&'static [u8]> {
    let file = open(path)?;
    // SAFETY: asks for the size, and maps it where nothing is.
    unsafe {
        let size = syscall!(libc::SYS_lseek, file, 0, libc::SEEK_END);
        let len = usize::try_from(size).ok()?;
        let (rights, flags) = (libc::PROT_READ, libc::MAP_PRIVATE);
        let at = syscall!(
            libc::SYS_mmap,
            memory::hint(len),
            len,
            rights,
            flags,
            file,
            0
        );
        (len != 0 && !is_error(at)).then(|| core::slice::from_raw_parts(at as *const u8, len))
    }
}

/// A little-endian number of the file.
fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let field = bytes.get(at..at.checked_add(N)?)?;
    Some(field.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b)))
}

impl File {
    /// The entries of a table of the file, whose offset and count the ELF header has.
    fn entries(
        &self,
        offset: usize,
        count: usize,
        size: usize,
    ) -> impl Iterator<Item = &'static [u8]> {
        let bytes = self.bytes;
        let start = number::<8>(bytes, offset).unwrap_or(0) as usize;
        let count = number::<2>(bytes, count).unwrap_or(0) as usize;
        (0..count).map_while(move |i| bytes.get(start.checked_add(i * size)?..)?.get(..size))
    }

    /// The program headers of a type.
    fn program_headers(&self, kind: u32) -> impl Iterator<Item = &'static [u8]> {
        let all = self.entries(
            offset_of!(Elf64_Ehdr, e_phoff),
            offset_of!(Elf64_Ehdr, e_phnum),
            PROGRAM_HEADER,
        );
        all.filter(move |h| number::<4>(h, 0) == Some(kind.into()))
    }

    /// The address in the file of what is at an offset of it.
    fn address_of(&self, offset: u64) -> Option<u64> {
        self.program_headers(libc::PT_LOAD).find_map(|header| {
            let [start, address, size] = [8, 16, 32].map(|at| number::<8>(header, at));
            let page = memory::PAGE as u64;
            let first = start? & !(page - 1);
            let inside = (first..start? + size?.next_multiple_of(page)).contains(&offset);
            inside.then_some(address?.wrapping_add(offset).wrapping_sub(start?))
        })
    }

    /// The function at a run-time address.
    pub(crate) fn function(&self, address: u64) -> Option<Named> {
        let wanted = address.wrapping_sub(self.bias);
        let found = self.in_table(SHT_SYMTAB, wanted);
        let (name, distance) = found.or_else(|| self.in_table(SHT_DYNSYM, wanted))?;
        Some((name.strip_prefix(ORIGINAL).unwrap_or(name), distance))
    }

    fn sections(&self) -> impl Iterator<Item = &'static [u8]> {
        self.entries(
            offset_of!(Elf64_Ehdr, e_shoff),
            offset_of!(Elf64_Ehdr, e_shnum),
            SECTION_HEADER,
        )
    }

    fn in_table(&self, kind: u32, wanted: u64) -> Option<Named> {
        let mut sections = self.sections();
        let section = sections.find(|s| number::<4>(s, 4) == Some(kind.into()))?;
        let contents = |section: &[u8]| {
            let [offset, size] = [24, 32].map(|at| number::<8>(section, at));
            let start = offset? as usize;
            self.bytes.get(start..start.checked_add(size? as usize)?)
        };
        let link = number::<4>(section, 40)? as usize;
        let mut sections = self.sections();
        let names = contents(sections.nth(link)?)?;
        let mut best: Option<(u64, usize)> = None;
        for symbol in contents(section)?.chunks_exact(SYMBOL) {
            let is_function = [STT_FUNC, STT_GNU_IFUNC].contains(&(symbol[4] & 0xf));
            let is_defined = number::<2>(symbol, 6)? != 0;
            let (start, size) = (number::<8>(symbol, 8)?, number::<8>(symbol, 16)?);
            let is_here = wanted.wrapping_sub(start) < size.max(1);
            if is_function && is_defined && is_here && best.is_none_or(|b| b.0 <= start) {
                best = Some((start, number::<4>(symbol, 0)? as usize));
            }
        }
        let (start, name) = best?;
        let name = names.get(name..)?;
        let end = name.iter().position(|b| *b == 0)?;
        Some((&name[..end], wanted - start))
    }

    /// The frame description of the function at a run-time address, by the sorted table in front of the descriptions.
    pub(crate) fn description(&self, address: u64) -> Option<Description> {
        /// What the table begins with: its version, and how numbers are written: the address of the descriptions, the number of
        /// entries, and the entries, as distances from the table.
        const FORM: [u8; 4] = [1, 0x1b, 0x03, 0x3b];
        let header = self.program_headers(libc::PT_GNU_EH_FRAME).next()?;
        let table = number::<8>(header, 16)?.wrapping_add(self.bias);
        // SAFETY: the loader has mapped the table, and so has the kernel.
        let (form, count) = unsafe {
            let words = pointer::<u32>(table as usize);
            (
                words.read_unaligned().to_le_bytes(),
                words.add(2).read_unaligned(),
            )
        };
        if form != FORM {
            return None;
        }
        let entry = |i: usize| {
            let at = pointer::<[i32; 2]>(table as usize + 12).wrapping_add(i);
            // SAFETY: the table has `count` entries.
            let distances = unsafe { at.read_unaligned() };
            distances.map(|d| table.wrapping_add_signed(d.into()))
        };
        let (mut low, mut high) = (0, count as usize);
        while low < high {
            let middle = (low + high) / 2;
            if entry(middle)[0] <= address {
                low = middle + 1
            } else {
                high = middle
            }
        }
        Description::at(entry(low.checked_sub(1)?)[1], address)
    }
}

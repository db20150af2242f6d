//! Symbols as the file has them.

use object::read::elf::{FileHeader, Sym};
use object::{Endianness, elf};

use super::Symbol;

/// A symbol of `.symtab` or `.dynsym`.
pub(super) fn symbol(
    endian: Endianness,
    s: &elf::Sym64<Endianness>,
    name: &[u8],
    exported: bool,
) -> Symbol {
    let undefined = s.st_shndx(endian) == elf::SHN_UNDEF;
    Symbol {
        name: String::from_utf8_lossy(name).into_owned(),
        address: s.st_value(endian),
        size: s.st_size(endian),
        is_func: matches!(s.st_type(), elf::STT_FUNC | elf::STT_GNU_IFUNC),
        is_ifunc: s.st_type() == elf::STT_GNU_IFUNC,
        is_object: matches!(s.st_type(), elf::STT_OBJECT | elf::STT_TLS),
        is_exported: exported && !undefined,
        is_undefined: undefined,
    }
}

/// The symbols of `.symtab`; none if `data` is no ELF file or has no such table.
pub(super) fn read_symtab(data: &[u8]) -> Vec<Symbol> {
    let read = || {
        let header = elf::FileHeader64::<Endianness>::parse(data).ok()?;
        let endian = header.endian().ok()?;
        let sections = header.sections(endian, data).ok()?;
        let table = sections.symbols(endian, data, elf::SHT_SYMTAB).ok()?;
        let strings = table.strings();
        let name = |s: &elf::Sym64<Endianness>| s.name(endian, strings).unwrap_or_default();
        let symbols = table.iter().map(|s| symbol(endian, s, name(s), false));
        Some(symbols.collect())
    };
    read().unwrap_or_default()
}

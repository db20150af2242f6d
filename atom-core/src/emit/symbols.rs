//! Symbol tables in the making.

use object::elf;
use rustc_hash::FxHashMap;

use crate::analysis::{AnalysisImage, Symbol};

use super::output::Output;
use super::tables::{NewSection, SH_INFO, SH_LINK, Table, field};

/// Size in bytes of a symbol.
pub(super) const SYMBOL: usize = 24;

/// What is in front of the name of the original's function if that has moved.
const ORIGINAL: &[u8] = b"original.";

/// What is after the name of a function's light version.
const LIGHT: &[u8] = b".light";

/// A symbol table: a file's symbols, if it had any, and new ones after them.
pub(super) struct Symbols<'n> {
    /// Symbols as they will be in the file.
    bytes: Vec<u8>,
    /// Their names.
    names: Names<'n>,
    /// Index of the section of the file's symbols, if it had any.
    section: Option<usize>,
}

/// The names of symbols, as a string table. Equal names share their bytes.
#[derive(Default)]
struct Names<'n> {
    bytes: Vec<u8>,
    /// Offset of each name.
    known: FxHashMap<&'n [u8], u32>,
}

impl<'n> Names<'n> {
    /// Offset of a name.
    fn of(&mut self, name: &'n [u8]) -> u32 {
        let bytes = &mut self.bytes;
        *self.known.entry(name).or_insert_with(|| {
            let at = bytes.len() as u32;
            bytes.extend(name);
            bytes.push(0);
            at
        })
    }

    /// Offset of a name with [`ORIGINAL`] in front. The name itself has the same bytes.
    fn of_original(&mut self, name: &'n [u8]) -> u32 {
        let at = self.bytes.len() as u32;
        self.bytes.extend(ORIGINAL);
        self.known.insert(name, self.bytes.len() as u32);
        self.bytes.extend(name);
        self.bytes.push(0);
        at
    }
}

impl<'n> Symbols<'n> {
    /// A table with nothing but its null symbol.
    pub fn new() -> Self {
        Self::of(&[0; SYMBOL], &[], None, |_| false)
    }

    /// The table in section number `section` of a file. The functions at addresses for which `has_moved` is true get
    /// `original.` in front of their names: at their addresses are pads, and a breakpoint by name belongs in the new text.
    pub fn of(
        symbols: &[u8],
        strings: &'n [u8],
        section: Option<usize>,
        has_moved: impl Fn(u64) -> bool,
    ) -> Self {
        let mut names = Names::default();
        names.of(b"");
        let name_of = |symbol: &[u8]| {
            let at = u32::from_le_bytes(symbol[..4].try_into().expect("four bytes"));
            let rest = strings.get(at as usize..).unwrap_or_default();
            let end = rest.iter().position(|b| *b == 0);
            end.map_or(&rest[..0], |end| &rest[..end])
        };
        let mut bytes = symbols.to_vec();
        for symbol in bytes.chunks_exact_mut(SYMBOL) {
            let name = name_of(symbol);
            let is_code = matches!(kind(symbol), elf::STT_FUNC | elf::STT_NOTYPE);
            let is_renamed = is_code && is_placed(symbol) && has_moved(field(symbol, 8));
            let at = if is_renamed && !name.is_empty() {
                names.of_original(name)
            } else {
                names.of(name)
            };
            symbol[..4].copy_from_slice(&at.to_le_bytes());
        }
        Self {
            bytes,
            names,
            section,
        }
    }

    /// Number of symbols.
    pub fn len(&self) -> usize {
        self.bytes.len() / SYMBOL
    }

    /// Adds a function.
    pub fn add(&mut self, name: &'n str, address: u64, size: u64, section: usize) {
        let name = self.names.of(name.as_bytes());
        self.add_named(name, address, size, section);
    }

    /// Adds the light version of a function, as `name.light`.
    pub fn add_light(&mut self, name: &str, address: u64, size: u64, section: usize) {
        let at = self.names.bytes.len() as u32;
        for part in [name.as_bytes(), LIGHT, b"\0"] {
            self.names.bytes.extend(part);
        }
        self.add_named(at, address, size, section);
    }

    /// Adds a function whose name is at an offset of the names.
    fn add_named(&mut self, name: u32, address: u64, size: u64, section: usize) {
        self.bytes.extend(name.to_le_bytes());
        // A global function: local symbols would have to precede all others.
        self.bytes.push((elf::STB_GLOBAL | elf::STT_FUNC).0);
        self.bytes.push(0);
        self.bytes.extend((section as u16).to_le_bytes());
        self.bytes.extend(address.to_le_bytes());
        self.bytes.extend(size.to_le_bytes());
    }

    /// Adds the tool's functions. `base` is the address at which the tool's address 0 is, `section` the
    /// index of the section of its code.
    pub fn add_analysis(&mut self, analysis: &'n AnalysisImage, base: u64, section: usize) {
        let is_code = |symbol: &&Symbol| symbol.is_function && symbol.address < analysis.data_start;
        for symbol in analysis.symbols.iter().filter(is_code) {
            self.add(&symbol.name, base + symbol.address, symbol.size, section);
        }
    }

    /// Adds `shift` to the addresses of all symbols that have one.
    pub fn shift(&mut self, shift: u64) {
        for symbol in self.bytes.chunks_exact_mut(SYMBOL).filter(|_| shift != 0) {
            if is_placed(symbol) && kind(symbol) != elf::STT_TLS {
                let address = field(symbol, 8).wrapping_add(shift);
                symbol[8..16].copy_from_slice(&address.to_le_bytes());
            }
        }
    }

    /// Appends the tables, and points the sections to them. Yields the indexes of the sections whose contents are replaced.
    pub fn append(self, table: &mut Table, out: &mut Output<'_>) -> Vec<usize> {
        let (size, names_size) = (self.bytes.len() as u64, self.names.bytes.len() as u64);
        let offset = out.append(8, self.bytes);
        let names_offset = out.append(1, self.names.bytes);
        let own = self.section.and_then(|i| table.own_strings(i));
        let names = own.unwrap_or_else(|| {
            table.add(&NewSection {
                name: ".strtab",
                kind: elf::SHT_STRTAB,
                align: 1,
                ..NewSection::default()
            })
        });
        table.place(names, names_offset, names_size);
        let section = self.section.unwrap_or_else(|| {
            let section = table.add(&NewSection {
                name: ".symtab",
                kind: elf::SHT_SYMTAB,
                align: 8,
                entry_size: SYMBOL as u64,
                ..NewSection::default()
            });
            table.headers[section][SH_INFO..SH_INFO + 4].copy_from_slice(&1u32.to_le_bytes());
            section
        });
        table.place(section, offset, size);
        table.headers[section][SH_LINK..SH_LINK + 4].copy_from_slice(&(names as u32).to_le_bytes());
        self.section.into_iter().chain(own).collect()
    }
}

/// True if a symbol has an address, or an offset in the memory of a thread.
fn is_placed(symbol: &[u8]) -> bool {
    let section = elf::SymbolSection(u16::from_le_bytes([symbol[6], symbol[7]]));
    section != elf::SHN_UNDEF && section.0 < elf::SHN_LORESERVE
}

/// What a symbol names: a function, data, a variable of a thread.
fn kind(symbol: &[u8]) -> elf::SymbolType {
    elf::SymbolInfo(symbol[4]).st_type()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_share_their_bytes() {
        let strings = b"\0moved\0kept\0broken";
        let symbol = |name: u32, address: u64| {
            let mut symbol = [0; SYMBOL];
            symbol[..4].copy_from_slice(&name.to_le_bytes());
            symbol[4] = elf::STT_FUNC.0;
            symbol[6] = 1;
            symbol[8..16].copy_from_slice(&address.to_le_bytes());
            symbol
        };
        let all = [(0, 0), (1, 16), (7, 32), (1, 48), (12, 64), (99, 80)];
        let all = all.map(|(name, address)| symbol(name, address)).concat();
        let mut symbols = Symbols::of(&all, strings, None, |address| address == 16);
        symbols.add("moved", 160, 1, 2);
        symbols.add("new", 320, 1, 2);
        let name = |i: usize| {
            let symbol = &symbols.bytes[i * SYMBOL..];
            let at = u32::from_le_bytes(symbol[..4].try_into().unwrap()) as usize;
            let rest = &symbols.names.bytes[at..];
            std::str::from_utf8(rest.split(|b| *b == 0).next().unwrap()).unwrap()
        };
        let names: Vec<&str> = (0..symbols.len()).map(name).collect();
        let expected = [
            "",
            "original.moved",
            "kept",
            "moved",
            "",
            "",
            "moved",
            "new",
        ];
        assert_eq!(names, expected);
        assert_eq!(symbols.names.bytes, b"\0original.moved\0kept\0new\0");
    }
}

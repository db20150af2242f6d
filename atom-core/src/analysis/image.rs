//! Laying out and relocating a tool's shared object.
//!
//! ABI, in short: the dynamic section names the relocations; on x86-64 all
//! carry their addend. RELATIVE adds the load address; GLOB_DAT, JUMP_SLOT and
//! 64 store a symbol's address (the last with an addend); DTPMOD64 and DTPOFF64
//! make the pair that `__tls_get_addr` receives. An undefined weak symbol is 0.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::{Path, PathBuf};

use object::elf;
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, Object, ObjectSymbol, SymbolKind};

use super::unwind_ranges;
use crate::{Error, Result};

const DOING: &str = "reading the tool";
const PAGE: u64 = 4096;
const DT_RELRSZ: u32 = 35;
const DT_RELR: u32 = 36;
/// More than any sane tool, less than what a broken file could make us allocate.
const MAX_SIZE: u64 = 512 << 20;
/// Export of the runtime to which imports are bound that it lacks.
const MISSING: &str = "atom_rt_missing";

/// What the tool's header says, as addresses in the tool's file.
#[derive(Clone, Debug, Default)]
pub struct ToolFacts {
    /// Functions of the runtime by C symbol.
    pub exports: Vec<(String, u64)>,
    /// The runtime's start.
    pub start: u64,
    /// The runtime's end.
    pub finish: u64,
    /// The analysis routines by name.
    pub routines: Vec<(String, u64)>,
}

/// The template of thread-local storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tls {
    /// Where the initial contents lie.
    pub address: u64,
    /// Bytes of initial contents.
    pub file_size: u64,
    /// Bytes of a block.
    pub mem_size: u64,
    /// Alignment of a block.
    pub align: u64,
}

/// A symbol of the tool, for symbol tables and messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// As in the file, not demangled.
    pub name: String,
    /// Address in the tool's file.
    pub address: u64,
    /// Size in bytes, possibly 0.
    pub size: u64,
    /// A function rather than data.
    pub is_function: bool,
}

/// What a relocated slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// The load address plus this.
    Relative(u64),
    /// This, whatever the load address.
    Constant(u64),
}

/// A tool's shared object, laid out and relocated.
#[derive(Debug)]
pub struct AnalysisImage {
    /// The file it came from.
    pub file: PathBuf,
    /// Everything that is never written, from address 0: headers, constants, code.
    pub text: Vec<u8>,
    /// Executable parts of `text`.
    pub code: Vec<Range<u64>>,
    /// Page-aligned start of everything that is written (or was, by relocation).
    pub data_start: u64,
    /// Its initial bytes, relocated.
    pub data: Vec<u8>,
    /// Zero bytes that follow `data`.
    pub zero_size: u64,
    /// Slots, each of 8 bytes in `data`, to which the load address must be added; ascending.
    pub relocations: Vec<u32>,
    /// Thread-local storage, if the tool has any.
    pub tls: Option<Tls>,
    /// Where the table of initialisers lies; its entries are among the relocated slots.
    pub init_array: u64,
    /// The initialisers.
    pub init_functions: Vec<u64>,
    /// The tool's symbols by address.
    pub symbols: Vec<Symbol>,
    /// What the tool's header says.
    pub facts: ToolFacts,
    /// All relocated slots.
    pub(super) slots: BTreeMap<u64, Value>,
    /// Slots that no store changes after relocation.
    pub(super) constant_slots: Range<u64>,
    /// Slots of strong imports that the runtime lacks.
    pub(super) missing: BTreeMap<u64, String>,
    /// Known functions, by start; disjoint.
    pub(super) functions: Vec<Range<u64>>,
}

impl AnalysisImage {
    /// Reads and prepares the tool in `file`.
    pub fn read(file: &Path, facts: ToolFacts) -> Result<Self> {
        let bytes = std::fs::read(file).map_err(|e| Error::new(DOING, e.to_string()).file(file))?;
        Self::parse(file, &bytes, facts)
    }

    /// Prepares the tool whose file holds `bytes`; `file` is for messages.
    pub fn parse(file: &Path, bytes: &[u8], facts: ToolFacts) -> Result<Self> {
        let mut image = Reader {
            file,
            bytes,
            facts: &facts,
        }
        .lay_out()?;
        image.facts = facts;
        image.check_facts()?;
        Ok(image)
    }

    /// End of the image: no address of it is at or beyond this.
    pub fn end(&self) -> u64 {
        self.data_start + self.data.len() as u64 + self.zero_size
    }

    /// Imports that the runtime lacks, bound to a function that ends the program.
    pub fn missing_imports(&self) -> impl Iterator<Item = &str> {
        self.missing.values().map(String::as_str)
    }

    /// Bytes at an address of the image, if it has so many.
    pub fn bytes_at(&self, address: u64, len: usize) -> Option<&[u8]> {
        let (part, start) = if address >= self.data_start {
            (&self.data, self.data_start)
        } else {
            (&self.text, 0)
        };
        let from = usize::try_from(address - start).ok()?;
        part.get(from..from.checked_add(len)?)
    }

    /// Whether an address lies in executable code.
    pub fn is_code(&self, address: u64) -> bool {
        self.code.iter().any(|r| r.contains(&address))
    }

    /// The demangled name of the function that contains `address`, or its address.
    pub fn name_at(&self, address: u64) -> String {
        if let Some((name, _)) = self.facts.routines.iter().find(|r| r.1 == address) {
            return name.clone();
        }
        let after = self.symbols.partition_point(|s| s.address <= address);
        let found = self.symbols[..after]
            .iter()
            .rev()
            .take_while(|s| s.address + s.size.max(1) > address);
        match found.filter(|s| s.is_function).last().or_else(|| {
            self.symbols[..after]
                .last()
                .filter(|s| s.address + s.size.max(1) > address)
        }) {
            Some(s) => format!("{:#}", rustc_demangle::demangle(&s.name)),
            None => format!("code at {address:#x}"),
        }
    }

    /// The function that starts at or contains `address`, if it is known.
    pub(super) fn function_at(&self, address: u64) -> Option<Range<u64>> {
        let after = self.functions.partition_point(|f| f.start <= address);
        self.functions[..after]
            .last()
            .filter(|f| f.contains(&address))
            .cloned()
    }

    /// What a load from a slot yields that never changes once relocated.
    pub(super) fn constant_slot(&self, slot: u64) -> Option<Value> {
        let value = *self.slots.get(&slot)?;
        self.constant_slots.contains(&slot).then_some(value)
    }

    fn check_facts(&self) -> Result<()> {
        let facts = &self.facts;
        let roots = [("start", facts.start), ("finish", facts.finish)];
        let named = facts.routines.iter().map(|(n, a)| (n.as_str(), *a));
        for (name, address) in roots.into_iter().chain(named) {
            if !self.is_code(address) {
                let reason = "the routine's address is not in the tool's code";
                return Err(Error::new(DOING, reason)
                    .file(&self.file)
                    .symbol(name)
                    .address(address)
                    .advice("define analysis routines in the tool's own crate, not in another shared library"));
            }
        }
        Ok(())
    }
}

/// Entries of the dynamic section that matter here, by tag.
type Dynamic = HashMap<u64, u64>;

struct Reader<'a> {
    file: &'a Path,
    bytes: &'a [u8],
    facts: &'a ToolFacts,
}

impl Reader<'_> {
    fn error(&self, reason: impl Into<String>) -> Error {
        Error::new(DOING, reason).file(self.file)
    }

    fn lay_out(&self) -> Result<AnalysisImage> {
        let broken = |e: object::Error| self.error(e.to_string());
        let header = elf::FileHeader64::<Endianness>::parse(self.bytes).map_err(broken)?;
        let endian = header.endian().map_err(broken)?;
        if header.e_machine(endian) != elf::EM_X86_64 || header.e_type(endian) != elf::ET_DYN {
            return Err(self
                .error("not a shared object for x86-64")
                .advice("build the tool as a cdylib for x86_64-unknown-linux-gnu"));
        }
        let segments = header.program_headers(endian, self.bytes).map_err(broken)?;
        let mut image = AnalysisImage {
            file: self.file.to_path_buf(),
            text: Vec::new(),
            code: Vec::new(),
            data_start: 0,
            data: Vec::new(),
            zero_size: 0,
            relocations: Vec::new(),
            tls: None,
            init_array: 0,
            init_functions: Vec::new(),
            symbols: Vec::new(),
            facts: ToolFacts::default(),
            slots: BTreeMap::new(),
            constant_slots: 0..0,
            missing: BTreeMap::new(),
            functions: Vec::new(),
        };
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
                    if ph.p_flags(endian) & elf::PF_W != 0 {
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
                        if ph.p_flags(endian) & elf::PF_X != 0 {
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
                        if d.d_tag.get(endian) == u64::from(elf::DT_NULL) {
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

    /// Puts a segment's bytes at `at` of a part, with zeros before it.
    fn place(&self, part: &mut Vec<u8>, at: Option<u64>, bytes: &[u8]) -> Result<()> {
        match at.map(|a| a as usize) {
            Some(at) if at >= part.len() => {
                part.resize(at, 0);
                part.extend_from_slice(bytes);
                Ok(())
            }
            _ => Err(self.error("segments are not in ascending order")),
        }
    }

    fn relocate(&self, image: &mut AnalysisImage, dynamic: &Dynamic) -> Result<()> {
        let get = |tag: u32| dynamic.get(&u64::from(tag)).copied().unwrap_or(0);
        let tables = [
            (get(elf::DT_RELA), get(elf::DT_RELASZ)),
            (get(elf::DT_JMPREL), get(elf::DT_PLTRELSZ)),
        ];
        let mut slots = BTreeMap::new();
        let mut missing = BTreeMap::new();
        let names = Names {
            reader: self,
            symbols: get(elf::DT_SYMTAB),
            strings: get(elf::DT_STRTAB),
            exports: self
                .facts
                .exports
                .iter()
                .map(|(n, a)| (n.as_str(), *a))
                .collect(),
        };
        for (table, size) in tables {
            for i in 0..size / 24 {
                let entry = image
                    .bytes_at(table.saturating_add(i * 24), 24)
                    .ok_or_else(|| self.error("the relocation table lies outside the file"))?;
                let word = |at: usize| {
                    u64::from_le_bytes(entry[at..at + 8].try_into().unwrap_or_default())
                };
                let (slot, info, addend) = (word(0), word(8), word(16));
                let (kind, symbol) = (info as u32, info >> 32);
                let value = match kind {
                    elf::R_X86_64_NONE => continue,
                    elf::R_X86_64_RELATIVE => Value::Relative(addend),
                    elf::R_X86_64_GLOB_DAT | elf::R_X86_64_JUMP_SLOT | elf::R_X86_64_64 => {
                        let addend = if kind == elf::R_X86_64_64 { addend } else { 0 };
                        match names.resolve(image, symbol, addend)? {
                            Ok(value) => value,
                            Err(name) => {
                                missing.insert(slot, name);
                                names
                                    .exports
                                    .get(MISSING)
                                    .map_or(Value::Constant(0), |a| Value::Relative(*a))
                            }
                        }
                    }
                    elf::R_X86_64_DTPMOD64 => {
                        names.own_tls(image, symbol)?;
                        Value::Constant(1)
                    }
                    elf::R_X86_64_DTPOFF64 => {
                        Value::Constant(names.own_tls(image, symbol)?.wrapping_add(addend))
                    }
                    elf::R_X86_64_TPOFF64 | elf::R_X86_64_TLSDESC => {
                        return Err(self
                            .error("thread-local storage is accessed in a way that only the dynamic loader supports")
                            .address(slot)
                            .advice("build the tool as a cdylib with relocation-model=pic and without \
                                     -Z tls-model or -mtls-dialect=gnu2"));
                    }
                    elf::R_X86_64_IRELATIVE => {
                        return Err(self
                            .error("code is chosen at load time (ifunc)")
                            .address(slot)
                            .advice("do not link C code with ifunc into the tool"));
                    }
                    other => {
                        return Err(self
                            .error(format!("relocation type {other} is not known"))
                            .address(slot));
                    }
                };
                slots.insert(slot, value);
            }
        }
        self.relr(image, get(DT_RELR), get(DT_RELRSZ), &mut slots)?;
        for (&slot, &value) in &slots {
            self.write_slot(image, slot, value)?;
        }
        image.slots = slots;
        image.missing = missing;
        Ok(())
    }

    /// The compact form of RELATIVE: an address, then bitmaps of 63 words each.
    fn relr(
        &self,
        image: &AnalysisImage,
        table: u64,
        size: u64,
        slots: &mut BTreeMap<u64, Value>,
    ) -> Result<()> {
        let outside = || self.error("the relocation table lies outside the file");
        let read = |at: u64| {
            let bytes = image.bytes_at(at, 8).ok_or_else(outside)?;
            Ok::<_, Error>(u64::from_le_bytes(bytes.try_into().unwrap_or_default()))
        };
        let mut next = 0u64;
        for i in 0..size / 8 {
            let entry = read(table.saturating_add(i * 8))?;
            if entry & 1 == 0 {
                slots.insert(entry, Value::Relative(read(entry)?));
                next = entry.wrapping_add(8);
                continue;
            }
            for bit in 1..64 {
                if entry >> bit & 1 != 0 {
                    let slot = next.wrapping_add(8 * (bit - 1));
                    slots.insert(slot, Value::Relative(read(slot)?));
                }
            }
            next = next.wrapping_add(8 * 63);
        }
        Ok(())
    }

    fn write_slot(&self, image: &mut AnalysisImage, slot: u64, value: Value) -> Result<()> {
        let at = slot.checked_sub(image.data_start).map(|a| a as usize);
        let Some(bytes) = at.and_then(|a| image.data.get_mut(a..a.checked_add(8)?)) else {
            return Err(self
                .error("a relocation changes something that is not initialised data")
                .address(slot)
                .advice("build all parts of the tool as position-independent code"));
        };
        let (Value::Relative(v) | Value::Constant(v)) = value;
        bytes.copy_from_slice(&v.to_le_bytes());
        if let Value::Relative(target) = value {
            if target > image.end() {
                return Err(self
                    .error("a relocation points outside the tool")
                    .address(slot));
            }
            image.relocations.push(slot as u32);
        }
        Ok(())
    }

    fn initialisers(&self, image: &mut AnalysisImage, dynamic: &Dynamic) -> Result<()> {
        let get = |tag: u32| dynamic.get(&u64::from(tag)).copied().unwrap_or(0);
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

    /// Symbols are for messages and tables: a broken symbol table is an empty one.
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

/// The dynamic symbols and the runtime's exports.
struct Names<'a> {
    reader: &'a Reader<'a>,
    symbols: u64,
    strings: u64,
    exports: HashMap<&'a str, u64>,
}

impl Names<'_> {
    /// Name, info byte, section index and value of a dynamic symbol.
    fn symbol(&self, image: &AnalysisImage, index: u64) -> Result<(String, u8, u16, u64)> {
        let broken = || {
            self.reader
                .error("a relocation names a symbol outside the symbol table")
        };
        let at = self.symbols.checked_add(index * 24).ok_or_else(broken)?;
        let s = image.bytes_at(at, 24).ok_or_else(broken)?;
        let name = u32::from_le_bytes([s[0], s[1], s[2], s[3]]);
        let value = u64::from_le_bytes(s[8..16].try_into().unwrap_or_default());
        let from = usize::try_from(self.strings.saturating_add(name.into())).unwrap_or(usize::MAX);
        let text = image.text.get(from..).ok_or_else(broken)?;
        let len = text.iter().position(|b| *b == 0).ok_or_else(broken)?;
        let name = String::from_utf8_lossy(&text[..len]).into_owned();
        Ok((name, s[4], u16::from_le_bytes([s[6], s[7]]), value))
    }

    /// What a symbol stands for; the inner error is the name of a missing import.
    fn resolve(
        &self,
        image: &AnalysisImage,
        index: u64,
        addend: u64,
    ) -> Result<Result<Value, String>> {
        let (name, info, section, value) = self.symbol(image, index)?;
        if info & 15 == elf::STT_GNU_IFUNC {
            return Err(self
                .reader
                .error("code is chosen at load time (ifunc)")
                .symbol(name));
        }
        Ok(match section {
            elf::SHN_ABS => Ok(Value::Constant(value.wrapping_add(addend))),
            elf::SHN_UNDEF => match self.exports.get(name.as_str()) {
                Some(a) => Ok(Value::Relative(a.wrapping_add(addend))),
                None if info >> 4 == elf::STB_WEAK || index == 0 => Ok(Value::Constant(addend)),
                None => Err(name),
            },
            _ => Ok(Value::Relative(value.wrapping_add(addend))),
        })
    }

    /// The offset of a thread-local variable of the tool's own; index 0 is the module.
    fn own_tls(&self, image: &AnalysisImage, index: u64) -> Result<u64> {
        if index == 0 {
            return Ok(0);
        }
        let (name, _, section, value) = self.symbol(image, index)?;
        if section == elf::SHN_UNDEF {
            return Err(self
                .reader
                .error("the tool uses a thread-local variable of another library")
                .symbol(name)
                .advice("link that library statically into the tool"));
        }
        Ok(value)
    }
}

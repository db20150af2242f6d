//! Relocating a tool's shared object and binding its imports.
//!
//! ABI, in short: on x86-64 all relocations carry their addend. RELATIVE adds the load address.
//! GLOB_DAT, JUMP_SLOT and 64 store a symbol's address, 64 with an addend. DTPMOD64 and DTPOFF64 make
//! the pair that `__tls_get_addr` receives. An undefined weak symbol has the address 0.

use std::collections::{BTreeMap, HashMap};

use object::elf;

use super::image::{AnalysisImage, Value};
use super::load::{Dynamic, Reader};
use crate::{Error, Result};

/// Export of the runtime to which missing imports are bound.
const MISSING: &str = "atom_rt_missing";

impl Reader<'_> {
    /// Applies all relocations to the image's data.
    pub(super) fn relocate(&self, image: &mut AnalysisImage, dynamic: &Dynamic) -> Result<()> {
        let get = |tag: elf::DynamicTag| dynamic.get(&tag).copied().unwrap_or(0);
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
                let (kind, symbol) = (elf::RelocationType(info as u32), info >> 32);
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
        self.relr(image, get(elf::DT_RELR), get(elf::DT_RELRSZ), &mut slots)?;
        for (&slot, &value) in &slots {
            self.write_slot(image, slot, value)?;
        }
        image.slots = slots;
        image.missing = missing;
        Ok(())
    }

    /// Applies the compact form of RELATIVE: an address, then bitmaps of 63 words each.
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
}

/// The dynamic symbols and the runtime's exports.
struct Names<'a> {
    reader: &'a Reader<'a>,
    symbols: u64,
    strings: u64,
    exports: HashMap<&'a str, u64>,
}

/// A dynamic symbol of the tool.
struct Symbol {
    name: String,
    info: elf::SymbolInfo,
    section: elf::SymbolSection,
    value: u64,
}

impl Names<'_> {
    /// A dynamic symbol.
    fn symbol(&self, image: &AnalysisImage, index: u64) -> Result<Symbol> {
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
        let section = elf::SymbolSection(u16::from_le_bytes([s[6], s[7]]));
        let info = elf::SymbolInfo(s[4]);
        Ok(Symbol {
            name,
            info,
            section,
            value,
        })
    }

    /// The value of a symbol; the inner error is the name of a missing import.
    fn resolve(
        &self,
        image: &AnalysisImage,
        index: u64,
        addend: u64,
    ) -> Result<Result<Value, String>> {
        let Symbol {
            name,
            info,
            section,
            value,
        } = self.symbol(image, index)?;
        if info.st_type() == elf::STT_GNU_IFUNC {
            return Err(self
                .reader
                .error("code is chosen at load time (ifunc)")
                .symbol(name));
        }
        Ok(match section {
            elf::SHN_ABS => Ok(Value::Constant(value.wrapping_add(addend))),
            elf::SHN_UNDEF => match self.exports.get(name.as_str()) {
                Some(a) => Ok(Value::Relative(a.wrapping_add(addend))),
                None if info.st_bind() == elf::STB_WEAK || index == 0 => {
                    Ok(Value::Constant(addend))
                }
                None => Err(name),
            },
            _ => Ok(Value::Relative(value.wrapping_add(addend))),
        })
    }

    /// Offset in bytes of a thread-local variable of the tool; for index 0, of the module's block.
    fn own_tls(&self, image: &AnalysisImage, index: u64) -> Result<u64> {
        if index == 0 {
            return Ok(0);
        }
        let Symbol {
            name,
            section,
            value,
            ..
        } = self.symbol(image, index)?;
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

//! Finding and checking the tables in the program's file.

use object::elf;
use rayon::prelude::*;

use super::pc_values;
use super::{DOING, Form, Function, GoTable, Record, VERSIONS, Version, field, word};
use crate::image::{Image, Reloc, Segment};
use crate::{Error, Result};

/// Number of words of the module data that are looked at.
const WORDS: usize = 48;

/// Size in bytes of an entry of `ftab`.
const FTAB_ENTRY: usize = 8;

/// Words of the pcHeader.
mod header {
    /// Number of functions.
    pub const FUNCTIONS: usize = 1;
    /// Address of the text, up to Go 1.25.
    pub const TEXT: usize = 3;
    /// Distance of `pclntable` from the pcHeader.
    pub const PCLNTABLE: usize = 8;
    /// Size in bytes.
    pub const SIZE: usize = 72;
}

/// Reads the tables of a program that Go's tool chain linked.
pub(super) fn tables(image: &Image) -> Result<GoTable<'_>> {
    let (version, form) = version(image)?;
    let fail = |reason: String| {
        Error::new(DOING, format!("{reason} ({version})"))
            .file(&image.path)
            .advice("please report the program: its tables differ from what Go's own linker writes")
    };
    let words = Words::new(image);
    let headers = header_addresses(image, form);
    if headers.is_empty() {
        return Err(fail("there is no pcHeader".into()));
    }
    let mut modules = headers
        .iter()
        .filter_map(|header| module_address(image, &words, *header, form));
    let module = modules
        .next()
        .ok_or_else(|| fail("the module data was not found".into()))?;
    let at = |word: usize| words.at(module + 8 * word as u64);
    let slice = |word: usize, what: &str, width: usize| {
        let bytes = (at(word), at(word + 1));
        let found = match bytes {
            (Some(address), Some(count)) => {
                let size = (count as usize).checked_mul(width);
                size.and_then(|size| image.bytes_at(address, size))
            }
            _ => None,
        };
        found.ok_or_else(|| fail(format!("{what} lies outside the file")))
    };
    let text = at(word::TEXT).unwrap_or(0);
    check_section(form, &words, at).map_err(fail)?;
    let mut table = GoTable {
        form,
        module,
        text,
        text_end: at(word::TEXT_END).unwrap_or(0),
        gofunc: at(form.gofunc).unwrap_or(0),
        functions: Vec::new(),
        names: slice(word::NAMES, "funcnametab", 1)?,
        units: slice(word::UNITS, "cutab", 4)?,
        files: slice(word::FILES, "filetab", 1)?,
        pctab: slice(word::PCTAB, "pctab", 1)?,
        pclntable: slice(word::PCLNTABLE, "pclntable", 1)?,
        memory: image.loaded(),
        version: version.clone(),
    };
    let count = at(word::FTAB + 1).unwrap_or(0) as usize;
    let ftab = at(word::FTAB)
        .and_then(|a| image.bytes_at(a, count.checked_mul(FTAB_ENTRY)?))
        .filter(|_| count >= 2)
        .ok_or_else(|| fail("ftab lies outside the file".into()))?;
    table.functions = functions(ftab, text);
    check(&table, at(word::MIN_PC), at(word::MAX_PC)).map_err(fail)?;
    Ok(table)
}

/// Checks that the text is one section: the list of sections has one entry, with the distances of the section's start and end
/// from the text's start, and its address. The check also shows that the form of the module data is right.
fn check_section(
    form: Form,
    words: &Words<'_>,
    at: impl Fn(usize) -> Option<u64>,
) -> Result<(), String> {
    let list = at(form.text_sections).unwrap_or(0);
    let entry = [0, 8, 16].map(|offset| words.at(list + offset));
    let size = at(word::TEXT_END).zip(at(word::TEXT));
    let size = size.map(|(end, start)| end.wrapping_sub(start));
    // Since Go 1.22 the section's end is one byte after the text.
    let [start, end, address] = entry;
    let is_end = |end: u64| size.is_some_and(|size| end == size || end == size + 1);
    let fits = start == Some(0) && end.is_some_and(is_end) && address == at(word::TEXT);
    match at(form.text_sections + 1) {
        Some(1) if fits => Ok(()),
        Some(2..=64) => Err("its text has several sections".into()),
        _ => Err("the list of text sections makes no sense".into()),
    }
}

/// The version of a program, if it is one that is understood.
fn version(image: &Image) -> Result<(Version, Form)> {
    let refuse = |reason: String| {
        Err(Error::new(DOING, reason).file(&image.path).advice(format!(
            "programs of Go 1.{} to 1.{} are supported",
            VERSIONS.start(),
            VERSIONS.end()
        )))
    };
    let Some(version) = Version::of(image) else {
        return refuse("the program does not state with which version of Go it was built".into());
    };
    match Form::of(version.minor).filter(|_| VERSIONS.contains(&version.minor)) {
        Some(form) => Ok((version, form)),
        None => refuse(format!(
            "the program was built with {version}, whose tables are not known"
        )),
    }
}

/// The program's words in memory, after relocation to the addresses of the file.
struct Words<'a> {
    image: &'a Image,
    /// Addresses and values of relocated words, by address.
    relocated: Vec<(u64, u64)>,
}

impl<'a> Words<'a> {
    fn new(image: &'a Image) -> Self {
        let mut relocated: Vec<(u64, u64)> = image
            .relocs
            .iter()
            .filter_map(|r| Some((r.address, relocated_to(image, r)?)))
            .collect();
        relocated.sort_unstable();
        Self { image, relocated }
    }

    fn at(&self, address: u64) -> Option<u64> {
        if let Ok(i) = self.relocated.binary_search_by_key(&address, |r| r.0) {
            return Some(self.relocated[i].1);
        }
        let bytes = self.image.bytes_at(address, 8)?;
        Some(u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
    }
}

/// The address that a relocation writes, if it is one of the file. A plugin names some of its tables by symbol.
fn relocated_to(image: &Image, reloc: &Reloc) -> Option<u64> {
    let base = match reloc.kind {
        elf::R_X86_64_RELATIVE => 0,
        elf::R_X86_64_64 => {
            let symbol = image.dynamic_symbols.get(reloc.symbol as usize)?;
            (!symbol.is_undefined).then_some(symbol.address)?
        }
        _ => return None,
    };
    Some(base.wrapping_add_signed(reloc.addend))
}

/// Addresses of what looks like a pcHeader: the version's magic, a quantum of 1 byte and a pointer of 8. It is at the start of
/// the section `.gopclntab`, which the system's linker may have joined to another one.
fn header_addresses(image: &Image, form: Form) -> Vec<u64> {
    let mut start = form.magic.to_le_bytes().to_vec();
    start.extend([0, 0, 1, 8]);
    let sections = image.sections.iter();
    let named = sections.filter(|s| s.name.ends_with(".gopclntab") && s.address != 0);
    let named: Vec<u64> = named
        .map(|s| s.address)
        .filter(|a| {
            image
                .bytes_at(*a, header::SIZE)
                .is_some_and(|b| b.starts_with(&start))
        })
        .collect();
    if !named.is_empty() {
        return named;
    }
    let in_segment = |segment: &Segment| -> Vec<u64> {
        let bytes = image.bytes_at(segment.address, segment.file_size as usize);
        let words = bytes.unwrap_or_default().chunks_exact(8).enumerate();
        let headers = words.filter(|(_, word)| *word == start);
        headers
            .map(|(i, _)| segment.address + 8 * i as u64)
            .collect()
    };
    image.segments.iter().flat_map(in_segment).collect()
}

/// Address of the module data: the words that begin with the pcHeader's address and agree with its
/// contents.
fn module_address(image: &Image, words: &Words<'_>, header: u64, form: Form) -> Option<u64> {
    let header_word = |n: usize| words.at(header + 8 * n as u64);
    let is_module = |module: u64| {
        let at = |word: usize| words.at(module + 8 * word as u64);
        let pclntable = header_word(header::PCLNTABLE).map(|distance| header + distance);
        let count = header_word(header::FUNCTIONS).map(|n| n + 1);
        let text = header_word(header::TEXT);
        at(word::HEADER) == Some(header)
            && at(word::PCLNTABLE) == pclntable
            && at(word::FTAB) == pclntable
            && at(word::FTAB + 1) == count
            && at(word::MIN_PC).is_some_and(|pc| image.is_code(pc))
            && at(word::TEXT).is_some_and(|a| text == Some(a) || text == Some(0))
            && at(WORDS - 1).is_some()
            && at(form.gofunc).is_some_and(|a| image.rest_at(a).is_some())
    };
    let relocated = words.relocated.iter();
    let mut relocated = relocated.filter(|r| r.1 == header).map(|r| r.0);
    if let Some(found) = relocated.find(|a| is_module(*a)) {
        return Some(found);
    }
    let wanted = header.to_le_bytes();
    image.segments.iter().find_map(|segment| {
        let bytes = image.bytes_at(segment.address, segment.file_size as usize)?;
        let mut at = bytes.chunks_exact(8).enumerate();
        at.find_map(|(i, word)| {
            let address = segment.address + 8 * i as u64;
            (word == wanted && is_module(address)).then_some(address)
        })
    })
}

/// The functions that `ftab` lists.
fn functions(ftab: &[u8], text: u64) -> Vec<Function> {
    let word = |b: &[u8]| u32::from_le_bytes(b.try_into().expect("four bytes"));
    let starts: Vec<(u64, u32)> = ftab
        .chunks_exact(FTAB_ENTRY)
        .map(|entry| (text + u64::from(word(&entry[..4])), word(&entry[4..])))
        .collect();
    let all = starts.windows(2).map(|pair| Function {
        start: pair[0].0,
        end: pair[1].0,
        record: pair[0].1,
    });
    all.collect()
}

/// Checks what the runtime checks at the start of the program, and each record with its tables.
fn check(table: &GoTable<'_>, min: Option<u64>, max: Option<u64>) -> Result<(), String> {
    let (first, last) = match (table.functions.first(), table.functions.last()) {
        (Some(first), Some(last)) => (first, last),
        _ => return Err("it has no functions".into()),
    };
    if Some(first.start) != min || Some(last.end) != max {
        return Err("ftab does not agree with the limits of the text".into());
    }
    let check = |function: &Function| {
        let at = function.start;
        if function.end < function.start {
            return Some(format!("ftab is not in order at {at:#x}"));
        }
        let checked = check_record(table, function);
        let makes_sense = checked.is_some();
        (!makes_sense).then(|| format!("the record of {at:#x} makes no sense"))
    };
    let functions = table.functions.par_iter();
    functions.find_map_first(check).map_or(Ok(()), Err)
}

fn check_record(table: &GoTable<'_>, function: &Function) -> Option<()> {
    let bytes = table.pclntable.get(function.record as usize..)?;
    bytes.get(table.form.record_size() - 1)?;
    let record = Record {
        form: table.form,
        bytes,
    };
    // Real records have five tables and eight data.
    if record.pcdata_count() > 64 {
        return None;
    }
    bytes.get(..record.size())?;
    let entry = table.text + u64::from(record.word(field::ENTRY));
    if entry != function.start && function.end != function.start {
        return None;
    }
    let fixed = field::TABLES.map(|at| record.word(at));
    let further = (0..record.pcdata_count()).map(|i| record.pcdata(i));
    for offset in fixed.into_iter().chain(further).filter(|o| *o != 0) {
        pc_values::read(table.pctab.get(offset as usize..)?)?;
    }
    Some(())
}

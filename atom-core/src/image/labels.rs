//! The labels of source functions.
//!
//! A C label leaves no symbol; debug information has an entry for it
//! (`DW_TAG_label`) with its name and the line where it is declared. The entry
//! of an inlined function's label is in the function's abstract tree, and
//! copies refer to it. All entries of the program are read, once, when a tool
//! asks; what cannot be read is left out.

use std::collections::HashMap;
use std::path::PathBuf;

use gimli::{AttributeValue, DebugInfoOffset, DebuggingInformationEntry, Dwarf, Unit, UnitOffset};

use super::Image;
use super::debug::{Slice, with_dwarf};

/// A label.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Label {
    /// Its name.
    pub name: String,
    /// Linkage name, or else name, of the function around the label; empty if unknown.
    pub function: String,
    /// Source file, or empty.
    pub file: String,
    /// Line, or 0.
    pub line: u32,
    /// Column, or 0.
    pub column: u32,
    /// Address of the label or of one of its copies, or 0.
    pub address: u64,
}

type Entry<'d> = DebuggingInformationEntry<Slice<'d>>;

/// Deepest nesting of functions that is followed.
const MAX_DEPTH: usize = 1000;
/// Largest number of references that are followed from one entry to the next.
const MAX_REFERENCES: usize = 8;

/// All labels whose names start with `prefix`, sorted by file and line.
pub fn labels(image: &Image, prefix: &str) -> Vec<Label> {
    let found = with_dwarf(image, |dwarf| {
        let mut found = Found::default();
        let mut headers = dwarf.units();
        while let Ok(Some(header)) = headers.next() {
            if let Ok(unit) = dwarf.unit(header) {
                // A unit that cannot be read to its end leaves the rest of its labels out.
                let _ = found.unit(dwarf, &unit, prefix);
            }
        }
        found.finish()
    });
    found.unwrap_or_default()
}

#[derive(Default)]
struct Found {
    /// Labels by the offset of the entry that has the name.
    labels: HashMap<usize, Label>,
    /// Addresses of copies, by the offset of the entry that the copy refers to.
    copies: Vec<(usize, u64)>,
}

impl Found {
    fn unit(
        &mut self,
        dwarf: &Dwarf<Slice<'_>>,
        unit: &Unit<Slice<'_>>,
        prefix: &str,
    ) -> gimli::Result<()> {
        let mut entries = unit.entries();
        // Functions around the entry: depth and offset of the entry.
        let mut around: Vec<(isize, UnitOffset)> = Vec::new();
        while let Some(entry) = entries.next_dfs()? {
            let depth = entry.depth();
            while around.last().is_some_and(|f| f.0 >= depth) {
                around.pop();
            }
            match entry.tag() {
                gimli::DW_TAG_subprogram | gimli::DW_TAG_inlined_subroutine
                    if around.len() < MAX_DEPTH =>
                {
                    around.push((depth, entry.offset()));
                }
                gimli::DW_TAG_label => {
                    self.label(dwarf, unit, entry, around.last().map(|f| f.1), prefix)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn label(
        &mut self,
        dwarf: &Dwarf<Slice<'_>>,
        unit: &Unit<Slice<'_>>,
        entry: &Entry<'_>,
        function: Option<UnitOffset>,
        prefix: &str,
    ) -> gimli::Result<()> {
        let place = |offset: UnitOffset| {
            let offset = offset.to_debug_info_offset(&unit.header);
            offset.map_or(usize::MAX, |o| o.0)
        };
        let address = match entry.attr_value(gimli::DW_AT_low_pc) {
            Some(value) => dwarf.attr_address(unit, value)?.unwrap_or(0),
            None => 0,
        };
        if let Some(name) = entry.attr_value(gimli::DW_AT_name) {
            let name = dwarf.attr_string(unit, name)?;
            let name = name.to_string_lossy();
            if !name.starts_with(prefix) {
                return Ok(());
            }
            let number = |attribute| {
                let value = entry.attr_value(attribute);
                value.and_then(|v| v.udata_value()).unwrap_or(0)
            };
            let file = match entry.attr_value(gimli::DW_AT_decl_file) {
                Some(AttributeValue::FileIndex(index)) => path(dwarf, unit, index),
                Some(value) => value.udata_value().and_then(|i| path(dwarf, unit, i)),
                None => None,
            };
            let function = function.and_then(|f| function_name(dwarf, unit, f));
            let label = Label {
                name: name.into_owned(),
                function: function.unwrap_or_default(),
                file: file.unwrap_or_default(),
                line: u32::try_from(number(gimli::DW_AT_decl_line)).unwrap_or(0),
                column: u32::try_from(number(gimli::DW_AT_decl_column)).unwrap_or(0),
                address,
            };
            self.labels.insert(place(entry.offset()), label);
        } else if address != 0 {
            let origin = match entry.attr_value(gimli::DW_AT_abstract_origin) {
                Some(AttributeValue::UnitRef(offset)) => place(offset),
                Some(AttributeValue::DebugInfoRef(DebugInfoOffset(offset))) => offset,
                _ => return Ok(()),
            };
            self.copies.push((origin, address));
        }
        Ok(())
    }

    fn finish(mut self) -> Vec<Label> {
        for (origin, address) in self.copies {
            if let Some(label) = self.labels.get_mut(&origin).filter(|l| l.address == 0) {
                label.address = address;
            }
        }
        let mut all: Vec<Label> = self.labels.into_values().collect();
        let key = |l: &Label| (l.file.clone(), l.line, l.column, l.function.clone());
        all.sort_by_key(|l| (key(l), l.name.clone(), l.address));
        // A header's function is described in each unit that has it.
        all.dedup_by(|b, a| key(a) == key(b) && a.name == b.name);
        all
    }
}

/// The name of a function, which may be in the entry that its entry refers to.
fn function_name(
    dwarf: &Dwarf<Slice<'_>>,
    unit: &Unit<Slice<'_>>,
    mut offset: UnitOffset,
) -> Option<String> {
    for _ in 0..MAX_REFERENCES {
        let entry = unit.entry(offset).ok()?;
        for attribute in [gimli::DW_AT_linkage_name, gimli::DW_AT_name] {
            if let Some(name) = entry.attr_value(attribute) {
                let name = dwarf.attr_string(unit, name).ok()?;
                return Some(name.to_string_lossy().into_owned());
            }
        }
        let origin = [gimli::DW_AT_abstract_origin, gimli::DW_AT_specification];
        let next = origin.iter().find_map(|a| entry.attr_value(*a));
        match next? {
            AttributeValue::UnitRef(next) => offset = next,
            _ => return None,
        }
    }
    None
}

/// The path of a file of the unit's line program, in the form that line information uses.
fn path(dwarf: &Dwarf<Slice<'_>>, unit: &Unit<Slice<'_>>, index: u64) -> Option<String> {
    let header = unit.line_program.as_ref()?.header();
    let file = header.file(index)?;
    let text = |value| -> Option<String> {
        let text = dwarf.attr_string(unit, value).ok()?;
        Some(text.to_string_lossy().into_owned())
    };
    let folder = |i| header.directory(i).and_then(text).unwrap_or_default();
    let mut path = PathBuf::new();
    if file.directory_index() != 0 {
        path.push(folder(0));
    }
    path.push(folder(file.directory_index()));
    path.push(text(file.path_name())?);
    Some(path.to_string_lossy().into_owned())
}

//! Which source line an instruction comes from.
//!
//! Reports name lines, since people know lines and not addresses. The line programs of
//! `.debug_line` alone answer the question, so no other debug information is read for it. The line
//! program of every unit is run once, in file order, so the size of that one section bounds the
//! work, also for a damaged or hostile file. A program stripped of its debug information may have
//! it in a [separate file](super::separate).
//!
//! Up to DWARF 4 the compilation directory is not in the line program; names
//! that are relative to it stay relative.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;

use gimli::{
    AttributeValue, DebugLine, DebugLineOffset, EndianSlice, LineProgramHeader, LittleEndian,
};

use super::Image;
use super::debug_section::section;
use super::inlined::Functions;
use super::separate::{DebugFile, separate_file};
use super::{LineInfo, LineSource, SourceFrame};

/// Largest length of a name in bytes; a longer name is cut.
const MAX_NAME: usize = 4096;
/// Largest size in bytes of all names together; further names are dropped.
const MAX_NAMES: usize = 64 << 20;

/// Bytes of debug information.
pub(super) type Slice<'d> = EndianSlice<'d, LittleEndian>;

/// Source lines of a program; empty where there is no debug information.
///
/// Nothing is read before the first question.
pub struct DebugLines<'i> {
    image: &'i Image,
    table: OnceCell<Table>,
    functions: OnceCell<Option<Functions>>,
    /// What is asked where there is no debug information.
    other: Option<&'i dyn LineSource>,
}

impl<'i> DebugLines<'i> {
    /// The source lines of `image`.
    pub fn new(image: &'i Image) -> Self {
        Self::or(image, None)
    }

    /// The source lines of `image`; without debug information, those of the other source.
    pub fn or(image: &'i Image, other: Option<&'i dyn LineSource>) -> Self {
        Self {
            other,
            image,
            table: OnceCell::new(),
            functions: OnceCell::new(),
        }
    }

    /// File and line of the instruction at a virtual address.
    pub fn line_of(&self, address: u64) -> Option<(&str, u32)> {
        let table = self.table();
        let offset = u32::try_from(address.checked_sub(self.image.base)?).ok()?;
        let row = table.row_at(offset)?;
        Some((table.names.get(row.name as usize)?, row.line))
    }

    /// The functions that an address belongs to by inlining, innermost first. The first has the
    /// line of the instruction; each other has the line of the call that was inlined.
    pub fn functions_at(&self, address: u64) -> Vec<SourceFrame> {
        let functions = self.functions.get_or_init(|| Functions::load(self.image));
        functions.as_ref().map_or(Vec::new(), |f| f.at(address))
    }

    /// True if there is any line information.
    pub fn is_empty(&self) -> bool {
        self.table().sequences.is_empty()
    }

    fn table(&self) -> &Table {
        self.table.get_or_init(|| {
            let table = load(self.image);
            match self.other.filter(|_| table.sequences.is_empty()) {
                Some(other) => Table::of(self.image.base, other),
                None => table,
            }
        })
    }
}

impl LineInfo for DebugLines<'_> {
    fn line_at(&self, address: u64) -> Option<(&str, u32)> {
        self.line_of(address)
    }

    fn frames_at(&self, address: u64) -> Vec<SourceFrame> {
        self.functions_at(address)
    }
}

/// The line of the code from `offset` on, which counts in bytes from the image's base.
#[derive(Clone, Copy)]
struct Row {
    offset: u32,
    name: u32,
    /// Line, or 0 if the code belongs to none.
    line: u32,
}

/// A contiguous run of rows; its code ends at `end`.
struct Sequence {
    start: u32,
    end: u32,
    rows: Range<usize>,
}

#[derive(Default)]
struct Table {
    names: Vec<String>,
    rows: Vec<Row>,
    sequences: Vec<Sequence>,
}

impl Table {
    /// The lines of another source.
    fn of(base: u64, other: &dyn LineSource) -> Self {
        let (rows, end) = other.rows();
        let offset = |address: u64| u32::try_from(address.wrapping_sub(base)).ok();
        let mut table = Self::default();
        let mut numbers: HashMap<&str, u32> = HashMap::new();
        for row in &rows {
            let Some(offset) = offset(row.start) else {
                continue;
            };
            let name = *numbers.entry(row.file).or_insert_with(|| {
                table.names.push(row.file.to_owned());
                table.names.len() as u32 - 1
            });
            let line = row.line;
            table.rows.push(Row { offset, name, line });
        }
        if let (Some(first), Some(end)) = (table.rows.first(), offset(end)) {
            table.sequences.push(Sequence {
                start: first.offset,
                end,
                rows: 0..table.rows.len(),
            });
        }
        table
    }

    fn row_at(&self, offset: u32) -> Option<Row> {
        let i = self
            .sequences
            .partition_point(|s| s.start <= offset)
            .checked_sub(1)?;
        let sequence = &self.sequences[i];
        if offset >= sequence.end {
            return None;
        }
        let rows = &self.rows[sequence.rows.clone()];
        let row = rows[rows
            .partition_point(|r| r.offset <= offset)
            .checked_sub(1)?];
        (row.line != 0).then_some(row)
    }
}

/// The three sections that line programs refer to.
#[derive(Default)]
struct Sections<'d> {
    line: Cow<'d, [u8]>,
    line_str: Cow<'d, [u8]>,
    str: Cow<'d, [u8]>,
}

impl<'d> Sections<'d> {
    /// `None` if `data` is no ELF file or has no lines.
    fn read(data: &'d [u8]) -> Option<Self> {
        let file = object::File::parse(data).ok()?;
        let get = |name| section(&file, name);
        let line = get(".debug_line")?;
        Some(Self {
            line,
            line_str: get(".debug_line_str").unwrap_or_default(),
            str: get(".debug_str").unwrap_or_default(),
        })
    }
}

/// Passes the program's debug information, from its own file or a separate one, to a function.
/// `None` if none can be read.
pub(super) fn with_dwarf<T>(
    image: &Image,
    read: impl for<'d> FnOnce(&gimli::Dwarf<Slice<'d>>) -> T,
) -> Option<T> {
    let file = DebugFile::of(image)?;
    let object = object::File::parse(file.bytes()).ok()?;
    let sections = gimli::DwarfSections::load(|id: gimli::SectionId| {
        Ok::<_, gimli::Error>(section(&object, id.name()).unwrap_or_default())
    });
    let sections = sections.ok()?;
    Some(read(
        &sections.borrow(|bytes| Slice::new(bytes, gimli::LittleEndian)),
    ))
}

fn load(image: &Image) -> Table {
    if let Some(sections) = Sections::read(&image.file) {
        return Builder::new(image, &sections).build();
    }
    let Some((_, separate)) = separate_file(image) else {
        return Table::default();
    };
    Sections::read(&separate)
        .map(|s| Builder::new(image, &s).build())
        .unwrap_or_default()
}

/// Runs the line programs.
struct Builder<'d, 'i> {
    image: &'i Image,
    sections: &'d Sections<'d>,
    table: Table,
    by_name: HashMap<String, u32>,
    names_size: usize,
}

impl<'d, 'i> Builder<'d, 'i> {
    fn new(image: &'i Image, sections: &'d Sections<'d>) -> Self {
        let by_name = HashMap::new();
        Self {
            image,
            sections,
            table: Table::default(),
            by_name,
            names_size: 0,
        }
    }

    fn build(mut self) -> Table {
        let data: &'d [u8] = &self.sections.line;
        let mut offset = 0;
        while let Some(next) = unit_end(data, offset) {
            // A unit that cannot be read leaves its code without lines.
            let _ = self.unit(data, offset);
            offset = next;
        }
        self.table.sequences.sort_by_key(|s| s.start);
        self.table
    }

    fn unit(&mut self, data: &'d [u8], offset: usize) -> gimli::Result<()> {
        let section = DebugLine::new(data, LittleEndian);
        let program = section.program(DebugLineOffset(offset), 8, None, None)?;
        // Names of this unit's files, resolved when a row first uses them.
        let mut files = HashMap::new();
        let mut first = self.table.rows.len();
        let mut rows = program.rows();
        while let Some((header, row)) = rows.next_row()? {
            if row.end_sequence() {
                self.sequence(first, row.address());
                first = self.table.rows.len();
                continue;
            }
            let Some(offset) = self.offset_of(row.address()) else {
                continue;
            };
            let index = row.file_index();
            let name = *files
                .entry(index)
                .or_insert_with(|| self.name(header, index));
            let line = row
                .line()
                .map_or(0, |l| u32::try_from(l.get()).unwrap_or(0));
            self.table.rows.push(Row { offset, name, line });
        }
        // Rows after the last end of a sequence cover nothing.
        self.table.rows.truncate(first);
        Ok(())
    }

    fn offset_of(&self, address: u64) -> Option<u32> {
        u32::try_from(address.checked_sub(self.image.base)?).ok()
    }

    /// Closes the sequence whose rows start at index `first`. Those of code
    /// that the linker dropped start at 0 or another address without code.
    fn sequence(&mut self, first: usize, end: u64) {
        let rows = &mut self.table.rows[first..];
        if !rows.is_sorted_by_key(|r| r.offset) {
            rows.sort_by_key(|r| r.offset);
        }
        let start = rows.first().map(|r| r.offset);
        match (start, self.offset_of(end)) {
            (Some(start), Some(end))
                if start < end && self.image.is_code(self.image.base + u64::from(start)) =>
            {
                let rows = first..self.table.rows.len();
                self.table.sequences.push(Sequence { start, end, rows });
            }
            _ => self.table.rows.truncate(first),
        }
    }

    fn name(&mut self, header: &LineProgramHeader<Slice<'d>>, index: u64) -> u32 {
        let path = self.path(header, index).unwrap_or_default();
        if let Some(name) = self.by_name.get(&path) {
            return *name;
        }
        self.names_size += path.len();
        if path.is_empty() || self.names_size > MAX_NAMES {
            return u32::MAX;
        }
        let id = self.table.names.len() as u32;
        self.table.names.push(path.clone());
        self.by_name.insert(path, id);
        id
    }

    fn path(&self, header: &LineProgramHeader<Slice<'d>>, index: u64) -> Option<String> {
        let file = header.file(index)?;
        let name = self.text(file.path_name())?;
        let folder = |i| {
            header
                .directory(i)
                .and_then(|d| self.text(d))
                .unwrap_or_default()
        };
        let mut path = PathBuf::new();
        // Directory 0 is that of the compilation, the others may be relative to it.
        if file.directory_index() != 0 {
            path.push(folder(0));
        }
        path.push(folder(file.directory_index()));
        path.push(name);
        Some(path.to_string_lossy().into_owned())
    }

    fn text(&self, value: AttributeValue<Slice<'d>>) -> Option<String> {
        let at = |section: &'d [u8], offset: usize| {
            let rest = section.get(offset..)?;
            let rest = &rest[..rest.len().min(MAX_NAME)];
            rest.split(|b| *b == 0).next()
        };
        let bytes = match value {
            AttributeValue::String(s) => s.slice(),
            AttributeValue::DebugLineStrRef(r) => at(&self.sections.line_str, r.0)?,
            AttributeValue::DebugStrRef(r) => at(&self.sections.str, r.0)?,
            _ => return None,
        };
        Some(String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_NAME)]).into_owned())
    }
}

/// Where the unit at `offset` ends: its length is first, in 4 bytes, or in
/// 8 after a mark of all ones. `None` at the section's end or past it.
fn unit_end(data: &[u8], offset: usize) -> Option<usize> {
    let rest = data.get(offset..)?;
    let length = u32::from_le_bytes(*rest.first_chunk()?);
    let (header, length) = match length {
        u32::MAX => (12, u64::from_le_bytes(*rest[4..].first_chunk()?)),
        _ => (4, u64::from(length)),
    };
    let end = offset
        .checked_add(header)?
        .checked_add(usize::try_from(length).ok()?)?;
    (end <= data.len()).then_some(end)
}

//! The debug sections of the output, put together from the program's and the tool's.

use std::collections::HashMap;

use rayon::prelude::*;

use super::bytes::{Cursor, patch};
use super::context::Target;
use super::input::Input;
use super::lines::Lines;
use super::map::{CodeMap, Moved, Piece, Slid};
use super::unit::{self, Bases, Source, Unit};
use crate::analysis::AnalysisImage;
use crate::image::separate::DebugFile;
use crate::layout::Placed;

/// A section to be appended.
pub struct DebugSection {
    /// Its name.
    pub name: &'static str,
    /// Its contents.
    pub bytes: Vec<u8>,
}

/// The sections so far.
#[derive(Default)]
struct Out {
    abbrev: Vec<u8>,
    addr: Vec<u8>,
    altlink: Vec<u8>,
    aranges: Vec<u8>,
    info: Vec<u8>,
    line: Vec<u8>,
    line_str: Vec<u8>,
    loc: Vec<u8>,
    loclists: Vec<u8>,
    macinfo: Vec<u8>,
    macros: Vec<u8>,
    ranges: Vec<u8>,
    rnglists: Vec<u8>,
    str: Vec<u8>,
    str_offsets: Vec<u8>,
    types: Vec<u8>,
    /// Offsets of changed tables of abbreviations: by the offset that the original's table has in the output,
    /// and by the code of the changed entry.
    changed: HashMap<(u64, u64), u64>,
}

/// Makes the debug sections of the program, if it or a separate file has debug information, and of
/// the tool.
pub fn build(placed: &Placed<'_>) -> Vec<DebugSection> {
    let (image, cfg) = (placed.object.image, &placed.object.cfg);
    let (plan, layout) = (placed.plan, &placed.layout);
    let mut out = Out::default();
    if let Some(file) = DebugFile::of(image)
        && let Some(mut input) = Input::read(file.bytes())
    {
        if !input.altlink.is_empty() {
            input.altlink = file.altlink().unwrap_or_default().into();
        }
        // Without the file to which it refers, no unit could be read.
        if !input.altlink.is_empty() || !refers_elsewhere(&input) {
            for layout in placed.versions() {
                out.add(&input, &Moved { cfg, plan, layout });
            }
            out.altlink = input.altlink.into_owned();
        }
    }
    if let Some(analysis) = placed.analysis {
        let base = placed.placement.analysis.wrapping_add(layout.region.shift);
        out.add_analysis(analysis, base);
    }
    out.finish()
}

/// Makes the debug sections of a tool alone, if its file has debug information. `base` is the address at
/// which the tool's address 0 is.
pub fn build_analysis(analysis: &AnalysisImage, base: u64) -> Vec<DebugSection> {
    let mut out = Out::default();
    out.add_analysis(analysis, base);
    out.finish()
}

/// True if entries refer to another file. Asked only where that file is missing.
fn refers_elsewhere(input: &Input<'_>) -> bool {
    // ref_sup4, strp_sup, ref_sup8, GNU_ref_alt and GNU_strp_alt; the last two are
    // what tools write, as two bytes each in the abbreviations.
    let alt = |low: u8| input.abbrev.windows(2).any(|w| w == [low, 0x3e]);
    alt(0xa0) || alt(0xa1)
}

/// The units of a section: start and end of each.
fn units(data: &[u8]) -> Vec<(usize, usize)> {
    let mut out = Vec::new();
    let mut cursor = Cursor::new(data, 0);
    while let Some((len, _)) = cursor.unit_length() {
        let Some(end) = cursor.at.checked_add(len).filter(|e| *e <= data.len()) else {
            break;
        };
        out.push((out.last().map_or(0, |u: &(usize, usize)| u.1), end));
        cursor.at = end;
    }
    out
}

impl Out {
    fn add_analysis(&mut self, analysis: &AnalysisImage, base: u64) {
        let bytes = std::fs::read(&analysis.file).unwrap_or_default();
        if let Some(input) = Input::read(&bytes) {
            self.add(&input, &Slid { analysis, base });
        }
    }

    fn add(&mut self, input: &Input<'_>, map: &dyn CodeMap) {
        let bases = Bases {
            abbrev: self.abbrev.len() as u64,
            addr: self.addr.len() as u64,
            info: self.info.len() as u64,
            line_str: self.line_str.len() as u64,
            macinfo: self.macinfo.len() as u64,
            macros: self.macros.len() as u64,
            str: self.str.len() as u64,
            str_offsets: self.str_offsets.len() as u64,
        };
        let lines = Lines::convert(input, map, self.line.len(), [bases.str, bases.line_str]);
        let source = Source {
            input,
            map,
            lines: &lines,
            bases,
        };
        self.abbrev.extend(&*input.abbrev);
        self.str.extend(&*input.str);
        self.line_str.extend(&*input.line_str);
        self.macinfo.extend(&*input.macinfo);
        self.macros.extend(&*input.macros);
        self.indexed_addresses(input, map);
        self.indexed_strings(input, bases.str);
        for is_types in [false, true] {
            let data: &[u8] = if is_types { &input.types } else { &input.info };
            let units = units(data);
            let converted: Vec<Option<Unit>> = units
                .par_iter()
                .map(|(start, end)| unit::convert(&source, data, *start, *end, is_types))
                .collect();
            for ((start, end), unit) in units.into_iter().zip(converted) {
                match unit {
                    Some(unit) => self.unit(unit, is_types, &source),
                    None => self.empty(&data[start..end], is_types, &bases),
                }
            }
        }
        self.line.extend(lines.bytes);
    }

    fn unit(&mut self, mut unit: Unit, is_types: bool, source: &Source<'_>) {
        let (ranges, locations) = match unit.version {
            5.. => (&mut self.rnglists, &mut self.loclists),
            _ => (&mut self.ranges, &mut self.loc),
        };
        let base = |target| match target {
            Target::Info => source.bases.info,
            Target::Ranges => ranges.len() as u64,
            Target::Locations => locations.len() as u64,
        };
        for (bytes, fixups) in [
            (&mut unit.bytes, &unit.fixups),
            (&mut unit.locations.bytes, &unit.locations.fixups),
        ] {
            for fixup in fixups {
                let value = Cursor::new(bytes, fixup.at).uint(fixup.size).unwrap_or(0);
                patch(bytes, fixup.at, fixup.size, value + base(fixup.target));
            }
        }
        ranges.extend(&unit.ranges.bytes);
        locations.extend(&unit.locations.bytes);
        if let Some(at) = unit.macros {
            self.macro_lines(at, source);
        }
        if let Some(table) = unit.abbreviations {
            let key = (source.bases.abbrev + table.of.0, table.of.1);
            let offset = *self.changed.entry(key).or_insert_with(|| {
                let offset = self.abbrev.len() as u64;
                self.abbrev.extend(table.bytes);
                offset
            });
            let (at, size) = table.place;
            patch(&mut unit.bytes, at, size, offset);
        }
        if is_types {
            self.types.extend(&unit.bytes);
            return;
        }
        self.cover(self.info.len() as u64, &unit.covers);
        self.info.extend(&unit.bytes);
    }

    /// Adds a unit that could not be converted: it keeps its size and loses its entries.
    fn empty(&mut self, original: &[u8], is_types: bool, bases: &Bases) {
        let mut bytes = original.to_vec();
        let mut blank = || -> Option<()> {
            let mut cursor = Cursor::new(original, 0);
            let (_, size) = cursor.unit_length()?;
            let version = cursor.u16()?;
            let rest = match version {
                5 => {
                    cursor.take(2)?;
                    0
                }
                _ => 1 + if is_types { 8 + size } else { 0 },
            };
            let abbrev_at = cursor.at;
            let abbrev = cursor.uint(size)?;
            cursor.take(rest)?;
            let header = if version == 5 {
                cursor.at + 8 + size
            } else {
                cursor.at
            };
            bytes.get_mut(header..)?.fill(0);
            patch(&mut bytes, abbrev_at, size, abbrev + bases.abbrev);
            Some(())
        };
        let _ = blank();
        if is_types {
            self.types.extend(bytes)
        } else {
            self.info.extend(bytes)
        }
    }

    /// Converts `.debug_addr`. Addresses of code are mapped as starts of code, other addresses as
    /// data.
    fn indexed_addresses(&mut self, input: &Input<'_>, map: &dyn CodeMap) {
        let base = self.addr.len();
        self.addr.extend(&*input.addr);
        for (start, end) in units(&input.addr) {
            let mut cursor = Cursor::new(&input.addr[..end], start);
            if cursor.unit_length().is_none() || cursor.take(4).is_none() {
                continue;
            }
            loop {
                let at = base + cursor.at;
                let Some(old) = cursor.u64() else { break };
                patch(&mut self.addr, at, 8, map.start(old));
            }
        }
    }

    /// Converts `.debug_str_offsets`, whose offsets count from the new start of the strings.
    fn indexed_strings(&mut self, input: &Input<'_>, str_base: u64) {
        let base = self.str_offsets.len();
        self.str_offsets.extend(&*input.str_offsets);
        if str_base == 0 {
            return;
        }
        for (start, end) in units(&input.str_offsets) {
            let mut cursor = Cursor::new(&input.str_offsets[..end], start);
            let Some((_, size)) = cursor.unit_length() else {
                continue;
            };
            if cursor.take(4).is_none() {
                continue;
            }
            loop {
                let at = base + cursor.at;
                let Some(old) = cursor.uint(size) else { break };
                patch(&mut self.str_offsets, at, size, old + str_base);
            }
        }
    }

    /// Adjusts a macro unit, which names its unit's line program.
    fn macro_lines(&mut self, at: u64, source: &Source<'_>) {
        let Ok(start) = usize::try_from(at) else {
            return;
        };
        let mut cursor = Cursor::new(&source.input.macros, start);
        let (Some(_), Some(flags)) = (cursor.u16(), cursor.u8()) else {
            return;
        };
        let size = if flags & 1 == 0 { 4 } else { 8 };
        let place = source.bases.macros as usize + cursor.at;
        if flags & 2 != 0
            && let Some(old) = cursor.uint(size)
        {
            let new = source.lines.offset(old).unwrap_or(u64::MAX);
            patch(&mut self.macros, place, size, new);
        }
    }

    /// Adds the ranges that a unit covers to `.debug_aranges`.
    fn cover(&mut self, info_offset: u64, pieces: &[Piece]) {
        let Ok(info_offset) = u32::try_from(info_offset) else {
            return;
        };
        if pieces.is_empty() {
            return;
        }
        let length = 12 + 16 * (pieces.len() as u32 + 1);
        self.aranges.extend(length.to_le_bytes());
        self.aranges.extend(2u16.to_le_bytes());
        self.aranges.extend(info_offset.to_le_bytes());
        // Sizes of an address and of a segment, and padding to twice the first.
        self.aranges.extend([8, 0, 0, 0, 0, 0]);
        for piece in pieces {
            self.aranges.extend(piece.from.to_le_bytes());
            self.aranges.extend((piece.to - piece.from).to_le_bytes());
        }
        self.aranges.extend([0; 16]);
    }

    fn finish(self) -> Vec<DebugSection> {
        [
            (".debug_abbrev", self.abbrev),
            (".debug_addr", self.addr),
            (".debug_aranges", self.aranges),
            (".debug_info", self.info),
            (".debug_line", self.line),
            (".debug_line_str", self.line_str),
            (".debug_loc", self.loc),
            (".debug_loclists", self.loclists),
            (".debug_macinfo", self.macinfo),
            (".debug_macro", self.macros),
            (".debug_ranges", self.ranges),
            (".debug_rnglists", self.rnglists),
            (".debug_str", self.str),
            (".debug_str_offsets", self.str_offsets),
            (".debug_types", self.types),
            (".gnu_debugaltlink", self.altlink),
        ]
        .into_iter()
        .filter(|(_, bytes)| !bytes.is_empty())
        .map(|(name, bytes)| DebugSection { name, bytes })
        .collect()
    }
}

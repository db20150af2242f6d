//! Range lists and location lists: read in their two formats, mapped, written
//! with absolute addresses.

use super::bytes::Cursor;
use super::context::{Context, Fixup, Target};
use super::expr;
use super::input::Input;
use super::map::{CodeMap, Piece};

/// An entry of a list: a range, and in a location list the place of its expression.
struct Entry {
    from: u64,
    to: u64,
    expression: Option<std::ops::Range<usize>>,
}

/// The entries of a list. A default location has no range.
#[derive(Default)]
struct List {
    entries: Vec<Entry>,
    default: Option<std::ops::Range<usize>>,
}

/// The kind of a list.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ListKind {
    Ranges,
    Locations,
}

/// The new lists of one unit, in the format of its version.
pub(super) struct Lists {
    kind: ListKind,
    /// The contribution, with its header from DWARF 5 on.
    pub bytes: Vec<u8>,
    /// Original offset of each list in its section, and new offset in `bytes`.
    known: Vec<(u64, u64)>,
    /// Places in `bytes` to be corrected once sections are put together.
    pub fixups: Vec<Fixup>,
    /// Offset in `bytes` from which offsets by index count.
    pub index_base: u64,
}

impl Lists {
    pub fn new(kind: ListKind) -> Self {
        Self {
            kind,
            bytes: Vec::new(),
            known: Vec::new(),
            fixups: Vec::new(),
            index_base: 0,
        }
    }

    /// Converts all lists of the original's contribution whose table of offsets
    /// starts at `base`, so that indexes keep their meaning.
    pub fn indexed(
        &mut self,
        input: &Input<'_>,
        unit: &Context,
        base: u64,
        map: &dyn CodeMap,
    ) -> Option<()> {
        let data = self.section(input, 5);
        let base = usize::try_from(base).ok()?;
        let count = Cursor::new(data, base.checked_sub(4)?).uint(4)? as usize;
        self.header(unit, count);
        for i in 0..count {
            let size = unit.offset_size;
            let offset = Cursor::new(data, base + i * size).uint(size)?;
            let new = self.list(input, unit, base as u64 + offset, map)?;
            let relative = new - self.index_base;
            super::bytes::patch(
                &mut self.bytes,
                self.index_base as usize + i * size,
                size,
                relative,
            );
        }
        Some(())
    }

    fn header(&mut self, unit: &Context, count: usize) {
        if unit.version < 5 || !self.bytes.is_empty() {
            return;
        }
        if unit.offset_size == 8 {
            self.bytes.extend([0xff; 4]);
        }
        self.bytes.extend(vec![0; unit.offset_size]);
        self.bytes.extend([5, 0, 8, 0]);
        self.bytes.extend((count as u32).to_le_bytes());
        self.index_base = self.bytes.len() as u64;
        self.bytes.extend(vec![0; count * unit.offset_size]);
    }

    /// Fills in the length.
    pub fn finish(&mut self, unit: &Context) {
        if unit.version < 5 || self.bytes.is_empty() {
            return;
        }
        let size = unit.offset_size;
        let at = if size == 8 { 4 } else { 0 };
        let length = (self.bytes.len() - at - size) as u64;
        super::bytes::patch(&mut self.bytes, at, size, length);
    }

    fn section<'i>(&self, input: &'i Input<'_>, version: u16) -> &'i [u8] {
        match (self.kind, version >= 5) {
            (ListKind::Ranges, false) => &input.ranges,
            (ListKind::Ranges, true) => &input.rnglists,
            (ListKind::Locations, false) => &input.loc,
            (ListKind::Locations, true) => &input.loclists,
        }
    }

    /// New offset in `bytes` of the list at `offset` of the original section.
    pub fn list(
        &mut self,
        input: &Input<'_>,
        unit: &Context,
        offset: u64,
        map: &dyn CodeMap,
    ) -> Option<u64> {
        if let Some((_, new)) = self.known.iter().rev().take(64).find(|k| k.0 == offset) {
            return Some(*new);
        }
        let data = self.section(input, unit.version);
        let at = usize::try_from(offset).ok()?;
        let list = match unit.version {
            5.. => self.read_new(Cursor::new(data, at), input, unit)?,
            _ => self.read_old(Cursor::new(data, at), unit)?,
        };
        self.header(unit, 0);
        let new = self.bytes.len() as u64;
        self.known.push((offset, new));
        self.write(&list, data, unit, map)?;
        Some(new)
    }

    /// Adds a list of ranges; returns its offset in `bytes`.
    pub fn of_pieces(&mut self, unit: &Context, pieces: &[Piece]) -> u64 {
        self.header(unit, 0);
        let new = self.bytes.len() as u64;
        self.write_ranges(pieces, unit);
        self.end(unit);
        new
    }

    /// The ranges of a list in the original.
    pub fn ranges(
        &self,
        input: &Input<'_>,
        unit: &Context,
        offset: u64,
    ) -> Option<Vec<(u64, u64)>> {
        let cursor = Cursor::new(
            self.section(input, unit.version),
            usize::try_from(offset).ok()?,
        );
        let list = match unit.version {
            5.. => self.read_new(cursor, input, unit)?,
            _ => self.read_old(cursor, unit)?,
        };
        Some(list.entries.iter().map(|e| (e.from, e.to)).collect())
    }

    /// Up to DWARF 4: pairs of addresses, in a location list each with an expression.
    fn read_old(&self, mut cursor: Cursor<'_>, unit: &Context) -> Option<List> {
        let mut list = List::default();
        let mut base = unit.low_pc;
        loop {
            let (from, to) = (cursor.u64()?, cursor.u64()?);
            match (from, to) {
                (0, 0) => return Some(list),
                (u64::MAX, address) => {
                    base = address;
                    continue;
                }
                _ => {}
            }
            let expression = match self.kind {
                ListKind::Ranges => None,
                ListKind::Locations => {
                    let len = usize::from(cursor.u16()?);
                    let start = cursor.at;
                    cursor.take(len)?;
                    Some(start..start + len)
                }
            };
            list.entries.push(Entry {
                from: base.wrapping_add(from),
                to: base.wrapping_add(to),
                expression,
            });
        }
    }

    fn read_new(&self, mut cursor: Cursor<'_>, input: &Input<'_>, unit: &Context) -> Option<List> {
        let mut list = List::default();
        let mut base = unit.low_pc;
        let is_locations = self.kind == ListKind::Locations;
        loop {
            // Both kinds use the same codes up to 4. A location list has two more codes after it
            // them.
            let code = match (cursor.u8()?, is_locations) {
                (code @ 0..=4, _) => code,
                (5, true) => 8,
                (9, true) => {
                    cursor.skip_leb()?;
                    cursor.skip_leb()?;
                    continue;
                }
                (code @ 6..=8, true) => code - 1,
                (code @ 5..=7, false) => code,
                _ => return None,
            };
            let range = match code {
                0 => return Some(list),
                1 => {
                    base = unit.indexed_address(input, cursor.uleb()?)?;
                    continue;
                }
                2 => {
                    let from = unit.indexed_address(input, cursor.uleb()?)?;
                    (from, unit.indexed_address(input, cursor.uleb()?)?)
                }
                3 => {
                    let from = unit.indexed_address(input, cursor.uleb()?)?;
                    (from, from.wrapping_add(cursor.uleb()?))
                }
                4 => {
                    let from = base.wrapping_add(cursor.uleb()?);
                    (from, base.wrapping_add(cursor.uleb()?))
                }
                5 => {
                    base = cursor.u64()?;
                    continue;
                }
                6 => (cursor.u64()?, cursor.u64()?),
                7 => {
                    let from = cursor.u64()?;
                    (from, from.wrapping_add(cursor.uleb()?))
                }
                _ => (0, 0),
            };
            let mut expression = None;
            if is_locations {
                let len = usize::try_from(cursor.uleb()?).ok()?;
                let start = cursor.at;
                cursor.take(len)?;
                expression = Some(start..start + len);
            }
            match code {
                8 => list.default = expression,
                _ => list.entries.push(Entry {
                    from: range.0,
                    to: range.1,
                    expression,
                }),
            }
        }
    }

    fn write(&mut self, list: &List, data: &[u8], unit: &Context, map: &dyn CodeMap) -> Option<()> {
        let is_new = unit.version >= 5;
        if self.kind == ListKind::Locations {
            self.absolute(unit);
        }
        let mut pieces: Vec<Piece> = Vec::new();
        for entry in &list.entries {
            if self.kind == ListKind::Locations {
                pieces.clear();
            }
            if entry.from < entry.to {
                map.pieces(entry.from, entry.to, &mut pieces);
            }
            if self.kind == ListKind::Locations {
                for piece in &pieces {
                    self.range(piece, is_new);
                    self.expression(entry.expression.clone()?, data, unit, map)?;
                }
            }
        }
        if self.kind == ListKind::Ranges {
            self.write_ranges(&pieces, unit);
        }
        if let Some(default) = &list.default {
            self.bytes.push(5);
            self.expression(default.clone(), data, unit, map)?;
        }
        self.end(unit);
        Some(())
    }

    fn write_ranges(&mut self, pieces: &[Piece], unit: &Context) {
        self.absolute(unit);
        for piece in pieces {
            self.range(piece, unit.version >= 5);
        }
    }

    /// Says up to DWARF 4 that addresses are absolute from here on.
    fn absolute(&mut self, unit: &Context) {
        if unit.version < 5 {
            self.bytes.extend(u64::MAX.to_le_bytes());
            self.bytes.extend([0; 8]);
        }
    }

    /// Ends a list.
    fn end(&mut self, unit: &Context) {
        match unit.version {
            5.. => self.bytes.push(0),
            _ => self.bytes.extend([0; 16]),
        }
    }

    fn range(&mut self, piece: &Piece, is_new: bool) {
        if is_new {
            // start_length
            self.bytes
                .push(if self.kind == ListKind::Ranges { 7 } else { 8 });
            self.bytes.extend(piece.from.to_le_bytes());
            leb128::push(&mut self.bytes, piece.to.wrapping_sub(piece.from));
        } else {
            self.bytes.extend(piece.from.to_le_bytes());
            self.bytes.extend(piece.to.to_le_bytes());
        }
    }

    fn expression(
        &mut self,
        range: std::ops::Range<usize>,
        data: &[u8],
        unit: &Context,
        map: &dyn CodeMap,
    ) -> Option<()> {
        match unit.version {
            5.. => leb128::push(&mut self.bytes, range.len() as u64),
            _ => self.bytes.extend((range.len() as u16).to_le_bytes()),
        }
        let start = self.bytes.len();
        self.bytes.extend(data.get(range.clone())?);
        let (bytes, fixups) = (&mut self.bytes, &mut self.fixups);
        expr::scan(
            &mut Cursor::new(data, range.start),
            range.end,
            unit.offset_size,
            &mut |part| match part {
                expr::Part::Address(at) => {
                    let place = start + (at - range.start);
                    if let Some(old) = Cursor::new(data, at).u64() {
                        super::bytes::patch(bytes, place, 8, map.data(old));
                    }
                }
                expr::Part::Reference(at, size) => fixups.push(Fixup {
                    at: start + (at - range.start),
                    size,
                    target: Target::Info,
                }),
            },
        )
    }
}

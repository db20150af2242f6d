//! One unit of `.debug_info` or `.debug_types`: its entries with new numbers.

use std::collections::HashMap;

use super::bytes::{Cursor, patch, patch_uleb};
use super::expr;
use super::input::Input;
use super::lines::Lines;
use super::lists::{Kind, Lists};
use super::map::{CodeMap, Piece, hull};

/// A section of the output that a number counts from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Target {
    /// The file's part of `.debug_info`.
    Info,
    /// This unit's lists.
    Ranges,
    /// This unit's lists.
    Locations,
}

/// A number of a unit to which the start of a section's part is added.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fixup {
    pub at: usize,
    pub size: usize,
    pub target: Target,
}

/// Where the parts of sections that are copied lie in the output.
#[derive(Clone, Copy, Default)]
pub(super) struct Bases {
    pub abbrev: u64,
    pub addr: u64,
    pub info: u64,
    pub line_str: u64,
    pub macinfo: u64,
    pub macros: u64,
    pub str: u64,
    pub str_offsets: u64,
}

/// What is known of a unit once its first entry is read.
pub(super) struct Context {
    pub version: u16,
    pub offset_size: usize,
    /// Where addresses by index count from.
    pub addr_base: u64,
    /// The base address of its lists.
    pub low_pc: u64,
}

impl Context {
    /// An address of `.debug_addr`.
    pub fn indexed_address(&self, input: &Input<'_>, index: u64) -> Option<u64> {
        let at = self.addr_base.checked_add(index.checked_mul(8)?)?;
        Cursor::new(&input.addr, usize::try_from(at).ok()?).u64()
    }
}

/// A unit's contribution to the output.
pub(super) struct Unit {
    /// Its entries.
    pub bytes: Vec<u8>,
    pub fixups: Vec<Fixup>,
    pub ranges: Lists,
    pub locations: Lists,
    pub version: u16,
    /// What it covers now.
    pub covers: Vec<Piece>,
    /// It uses macros at this offset of `.debug_macro`.
    pub macros: Option<u64>,
}

struct Abbreviation {
    tag: u64,
    /// Name, form, and the value of an implicit constant.
    attributes: Vec<(u64, u64)>,
}

/// Skips a value; `None` for a form that is not known.
pub(super) fn skip_form(
    cursor: &mut Cursor<'_>,
    form: u64,
    offset_size: usize,
    version: u16,
) -> Option<()> {
    let size = match form {
        // addr, data8, ref8, ref_sig8, ref_sup8
        0x01 | 0x07 | 0x14 | 0x20 | 0x24 => 8,
        // data2, ref2, strx2, addrx2
        0x05 | 0x12 | 0x26 | 0x2a => 2,
        // data4, ref4, ref_sup4, strx4, addrx4
        0x06 | 0x13 | 0x1c | 0x28 | 0x2c => 4,
        // strx3, addrx3
        0x27 | 0x2b => 3,
        // data1, ref1, flag, strx1, addrx1
        0x0b | 0x11 | 0x0c | 0x25 | 0x29 => 1,
        // flag_present, implicit_const
        0x19 | 0x21 => 0,
        // data16
        0x1e => 16,
        // strp, sec_offset, strp_sup, line_strp, GNU_ref_alt, GNU_strp_alt
        0x0e | 0x17 | 0x1d | 0x1f | 0x1f20 | 0x1f21 => offset_size,
        // ref_addr
        0x10 => {
            if version <= 2 {
                8
            } else {
                offset_size
            }
        }
        // sdata, udata, ref_udata, strx, addrx, loclistx, rnglistx, GNU_addr_index, GNU_str_index
        0x0d | 0x0f | 0x15 | 0x1a | 0x1b | 0x22 | 0x23 | 0x1f01 | 0x1f02 => {
            return cursor.skip_leb();
        }
        0x08 => return cursor.skip_string(),
        // block2, block4, block and exprloc, block1
        0x03 => usize::from(cursor.u16()?),
        0x04 => cursor.uint(4)? as usize,
        0x09 | 0x18 => usize::try_from(cursor.uleb()?).ok()?,
        0x0a => usize::from(cursor.u8()?),
        // indirect
        0x16 => {
            let form = cursor.uleb()?;
            // Nested ones could go on without end.
            return (form != 0x16)
                .then_some(())
                .and_then(|()| skip_form(cursor, form, offset_size, version));
        }
        _ => return None,
    };
    cursor.take(size).map(drop)
}

fn abbreviations(data: &[u8], at: u64) -> Option<HashMap<u64, Abbreviation>> {
    let mut cursor = Cursor::new(data, usize::try_from(at).ok()?);
    let mut table = HashMap::new();
    loop {
        let code = cursor.uleb()?;
        if code == 0 {
            return Some(table);
        }
        let tag = cursor.uleb()?;
        cursor.u8()?;
        let mut attributes = Vec::new();
        loop {
            let (name, form) = (cursor.uleb()?, cursor.uleb()?);
            if form == 0x21 {
                cursor.skip_leb()?;
            }
            if (name, form) == (0, 0) {
                break;
            }
            attributes.push((name, form));
        }
        table.insert(code, Abbreviation { tag, attributes });
    }
}

/// Everything that a unit's conversion reads.
pub(super) struct Source<'a> {
    pub input: &'a Input<'a>,
    pub map: &'a dyn CodeMap,
    pub lines: &'a Lines,
    pub bases: Bases,
}

/// A value with an address in it.
#[derive(Clone, Copy)]
struct Place {
    at: usize,
    len: usize,
    form: u64,
    value: u64,
}

/// The attributes of one entry that depend on each other.
#[derive(Default)]
struct Entry {
    low: Option<Place>,
    high: Option<Place>,
    entry: Option<Place>,
    ranges: Option<Place>,
    /// Location lists.
    locations: Vec<Place>,
    return_pc: Option<Place>,
}

struct Walker<'a, 's> {
    source: &'s Source<'a>,
    /// The section, and where the unit starts in it.
    data: &'s [u8],
    start: usize,
    context: Context,
    unit: Unit,
    rnglists_base: u64,
    is_split: bool,
}

/// Converts the unit at `start` of `data`, which ends at `end`. `None` if it cannot be read.
pub(super) fn convert(
    source: &Source<'_>,
    data: &[u8],
    start: usize,
    end: usize,
    is_types: bool,
) -> Option<Unit> {
    let data = &data[..end];
    let mut cursor = Cursor::new(data, start);
    let (_, offset_size) = cursor.unit_length()?;
    let version = cursor.u16()?;
    let mut kind = 1;
    let abbrev_at;
    let address_size;
    match version {
        2..=4 => {
            abbrev_at = cursor.at;
            cursor.take(offset_size)?;
            address_size = cursor.u8()?;
            if is_types {
                cursor.take(8 + offset_size)?;
            }
        }
        5 => {
            kind = cursor.u8()?;
            address_size = cursor.u8()?;
            abbrev_at = cursor.at;
            cursor.take(offset_size)?;
            match kind {
                2 | 6 => drop(cursor.take(8 + offset_size)?),
                4 | 5 => drop(cursor.take(8)?),
                _ => {}
            }
        }
        _ => return None,
    }
    // The rest of a split unit is in another file, with the original's sizes.
    if address_size != 8 || matches!(kind, 4 | 5) {
        return None;
    }
    let abbrev = Cursor::new(data, abbrev_at).uint(offset_size)?;
    let table = abbreviations(&source.input.abbrev, abbrev)?;
    let mut bytes = data[start..end].to_vec();
    patch(
        &mut bytes,
        abbrev_at - start,
        offset_size,
        abbrev + source.bases.abbrev,
    );
    let mut walker = Walker {
        source,
        data,
        start,
        context: Context {
            version,
            offset_size,
            addr_base: 8,
            low_pc: 0,
        },
        unit: Unit {
            bytes,
            fixups: Vec::new(),
            ranges: Lists::new(Kind::Ranges),
            locations: Lists::new(Kind::Locations),
            version,
            covers: Vec::new(),
            macros: None,
        },
        rnglists_base: 0,
        is_split: false,
    };
    let mut is_first = true;
    while cursor.at < end {
        let code = cursor.uleb()?;
        if code == 0 {
            continue;
        }
        walker.entry(table.get(&code)?, &mut cursor, is_first)?;
        if walker.is_split {
            return None;
        }
        is_first = false;
    }
    let Walker {
        mut unit, context, ..
    } = walker;
    unit.ranges.finish(&context);
    unit.locations.finish(&context);
    Some(unit)
}

impl Walker<'_, '_> {
    fn entry(
        &mut self,
        kind: &Abbreviation,
        cursor: &mut Cursor<'_>,
        is_first: bool,
    ) -> Option<()> {
        let mut entry = Entry::default();
        let mut bases = [None; 2];
        for (name, form) in &kind.attributes {
            let mut form = *form;
            if form == 0x16 {
                form = cursor.uleb()?;
            }
            let at = cursor.at;
            skip_form(cursor, form, self.context.offset_size, self.context.version)?;
            self.attribute(*name, form, at, cursor.at, &mut entry, &mut bases)?;
        }
        if is_first {
            self.first(&entry, bases)?;
        }
        self.addresses(kind.tag, &entry);
        self.lists(&entry);
        Some(())
    }

    #[allow(clippy::too_many_arguments)]
    fn attribute(
        &mut self,
        name: u64,
        form: u64,
        at: usize,
        end: usize,
        entry: &mut Entry,
        list_bases: &mut [Option<u64>; 2],
    ) -> Option<()> {
        let size = self.context.offset_size;
        let bases = &self.source.bases;
        let place = at - self.start;
        let number = |len: usize| Cursor::new(self.data, at).uint(len);
        match form {
            // strp, line_strp
            0x0e if bases.str != 0 => {
                patch(&mut self.unit.bytes, place, size, number(size)? + bases.str)
            }
            0x1f if bases.line_str != 0 => {
                patch(
                    &mut self.unit.bytes,
                    place,
                    size,
                    number(size)? + bases.line_str,
                );
            }
            // ref_addr
            0x10 => {
                let size = end - at;
                self.unit.fixups.push(Fixup {
                    at: place,
                    size,
                    target: Target::Info,
                });
            }
            // exprloc; blocks are expressions where they are locations
            0x18 | 0x03 | 0x04 | 0x09 | 0x0a if form == 0x18 || is_location(name) => {
                let mut cursor = Cursor::new(self.data, at);
                match form {
                    0x03 => drop(cursor.u16()?),
                    0x04 => drop(cursor.uint(4)?),
                    0x0a => drop(cursor.u8()?),
                    _ => cursor.skip_leb()?,
                }
                self.expression(&mut cursor, end);
            }
            // addr
            0x01 => {
                let value = number(8)?;
                let here = Place {
                    at: place,
                    len: 8,
                    form,
                    value,
                };
                match name {
                    0x7d => entry.return_pc = Some(here),
                    0x11 => entry.low = Some(here),
                    0x12 => entry.high = Some(here),
                    0x52 => entry.entry = Some(here),
                    0x81 => patch(&mut self.unit.bytes, place, 8, self.source.map.start(value)),
                    _ => patch(&mut self.unit.bytes, place, 8, self.source.map.data(value)),
                }
            }
            // addrx: its table is converted as a whole
            0x1b | 0x29..=0x2c | 0x1f01 => {
                if matches!(name, 0x11 | 0x12 | 0x52) {
                    let index = match form {
                        0x1b | 0x1f01 => Cursor::new(self.data, at).uleb()?,
                        _ => number(end - at)?,
                    };
                    // The base may stand behind it in the first entry; see there.
                    let here = Place {
                        at: place,
                        len: end - at,
                        form: 0x1b,
                        value: index,
                    };
                    match name {
                        0x11 => entry.low = Some(here),
                        0x12 => entry.high = Some(here),
                        _ => entry.entry = Some(here),
                    }
                }
            }
            // Constants
            0x05..=0x07 | 0x0b | 0x0d | 0x0f if matches!(name, 0x12 | 0x52) => {
                let value = match form {
                    0x0d | 0x0f => Cursor::new(self.data, at).uleb()?,
                    _ => number(end - at)?,
                };
                let here = Place {
                    at: place,
                    len: end - at,
                    form,
                    value,
                };
                match name {
                    0x12 => entry.high = Some(here),
                    _ => entry.entry = Some(here),
                }
            }
            // Offsets into sections; up to DWARF 3 as plain numbers.
            0x17 => self.section_offset(name, at, size, entry, list_bases)?,
            0x06 | 0x07 if self.context.version < 4 && is_offset_in_old(name) => {
                self.section_offset(name, at, end - at, entry, list_bases)?;
            }
            // rnglistx
            0x23 if name == 0x55 => {
                let value = Cursor::new(self.data, at).uleb()?;
                entry.ranges = Some(Place {
                    at: place,
                    len: end - at,
                    form,
                    value,
                });
            }
            _ => {}
        }
        // A skeleton's other half is in another file.
        self.is_split |= matches!(name, 0x76 | 0x2130);
        Some(())
    }

    fn section_offset(
        &mut self,
        name: u64,
        at: usize,
        size: usize,
        entry: &mut Entry,
        list_bases: &mut [Option<u64>; 2],
    ) -> Option<()> {
        let value = Cursor::new(self.data, at).uint(size)?;
        let bases = &self.source.bases;
        let place = at - self.start;
        let here = Place {
            at: place,
            len: size,
            form: 0x17,
            value,
        };
        let new = match name {
            // stmt_list: without lines, an offset at which there is nothing
            0x10 => self.source.lines.offset(value).unwrap_or(u64::MAX),
            // ranges, start_scope
            0x55 | 0x2c => {
                entry.ranges = Some(here);
                return Some(());
            }
            // macro_info; macros
            0x43 => value + bases.macinfo,
            0x79 | 0x2119 => {
                self.unit.macros = Some(value);
                value + bases.macros
            }
            0x72 => value + bases.str_offsets,
            0x73 | 0x2133 => {
                self.context.addr_base = value;
                value + bases.addr
            }
            0x74 => {
                self.rnglists_base = value;
                list_bases[0] = Some(value);
                self.unit.fixups.push(Fixup {
                    at: place,
                    size,
                    target: Target::Ranges,
                });
                return Some(());
            }
            0x8c => {
                list_bases[1] = Some(value);
                self.unit.fixups.push(Fixup {
                    at: place,
                    size,
                    target: Target::Locations,
                });
                return Some(());
            }
            // GNU_locviews: view numbers are not kept
            0x2137 => return Some(()),
            _ => {
                entry.locations.push(here);
                return Some(());
            }
        };
        patch(&mut self.unit.bytes, place, size, new);
        Some(())
    }

    fn expression(&mut self, cursor: &mut Cursor<'_>, end: usize) {
        let (data, start, map) = (self.data, self.start, self.source.map);
        let unit = &mut self.unit;
        // One that cannot be read stays as it is: a variable's place, not code's.
        let _ = expr::scan(
            cursor,
            end,
            self.context.offset_size,
            &mut |part| match part {
                expr::Part::Address(at) => {
                    if let Some(old) = Cursor::new(data, at).u64() {
                        patch(&mut unit.bytes, at - start, 8, map.data(old));
                    }
                }
                expr::Part::Reference(at, size) => unit.fixups.push(Fixup {
                    at: at - start,
                    size,
                    target: Target::Info,
                }),
            },
        );
    }

    /// The address that a place holds in the original.
    fn address(&self, place: Place) -> Option<u64> {
        match place.form {
            0x1b => self.context.indexed_address(self.source.input, place.value),
            _ => Some(place.value),
        }
    }

    /// What later entries build on: base addresses and tables of lists.
    fn first(&mut self, entry: &Entry, bases: [Option<u64>; 2]) -> Option<()> {
        let (input, map) = (self.source.input, self.source.map);
        self.context.low_pc = entry.low.and_then(|l| self.address(l)).unwrap_or(0);
        if let Some(base) = bases[0] {
            self.unit.ranges.indexed(input, &self.context, base, map)?;
        }
        if let Some(base) = bases[1] {
            self.unit
                .locations
                .indexed(input, &self.context, base, map)?;
        }
        for fixup in &self.unit.fixups {
            let index_base = match fixup.target {
                Target::Ranges => self.unit.ranges.index_base,
                Target::Locations => self.unit.locations.index_base,
                Target::Info => continue,
            };
            patch(&mut self.unit.bytes, fixup.at, fixup.size, index_base);
        }
        let mut covers = Vec::new();
        if let Some(ranges) = entry.ranges {
            let offset = self.ranges_offset(ranges)?;
            for (from, to) in self.unit.ranges.ranges(input, &self.context, offset)? {
                map.pieces(from, to, &mut covers);
            }
        } else if let Some((low, high)) = self.bounds(entry) {
            map.pieces(low, high, &mut covers);
        }
        self.unit.covers = covers;
        Some(())
    }

    fn ranges_offset(&self, place: Place) -> Option<u64> {
        if place.form != 0x23 {
            return Some(place.value);
        }
        let size = self.context.offset_size as u64;
        let at = self
            .rnglists_base
            .checked_add(place.value.checked_mul(size)?)?;
        let at = usize::try_from(at).ok()?;
        let offset = Cursor::new(&self.source.input.rnglists, at).uint(size as usize)?;
        self.rnglists_base.checked_add(offset)
    }

    /// `low_pc` and `high_pc` in the original.
    fn bounds(&self, entry: &Entry) -> Option<(u64, u64)> {
        let low = self.address(entry.low?)?;
        let high = entry.high?;
        let end = match high.form {
            0x01 | 0x1b => self.address(high)?,
            _ => low.checked_add(high.value)?,
        };
        (low < end).then_some((low, end))
    }

    fn addresses(&mut self, tag: u64, entry: &Entry) {
        let map = self.source.map;
        if let Some(place) = entry.return_pc {
            patch(
                &mut self.unit.bytes,
                place.at,
                place.len,
                map.return_to(place.value),
            );
        }
        if let Some(place) = entry.entry.filter(|place| place.form == 0x01) {
            self.put(place, map.start(place.value), 0);
        }
        let Some(low) = entry.low else {
            return;
        };
        let Some(old_low) = self.address(low) else {
            return;
        };
        // GNU_call_site has its return address there.
        let mut new_low = match tag {
            0x4109 => map.return_to(old_low),
            _ => map.start(old_low),
        };
        if let Some((from, to)) = self.bounds(entry) {
            let mut pieces = Vec::new();
            map.pieces(from, to, &mut pieces);
            if let Some((first, last)) = hull(&pieces) {
                // An indexed address was mapped with its table, by its start.
                if low.form == 0x01 {
                    new_low = first;
                }
                if let Some(high) = entry.high {
                    self.put(high, last, new_low);
                }
            } else if let Some(high) = entry.high {
                // Code that the linker dropped: an empty range, wherever it seems to be.
                self.put(high, new_low, new_low);
            }
        }
        if low.form == 0x01 {
            patch(&mut self.unit.bytes, low.at, low.len, new_low);
        }
        if let Some(entry) = entry.entry
            && !matches!(entry.form, 0x01 | 0x1b)
        {
            let old = old_low.wrapping_add(entry.value);
            self.put(entry, map.start(old), new_low);
        }
    }

    /// Writes an address, or its distance from `low` where the form is a number.
    fn put(&mut self, place: Place, address: u64, low: u64) {
        let distance = address.saturating_sub(low);
        let bytes = &mut self.unit.bytes;
        match place.form {
            0x01 => patch(bytes, place.at, place.len, address),
            0x1b => {}
            0x0d => {
                // Keeps the sign bit of the last byte clear.
                let most = (1u64 << (7 * place.len - 1).min(63)) - 1;
                patch_uleb(bytes, place.at, place.len, distance.min(most));
            }
            0x0f => patch_uleb(bytes, place.at, place.len, distance),
            _ => patch(bytes, place.at, place.len, distance),
        }
    }

    fn lists(&mut self, entry: &Entry) {
        let (input, map) = (self.source.input, self.source.map);
        let ranges = entry.ranges.filter(|place| place.form != 0x23);
        if let Some(place) = ranges {
            let new = self
                .unit
                .ranges
                .list(input, &self.context, place.value, map);
            self.list_offset(place, new, Target::Ranges);
        }
        for place in &entry.locations {
            let new = self
                .unit
                .locations
                .list(input, &self.context, place.value, map);
            self.list_offset(*place, new, Target::Locations);
        }
    }

    fn list_offset(&mut self, place: Place, new: Option<u64>, target: Target) {
        // One that cannot be read becomes an offset at which there is nothing.
        patch(
            &mut self.unit.bytes,
            place.at,
            place.len,
            new.unwrap_or(u64::MAX),
        );
        if new.is_some() {
            self.unit.fixups.push(Fixup {
                at: place.at,
                size: place.len,
                target,
            });
        }
    }
}

fn is_location(name: u64) -> bool {
    // location, string_length, return_addr, data_member_location, frame_base, segment,
    // static_link, use_location, vtable_elem_location, allocated, associated, data_location,
    // call_value and their like
    matches!(
        name,
        0x02 | 0x19 | 0x2a | 0x38 | 0x40 | 0x46 | 0x48 | 0x4a | 0x4d | 0x4e | 0x4f | 0x50
            | 0x7e..=0x86 | 0x2111..=0x2115
    )
}

/// Attributes that up to DWARF 3 hold an offset into a section as a number.
fn is_offset_in_old(name: u64) -> bool {
    matches!(
        name,
        0x02 | 0x10 | 0x19 | 0x2a | 0x2c | 0x40 | 0x43 | 0x46 | 0x48 | 0x4a | 0x4d | 0x55 | 0x2119
    )
}

//! One unit of `.debug_info` or `.debug_types`: its entries with new numbers.

mod address;
mod attribute;

use gimli::constants::*;

use self::attribute::Attribute;
use super::bytes::{Cursor, patch};
use super::context::{Context, Fixup, Target};
use super::form::{Abbreviation, abbreviations, form, skip_form, with_ranges};
use super::input::Input;
use super::lines::Lines;
use super::lists::{ListKind, Lists};
use super::map::{CodeMap, Piece};

/// Offsets in the output of the parts of sections that are copied.
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

/// A unit's contribution to the output.
pub(super) struct Unit {
    /// Header and entries of the unit.
    pub bytes: Vec<u8>,
    pub fixups: Vec<Fixup>,
    pub ranges: Lists,
    pub locations: Lists,
    pub version: u16,
    /// New ranges of code that the unit covers.
    pub covers: Vec<Piece>,
    /// Offset in `.debug_macro` of the unit's macros.
    pub macros: Option<u64>,
    /// The abbreviations of the unit, if they differ from the original's.
    pub abbreviations: Option<Abbreviations>,
}

/// A changed copy of a table of abbreviations.
pub(super) struct Abbreviations {
    /// The table.
    pub bytes: Vec<u8>,
    /// Offset of the original's table, and the code of the entry that was changed.
    pub of: (u64, u64),
    /// Place and size in the unit's bytes of the offset of its table.
    pub place: (usize, usize),
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
struct Field {
    at: usize,
    len: usize,
    form: DwForm,
    value: u64,
}

/// The attributes of one entry that depend on each other.
#[derive(Default)]
struct Entry {
    low: Option<Field>,
    high: Option<Field>,
    entry: Option<Field>,
    ranges: Option<Field>,
    /// Location lists.
    locations: Vec<Field>,
    return_pc: Option<Field>,
    /// Bases of range lists and of location lists, as offsets into their sections.
    list_bases: [Option<u64>; 2],
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
    let mut kind = DW_UT_compile;
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
            kind = DwUt(cursor.u8()?);
            address_size = cursor.u8()?;
            abbrev_at = cursor.at;
            cursor.take(offset_size)?;
            match kind {
                DW_UT_type | DW_UT_split_type => drop(cursor.take(8 + offset_size)?),
                DW_UT_skeleton | DW_UT_split_compile => drop(cursor.take(8)?),
                _ => {}
            }
        }
        _ => return None,
    }
    // The rest of a split unit is in another file, with the original's sizes.
    if address_size != 8 || matches!(kind, DW_UT_skeleton | DW_UT_split_compile) {
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
            ranges: Lists::new(ListKind::Ranges),
            locations: Lists::new(ListKind::Locations),
            version,
            covers: Vec::new(),
            macros: None,
            abbreviations: None,
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
        let first = is_first.then_some((abbrev, code, abbrev_at - start));
        walker.entry(table.get(&code)?, &mut cursor, first)?;
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
    /// Converts an entry. `first` belongs to the unit's first entry: offset of its table of abbreviations, its
    /// code there, and the place of the offset in the unit.
    fn entry(
        &mut self,
        kind: &Abbreviation,
        cursor: &mut Cursor<'_>,
        first: Option<(u64, u64, usize)>,
    ) -> Option<()> {
        let mut entry = Entry::default();
        for (name, form) in &kind.attributes {
            let mut form = *form;
            if form == DW_FORM_indirect {
                form = self::form(cursor)?;
            }
            let at = cursor.at;
            skip_form(cursor, form, self.context.offset_size, self.context.version)?;
            let attribute = Attribute {
                name: *name,
                form,
                at,
                end: cursor.at,
            };
            self.attribute(attribute, &mut entry)?;
        }
        if let Some((table, code, place)) = first {
            self.first(&entry, entry.list_bases)?;
            self.parted(&mut entry, (table, code), place);
        }
        self.addresses(kind.tag, &entry);
        self.lists(&entry);
        Some(())
    }
}

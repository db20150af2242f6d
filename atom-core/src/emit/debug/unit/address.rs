//! Values that depend on several attributes of an entry: its code addresses and its lists.

use gimli::constants::*;

use super::super::bytes::{Cursor, patch};
use super::super::map::hull;
use super::{Abbreviations, Entry, Field, Fixup, Target, Walker, with_ranges};

impl Walker<'_, '_> {
    /// The original address in a field.
    fn address(&self, place: Field) -> Option<u64> {
        match place.form {
            DW_FORM_addrx => self.context.indexed_address(self.source.input, place.value),
            _ => Some(place.value),
        }
    }

    /// Takes base addresses and tables of lists from the first entry, on which later entries
    /// depend.
    pub(super) fn first(&mut self, entry: &Entry, bases: [Option<u64>; 2]) -> Option<()> {
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

    /// Gives the first entry a list of ranges if the unit was one range and some of its code stays while the
    /// rest moves. The list's offset takes the place of `high_pc`, so the entry needs an abbreviation of its
    /// own. `of` is the offset of the table of abbreviations and the entry's code, `place` the place of
    /// the table's offset in the unit.
    pub(super) fn parted(&mut self, entry: &mut Entry, of: (u64, u64), place: usize) {
        let is_moved = |moved: bool| self.unit.covers.iter().any(|p| p.is_moved == moved);
        let Some(high) = entry.high.filter(|_| is_moved(true) && is_moved(false)) else {
            return;
        };
        let size = self.context.offset_size;
        let offset = match (self.context.version, size) {
            (4.., _) => DW_FORM_sec_offset,
            (_, 4) => DW_FORM_data4,
            _ => DW_FORM_data8,
        };
        let forms = [offset, DW_FORM_data4];
        let forms = match high.len.checked_sub(size) {
            Some(0) => &forms[..1],
            Some(4) => &forms,
            _ => return,
        };
        let table = &self.source.input.abbrev;
        let Some(bytes) = with_ranges(table, of.0, of.1, forms) else {
            return;
        };
        self.unit.abbreviations = Some(Abbreviations {
            bytes,
            of,
            place: (place, size),
        });
        let (covers, ranges) = (&self.unit.covers, &mut self.unit.ranges);
        let list = ranges.of_pieces(&self.context, covers);
        patch(&mut self.unit.bytes, high.at, high.len, 0);
        self.list_offset(Field { len: size, ..high }, Some(list), Target::Ranges);
        entry.high = None;
    }

    fn ranges_offset(&self, place: Field) -> Option<u64> {
        if place.form != DW_FORM_rnglistx {
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
            DW_FORM_addr | DW_FORM_addrx => self.address(high)?,
            _ => low.checked_add(high.value)?,
        };
        (low < end).then_some((low, end))
    }

    pub(super) fn addresses(&mut self, tag: DwTag, entry: &Entry) {
        let map = self.source.map;
        if let Some(place) = entry.return_pc {
            patch(
                &mut self.unit.bytes,
                place.at,
                place.len,
                map.return_to(place.value),
            );
        }
        if let Some(place) = entry.entry.filter(|place| place.form == DW_FORM_addr) {
            self.put(place, map.start(place.value), 0);
        }
        let Some(low) = entry.low else {
            return;
        };
        let Some(old_low) = self.address(low) else {
            return;
        };
        // A call site entry has its return address in `low_pc`.
        let mut new_low = match tag {
            DW_TAG_GNU_call_site => map.return_to(old_low),
            _ => map.start(old_low),
        };
        if let Some((from, to)) = self.bounds(entry) {
            let mut pieces = Vec::new();
            map.pieces(from, to, &mut pieces);
            if let Some((first, last)) = hull(&pieces) {
                // An indexed address was mapped with its table, by its start.
                if low.form == DW_FORM_addr {
                    new_low = first;
                }
                if let Some(high) = entry.high {
                    self.put(high, last, new_low);
                }
            } else if let Some(high) = entry.high {
                // Code that the linker dropped gets an empty range.
                self.put(high, new_low, new_low);
            }
        }
        if low.form == DW_FORM_addr {
            patch(&mut self.unit.bytes, low.at, low.len, new_low);
        }
        if let Some(entry) = entry.entry
            && !matches!(entry.form, DW_FORM_addr | DW_FORM_addrx)
        {
            let old = old_low.wrapping_add(entry.value);
            self.put(entry, map.start(old), new_low);
        }
    }

    /// Writes an address, or its distance from `low` where the form is a number.
    fn put(&mut self, place: Field, address: u64, low: u64) {
        let distance = address.saturating_sub(low);
        let bytes = &mut self.unit.bytes;
        match place.form {
            DW_FORM_addr => patch(bytes, place.at, place.len, address),
            DW_FORM_addrx => {}
            DW_FORM_sdata => {
                // Keeps the sign bit of the last byte clear.
                let most = (1u64 << (7 * place.len - 1).min(63)) - 1;
                leb128::fill(&mut bytes[place.at..][..place.len], distance.min(most));
            }
            DW_FORM_udata => leb128::fill(&mut bytes[place.at..][..place.len], distance),
            _ => patch(bytes, place.at, place.len, distance),
        }
    }

    pub(super) fn lists(&mut self, entry: &Entry) {
        let (input, map) = (self.source.input, self.source.map);
        let ranges = entry.ranges.filter(|place| place.form != DW_FORM_rnglistx);
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

    fn list_offset(&mut self, place: Field, new: Option<u64>, target: Target) {
        // A list that cannot be read becomes an offset without a list.
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

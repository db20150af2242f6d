//! Conversion of single attributes. Offsets into sections and expressions are adjusted at once.
//! Attributes that depend on other attributes of the entry are noted in the [`Entry`].

use gimli::constants::*;

use super::super::bytes::{Cursor, patch};
use super::super::expr;
use super::{Entry, Field, Fixup, Target, Walker};

/// An attribute of an entry.
#[derive(Clone, Copy)]
pub(super) struct Attribute {
    pub name: DwAt,
    pub form: DwForm,
    /// Start of its value, as an offset into the section.
    pub at: usize,
    /// End of its value.
    pub end: usize,
}

impl Walker<'_, '_> {
    /// Converts an attribute, or notes it in `entry`.
    pub(super) fn attribute(&mut self, attribute: Attribute, entry: &mut Entry) -> Option<()> {
        let Attribute {
            name,
            form,
            at,
            end,
        } = attribute;
        let size = self.context.offset_size;
        let bases = &self.source.bases;
        let place = at - self.start;
        let number = |len: usize| Cursor::new(self.data, at).uint(len);
        match form {
            DW_FORM_strp if bases.str != 0 => {
                patch(&mut self.unit.bytes, place, size, number(size)? + bases.str)
            }
            DW_FORM_line_strp if bases.line_str != 0 => {
                let new = number(size)? + bases.line_str;
                patch(&mut self.unit.bytes, place, size, new);
            }
            DW_FORM_ref_addr => {
                let size = end - at;
                self.unit.fixups.push(Fixup {
                    at: place,
                    size,
                    target: Target::Info,
                });
            }
            // Blocks are expressions where they are locations.
            DW_FORM_exprloc | DW_FORM_block | DW_FORM_block1 | DW_FORM_block2 | DW_FORM_block4
                if form == DW_FORM_exprloc || is_location(name) =>
            {
                let mut cursor = Cursor::new(self.data, at);
                match form {
                    DW_FORM_block2 => drop(cursor.u16()?),
                    DW_FORM_block4 => drop(cursor.uint(4)?),
                    DW_FORM_block1 => drop(cursor.u8()?),
                    _ => cursor.skip_leb()?,
                }
                self.expression(&mut cursor, end);
            }
            DW_FORM_addr => self.plain_address(name, at, entry)?,
            // The table of addresses is converted as a whole.
            DW_FORM_addrx
            | DW_FORM_addrx1
            | DW_FORM_addrx2
            | DW_FORM_addrx3
            | DW_FORM_addrx4
            | DW_FORM_GNU_addr_index => self.indexed_address(attribute, entry)?,
            DW_FORM_data1 | DW_FORM_data2 | DW_FORM_data4 | DW_FORM_data8 | DW_FORM_sdata
            | DW_FORM_udata
                if matches!(name, DW_AT_high_pc | DW_AT_entry_pc) =>
            {
                let value = match form {
                    DW_FORM_sdata | DW_FORM_udata => Cursor::new(self.data, at).uleb()?,
                    _ => number(end - at)?,
                };
                let here = self.field(attribute, value);
                match name {
                    DW_AT_high_pc => entry.high = Some(here),
                    _ => entry.entry = Some(here),
                }
            }
            // Offsets into sections; up to DWARF 3 as plain numbers.
            DW_FORM_sec_offset => self.section_offset(name, at, size, entry)?,
            DW_FORM_data4 | DW_FORM_data8 if self.context.version < 4 && is_offset_in_old(name) => {
                self.section_offset(name, at, end - at, entry)?;
            }
            DW_FORM_rnglistx if name == DW_AT_ranges => {
                let value = Cursor::new(self.data, at).uleb()?;
                entry.ranges = Some(self.field(attribute, value));
            }
            _ => {}
        }
        // A skeleton's other half is in another file.
        self.is_split |= matches!(name, DW_AT_dwo_name | DW_AT_GNU_dwo_name);
        Some(())
    }

    /// The bytes of an attribute that holds `value`.
    fn field(&self, attribute: Attribute, value: u64) -> Field {
        Field {
            at: attribute.at - self.start,
            len: attribute.end - attribute.at,
            form: attribute.form,
            value,
        }
    }

    /// An attribute that is an address of eight bytes.
    fn plain_address(&mut self, name: DwAt, at: usize, entry: &mut Entry) -> Option<()> {
        let value = Cursor::new(self.data, at).uint(8)?;
        let (place, map) = (at - self.start, self.source.map);
        let here = Some(Field {
            at: place,
            len: 8,
            form: DW_FORM_addr,
            value,
        });
        match name {
            DW_AT_call_return_pc => entry.return_pc = here,
            DW_AT_low_pc => entry.low = here,
            DW_AT_high_pc => entry.high = here,
            DW_AT_entry_pc => entry.entry = here,
            DW_AT_call_pc => patch(&mut self.unit.bytes, place, 8, map.start(value)),
            _ => patch(&mut self.unit.bytes, place, 8, map.data(value)),
        }
        Some(())
    }

    /// An attribute that is an index into `.debug_addr`.
    fn indexed_address(&mut self, attribute: Attribute, entry: &mut Entry) -> Option<()> {
        let Attribute {
            name,
            form,
            at,
            end,
        } = attribute;
        if !matches!(name, DW_AT_low_pc | DW_AT_high_pc | DW_AT_entry_pc) {
            return Some(());
        }
        let mut cursor = Cursor::new(self.data, at);
        let index = match form {
            DW_FORM_addrx | DW_FORM_GNU_addr_index => cursor.uleb()?,
            _ => cursor.uint(end - at)?,
        };
        // The table's base may be after this attribute in the first entry, so
        // `Walker::first` looks the index up.
        let here = Some(Field {
            form: DW_FORM_addrx,
            ..self.field(attribute, index)
        });
        match name {
            DW_AT_low_pc => entry.low = here,
            DW_AT_high_pc => entry.high = here,
            _ => entry.entry = here,
        }
        Some(())
    }

    fn section_offset(
        &mut self,
        name: DwAt,
        at: usize,
        size: usize,
        entry: &mut Entry,
    ) -> Option<()> {
        let value = Cursor::new(self.data, at).uint(size)?;
        let bases = &self.source.bases;
        let place = at - self.start;
        let here = Field {
            at: place,
            len: size,
            form: DW_FORM_sec_offset,
            value,
        };
        let new = match name {
            // Without lines, an offset without a line program.
            DW_AT_stmt_list => self.source.lines.offset(value).unwrap_or(u64::MAX),
            DW_AT_ranges | DW_AT_start_scope => {
                entry.ranges = Some(here);
                return Some(());
            }
            DW_AT_macro_info => value + bases.macinfo,
            DW_AT_macros | DW_AT_GNU_macros => {
                self.unit.macros = Some(value);
                value + bases.macros
            }
            DW_AT_str_offsets_base => value + bases.str_offsets,
            DW_AT_addr_base | DW_AT_GNU_addr_base => {
                self.context.addr_base = value;
                value + bases.addr
            }
            DW_AT_rnglists_base => {
                self.rnglists_base = value;
                entry.list_bases[0] = Some(value);
                self.unit.fixups.push(Fixup {
                    at: place,
                    size,
                    target: Target::Ranges,
                });
                return Some(());
            }
            DW_AT_loclists_base => {
                entry.list_bases[1] = Some(value);
                self.unit.fixups.push(Fixup {
                    at: place,
                    size,
                    target: Target::Locations,
                });
                return Some(());
            }
            // View numbers are not kept.
            DW_AT_GNU_locviews => return Some(()),
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
        // An expression that cannot be read stays as it is. It describes the place of a variable,
        // not of code.
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
}

/// Attributes whose blocks are location descriptions.
fn is_location(name: DwAt) -> bool {
    matches!(
        name,
        DW_AT_location
            | DW_AT_string_length
            | DW_AT_return_addr
            | DW_AT_data_member_location
            | DW_AT_frame_base
            | DW_AT_segment
            | DW_AT_static_link
            | DW_AT_use_location
            | DW_AT_vtable_elem_location
            | DW_AT_allocated
            | DW_AT_associated
            | DW_AT_data_location
            | DW_AT_call_value
            | DW_AT_call_origin
            | DW_AT_call_parameter
            | DW_AT_call_pc
            | DW_AT_call_tail_call
            | DW_AT_call_target
            | DW_AT_call_target_clobbered
            | DW_AT_call_data_location
            | DW_AT_call_data_value
            | DW_AT_GNU_call_site_value
            | DW_AT_GNU_call_site_data_value
            | DW_AT_GNU_call_site_target
            | DW_AT_GNU_call_site_target_clobbered
            | DW_AT_GNU_tail_call
    )
}

/// Attributes that up to DWARF 3 hold an offset into a section as a number.
fn is_offset_in_old(name: DwAt) -> bool {
    matches!(
        name,
        DW_AT_location
            | DW_AT_stmt_list
            | DW_AT_string_length
            | DW_AT_return_addr
            | DW_AT_start_scope
            | DW_AT_frame_base
            | DW_AT_macro_info
            | DW_AT_segment
            | DW_AT_static_link
            | DW_AT_use_location
            | DW_AT_vtable_elem_location
            | DW_AT_ranges
            | DW_AT_GNU_macros
    )
}

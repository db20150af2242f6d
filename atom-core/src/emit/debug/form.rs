//! Abbreviations, and the length of the value of each form.

use std::collections::HashMap;

use gimli::constants::*;

use super::bytes::Cursor;

/// An attribute without a meaning, of a number that no vendor uses.
const FILLER: DwAt = DwAt(0x2a70);

/// The tag and the attributes of one kind of entry.
pub(super) struct Abbreviation {
    pub tag: DwTag,
    pub attributes: Vec<(DwAt, DwForm)>,
}

/// Reads a form; `None` for a number that cannot be one.
pub(super) fn form(cursor: &mut Cursor<'_>) -> Option<DwForm> {
    cursor.uleb()?.try_into().ok().map(DwForm)
}

/// Skips a value; `None` for a form that is not known.
pub(super) fn skip_form(
    cursor: &mut Cursor<'_>,
    form: DwForm,
    offset_size: usize,
    version: u16,
) -> Option<()> {
    let size = match form {
        DW_FORM_flag_present | DW_FORM_implicit_const => 0,
        DW_FORM_data1 | DW_FORM_ref1 | DW_FORM_flag | DW_FORM_strx1 | DW_FORM_addrx1 => 1,
        DW_FORM_data2 | DW_FORM_ref2 | DW_FORM_strx2 | DW_FORM_addrx2 => 2,
        DW_FORM_strx3 | DW_FORM_addrx3 => 3,
        DW_FORM_data4 | DW_FORM_ref4 | DW_FORM_ref_sup4 | DW_FORM_strx4 | DW_FORM_addrx4 => 4,
        DW_FORM_addr | DW_FORM_data8 | DW_FORM_ref8 | DW_FORM_ref_sig8 | DW_FORM_ref_sup8 => 8,
        DW_FORM_data16 => 16,
        DW_FORM_strp | DW_FORM_sec_offset | DW_FORM_strp_sup | DW_FORM_line_strp
        | DW_FORM_GNU_ref_alt | DW_FORM_GNU_strp_alt => offset_size,
        DW_FORM_ref_addr if version <= 2 => 8,
        DW_FORM_ref_addr => offset_size,
        DW_FORM_sdata
        | DW_FORM_udata
        | DW_FORM_ref_udata
        | DW_FORM_strx
        | DW_FORM_addrx
        | DW_FORM_loclistx
        | DW_FORM_rnglistx
        | DW_FORM_GNU_addr_index
        | DW_FORM_GNU_str_index => return cursor.skip_leb(),
        DW_FORM_string => return cursor.skip_string(),
        DW_FORM_block1 => usize::from(cursor.u8()?),
        DW_FORM_block2 => usize::from(cursor.u16()?),
        DW_FORM_block4 => cursor.uint(4)? as usize,
        DW_FORM_block | DW_FORM_exprloc => usize::try_from(cursor.uleb()?).ok()?,
        DW_FORM_indirect => {
            let form = self::form(cursor)?;
            // Nested indirect forms could continue without end.
            return (form != DW_FORM_indirect)
                .then_some(())
                .and_then(|()| skip_form(cursor, form, offset_size, version));
        }
        _ => return None,
    };
    cursor.take(size).map(drop)
}

/// A copy of the table of abbreviations at `at` of `.debug_abbrev` in which the entry with a code has
/// `ranges` in place of `high_pc`. `forms` are the forms of the offset of the ranges and of a number that
/// fills the rest of `high_pc`. `None` if the entry has no `high_pc`.
pub(super) fn with_ranges(data: &[u8], at: u64, wanted: u64, forms: &[DwForm]) -> Option<Vec<u8>> {
    let start = usize::try_from(at).ok()?;
    let mut cursor = Cursor::new(data, start);
    // Start and end of the attribute.
    let mut place = None;
    loop {
        let code = cursor.uleb()?;
        if code == 0 {
            break;
        }
        cursor.uleb()?;
        cursor.u8()?;
        loop {
            let from = cursor.at;
            let name = cursor.uleb()?;
            let form = form(&mut cursor)?;
            if form == DW_FORM_implicit_const {
                cursor.skip_leb()?;
            }
            if (name, form) == (0, DW_FORM_null) {
                break;
            }
            if code == wanted && name == u64::from(DW_AT_high_pc.0) {
                place = Some(from..cursor.at);
            }
        }
    }
    let place = place?;
    let mut copy = data[start..place.start].to_vec();
    for (name, form) in [DW_AT_ranges, FILLER].iter().zip(forms) {
        leb128::push(&mut copy, u64::from(name.0));
        leb128::push(&mut copy, u64::from(form.0));
    }
    copy.extend(&data[place.end..cursor.at]);
    Some(copy)
}

/// The table of abbreviations at `at` of `.debug_abbrev`, by code.
pub(super) fn abbreviations(data: &[u8], at: u64) -> Option<HashMap<u64, Abbreviation>> {
    let mut cursor = Cursor::new(data, usize::try_from(at).ok()?);
    let mut table = HashMap::new();
    loop {
        let code = cursor.uleb()?;
        if code == 0 {
            return Some(table);
        }
        let tag = DwTag(cursor.uleb()?.try_into().ok()?);
        cursor.u8()?;
        let mut attributes = Vec::new();
        loop {
            let name = DwAt(cursor.uleb()?.try_into().ok()?);
            let form = form(&mut cursor)?;
            if form == DW_FORM_implicit_const {
                cursor.skip_leb()?;
            }
            if (name, form) == (DW_AT_null, DW_FORM_null) {
                break;
            }
            attributes.push((name, form));
        }
        table.insert(code, Abbreviation { tag, attributes });
    }
}

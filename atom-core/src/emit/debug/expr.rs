//! DWARF expressions: finding the addresses and references in them.

use super::bytes::Cursor;

/// A part of an expression that may have to change. Positions are offsets in the section.
pub(super) enum Part {
    /// An address of eight bytes, by its position.
    Address(usize),
    /// A reference to an entry of `.debug_info`: position, and size in bytes.
    Reference(usize, usize),
}

/// Calls `found` for each part of the expression in `cursor` up to `end`.
/// `None` if it cannot be read to its end.
pub(super) fn scan(
    cursor: &mut Cursor<'_>,
    end: usize,
    offset_size: usize,
    found: &mut dyn FnMut(Part),
) -> Option<()> {
    while cursor.at < end {
        match cursor.u8()? {
            // addr
            0x03 => {
                found(Part::Address(cursor.at));
                cursor.take(8)?;
            }
            // const1, pick, deref_size, xderef_size
            0x08 | 0x09 | 0x15 | 0x94 | 0x95 => drop(cursor.take(1)?),
            // const2, skip, bra, call2
            0x0a | 0x0b | 0x28 | 0x2f | 0x98 => drop(cursor.take(2)?),
            // const4, call4
            0x0c | 0x0d | 0x99 => drop(cursor.take(4)?),
            0x0e | 0x0f => drop(cursor.take(8)?),
            // constu, consts, plus_uconst, regx, fbreg, piece, breg0 to breg31, addrx,
            // constx, convert, reinterpret, and their GNU forms
            0x10
            | 0x11
            | 0x23
            | 0x70..=0x91
            | 0x93
            | 0xa1
            | 0xa2
            | 0xa8
            | 0xa9
            | 0xf7
            | 0xf9
            | 0xfb
            | 0xfc => cursor.skip_leb()?,
            // bregx, bit_piece, regval_type
            0x92 | 0x9d | 0xa5 | 0xf5 => {
                cursor.skip_leb()?;
                cursor.skip_leb()?;
            }
            // call_ref, variable_value
            0x9a | 0xfd => {
                found(Part::Reference(cursor.at, offset_size));
                cursor.take(offset_size)?;
            }
            // implicit_pointer
            0xa0 | 0xf2 => {
                found(Part::Reference(cursor.at, offset_size));
                cursor.take(offset_size)?;
                cursor.skip_leb()?;
            }
            // implicit_value
            0x9e => {
                let len = cursor.uleb()?;
                cursor.take(usize::try_from(len).ok()?)?;
            }
            // entry_value
            0xa3 | 0xf3 => {
                let len = usize::try_from(cursor.uleb()?).ok()?;
                let inner = cursor.at.checked_add(len).filter(|i| *i <= end)?;
                scan(cursor, inner, offset_size, found)?;
            }
            // const_type
            0xa4 | 0xf4 => {
                cursor.skip_leb()?;
                let len = cursor.u8()?;
                cursor.take(usize::from(len))?;
            }
            // deref_type, xderef_type
            0xa6 | 0xa7 | 0xf6 => {
                cursor.take(1)?;
                cursor.skip_leb()?;
            }
            // parameter_ref
            0xfa => drop(cursor.take(4)?),
            0x06
            | 0x12..=0x14
            | 0x16..=0x22
            | 0x24..=0x27
            | 0x29..=0x2e
            | 0x30..=0x6f
            | 0x96
            | 0x97
            | 0x9b
            | 0x9c
            | 0x9f
            | 0xe0
            | 0xf0
            | 0xf1
            | 0xf8 => {}
            _ => return None,
        }
    }
    (cursor.at == end).then_some(())
}

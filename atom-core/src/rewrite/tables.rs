//! Contents of the copies of jump tables.

use crate::cfg::JumpTable;
use crate::image::Image;
use crate::layout::tables::TableCopy;

/// The contents of a copy. `target` maps an original address to its new address.
pub(super) fn contents(
    image: &Image,
    t: &JumpTable,
    copy: &TableCopy,
    target: &dyn Fn(u64) -> Option<u64>,
) -> Vec<u8> {
    let mut bytes = image
        .bytes_at(t.table, copy.size as usize)
        .unwrap_or_default()
        .to_vec();
    for (i, entry) in bytes
        .chunks_exact_mut(usize::from(t.entry_size))
        .enumerate()
    {
        if i >= t.entries as usize {
            break;
        }
        match t.relative_to {
            Some(base) => {
                let offset = i32::from_le_bytes(entry.try_into().expect("four bytes"));
                let old = base.wrapping_add_signed(i64::from(offset));
                if let Some(Ok(new)) =
                    target(old).map(|n| i32::try_from(n.wrapping_sub(base) as i64))
                {
                    entry.copy_from_slice(&new.to_le_bytes());
                }
            }
            None => {
                let old = u64::from_le_bytes(entry.try_into().expect("eight bytes"));
                if let Some(new) = target(old) {
                    entry.copy_from_slice(&new.to_le_bytes());
                }
            }
        }
    }
    bytes
}

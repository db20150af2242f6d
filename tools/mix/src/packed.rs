//! The shapes of the instructions of each block, packed because there are many. The blocks of a procedure are one
//! group: the number of blocks, the length of the rest in bytes, the number of the procedure's site, and for each block
//! the number of its instructions and their shapes. All numbers are LEB128.

use leb128::next;

/// The blocks of a procedure.
pub struct Group<'a> {
    /// Number of the procedure's site.
    pub site: usize,
    /// Number of its first block.
    pub first: usize,
    /// Its number of blocks.
    pub len: usize,
    bytes: &'a [u8],
}

/// Appends a procedure. `blocks` has the shapes of the instructions of each block.
pub fn push(to: &mut Vec<u8>, site: usize, blocks: &[Vec<u32>]) {
    let mut group = Vec::new();
    leb128::push(&mut group, site as u64);
    for shapes in blocks {
        leb128::push(&mut group, shapes.len() as u64);
        for shape in shapes {
            leb128::push(&mut group, u64::from(*shape));
        }
    }
    leb128::push(to, blocks.len() as u64);
    leb128::push(to, group.len() as u64);
    to.extend(group);
}

/// The procedures that were packed.
pub fn groups(mut bytes: &[u8]) -> impl Iterator<Item = Group<'_>> {
    let mut first = 0;
    std::iter::from_fn(move || {
        let len = next(&mut bytes)? as usize;
        let size = next(&mut bytes)? as usize;
        let (mut group, rest) = bytes.split_at_checked(size)?;
        bytes = rest;
        first += len;
        Some(Group {
            site: next(&mut group)? as usize,
            first: first - len,
            len,
            bytes: group,
        })
    })
}

impl Group<'_> {
    /// Gives the place of each block in the procedure, and the shape of each of its instructions, to `each`.
    pub fn each(&self, mut each: impl FnMut(usize, usize)) {
        let mut bytes = self.bytes;
        for block in 0..self.len {
            for _ in 0..next(&mut bytes).unwrap_or(0) {
                let Some(shape) = next(&mut bytes) else {
                    return;
                };
                each(block, shape as usize);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{groups, push};

    #[test]
    fn what_is_packed_is_unpacked() {
        let mut bytes = Vec::new();
        push(&mut bytes, 3, &[vec![1, 2, 300], vec![1]]);
        push(&mut bytes, 200, &[vec![70_000]]);
        let mut found = Vec::new();
        for group in groups(&bytes) {
            group.each(|block, shape| found.push((group.site, group.first + block, shape)));
        }
        let expected = [
            (3, 0, 1),
            (3, 0, 2),
            (3, 0, 300),
            (3, 1, 1),
            (200, 2, 70_000),
        ];
        assert_eq!(found, expected);
    }
}

//! The shapes of the instructions of each block, in groups ([`atom_tool::packed`]) with the number of the procedure's
//! site: for each block the number of its instructions and their shapes.

use atom_tool::packed::{Group, push_group};
use leb128::next;

/// Appends a procedure. `blocks` has the shapes of the instructions of each block.
pub fn push(to: &mut Vec<u8>, site: usize, blocks: &[Vec<u32>]) {
    let mut group = Vec::new();
    for shapes in blocks {
        leb128::push(&mut group, shapes.len() as u64);
        for shape in shapes {
            leb128::push(&mut group, u64::from(*shape));
        }
    }
    push_group(to, blocks.len(), [site as u64], &group);
}

/// Gives the place of each block in the procedure, and the shape of each of its instructions, to `each`.
pub fn each(group: &Group<'_, 1>, mut each: impl FnMut(usize, usize)) {
    let mut bytes = group.bytes;
    for block in 0..group.len {
        for _ in 0..next(&mut bytes).unwrap_or(0) {
            let Some(shape) = next(&mut bytes) else {
                return;
            };
            each(block, shape as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{each, push};
    use atom_tool::packed::groups;

    #[test]
    fn what_is_packed_is_unpacked() {
        let mut bytes = Vec::new();
        push(&mut bytes, 3, &[vec![1, 2, 300], vec![1]]);
        push(&mut bytes, 200, &[vec![70_000]]);
        let mut found = Vec::new();
        for group in groups(&bytes) {
            each(&group, |block, shape| {
                found.push((group.head[0], group.first + block, shape))
            });
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

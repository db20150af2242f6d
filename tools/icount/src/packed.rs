//! Facts about blocks ([`atom_tool::packed`]). A group has the number of its first block's site and the address of its
//! first block before the rest. The flag of a block says that it is the first of its site, which is another one than
//! the group's first.

use atom_tool::Counters;
use atom_tool::packed::{Code, Group, groups, push_group};

/// Facts about a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockFacts {
    /// The number of its site. Sites have numbers in the order of blocks.
    pub site: usize,
    /// Its code.
    pub code: Code,
}

/// Appends the blocks of a procedure.
pub fn push(to: &mut Vec<u8>, blocks: &[BlockFacts]) {
    let Some(first) = blocks.first() else { return };
    let mut group = Vec::new();
    let (mut site, mut end) = (first.site, first.code.pc);
    for block in blocks {
        let is_first = std::mem::replace(&mut site, block.site) != block.site;
        block.code.push(&mut group, end, is_first);
        end = block.code.end();
    }
    push_group(to, blocks.len(), [first.site as u64, first.code.pc], &group);
}

/// Gives each block of a group and its number in the group to `each`.
fn each_of(group: &Group<'_, 2>, mut each: impl FnMut(usize, BlockFacts)) {
    let ([site, mut end], mut bytes) = (group.head, group.bytes);
    let mut site = site as usize;
    for i in 0..group.len {
        let Some((code, is_first)) = Code::next(&mut bytes, end) else {
            return;
        };
        site += usize::from(is_first);
        end = code.end();
        each(i, BlockFacts { site, code });
    }
}

/// Gives each executed block, with the number of its executions, to `each`.
pub fn executed(bytes: &[u8], counters: Counters, mut each: impl FnMut(u64, BlockFacts)) {
    for group in groups(bytes) {
        let count = |i: usize| {
            let [count] = counters.at(group.first + i).get();
            count
        };
        if (0..group.len).any(|i| count(i) != 0) {
            each_of(&group, |i, block| {
                let count = count(i);
                if count != 0 {
                    each(count, block);
                }
            });
        }
    }
}

/// Gives the facts of each block to `each`.
pub fn unpacked(bytes: &[u8], mut each: impl FnMut(BlockFacts)) {
    groups(bytes).for_each(|group| each_of(&group, |_, block| each(block)));
}

#[cfg(test)]
mod tests {
    use super::{BlockFacts, Code, push, unpacked};

    #[test]
    fn what_is_packed_is_unpacked() {
        let blocks = [
            (0, 0x1000, 4, 1),
            (0, 0x1004, 127, 31),
            (1, 0x2000, 128, 32),
            (2, 0x1500, 0x8000, 8191),
            (2, 0x9500, 1, 8192),
            (2, 2 << 32, 9, 100_000),
            (3, 0, 1, 1),
        ];
        let blocks = blocks.map(|(site, pc, bytes, insts)| BlockFacts {
            site,
            code: Code { pc, bytes, insts },
        });
        let mut packed = Vec::new();
        push(&mut packed, &blocks[..4]);
        push(&mut packed, &[]);
        push(&mut packed, &blocks[4..]);
        let mut found = Vec::new();
        unpacked(&packed, |block| found.push(block));
        assert_eq!(found, blocks);
        unpacked(&[], |block| panic!("{block:?}"));
    }
}

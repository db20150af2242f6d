//! Facts about blocks, packed because there are many blocks. The blocks of a procedure are one group, so that
//! procedures that are never executed are skipped. A group begins with four unsigned LEB128 numbers: its number of
//! blocks, the length of the rest in bytes, the number of its first block's site, and the address of its first block.
//! Each block is two or three numbers:
//!
//! - four times the number of the block's instructions, plus 2 if the block does not begin where the block before
//!   it ends, plus 1 if it is the first of its site, which is another one than the group's first;
//! - the length of the block in bytes;
//! - in the case of the 2: where the block begins, as the distance from the end of the block before it. The lowest
//!   bit says that the block begins in front of that end.

use atom_tool::Counters;
use leb128::next;

/// Facts about blocks, to be packed.
#[derive(Default)]
pub struct Packed {
    /// The input of [`executed`] and [`unpacked`].
    pub bytes: Vec<u8>,
}

/// Facts about a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockFacts {
    /// The number of its site. Sites have numbers in the order of blocks.
    pub site: usize,
    /// The address of its first instruction.
    pub pc: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// The number of its instructions.
    pub insts: u64,
}

impl Packed {
    /// Adds the blocks of a procedure.
    pub fn push(&mut self, blocks: &[BlockFacts]) {
        let Some(first) = blocks.first() else { return };
        let mut group = Vec::new();
        let (mut site, mut end) = (first.site, first.pc);
        for block in blocks {
            let is_first = std::mem::replace(&mut site, block.site) != block.site;
            let gap = block.pc.wrapping_sub(end) as i64;
            let flags = u64::from(gap != 0) << 1 | u64::from(is_first);
            leb128::push(&mut group, block.insts << 2 | flags);
            leb128::push(&mut group, block.bytes);
            if gap != 0 {
                let distance = gap.unsigned_abs() << 1 | u64::from(gap < 0);
                leb128::push(&mut group, distance);
            }
            end = block.pc.wrapping_add(block.bytes);
        }
        for number in [
            blocks.len() as u64,
            group.len() as u64,
            first.site as u64,
            first.pc,
        ] {
            leb128::push(&mut self.bytes, number);
        }
        self.bytes.extend(group);
    }
}

/// A group: its number of blocks, and what its blocks are unpacked from.
struct Group<'a> {
    len: usize,
    bytes: &'a [u8],
    site: usize,
    pc: u64,
}

fn groups(mut bytes: &[u8]) -> impl Iterator<Item = Group<'_>> {
    std::iter::from_fn(move || {
        let mut take = || next(&mut bytes);
        let [len, size, site, pc] = [take()?, take()?, take()?, take()?];
        let (group, rest) = bytes.split_at_checked(size as usize)?;
        bytes = rest;
        Some(Group {
            len: len as usize,
            bytes: group,
            site: site as usize,
            pc,
        })
    })
}

impl Group<'_> {
    /// Gives each block and its number in the group to `each`.
    fn each(&self, mut each: impl FnMut(usize, BlockFacts)) {
        let (mut site, mut end, mut bytes) = (self.site, self.pc, self.bytes);
        for i in 0..self.len {
            let mut take = || next(&mut bytes);
            let (Some(number), Some(length)) = (take(), take()) else {
                return;
            };
            site += (number & 1) as usize;
            let mut pc = end;
            if number & 2 != 0 {
                let distance = take().unwrap_or(0);
                let gap = distance >> 1;
                pc = match distance & 1 {
                    0 => end.wrapping_add(gap),
                    _ => end.wrapping_sub(gap),
                };
            }
            end = pc.wrapping_add(length);
            let block = BlockFacts {
                site,
                pc,
                bytes: length,
                insts: number >> 2,
            };
            each(i, block);
        }
    }
}

/// Gives each executed block, with the number of its executions, to `each`.
pub fn executed(bytes: &[u8], counters: Counters, mut each: impl FnMut(u64, BlockFacts)) {
    let mut first = 0;
    for group in groups(bytes) {
        let count = |i: usize| {
            let [count] = counters.at(first + i).get();
            count
        };
        if (0..group.len).any(|i| count(i) != 0) {
            group.each(|i, block| {
                let count = count(i);
                if count != 0 {
                    each(count, block);
                }
            });
        }
        first += group.len;
    }
}

/// Gives the facts of each block to `each`.
pub fn unpacked(bytes: &[u8], mut each: impl FnMut(BlockFacts)) {
    groups(bytes).for_each(|group| group.each(|_, block| each(block)));
}

#[cfg(test)]
mod tests {
    use super::{BlockFacts, Packed, unpacked};

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
            pc,
            bytes,
            insts,
        });
        let mut packed = Packed::default();
        packed.push(&blocks[..4]);
        packed.push(&[]);
        packed.push(&blocks[4..]);
        let mut found = Vec::new();
        unpacked(&packed.bytes, |block| found.push(block));
        assert_eq!(found, blocks);
        unpacked(&[], |block| panic!("{block:?}"));
    }
}

//! What the report has to know of each block, packed because there are many. The blocks of a procedure are one group,
//! which begins with its number of blocks, the length of the rest in bytes, and the facts of [`Head`]. A block is:
//!
//! - its number of instructions, times four, plus two if it does not begin where the block before it ends, plus one if
//!   it ends in a conditional branch;
//! - its length in bytes; in the case of the two the distance from the end of the block before;
//! - for a branch the length of its instruction in bytes, and where its ways are seen;
//! - in a group with lines: the number of its lines, and for each the differences of file and line from the one before.
//!
//! All numbers are LEB128; differences have their sign in the lowest bit.

use leb128::next;

use crate::marks::Seen;

/// A line: key of the file's name, and number.
pub type Line = (u32, u32);

/// Facts about a procedure.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Head {
    /// Address of its first block.
    pub pc: u64,
    /// Key of its name.
    pub name: u32,
    /// Its first line; the number 0 stands for no line.
    pub line: Line,
    /// Its blocks have lines.
    pub has_lines: bool,
}

/// Facts about a block.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct BlockFacts {
    /// Address of its first instruction.
    pub pc: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// Its number of instructions.
    pub insts: u64,
    /// Its conditional branch.
    pub branch: Option<Branch>,
    /// Its lines; the last one is the last instruction's.
    pub lines: Vec<Line>,
}

/// A conditional branch at the end of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Branch {
    /// Its address.
    pub pc: u64,
    /// Where it is seen that it was taken, and that it was not.
    pub ways: [Seen; 2],
}

/// Appends the blocks of a procedure. `first` is the number of the first one.
pub fn push(to: &mut Vec<u8>, head: Head, first: u32, blocks: &[BlockFacts]) {
    let mut group = Vec::new();
    for number in [
        head.pc,
        head.name.into(),
        head.line.0.into(),
        head.line.1.into(),
        head.has_lines.into(),
    ] {
        leb128::push(&mut group, number);
    }
    let (mut end, mut line) = (head.pc, head.line);
    for block in blocks {
        let gap = block.pc.wrapping_sub(end) as i64;
        let flags = u64::from(gap != 0) << 1 | u64::from(block.branch.is_some());
        leb128::push(&mut group, block.insts << 2 | flags);
        leb128::push(&mut group, block.bytes);
        if gap != 0 {
            leb128::push(&mut group, leb128::zigzag(gap));
        }
        end = block.pc.wrapping_add(block.bytes);
        if let Some(branch) = block.branch {
            leb128::push(&mut group, end - branch.pc);
            for way in branch.ways {
                let number = match way {
                    Seen::Nowhere => 0,
                    Seen::Mark(mark) => u64::from(mark) << 1 | 1,
                    Seen::Block(b) => (leb128::zigzag(i64::from(b) - i64::from(first)) + 1) << 1,
                };
                leb128::push(&mut group, number);
            }
        }
        if head.has_lines {
            leb128::push(&mut group, block.lines.len() as u64);
            for next in &block.lines {
                let differences = [(next.0, line.0), (next.1, line.1)];
                for (new, old) in differences {
                    let difference = i64::from(new) - i64::from(old);
                    leb128::push(&mut group, leb128::zigzag(difference));
                }
                line = *next;
            }
        }
    }
    leb128::push(to, blocks.len() as u64);
    leb128::push(to, group.len() as u64);
    to.extend(group);
}

/// A procedure with its blocks, which are unpacked when they are asked for.
pub struct Group<'a> {
    /// The number of its first block.
    pub first: usize,
    /// Its number of blocks.
    pub len: usize,
    bytes: &'a [u8],
}

/// Leaves out a procedure with `blocks` blocks.
pub fn leave_out(to: &mut Vec<u8>, blocks: usize) {
    leb128::push(to, blocks as u64);
    leb128::push(to, 0u64);
}

/// The procedures that were packed.
pub fn groups(mut bytes: &[u8]) -> impl Iterator<Item = Group<'_>> {
    let mut first = 0;
    std::iter::from_fn(move || {
        let len = next(&mut bytes)? as usize;
        let size = next(&mut bytes)? as usize;
        let (group, rest) = bytes.split_at_checked(size)?;
        bytes = rest;
        first += len;
        Some(Group {
            first: first - len,
            len,
            bytes: group,
        })
    })
}

impl Group<'_> {
    /// The facts about the procedure; none if it was left out.
    pub fn head(&self) -> Option<Head> {
        head(&mut { self.bytes })
    }

    /// Gives each block, with its place in the procedure, to `each`.
    pub fn each(&self, mut each: impl FnMut(usize, &BlockFacts)) {
        let mut bytes = self.bytes;
        let Some(head) = head(&mut bytes) else { return };
        let (mut end, mut line) = (head.pc, head.line);
        let mut block = BlockFacts::default();
        for i in 0..self.len {
            let read = read(
                &mut bytes,
                self.first,
                head.has_lines,
                &mut end,
                &mut line,
                &mut block,
            );
            if read.is_none() {
                return;
            }
            each(i, &block);
        }
    }
}

fn head(bytes: &mut &[u8]) -> Option<Head> {
    let mut take = || next(bytes);
    Some(Head {
        pc: take()?,
        name: take()? as u32,
        line: (take()? as u32, take()? as u32),
        has_lines: take()? != 0,
    })
}

/// Reads a block. `end` and `line` are those of the block before, and then its own.
fn read(
    bytes: &mut &[u8],
    first: usize,
    has_lines: bool,
    end: &mut u64,
    line: &mut Line,
    block: &mut BlockFacts,
) -> Option<()> {
    let mut take = || next(bytes);
    let number = take()?;
    (block.insts, block.bytes) = (number >> 2, take()?);
    block.pc = *end;
    if number & 2 != 0 {
        block.pc = end.wrapping_add(leb128::unzigzag(take()?) as u64);
    }
    *end = block.pc.wrapping_add(block.bytes);
    block.branch = None;
    if number & 1 != 0 {
        let pc = end.wrapping_sub(take()?);
        let mut way = || {
            Some(match take()? {
                0 => Seen::Nowhere,
                mark if mark & 1 != 0 => Seen::Mark((mark >> 1) as u32),
                block => {
                    let distance: i64 = leb128::unzigzag((block >> 1) - 1);
                    Seen::Block((first as i64 + distance) as u32)
                }
            })
        };
        let ways = [way()?, way()?];
        block.branch = Some(Branch { pc, ways });
    }
    block.lines.clear();
    if has_lines {
        for _ in 0..take()? {
            let mut step = |from: u32| {
                let difference: i64 = leb128::unzigzag(take()?);
                Some((i64::from(from) + difference) as u32)
            };
            *line = (step(line.0)?, step(line.1)?);
            block.lines.push(*line);
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_is_unpacked() {
        let block = |pc, bytes, insts, branch, lines: &[Line]| BlockFacts {
            pc,
            bytes,
            insts,
            branch,
            lines: lines.to_vec(),
        };
        let branch = |pc, ways| Some(Branch { pc, ways });
        let ways = [Seen::Block(2), Seen::Mark(700)];
        let blocks = [
            block(
                0x1000,
                9,
                3,
                branch(0x1007, ways),
                &[(0, 4), (40, 2), (0, 4)],
            ),
            block(0x0f00, 300, 100, None, &[]),
            block(
                2 << 32,
                2,
                1,
                branch(2 << 32, [Seen::Nowhere, Seen::Block(9)]),
                &[(0, 5)],
            ),
        ];
        let head = Head {
            pc: 0x1000,
            name: 17,
            line: (40, 3),
            has_lines: true,
        };
        let mut bytes = Vec::new();
        push(&mut bytes, Head::default(), 0, &[BlockFacts::default()]);
        leave_out(&mut bytes, 5);
        push(&mut bytes, head, 6, &blocks);
        let all: Vec<Group<'_>> = groups(&bytes).collect();
        assert_eq!((all.len(), all[2].first, all[2].len), (3, 6, 3));
        assert_eq!(all[1].head(), None);
        assert_eq!(all[2].head(), Some(head));
        let mut found = Vec::new();
        all[2].each(|i, block| {
            assert_eq!(i, found.len());
            found.push(block.clone());
        });
        assert_eq!(found, blocks);
        all[0].each(|_, block| assert_eq!(*block, BlockFacts::default()));
    }
}

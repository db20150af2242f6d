//! Facts about blocks, packed because there are many. The blocks of a procedure are one group, so procedures that were
//! never executed are skipped. A group begins with its number of blocks, the length of the rest in bytes, and what
//! the tool puts before the rest.
//!
//! A block of code is two or three numbers: its number of instructions, times four, plus two if it does not begin where
//! the block before it ends, plus one if the tool says so; its length in bytes; in the case of the two the distance
//! from the end of the block before. All numbers are LEB128; distances have their sign in the lowest bit.

use leb128::{next, push};

/// The blocks of a procedure, with `N` numbers before the rest.
pub struct Group<'a, const N: usize = 0> {
    /// The number of its first block, counted over all groups.
    pub first: usize,
    /// Its number of blocks.
    pub len: usize,
    /// The numbers before the rest.
    pub head: [u64; N],
    /// The rest.
    pub bytes: &'a [u8],
}

/// Appends a group.
pub fn push_group<const N: usize>(to: &mut Vec<u8>, blocks: usize, head: [u64; N], bytes: &[u8]) {
    push(to, blocks as u64);
    push(to, bytes.len() as u64);
    head.into_iter().for_each(|number| push(to, number));
    to.extend_from_slice(bytes);
}

/// The groups that were packed.
pub fn groups<const N: usize>(mut bytes: &[u8]) -> impl Iterator<Item = Group<'_, N>> {
    let mut first = 0;
    std::iter::from_fn(move || {
        let (len, size) = (next(&mut bytes)? as usize, next(&mut bytes)? as usize);
        let mut head = [0; N];
        for number in &mut head {
            *number = next(&mut bytes)?;
        }
        let (rest, after) = bytes.split_at_checked(size)?;
        (bytes, first) = (after, first + len);
        Some(Group {
            first: first - len,
            len,
            head,
            bytes: rest,
        })
    })
}

/// A block of code.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Code {
    /// Address of its first instruction.
    pub pc: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// Its number of instructions.
    pub insts: u64,
}

impl Code {
    /// The code of a block.
    pub fn of(block: crate::Block<'_>) -> Self {
        let (pc, last) = (block.pc(), block.last_inst());
        Self {
            pc,
            bytes: last.pc() + last.size() as u64 - pc,
            insts: block.insts().len() as u64,
        }
    }

    /// The address after it.
    pub fn end(&self) -> u64 {
        self.pc.wrapping_add(self.bytes)
    }

    /// Appends it with a flag of the tool's; `before` is the end of the block before.
    pub fn push(&self, to: &mut Vec<u8>, before: u64, flag: bool) {
        let gap = self.pc.wrapping_sub(before) as i64;
        let flags = u64::from(gap != 0) << 1 | u64::from(flag);
        push(to, self.insts << 2 | flags);
        push(to, self.bytes);
        if gap != 0 {
            push(to, leb128::zigzag(gap));
        }
    }

    /// Reads what [`Code::push`] has appended.
    pub fn next(bytes: &mut &[u8], before: u64) -> Option<(Self, bool)> {
        let (number, length) = (next(bytes)?, next(bytes)?);
        let gap = match number & 2 {
            0 => 0,
            _ => leb128::unzigzag(next(bytes)?) as u64,
        };
        let code = Self {
            pc: before.wrapping_add(gap),
            bytes: length,
            insts: number >> 2,
        };
        Some((code, number & 1 != 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_read_as_they_were_written() {
        let mut bytes = Vec::new();
        push_group(&mut bytes, 300, [5, 6], b"abc");
        push_group(&mut bytes, 1, [7, 8], b"");
        push_group(&mut bytes, 2, [9, 1 << 40], b"d");
        let found: Vec<_> = groups(&bytes)
            .map(|g| (g.first, g.len, g.head, g.bytes))
            .collect();
        let expected = [
            (0, 300, [5, 6], &b"abc"[..]),
            (300, 1, [7, 8], b""),
            (301, 2, [9, 1 << 40], b"d"),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn code_is_read_as_it_was_written() {
        let blocks = [
            (0x1000, 4, 1, true),
            (0x1004, 127, 31, false),
            (0x2000, 128, 32, true),
            (0x1500, 0x8000, 8191, false),
            (2 << 32, 9, 100_000, true),
            (0, 1, 1, false),
        ];
        let (mut bytes, mut before) = (Vec::new(), 0x1000);
        for (pc, length, insts, flag) in blocks {
            let code = Code {
                pc,
                bytes: length,
                insts,
            };
            code.push(&mut bytes, before, flag);
            before = code.end();
        }
        let (mut rest, mut before) = (&*bytes, 0x1000);
        for expected in blocks {
            let (code, flag) = Code::next(&mut rest, before).unwrap();
            assert_eq!((code.pc, code.bytes, code.insts, flag), expected);
            before = code.end();
        }
        assert_eq!(Code::next(&mut rest, before), None);
    }
}

//! Facts about blocks, packed because there are many blocks. Each block is two or three unsigned LEB128 numbers:
//!
//! - four times the number of the block's instructions, plus 2 if the block does not begin where the block before
//!   it ends, plus 1 if it is the first of its site;
//! - the length of the block in bytes;
//! - in the case of the 2: where the block begins, as the distance from the end of the block before it. The lowest
//!   bit says that the block begins in front of that end.

/// Facts about blocks, to be packed.
#[derive(Default)]
pub struct Packed {
    /// The input of [`unpacked`].
    pub bytes: Vec<u8>,
    last_site: Option<usize>,
    /// Address behind the last block.
    end: u64,
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
    /// Adds a block.
    pub fn push(&mut self, block: BlockFacts) {
        let is_first = self.last_site.replace(block.site) != Some(block.site);
        let gap = block.pc.wrapping_sub(self.end) as i64;
        let flags = u64::from(gap != 0) << 1 | u64::from(is_first);
        leb128::push(&mut self.bytes, block.insts << 2 | flags);
        leb128::push(&mut self.bytes, block.bytes);
        if gap != 0 {
            let distance = gap.unsigned_abs() << 1 | u64::from(gap < 0);
            leb128::push(&mut self.bytes, distance);
        }
        self.end = block.pc.wrapping_add(block.bytes);
    }
}

/// The next number. Nearly all of them are one byte.
#[inline]
fn take(bytes: &mut &[u8]) -> Option<u64> {
    match bytes.split_first() {
        Some((byte, rest)) if *byte < 0x80 => {
            *bytes = rest;
            Some((*byte).into())
        }
        _ => leb128::take(bytes).ok(),
    }
}

/// The facts of each block.
pub fn unpacked(bytes: &[u8]) -> impl Iterator<Item = BlockFacts> + '_ {
    let mut sites = 0usize;
    let mut end = 0u64;
    let mut bytes = bytes;
    std::iter::from_fn(move || {
        let mut next = || take(&mut bytes);
        let number = next()?;
        let length = next()?;
        sites += (number & 1) as usize;
        let mut pc = end;
        if number & 2 != 0 {
            let distance = next()?;
            let gap = distance >> 1;
            pc = match distance & 1 {
                0 => end.wrapping_add(gap),
                _ => end.wrapping_sub(gap),
            };
        }
        end = pc.wrapping_add(length);
        Some(BlockFacts {
            site: sites - 1,
            pc,
            bytes: length,
            insts: number >> 2,
        })
    })
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
        for block in blocks {
            packed.push(block);
        }
        assert!(unpacked(&packed.bytes).eq(blocks));
        assert_eq!(unpacked(&[]).next(), None);
    }
}

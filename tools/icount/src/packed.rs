//! Facts about blocks, packed because there are many blocks. Each block is an unsigned LEB128 number:
//! twice the number of the block's instructions, plus 1 if the block is the first of its site.

/// Facts about blocks.
#[derive(Default)]
pub struct Packed {
    /// The input of [`unpacked`].
    pub bytes: Vec<u8>,
    last_site: Option<usize>,
}

impl Packed {
    /// Adds a block. Sites have numbers in the order of blocks.
    pub fn push(&mut self, site: usize, insts: usize) {
        let is_first = self.last_site.replace(site) != Some(site);
        leb128::push(&mut self.bytes, (insts as u64) << 1 | u64::from(is_first));
    }
}

/// For each block the number of its site and the number of its instructions.
pub fn unpacked(bytes: &[u8]) -> impl Iterator<Item = (usize, usize)> + '_ {
    let mut sites = 0usize;
    let mut bytes = bytes;
    std::iter::from_fn(move || {
        let number: u64 = leb128::take(&mut bytes).ok()?;
        sites += (number & 1) as usize;
        Some((sites - 1, (number >> 1) as usize))
    })
}

#[cfg(test)]
mod tests {
    use super::{Packed, unpacked};

    #[test]
    fn what_is_packed_is_unpacked() {
        let blocks = [
            (0, 1),
            (0, 63),
            (1, 64),
            (2, 8191),
            (2, 8192),
            (2, 100_000),
            (3, 1),
        ];
        let mut packed = Packed::default();
        for (site, insts) in blocks {
            packed.push(site, insts);
        }
        assert!(unpacked(&packed.bytes).eq(blocks));
        assert_eq!(packed.bytes.len(), 13);
        assert_eq!(unpacked(&[]).next(), None);
    }
}

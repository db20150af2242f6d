//! The format drcov, version 2, which disassemblers read: a table of modules as text, and a table of executed blocks
//! as binary entries of eight bytes: distance from the module's base (u32), size (u16), number of the module (u16).

use std::io::{self, Write};

use crate::Coverage;

/// Size of the largest block that an entry can hold. A larger block has several entries.
const LARGEST: u64 = u16::MAX as u64;

impl Coverage {
    /// Writes the executed blocks in the format drcov.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write_drcov(&self, to: &mut dyn Write) -> io::Result<()> {
        writeln!(to, "DRCOV VERSION: 2\nDRCOV FLAVOR: atom")?;
        writeln!(to, "Module Table: version 2, count {}", self.modules.len())?;
        writeln!(to, "Columns: id, base, end, entry, path")?;
        for (number, module) in self.modules.iter().enumerate() {
            let (base, end, path) = (module.base, module.end, &module.path);
            writeln!(
                to,
                "{number:3}, {base:#018x}, {end:#018x}, {:#018x}, {path}",
                0
            )?;
        }
        let entries: u64 = (self.blocks.iter())
            .map(|block| block.size.div_ceil(LARGEST))
            .sum();
        writeln!(to, "BB Table: {entries} bbs")?;
        for block in &self.blocks {
            let (mut start, mut left) = (block.start, block.size);
            while left != 0 {
                let size = left.min(LARGEST);
                to.write_all(&(start as u32).to_le_bytes())?;
                to.write_all(&(size as u16).to_le_bytes())?;
                to.write_all(&(block.module as u16).to_le_bytes())?;
                start += size;
                left -= size;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn modules_are_text_and_blocks_are_binary() {
        let mut bytes = Vec::new();
        crate::example().write_drcov(&mut bytes).unwrap();
        let head = "DRCOV VERSION: 2\nDRCOV FLAVOR: atom\nModule Table: version 2, count 2\n\
            Columns: id, base, end, entry, path\n  \
            0, 0x0000000000400000, 0x0000000000403000, 0x0000000000000000, /bin/a\n  \
            1, 0x0000000000000000, 0x0000000000200000, 0x0000000000000000, /lib/libc.so.6\n\
            BB Table: 3 bbs\n";
        let table = bytes.strip_prefix(head.as_bytes()).unwrap();
        let expected = [
            [0x34, 0x12, 0, 0, 7, 0, 1, 0],
            // A block of 65537 bytes.
            [0, 0x10, 0, 0, 0xff, 0xff, 0, 0],
            [0xff, 0x0f, 1, 0, 2, 0, 0, 0],
        ];
        assert_eq!(table, expected.concat());
    }
}

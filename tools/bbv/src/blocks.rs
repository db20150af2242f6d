//! Facts about blocks, by their numbers.

use atom_tool::{Address, Array, Site, Sites, plain_data};

plain_data! {
    /// Facts about a block.
    pub struct BlockFacts {
        /// Address of its first instruction.
        pub pc: u64,
        /// Length in bytes.
        pub bytes: u32,
        /// Number of instructions.
        pub insts: u32,
    }
}

/// All blocks, with those of libraries that were added. The blocks of a procedure follow each other.
pub struct BlockList {
    /// The facts, in the order of the counters.
    pub blocks: Array<BlockFacts>,
    /// For each procedure the position of its first block.
    pub firsts: Array<u32>,
    /// The procedures.
    pub sites: Sites,
}

impl BlockList {
    /// The procedure of the block at a position.
    pub fn proc(&self, block: usize) -> Option<Site> {
        let after = self
            .firsts
            .partition_point(|first| *first as usize <= block);
        self.sites.get(after.checked_sub(1)?)
    }

    /// A line about the block at a position, for the file of blocks. `program` is the name of the first object.
    pub fn line(&self, block: usize, program: &str) -> Option<String> {
        let BlockFacts { pc, bytes, insts } = *self.blocks.as_slice().get(block)?;
        let pc = Address(pc);
        let object = pc.object().unwrap_or(program);
        let name = self.proc(block).map_or("", |site| site.proc);
        let id = id(block);
        let address = pc.in_file();
        Some(format!(
            "{id}\t{object}\t{address:#x}\t{bytes}\t{insts}\t{name}"
        ))
    }
}

/// The number of the block at a position, as files have it: from 1 on.
pub fn id(block: usize) -> usize {
    block + 1
}

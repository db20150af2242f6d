//! Numbering across the objects of a process.
//!
//! Each object's procedures, blocks and instructions count from 0 in its own [`Cfg`]. Towards a tool
//! they have one numbering for the process, in the order of the objects. Addresses have one, too: an
//! *address of the process* is the address in the object's file, with the object's number in the bits
//! from [`OBJECT_SHIFT`] on. The program itself is object 0, so its addresses are its file's.

use atom_abi::OBJECT_SHIFT;

use super::Cfg;

/// The numbers that an object's first procedure, block and instruction have in the process.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Numbers {
    /// Number of the object.
    pub object: u32,
    /// Number of its first procedure.
    pub proc: u32,
    /// Number of its first block.
    pub block: u32,
    /// Number of its first instruction.
    pub inst: u32,
}

impl Numbers {
    /// The numbers of several objects, in their order.
    pub fn of<'a>(objects: impl IntoIterator<Item = &'a Cfg>) -> Vec<Self> {
        let mut next = Self::default();
        let numbers = objects.into_iter().map(|cfg| {
            let own = next;
            next = Self {
                object: own.object + 1,
                proc: own.proc + cfg.procs.len() as u32,
                block: own.block + cfg.blocks.len() as u32,
                inst: own.inst + cfg.insts.len() as u32,
            };
            own
        });
        numbers.collect()
    }

    /// The address of the process for an address of the object's file.
    pub fn address(&self, in_file: u64) -> u64 {
        in_file.wrapping_add(u64::from(self.object) << OBJECT_SHIFT)
    }

    /// The address of the object's file for an address of the process.
    pub fn in_file(&self, address: u64) -> u64 {
        address.wrapping_sub(u64::from(self.object) << OBJECT_SHIFT)
    }
}

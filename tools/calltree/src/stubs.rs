//! Instructions of stubs of the procedure linkage table.
//!
//! A stub is a jump through memory. To count it where it is would cost more than the stub: nothing is known to be
//! dead there, not even what is below rsp. So the block that calls the stub counts it, if all that leads to the stub are calls and
//! jumps whose blocks are counted.

use std::collections::HashMap;

use atom_tool::prelude::*;

/// The stubs that are counted by their callers.
pub struct Stubs {
    /// For the number of a stub's first block, the number of its instructions.
    counted: HashMap<usize, u64>,
}

/// The first block of the stub to which an instruction leads directly.
fn entered<'a>(inst: Inst<'a>) -> Option<Block<'a>> {
    let block = inst.target()?.block();
    (block.proc().is_stub() && block.proc().first_block() == Some(block)).then_some(block)
}

impl Stubs {
    /// Finds these stubs.
    pub fn find(program: &Program<'_>) -> Self {
        let mut counted = HashMap::new();
        for object in program.objects() {
            // In a program at a fixed address, a stub's address may be the function's for the whole process. Procedures that are
            // not understood may call stubs, too.
            if object.range().start as u32 != 0 || object.procs().any(|proc| proc.is_opaque()) {
                continue;
            }
            let blocks = || object.procs().flat_map(|proc| proc.blocks());
            let first = object.procs().filter(Proc::is_stub);
            let first = first.filter_map(|stub| stub.first_block());
            let mut own: HashMap<usize, u64> = first
                .filter(|block| !block.is_address_taken() && block.predecessors().is_empty())
                .map(|block| (block.index(), block.insts().len() as u64))
                .collect();
            for block in blocks() {
                let last = block.last_inst();
                let is_always = !last.is_type(InstType::CondBr) && block.is_selected();
                if let Some(stub) = entered(last).filter(|_| !is_always) {
                    own.remove(&stub.index());
                }
                if !block.is_selected() {
                    own.remove(&block.index());
                }
            }
            counted.extend(own);
        }
        Self { counted }
    }

    /// Number of instructions that a block counts: its own, and those of a stub to which it leads.
    pub fn amount(&self, block: Block<'_>) -> u64 {
        let of = |block: &Block<'_>| self.counted.get(&block.index()).copied();
        let own = match of(&block) {
            Some(_) => 0,
            None => block.insts().len() as u64,
        };
        let stub = entered(block.last_inst());
        own + stub.and_then(|stub| of(&stub)).unwrap_or(0)
    }
}

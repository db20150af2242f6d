//! Liveness: which registers and flags hold a value that may still be read.
//!
//! An inserted call saves only what is live at its point and clobbered by the
//! routine. *Dead* must therefore mean dead on every path, whatever convention
//! the program's parts use among themselves; see `graph.rs` and `solve.rs` for
//! how calls and returns are treated. Only what is live at the ends of blocks
//! is kept; the rest is computed again when it is asked for.
//!
//! Not covered, because no machine code shows it: calls *through pointers* of
//! functions with a convention of their own that keeps caller-saved registers
//! (`no_caller_saved_registers`, `preserve_most`).

mod below;
mod convention;
mod effects;
mod far_calls;
mod graph;
mod regset;
mod solve;
mod span;
#[cfg(test)]
mod tests;
mod unknown_code;

pub use below::is_free_below;
pub use effects::{Effects, EffectsOf, reg_bit};
pub use regset::RegSet;

use std::sync::Arc;

use crate::cfg::Cfg;
use crate::ids::{BlockId, InstId, ProcId};
use crate::image::Image;

use solve::Solution;

/// Liveness of the whole program.
pub struct Live<'a> {
    image: &'a Image,
    cfg: &'a Cfg,
    /// What is live at both ends of each block.
    ends: Arc<Solution>,
    /// By procedure: true if it may run with the direction flag set.
    may_set_df: Vec<bool>,
    /// Registers that count as live everywhere.
    kept: RegSet,
}

impl<'a> Live<'a> {
    /// Computes liveness of the whole program.
    pub fn compute(image: &'a Image, cfg: &'a Cfg) -> Self {
        let graph = graph::LiveGraph::build(image, cfg);
        // From here on the program's bytes are not read.
        image.release_pages();
        let ends = solve::solve(cfg, &graph);
        let may_set_df = graph.procs.iter().map(|p| p.may_set_df).collect();
        Self {
            image,
            cfg,
            ends: Arc::new(ends),
            may_set_df,
            kept: match image.is_go() {
                true => convention::ALWAYS_IN_GO,
                false => RegSet::EMPTY,
            },
        }
    }

    /// The same liveness with the registers in `kept` live everywhere, because something other
    /// than the program, such as a signal handler, reads them.
    pub fn keeping(&self, kept: RegSet) -> Self {
        Self {
            ends: self.ends.clone(),
            may_set_df: self.may_set_df.clone(),
            kept: self.kept | kept,
            ..*self
        }
    }

    /// Liveness in which everything is live: a safe approximation.
    pub fn everything(image: &'a Image, cfg: &'a Cfg) -> Self {
        Self {
            image,
            cfg,
            ends: Arc::new(Solution::everything(cfg)),
            may_set_df: vec![true; cfg.procs.len()],
            kept: RegSet::ALL,
        }
    }

    /// True if the procedure may run with the direction flag set.
    pub fn may_set_df(&self, proc: ProcId) -> bool {
        self.may_set_df[proc.index()]
    }

    /// What is live before the first instruction of a block.
    pub fn at_start(&self, block: BlockId) -> RegSet {
        self.ends.before[block.index()] | self.kept
    }

    /// What is live after the last instruction of a block, on all ways out of it.
    pub fn after(&self, block: BlockId) -> RegSet {
        self.ends.after[block.index()] | self.kept
    }

    /// What is live before the callee of a call that ends the block; without such a call, what is
    /// live after the block.
    fn across(&self, block: BlockId) -> RegSet {
        match self.ends.calls.binary_search(&block) {
            Ok(i) => self.ends.across[i] | self.kept,
            Err(_) => self.after(block),
        }
    }

    /// What is live before each instruction of a block; the last set is what is live after the block.
    pub fn block(&self, block: BlockId) -> Vec<RegSet> {
        let mut sets = Vec::new();
        self.block_into(block, &mut EffectsOf::new(), &mut sets);
        sets
    }

    /// As [`Live::block`], into `sets`, whose storage can be used again.
    pub fn block_into(&self, block: BlockId, effects_of: &mut EffectsOf, sets: &mut Vec<RegSet>) {
        let count = self.cfg.block(block).count as usize;
        sets.clear();
        sets.resize(count + 1, RegSet::EMPTY);
        sets[count] = self.after(block);
        let mut live = self.across(block);
        let insts = self.cfg.block_bytes(self.image, block);
        for ((inst, bytes), set) in insts.zip(&mut sets[..count]).rev() {
            let pc = self.cfg.base + u64::from(inst.offset);
            live = effects_of.of_bytes(inst, bytes, pc).before(live);
            *set = live | self.kept;
        }
    }

    /// What is live before an instruction. `effects_of` is working storage; one for many calls saves
    /// its allocation and finds most effects at once.
    pub fn before(&self, inst: InstId, effects_of: &mut EffectsOf) -> RegSet {
        let block = self.cfg.block_of(inst);
        let number = (inst.0 - self.cfg.block(block).first.0) as usize;
        let mut live = self.across(block);
        let insts = self.cfg.block_bytes(self.image, block);
        for (inst, bytes) in insts.skip(number).rev() {
            let pc = self.cfg.base + u64::from(inst.offset);
            live = effects_of.of_bytes(inst, bytes, pc).before(live);
        }
        live | self.kept
    }
}

//! Liveness: which registers and flags hold a value that may still be read.
//!
//! An inserted call saves only what is live at its point and clobbered by the
//! routine. *Dead* must therefore mean dead on every path, whatever convention
//! the program's parts use among themselves; see [`graph`] and [`solve`] for
//! how calls and returns are treated. Only what is live at the ends of blocks
//! is kept; the rest is computed again when it is asked for.
//!
//! Not covered, because no machine code shows it: calls *through pointers* of
//! functions with a convention of their own that keeps caller-saved registers
//! (`no_caller_saved_registers`, `preserve_most`).

mod effects;
mod graph;
mod regset;
mod solve;
#[cfg(test)]
mod tests;
mod unknown_code;

pub use effects::{Effects, EffectsOf, reg_bit};
pub use regset::RegSet;

use crate::cfg::Cfg;
use crate::ids::{BlockId, InstId, ProcId};
use crate::image::Image;

/// Liveness of the whole program.
pub struct Live<'a> {
    image: &'a Image,
    cfg: &'a Cfg,
    /// Live after each block.
    after: Vec<RegSet>,
    /// The same, carried over the callee of a call that ends the block.
    across: Vec<RegSet>,
    /// Procedures that may run with the direction flag set.
    may_set_df: Vec<bool>,
    /// Live everywhere.
    kept: RegSet,
}

impl<'a> Live<'a> {
    /// Computes it.
    pub fn compute(image: &'a Image, cfg: &'a Cfg) -> Self {
        let graph = graph::Graph::build(image, cfg);
        let (after, across) = solve::solve(cfg, &graph);
        let may_set_df = graph.procs.iter().map(|p| p.may_set_df).collect();
        Self {
            image,
            cfg,
            after,
            across,
            may_set_df,
            kept: RegSet::EMPTY,
        }
    }

    /// The same with some registers live everywhere, because somebody other
    /// than the program reads them.
    pub fn keeping(&self, kept: RegSet) -> Self {
        let with = |sets: &[RegSet]| sets.iter().map(|s| *s | kept).collect();
        Self {
            after: with(&self.after),
            across: with(&self.across),
            may_set_df: self.may_set_df.clone(),
            kept: self.kept | kept,
            ..*self
        }
    }

    /// Takes everything for live: always right, never tight.
    pub fn everything(image: &'a Image, cfg: &'a Cfg) -> Self {
        let all = vec![RegSet::ALL; cfg.blocks.len()];
        Self {
            image,
            cfg,
            after: all.clone(),
            across: all,
            may_set_df: vec![true; cfg.procs.len()],
            kept: RegSet::ALL,
        }
    }

    /// True if the procedure may run with the direction flag set.
    pub fn may_set_df(&self, proc: ProcId) -> bool {
        self.may_set_df[proc.index()]
    }

    /// What is live after the last instruction of a block, on all ways out of it.
    pub fn after(&self, block: BlockId) -> RegSet {
        self.after[block.index()]
    }

    /// What is live before each instruction of a block, and after the last.
    pub fn block(&self, block: BlockId) -> Vec<RegSet> {
        let mut sets = Vec::new();
        self.block_into(block, &mut EffectsOf::new(), &mut sets);
        sets
    }

    /// As [`Live::block`], into storage that is used again.
    pub fn block_into(&self, block: BlockId, effects_of: &mut EffectsOf, sets: &mut Vec<RegSet>) {
        let count = self.cfg.block(block).count as usize;
        sets.clear();
        sets.resize(count + 1, RegSet::EMPTY);
        sets[count] = self.after(block);
        let mut live = self.across[block.index()];
        for (i, inst) in self.cfg.block(block).insts().enumerate().rev() {
            live = effects_of
                .of(&self.cfg.decode(self.image, inst))
                .before(live);
            sets[i] = live | self.kept;
        }
    }

    /// What is live before an instruction.
    pub fn before(&self, inst: InstId) -> RegSet {
        let block = self.cfg.block_of(inst);
        self.block(block)[(inst.0 - self.cfg.block(block).first.0) as usize]
    }
}

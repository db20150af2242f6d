//! Liveness: which registers and flags hold a value that may still be read.
//!
//! An inserted call saves only what is live at its point and clobbered by the
//! routine. *Dead* must therefore mean dead on every path, whatever convention
//! the program's parts use among themselves; see `graph.rs` and `solve.rs` for
//! how calls and returns are treated. Only what is live at the ends of blocks
//! is kept; the rest is computed again when it is asked for.
//!
//! Calls whose other side is not known, through pointers and between objects, may have conventions of their own, too
//! (`preserve_most`, profiling calls, assembly). `expectations.rs` says how they are found. What stays uncovered is a
//! result in an unusual register that the callee reads again itself, if its caller is in an object that is not known.

mod alignment;
mod below;
mod convention;
mod effects;
mod ends;
mod expectations;
mod far_calls;
mod foreign;
mod graph;
mod regset;
mod solve;
mod span;
#[cfg(test)]
mod tests;
mod units;
mod unknown_code;

pub use below::is_free_below;
pub use effects::{Effects, EffectsOf, reg_bit};
pub use expectations::Expectations;
pub use foreign::{Foreign, has_foreign};
pub use regset::RegSet;

use std::sync::{Arc, OnceLock};

use crate::cfg::Cfg;
use crate::cfg::stored::{Reader, Writer};
use crate::ids::{BlockId, InstId, ProcId};
use crate::image::Image;
use crate::x86::InstructionInfoFactory;

use solve::Solution;
use units::Units;

/// What an object and others expect of each other, when the objects of a process have been computed.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Settled {
    /// What the object expects.
    expected: Expectations,
    /// What is expected of it.
    told: Expectations,
}

impl Settled {
    /// Appends it to bytes that are stored.
    pub fn store(&self, to: &mut Writer) {
        self.expected.store(to);
        self.told.store(to);
    }

    /// Reads what [`Settled::store`] wrote.
    pub fn restore(from: &mut Reader<'_>) -> Option<Self> {
        Some(Self {
            expected: Expectations::restore(from)?,
            told: Expectations::restore(from)?,
        })
    }
}

/// Liveness of the whole program.
pub struct Live<'a> {
    image: &'a Image,
    cfg: &'a Cfg,
    /// What is live at both ends of each block.
    ends: Arc<Solution>,
    /// What the object's callers read after calls of functions that they do not know.
    expected: Arc<Expectations>,
    /// What others expect of the object, as far as that was taken into account.
    told: Arc<Expectations>,
    /// By procedure: true if it may run with the direction flag set.
    may_set_df: Vec<bool>,
    /// True if the object may set the flag by which the processor checks alignment.
    may_check_alignment: bool,
    /// Where rsp may lead to data in whole procedures, once that was asked for.
    units: Arc<OnceLock<Units>>,
    /// Registers that count as live everywhere.
    kept: RegSet,
}

impl<'a> Live<'a> {
    /// Computes liveness of the whole program.
    pub fn compute(image: &'a Image, cfg: &'a Cfg) -> Self {
        Self::compute_among(image, cfg, &Expectations::default())
    }

    /// Computes liveness of an object whose functions are called by others that expect `outside`.
    pub fn compute_among(image: &'a Image, cfg: &'a Cfg, outside: &Expectations) -> Self {
        let graph = graph::LiveGraph::build(image, cfg, outside);
        let restores = |(p, info): (usize, &graph::ProcInfo)| {
            info.restores_flags && alignment::may_set_check(image, cfg, ProcId::from_index(p))
        };
        let may_check_alignment = graph.procs.iter().enumerate().any(restores);
        // From here on the program's bytes are not read.
        image.release_pages();
        let (ends, expected) = solve::solve(cfg, &graph);
        let may_set_df = graph.procs.iter().map(|p| p.may_set_df).collect();
        Self {
            image,
            cfg,
            ends: Arc::new(ends),
            expected: Arc::new(expected),
            told: Arc::new(outside.clone()),
            may_set_df,
            may_check_alignment,
            units: Arc::default(),
            kept: if image.is_go() {
                convention::ALWAYS_IN_GO
            } else {
                RegSet::EMPTY
            },
        }
    }

    /// Computes liveness of all objects of a process. An object is solved again if others expect more of it than the
    /// ABI says and than its own code tells.
    pub fn compute_all(objects: &[(&'a Image, &'a Cfg)]) -> Vec<Self> {
        Self::compute_new(objects, &[])
    }

    /// As [`Live::compute_all`], for objects of which the first ones were settled with each other before, as `known` says. The
    /// code of these is there already: everything counts as live in them, unless the new ones expect more of them.
    pub fn compute_new(objects: &[(&'a Image, &'a Cfg)], known: &[Option<Settled>]) -> Vec<Self> {
        let known = known
            .iter()
            .map(Option::as_ref)
            .chain(std::iter::repeat(None));
        let each = objects.iter().zip(known);
        let mut lives: Vec<Self> = each
            .map(|((image, cfg), known)| match known {
                Some(known) => Self::settled(image, cfg, known),
                None => Self::compute(image, cfg),
            })
            .collect();
        let own = |live: &Self| {
            if live.told.is_empty() {
                (*live.expected).clone()
            } else {
                (*live.told).clone()
            }
        };
        let mut told: Vec<Expectations> = lives.iter().map(own).collect();
        loop {
            let all = Expectations::sum(lives.iter().map(|l| &*l.expected));
            let mut is_settled = true;
            for (i, (image, cfg)) in objects.iter().enumerate() {
                let news = all.of_object(image);
                if !told[i].contains(&news) {
                    lives[i] = Self::compute_among(image, cfg, &news);
                    told[i] = news;
                    is_settled = false;
                }
            }
            if is_settled {
                return lives;
            }
        }
    }

    /// The same liveness with the registers in `kept` live everywhere, because something other
    /// than the program, such as a signal handler, reads them.
    pub fn keeping(&self, kept: RegSet) -> Self {
        Self {
            ends: self.ends.clone(),
            expected: self.expected.clone(),
            told: self.told.clone(),
            may_set_df: self.may_set_df.clone(),
            units: self.units.clone(),
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
            expected: Arc::default(),
            told: Arc::default(),
            may_set_df: vec![true; cfg.procs.len()],
            may_check_alignment: true,
            units: Arc::default(),
            kept: RegSet::ALL,
        }
    }

    /// Liveness of an object that was settled before, in which everything counts as live.
    fn settled(image: &'a Image, cfg: &'a Cfg, known: &Settled) -> Self {
        Self {
            expected: Arc::new(known.expected.clone()),
            told: Arc::new(known.told.clone()),
            ..Self::everything(image, cfg)
        }
    }

    /// What the object and the others expect of each other.
    pub fn expectations(&self) -> Settled {
        Settled {
            expected: (*self.expected).clone(),
            told: (*self.told).clone(),
        }
    }

    /// True if the procedure may run with the direction flag set.
    pub fn may_set_df(&self, proc: ProcId) -> bool {
        self.may_set_df[proc.index()]
    }

    /// True if the processor may check alignment because of the object.
    pub fn may_check_alignment(&self) -> bool {
        self.may_check_alignment
    }

    /// Where rsp may lead to data in a procedure. `info` is working storage.
    pub fn foreign(&self, proc: ProcId, info: &mut InstructionInfoFactory) -> Foreign {
        let units = self.units.get_or_init(|| Units::of(self.image, self.cfg));
        if units.contains(proc) {
            Foreign::everywhere(self.cfg, proc)
        } else {
            Foreign::of(self.image, self.cfg, proc, info)
        }
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

//! Which procedures move.
//!
//! A procedure that gets no inserted code stays in place and works as before: it costs nothing,
//! neither at run time nor in the output. The other procedures move, together with the procedures
//! that share code with them. In a procedure that stays, a direct call or jump to the start of a
//! moved procedure is patched if its displacement has 32 bits. Every other transfer goes through
//! pads.

use crate::cfg::Cfg;
use crate::ids::ProcId;

use super::{Extra, Options};

/// Distance in bytes within which an island can serve a two-byte jump.
const ISLAND_REACH: u64 = 160;

/// The procedures that move. Nothing else decides which procedures move.
#[derive(Clone, Debug, Default)]
pub struct MovedSet {
    flags: Vec<bool>,
}

impl MovedSet {
    /// All procedures that can move.
    pub fn all(cfg: &Cfg) -> Self {
        Self {
            flags: cfg.procs.iter().map(|p| p.is_movable()).collect(),
        }
    }

    /// The procedures that get code or are chosen by the options. `insertions` has for each procedure the number of its
    /// first insertion, and at the end the number of all insertions.
    pub(super) fn needed(cfg: &Cfg, insertions: &[u32], options: &Options) -> Self {
        Self {
            flags: (0..cfg.procs.len())
                .map(ProcId::from_index)
                .map(|p| {
                    let gets_code = insertions[p.index()] != insertions[p.index() + 1];
                    let wanted = options.extra.takes(cfg.proc(p).start) || gets_code;
                    wanted && cfg.proc(p).is_movable()
                })
                .collect(),
        }
    }

    /// True if the procedure moves.
    pub fn contains(&self, proc: ProcId) -> bool {
        self.flags[proc.index()]
    }

    /// Number of procedures that move.
    pub fn count(&self) -> usize {
        self.flags.iter().filter(|f| **f).count()
    }

    /// Adds the procedures that have to move together with members.
    pub(super) fn close(&mut self, cfg: &Cfg) {
        let pairs = cfg.together.iter().map(|(a, b)| (a.index(), b.index()));
        let mut links: Vec<_> = pairs.flat_map(|(a, b)| [(a, b), (b, a)]).collect();
        links.sort_unstable();
        let mut work: Vec<usize> = (0..self.flags.len()).filter(|p| self.flags[*p]).collect();
        while let Some(p) = work.pop() {
            let first = links.partition_point(|l| l.0 < p);
            for (_, other) in links[first..].iter().take_while(|l| l.0 == p) {
                if !std::mem::replace(&mut self.flags[*other], true) {
                    work.push(*other);
                }
            }
        }
    }

    /// Adds the procedures near an address; true if any did not move before.
    pub(super) fn add_around(&mut self, cfg: &Cfg, address: u64) -> bool {
        let first = cfg
            .procs
            .partition_point(|p| p.end + ISLAND_REACH <= address);
        let near = cfg.procs[first..]
            .iter()
            .take_while(|p| p.start < address + ISLAND_REACH);
        let mut grown = false;
        for (proc, flag) in near.zip(&mut self.flags[first..]) {
            grown |= proc.is_movable() && !*flag;
            *flag |= proc.is_movable();
        }
        grown
    }
}

impl Extra {
    /// True if the procedure at an address moves without need.
    fn takes(self, start: u64) -> bool {
        match self {
            Self::None => false,
            Self::Half(seed) => {
                let mixed = (start ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 63 == 0
            }
            Self::All => true,
        }
    }
}

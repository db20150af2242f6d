//! Where windows begin and end: code at which a run is to be measured from now on, or no longer.
//!
//! A pattern names places as it names code that is selected ([`super::select`]): a procedure its entry, a source line the
//! first instructions of its code, an address and a mark ([`super::marks`]) itself. Control changes the version of a procedure between two blocks, so
//! a place stands for the block that it is in.

use super::marks::End;
use super::select::{Candidate, Pattern, places};
use crate::error::{Error, Result};
use crate::ids::BlockId;

/// The patterns of both options.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Windows {
    /// Where a window begins.
    pub from: Vec<Pattern>,
    /// Where it ends.
    pub to: Vec<Pattern>,
}

/// The blocks of one object in front of which a window begins or ends, each list in ascending order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Borders {
    /// Blocks in front of which a window begins.
    pub from: Vec<BlockId>,
    /// Blocks in front of which a window ends.
    pub to: Vec<BlockId>,
}

impl Windows {
    /// Finds the blocks in the objects of a process; nothing if there are no patterns.
    pub fn resolve(&self, objects: &[Candidate<'_>]) -> Result<Vec<Borders>> {
        if self.from.is_empty() && self.to.is_empty() {
            return Ok(Vec::new());
        }
        let blocks = |patterns: &[Pattern], end| -> Result<Vec<Vec<BlockId>>> {
            let mut blocks = vec![Vec::new(); objects.len()];
            for pattern in patterns {
                for (object, block) in places(pattern, end, objects)? {
                    blocks[object].push(block);
                }
            }
            for list in &mut blocks {
                list.sort_unstable();
                list.dedup();
            }
            Ok(blocks)
        };
        let pairs = blocks(&self.from, End::Begin)?.into_iter();
        let pairs = pairs.zip(blocks(&self.to, End::End)?);
        let borders: Vec<_> = pairs.map(|(from, to)| Borders { from, to }).collect();
        for (object, borders) in objects.iter().zip(&borders) {
            if let Some(block) = borders.from.iter().find(|b| borders.to.contains(b)) {
                let pc = object.cfg.block_pc(*block);
                let reason = format!("a window begins and ends at {pc:#x}");
                return Err(Error::new("placing windows", reason).advice(
                    "name two places, such as a procedure and one that is called after it",
                ));
            }
        }
        Ok(borders)
    }
}

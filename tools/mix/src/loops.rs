//! Trip counts of natural loops: how often a loop was entered, and how often its header ran.
//!
//! The header runs once for each entry and once for each time that control comes back, so what is counted beside the
//! header's block are the ways back. A loop with a way back that cannot be counted (by a jump table) has no entries.

use atom_tool::Loop;
use atom_tool::prelude::*;

use crate::trips;

plain_data! {
    /// A loop.
    pub struct LoopFacts {
        /// Number of its header's site.
        pub site: u32,
        /// Number of its header.
        pub header: u32,
        /// Its nesting depth, 1 for the outermost.
        pub depth: u32,
        /// Number of its ways back.
        pub ways: u32,
        /// 1 if all ways back are counted.
        pub is_known: u32,
    }

    /// What counts a way back.
    pub enum Counted {
        /// The counter of the block from which it comes.
        Block,
        /// The first counter of a branch: it is not taken.
        NotTaken,
        /// The second counter of a branch: it is taken.
        Taken,
        /// The counter of a call's returns.
        Return,
    }

    /// A way back to a loop's header.
    pub struct Back {
        pub counted: Counted,
        /// Number of the counter.
        pub number: u32,
    }
}

/// Instrument side: the loops of a program.
#[derive(Default)]
pub struct LoopList<'a> {
    pub loops: Vec<LoopFacts>,
    /// The ways back of the loops, one loop after the other.
    pub backs: Vec<Back>,
    /// Branches whose ways are counted.
    pub branches: Vec<Inst<'a>>,
    /// Calls whose returns are counted.
    pub calls: Vec<Inst<'a>>,
    /// For each loop how its trips are counted; empty if they are not.
    pub trips: Vec<Option<trips::Counted<'a>>>,
    /// Trips are counted.
    pub has_trips: bool,
}

impl<'a> LoopList<'a> {
    /// Adds the loops of a procedure, and their headers to `sites`.
    pub fn push(&mut self, proc: Proc<'a>, sites: &mut SiteList) {
        for one in proc.loops().iter() {
            // A part of the procedure elsewhere lists them, too.
            if one.header.proc() == proc {
                self.add(one, sites);
            }
        }
    }

    fn add(&mut self, one: &Loop<'a>, sites: &mut SiteList) {
        let before = self.backs.len();
        let mut is_known = true;
        for latch in &one.latches {
            let edges = latch.successors();
            for edge in edges.iter().filter(|edge| edge.block == Some(one.header)) {
                match self.back(*latch, edge.kind, edges.len()) {
                    Some(back) => self.backs.push(back),
                    None => is_known = false,
                }
            }
        }
        if self.has_trips {
            let counted = is_known.then(|| trips::Counted::new(one)).flatten();
            self.trips.push(counted);
        }
        self.loops.push(LoopFacts {
            site: sites.push_block(one.header) as u32,
            header: one.header.index() as u32,
            depth: one.depth,
            ways: (self.backs.len() - before) as u32,
            is_known: is_known.into(),
        });
    }

    /// What counts the way from a block to a header; `ways` is the number of ways out of the block.
    fn back(&mut self, latch: Block<'a>, kind: EdgeKind, ways: usize) -> Option<Back> {
        let last = latch.last_inst();
        let is_branch = last.is_type(InstType::CondBr);
        let (counted, number) = match kind {
            EdgeKind::Fall | EdgeKind::Taken if ways == 1 && !is_branch => {
                (Counted::Block, latch.index())
            }
            EdgeKind::Fall | EdgeKind::Taken if is_branch => {
                self.branches.push(last);
                let counted = match kind {
                    EdgeKind::Taken => Counted::Taken,
                    _ => Counted::NotTaken,
                };
                (counted, self.branches.len() - 1)
            }
            EdgeKind::CallReturn => {
                self.calls.push(last);
                (Counted::Return, self.calls.len() - 1)
            }
            _ => return None,
        };
        let number = number as u32;
        Some(Back { counted, number })
    }
}

/// Executions of a loop.
pub struct Trips {
    /// Number of its site.
    pub site: usize,
    pub depth: u32,
    /// Number of entries, if all ways back were counted.
    pub entries: Option<u64>,
    /// Number of executions of its header.
    pub iterations: u64,
    /// Its number.
    pub number: usize,
}

/// The loops that were executed. `count` gives the value of a counter.
pub fn trips(
    loops: &[LoopFacts],
    backs: &[Back],
    count: impl Fn(Counted, u32) -> u64,
) -> Vec<Trips> {
    let mut rest = backs;
    let mut all = Vec::new();
    for (number, one) in loops.iter().enumerate() {
        let (these, behind) = rest.split_at(rest.len().min(one.ways as usize));
        rest = behind;
        let iterations = count(Counted::Block, one.header);
        if iterations == 0 {
            continue;
        }
        let back: u64 = these
            .iter()
            .map(|back| count(back.counted, back.number))
            .sum();
        // A process that ends inside of a loop leaves a latch without coming to the header.
        let entries = iterations.saturating_sub(back).max(1);
        all.push(Trips {
            site: one.site as usize,
            depth: one.depth,
            entries: (one.is_known != 0).then_some(entries),
            iterations,
            number,
        });
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_what_did_not_come_back() {
        let one = |header, ways, is_known| LoopFacts {
            site: header,
            header,
            depth: 1,
            ways,
            is_known,
        };
        let back = |counted, number| Back { counted, number };
        let loops = [one(0, 2, 1), one(1, 0, 0), one(2, 1, 1)];
        let backs = [
            back(Counted::Block, 3),
            back(Counted::Taken, 0),
            back(Counted::Return, 0),
        ];
        let count = |counted, number: u32| match counted {
            Counted::Block => [100, 0, 7, 60][number as usize],
            Counted::Taken => 30,
            Counted::NotTaken => 0,
            Counted::Return => 7,
        };
        let found = trips(&loops, &backs, count);
        let found: Vec<_> = found
            .iter()
            .map(|t| (t.site, t.entries, t.iterations))
            .collect();
        assert_eq!(found, [(0, Some(10), 100), (2, Some(1), 7)]);
    }
}

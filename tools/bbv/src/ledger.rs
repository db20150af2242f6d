//! What a thread has left of its interval.
//!
//! Each block has a *budget*: a number of executions that need no look at the interval. A block counts its budget up to 0
//! with one instruction, and only without a budget it takes the cold path. The instructions of all budgets, and a
//! *reserve*, are what is left of the interval. As long as the reserve is positive no execution inside of a budget can end
//! the interval; so the interval ends exactly with the block without a budget that takes the rest, while no other
//! block has a budget either.
//!
//! Budgets grow with the executions of the block. When the reserve is used up, all blocks give half of their budgets
//! back, and all of them near the end of the interval. Each such look goes through all blocks of the interval; a budget that is used
//! up early costs less than a look, so a block gets a small part of the reserve at once.
//!
//! A signal handler may run between any two instructions of [`Ledger::take`] and take executions itself: each number
//! there is changed by one instruction, and what the handler sees too much of the reserve is missing when it returns.

use std::sync::OnceLock;

use atom_tool::{Counters, ThreadCell};

use crate::blocks::BlockFacts;

/// A block gets at most this part of the reserve at once.
const SHARE: i64 = 128;
/// Least budget, where the reserve allows it.
const LEAST: i64 = 8;
/// Intervals of fewer instructions begin without budgets.
const SMALL: i64 = 100_000;
/// There are no budgets any more when this part of the interval is left.
const LAST: i64 = 1 << 20;
/// When the reserve is used up, a block keeps its budget divided by this number.
const KEPT: i64 = 2;
/// A block begins an interval without this part of its executions in the one before.
const AGAIN: u64 = 8;

/// The budgets of a thread, and the executions of its interval.
pub struct Ledger {
    /// Number of instructions that are left of the interval, without those of budgets.
    reserve: ThreadCell<i64>,
    /// The reserve up to which there are no budgets.
    last: i64,
    /// For each block its executions in the interval and its budget, together.
    given: Cells,
    /// The blocks for which this is not 0, and their number.
    active: Cells,
    len: ThreadCell<u64>,
}

/// Most pieces of [`Cells`].
const PIECES: usize = 16;

/// Cells in memory that takes no room before it is used. There may be more of them later, which are elsewhere, so no cell
/// ever moves.
struct Cells {
    first: Box<[ThreadCell<i64>]>,
    /// What came later. Each piece has as many cells as all before it together.
    later: [OnceLock<Box<[ThreadCell<i64>]>>; PIECES],
}

impl Cells {
    fn new(count: usize) -> Self {
        Self {
            first: ThreadCell::zeros(count.max(1)),
            later: [const { OnceLock::new() }; PIECES],
        }
    }

    /// The piece of a cell that came later, and the number of the piece's first cell.
    fn piece(&self, number: usize) -> (usize, usize) {
        let piece = (number / self.first.len()).ilog2() as usize;
        (piece, self.first.len() << piece)
    }

    #[inline]
    fn get(&self, number: usize) -> Option<&ThreadCell<i64>> {
        if let Some(cell) = self.first.get(number) {
            return Some(cell);
        }
        let (piece, start) = self.piece(number);
        self.later.get(piece)?.get()?.get(number - start)
    }

    /// Makes room for the cell with this number. Signals are blocked.
    fn grow_to(&self, number: usize) {
        if number < self.first.len() {
            return;
        }
        for (i, piece) in (0..=self.piece(number).0).zip(&self.later) {
            piece.get_or_init(|| ThreadCell::zeros(self.first.len() << i));
        }
    }
}

/// Minus the budget of a block. It is positive if the block was executed without one.
fn counter(counts: Counters, block: u32) -> i64 {
    counts.at(block as usize).get()[0] as i64
}

/// A block's number of instructions.
fn insts(facts: &[BlockFacts], block: u32) -> i64 {
    i64::from(facts[block as usize].insts)
}

impl Ledger {
    /// For a thread that begins with an interval.
    pub fn new(interval: u64, blocks: usize) -> Self {
        Self {
            reserve: ThreadCell::new(interval as i64),
            last: interval as i64 / LAST,
            given: Cells::new(blocks),
            active: Cells::new(blocks),
            len: ThreadCell::new(0),
        }
    }

    /// Makes room for a block of a library that was added. False if there was room. Signals are blocked.
    pub fn grow_to(&self, block: u32) -> bool {
        let is_new = self.given.get(block as usize).is_none();
        if is_new {
            self.active.grow_to(block as usize);
            self.given.grow_to(block as usize);
        }
        is_new
    }

    /// Takes the executions of a block whose budget is used up, and gives it a new one. False if the reserve is used
    /// up then, or if there is no room for the block.
    pub fn take(&self, counts: Counters, block: u32, facts: &[BlockFacts]) -> bool {
        let Some(given) = self.given.get(block as usize) else {
            return false;
        };
        let insts = insts(facts, block);
        let reserve = self.reserve.get();
        let budget = if reserve > self.last {
            (given.get() / 2 + LEAST).min(reserve / (SHARE * insts))
        } else {
            0
        };
        let executed = counts.at(block as usize).replace((-budget) as u64) as i64;
        if given.get() == 0 {
            self.activate(block);
        }
        given.add(executed + budget);
        // SAFETY: the thread's own cell.
        unsafe { self.reserve.subtract_in_place((executed + budget) * insts) > 0 }
    }

    fn activate(&self, block: u32) {
        // A handler may have done the same, so there may be more than there are blocks.
        let at = self.len.fetch_add(1) as usize;
        if let Some(place) = self.active.get(at) {
            place.set(block.into());
        }
    }

    /// The blocks with executions or budgets, with both together.
    fn blocks(&self) -> impl Iterator<Item = (u32, &ThreadCell<i64>)> {
        (0..self.len.get() as usize).map_while(|i| {
            let block = self.active.get(i)?.get();
            Some((block as u32, self.given.get(block as usize)?))
        })
    }

    /// Takes budgets back where there is no reserve. False if there is none then: the interval has ended. Signals are
    /// blocked.
    pub fn settle(&self, counts: Counters, facts: &[BlockFacts]) -> bool {
        for kept in [KEPT, i64::MAX] {
            if self.reserve.get() <= self.last {
                self.take_back(counts, facts, kept);
            }
        }
        self.reserve.get() > 0
    }

    /// Takes budgets back. A block keeps its budget divided by `kept`.
    fn take_back(&self, counts: Counters, facts: &[BlockFacts], kept: i64) {
        for (block, given) in self.blocks() {
            let budget = -counter(counts, block);
            let back = budget - budget / kept;
            if back > 0 {
                given.add(-back);
                self.reserve.add(back * insts(facts, block));
                counts.at(block as usize).add(back as u64);
            }
        }
    }

    /// The executions of the interval so far, by block. Signals are blocked.
    pub fn executions(&self, counts: Counters) -> Vec<(u32, u64)> {
        let executed = |(block, given): (u32, &ThreadCell<i64>)| {
            let n = given.get() + counter(counts, block);
            (block, n.max(0) as u64)
        };
        let mut all: Vec<(u32, u64)> = self.blocks().map(executed).filter(|e| e.1 != 0).collect();
        all.sort_unstable();
        all.dedup_by_key(|(block, _)| *block);
        all
    }

    /// Begins the next interval. It is shorter by what this one had too much, so that the limits are multiples of the
    /// length. Blocks begin with budgets by their executions in this one, `executions`. Signals are blocked.
    pub fn next(
        &self,
        counts: Counters,
        interval: u64,
        executions: &[(u32, u64)],
        facts: &[BlockFacts],
    ) {
        let interval = interval as i64;
        let over = (-self.reserve.get()).max(0) % interval;
        for (block, given) in self.blocks() {
            given.set(0);
            counts.at(block as usize).replace(0);
        }
        self.len.set(0);
        let mut reserve = interval - over;
        let known = if interval < SMALL { &[] } else { executions };
        for (block, executed) in known {
            let budget = (executed - executed / AGAIN) as i64;
            let insts = insts(facts, *block);
            if budget > 0
                && budget * insts < reserve
                && let Some(given) = self.given.get(*block as usize)
            {
                self.activate(*block);
                given.set(budget);
                counts.at(*block as usize).replace((-budget) as u64);
                reserve -= budget * insts;
            }
        }
        self.reserve.set(reserve);
    }
}

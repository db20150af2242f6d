//! Times of references, without a clock that each of them sets forward.
//!
//! Who must know which of two references came last notes a time at each. A clock in memory that
//! goes on at each is a chain of additions, each of which waits for the one before. Instead it goes
//! on where control may come back to an earlier instruction, and each reference has a
//! number that grows with its address: the clock and the number together grow from
//! reference to reference.
//!
//! That holds as long as control goes from lower to higher addresses of one procedure. The clock
//! goes on wherever it may have come otherwise: at entries, after calls, behind jumps backward and
//! such as nobody knows. A signal handler that comes between two references sets it forward, too;
//! the ones that follow may then seem to come before the handler's last ones.

use crate::InstType;
use crate::handle::{Block, Proc};

/// What the clock goes on by. Numbers are smaller.
pub const STEP: u64 = 1 << 18;
/// From one number to the next.
pub const TICK: u64 = 4;
/// The first. Small constants would be taken for such as few calls share.
const FIRST: u64 = 256;

/// Numbers of one procedure's references.
pub(super) struct Numbers<'a> {
    entries: Vec<Block<'a>>,
    next: u64,
}

impl<'a> Numbers<'a> {
    pub(super) fn new(proc: Proc<'a>) -> Self {
        Self {
            entries: proc.entries(),
            next: FIRST,
        }
    }

    /// Whether the clock is to go on at a block. Blocks are asked for by address.
    pub(super) fn enter(&mut self, block: Block<'a>) -> bool {
        let is_late = self.next >= STEP / 2;
        let ticks = is_late || self.entries.contains(&block) || may_come_back(block);
        if is_late {
            self.next = STEP / 2;
        }
        ticks
    }

    /// The number of the next reference.
    pub(super) fn number(&mut self) -> u64 {
        let number = self.next;
        self.next = (number + TICK).min(STEP - TICK);
        number
    }
}

/// Whether control may come to a block otherwise than from a lower address, without a call.
fn may_come_back(block: Block<'_>) -> bool {
    let predecessors = block.predecessors();
    let is_forward =
        |from: Block<'_>| from.pc() < block.pc() && !from.last_inst().is_type(InstType::Call);
    block.is_address_taken()
        || predecessors.is_empty()
        || !predecessors.iter().all(|e| e.block.is_some_and(is_forward))
}

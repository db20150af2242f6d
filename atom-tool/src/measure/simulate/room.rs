//! Where a note need not ask for room.
//!
//! A note that asks ([`has_slack`](crate::notes::NoteBuffer::has_slack)) finds room for [`SLACK`](crate::notes::SLACK) bytes. Notes after it, up to [`MOST`] bytes on each
//! way through the procedure, need not ask again. Notes ask
//!
//! - at entries of procedures, landing pads, where control may come from elsewhere, and where a window may begin;
//! - at back edges: where a predecessor is after the block;
//! - after calls, since the callee may have taken any number of notes, and after system calls, since one of them may
//!   have made a new process;
//! - in procedures that are not understood in full, and in those of Go: a goroutine may continue in another thread.
//!
//! So a thread asks before it makes its first note. A routine that asks and gets none must
//! [park](crate::notes::NoteBuffer::park) the buffer.

use std::collections::{HashMap, HashSet};

use atom_abi::query::EdgeKind;

use crate::navigation::handle::{Block, Proc, Status};

/// Most bytes of notes since the last one that has asked.
const MOST: u64 = 256;
/// Alignment of the stack at entries of functions of Go.
const GO_STACK: u64 = 8;

/// Number of bytes of notes since the last one that has asked; `None` if it is not known.
pub type Taken = Option<u64>;

/// A procedure, whose blocks are looked at in the order of their addresses.
pub struct Room {
    /// Where control may come from elsewhere; `None` if that may be anywhere.
    entries: Option<HashSet<usize>>,
    /// What is known at the ends of blocks.
    ends: HashMap<usize, u64>,
}

impl Room {
    /// Nothing is known of the procedure's blocks yet.
    pub fn new(proc: Proc<'_>) -> Self {
        let is_known = proc.status() == Status::Full && proc.stack_alignment() != GO_STACK;
        let entries = || proc.starts().iter().map(Block::index).collect();
        Self {
            entries: is_known.then(entries),
            ends: HashMap::new(),
        }
    }

    /// What is known at the start of a block.
    pub fn at_start(&self, block: &Block<'_>) -> Taken {
        let is_entry = self.entries.as_ref()?.contains(&block.index());
        if is_entry || block.is_address_taken() || !block.is_selected() {
            return None;
        }
        let predecessors = block.predecessors();
        let ends = predecessors.iter().map(|edge| match edge.kind {
            EdgeKind::Fall | EdgeKind::Taken | EdgeKind::Table => {
                self.ends.get(&edge.block?.index()).copied()
            }
            _ => None,
        });
        ends.reduce(|a, b| Some(a?.max(b?))).flatten()
    }

    /// Notes what is known at the end of a block.
    pub fn set_end(&mut self, block: &Block<'_>, taken: Taken) {
        if let Some(taken) = taken
            && block.is_selected()
        {
            self.ends.insert(block.index(), taken);
        }
    }
}

/// Makes a note of some size; returns whether it must ask for room.
pub fn take(taken: &mut Taken, size: u64) -> bool {
    let sum = taken.map(|taken| taken + size).filter(|sum| *sum <= MOST);
    *taken = Some(sum.unwrap_or(0));
    sum.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_ask_again_after_some_bytes() {
        let mut taken = None;
        assert!(take(&mut taken, 16));
        let asked: Vec<bool> = (0..16).map(|_| take(&mut taken, 24)).collect();
        let first = asked.iter().position(|asked| *asked);
        assert_eq!(first, Some(MOST as usize / 24));
    }
}

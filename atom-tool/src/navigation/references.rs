//! An instruction's references to memory in the order in which it makes them, for tools
//! that simulate memory: caches, translation buffers.
//!
//! Each operand in memory is one reference, also if it is read and then written. Operands that
//! are read come before operands that are only written. String instructions with a repeat prefix
//! repeat their references; gathers and scatters make one for each element.

use crate::Place::Before;
use crate::Repeat;
use crate::calls::typed::{AccessSizeOf, EffAddrOf};
use crate::navigation::handle::Inst;

/// How many times an instruction makes its references when it is executed once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Times {
    /// Once.
    Once,
    /// Once for each element of a vector that its mask selects. A call with
    /// [`EffAddrOf`] is then made for each of them.
    Elements,
    /// [`RepCount`](crate::RepCount) times; the addresses go up or down by the size.
    Repeated,
    /// At most [`RepCount`](crate::RepCount) times, as a comparison may end it earlier. The number
    /// is known after the instruction.
    Compared,
}

/// An instruction's references.
#[derive(Clone, Debug)]
pub struct References {
    /// Numbers of the operands for [`EffAddrOf`], in the order in which they are accessed.
    pub operands: Vec<u8>,
    /// How many times they are made.
    pub times: Times,
}

impl Inst<'_> {
    /// Its references to memory; none if it makes none.
    pub fn references(&self) -> Option<References> {
        let mut operands: Vec<u8> = (0..4)
            .take_while(|n| self.offers(Before, EffAddrOf(*n)))
            .collect();
        if operands.is_empty() {
            return None;
        }
        let mut times = Times::Once;
        if operands.len() > 1 || may_repeat(self.bytes()) {
            let accesses = self.memory();
            let access = |operand: u8| accesses.get(usize::from(operand));
            times = match self.repeat() {
                _ if accesses.iter().any(|access| access.count > 1) => Times::Elements,
                Some(Repeat::Counted) => Times::Repeated,
                Some(Repeat::WhileEqual | Repeat::UntilEqual) => Times::Compared,
                Some(Repeat::Once) | None => Times::Once,
            };
            // `pop` and `movs` have their destination first.
            operands.sort_by_key(|n| !access(*n).is_some_and(|a| a.access.reads()));
        }
        Some(References { operands, times })
    }

    /// True if a call can pass the size of an operand; false if only the processor knows the size.
    pub fn has_access_size(&self, operand: u8) -> bool {
        self.offers(Before, AccessSizeOf(operand))
    }
}

/// Whether an instruction may repeat its references or make one for each element of a vector: it
/// has a repeat prefix, or it is encoded as gathers and scatters are (three-byte VEX, EVEX).
fn may_repeat(bytes: &[u8]) -> bool {
    const REPNE: u8 = 0xf2;
    const REP: u8 = 0xf3;
    const VEX: u8 = 0xc4;
    const EVEX: u8 = 0x62;
    let prefixes = bytes.iter().take(4);
    prefixes
        .into_iter()
        .any(|byte| [REPNE, REP, VEX, EVEX].contains(byte))
}

/// Analysis side: makes the references of a repeated instruction, `times` times from the
/// addresses `at` on; an address of 0 stands for no operand.
///
/// Calls `access` with an address and the number of accesses in a row that are in the same block
/// of memory; blocks have `line` bytes, a power of two. The first element of such a run comes
/// alone, so that all further elements of the run find the same state. `down` is the
/// [`Direction`](crate::Direction).
pub fn repeated(
    mut at: [u64; 2],
    times: u64,
    size: u64,
    down: u64,
    line: u64,
    mut access: impl FnMut(u64, u64),
) {
    let down = down != 0;
    let step = if down { size.wrapping_neg() } else { size };
    // Number of further elements that are in the same lines.
    let follow = |address: u64| {
        let offset = address & (line - 1);
        match () {
            _ if address == 0 => u64::MAX,
            _ if offset + size > line => 0,
            _ if down => offset / size,
            _ => (line - offset - size) / size,
        }
    };
    let mut left = if size == 0 { 0 } else { times };
    while left > 0 {
        let same = follow(at[0]).min(follow(at[1])).min(left - 1);
        // All elements of the run but the first find the same state.
        for (start, times) in [(0, 1), (1, same)] {
            for address in at.iter().filter(|a| **a != 0 && times > 0) {
                access(address.wrapping_add(step.wrapping_mul(start)), times);
            }
        }
        for address in at.iter_mut().filter(|a| **a != 0) {
            *address = address.wrapping_add(step.wrapping_mul(same + 1));
        }
        left -= same + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_stay_within_their_lines() {
        let mut seen = Vec::new();
        repeated([60, 0], 3, 4, 0, 32, |a, n| seen.push((a, n)));
        assert_eq!(seen, [(60, 1), (64, 1), (68, 1)]);
        let (mut elements, mut runs) = (0, 0);
        repeated([0x1001, 0x2000], 1000, 8, 0, 32, |_, n| {
            elements += n;
            runs += 1;
        });
        assert_eq!(elements, 2000);
        // Of four elements, three are in one line of both; the fourth reaches into the next.
        assert_eq!(runs, 250 * (4 + 2));
        let mut seen = Vec::new();
        repeated([96, 0], 10, 8, 1, 32, |a, n| seen.push((a, n)));
        assert_eq!(seen, [(96, 1), (88, 1), (80, 3), (56, 1), (48, 3), (24, 1)]);
        repeated([96, 0], 10, 0, 0, 32, |_, _| panic!("no size"));
    }
}

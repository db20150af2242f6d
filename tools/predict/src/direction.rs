//! The models that predict the direction of conditional branches, but for the one like TAGE ([`crate::tage`]).
//!
//! A model is asked and told in one step: it predicts, learns the outcome, and says whether it was wrong. A branch is
//! known to it by its *key*, which is made of the branch's address ([`key`]).

use std::hint::select_unpredictable;

/// Binary logarithm of the number of two-bit counters of each model.
const INDEX_BITS: u32 = 14;
/// Number of two-bit counters.
pub const COUNTERS: usize = 1 << INDEX_BITS;
/// Distance between the values of a two-bit counter, which is stored as a multiple of it: as the number of bits by which
/// [`UP`] and [`DOWN`] are shifted.
const UNIT: u8 = 8;
/// A two-bit counter predicts a taken branch from this value on.
const TAKEN_FROM: u8 = 2 * UNIT;

/// For each value of a counter, lowest first, its value after a taken branch.
const UP: u32 = u32::from_le_bytes([UNIT, 2 * UNIT, 3 * UNIT, 3 * UNIT]);
/// For each value of a counter, lowest first, its value after a branch that is not taken.
const DOWN: u32 = u32::from_le_bytes([0, 0, UNIT, 2 * UNIT]);

/// The key of a branch: its address in the file, with the number of its object mixed in, which is in bits 32 and up.
pub const fn key(pc: u64) -> u32 {
    pc as u32 ^ ((pc >> 32) as u32).wrapping_mul(0x9e37_79b1)
}

/// Two-bit counters, which saturate.
pub struct Counters<const N: usize>(Box<[u8; N]>);

impl<const N: usize> Counters<N> {
    /// All counters predict weakly that branches are not taken.
    pub fn new() -> Self {
        Self(Box::new([TAKEN_FROM - UNIT; N]))
    }

    /// Whether the counter predicts a taken branch.
    #[inline(always)]
    pub fn predicts(&self, index: u32) -> bool {
        self.0[index as usize % N] >= TAKEN_FROM
    }

    /// Moves the counter towards the outcome.
    #[inline(always)]
    pub fn learn(&mut self, index: u32, taken: bool) {
        let counter = &mut self.0[index as usize % N];
        *counter = moved(*counter, taken);
    }
}

/// Moves a counter towards the outcome; returns whether it predicted another one.
#[inline(always)]
fn is_wrong<const N: usize>(counters: &mut [u8; N], index: u32, taken: bool) -> bool {
    let counter = &mut counters[index as usize % N];
    let predicted = *counter >= TAKEN_FROM;
    *counter = moved(*counter, taken);
    predicted != taken
}

/// A counter after an outcome. In a loop the same counter waits for itself, so this is one shift.
#[inline(always)]
fn moved(counter: u8, taken: bool) -> u8 {
    let all = select_unpredictable(taken, UP, DOWN);
    (all >> (u32::from(counter) % u32::BITS)) as u8
}

/// Two-bit counters by address.
pub struct TwoBit(Counters<COUNTERS>);

impl TwoBit {
    pub fn new() -> Self {
        Self(Counters::new())
    }

    /// Predicts a branch and learns its outcome; returns whether the prediction was wrong.
    #[inline(always)]
    pub fn is_wrong(&mut self, key: u32, taken: bool) -> bool {
        is_wrong(&mut self.0.0, key, taken)
    }
}

/// Two-bit counters by address and history: gshare.
pub struct Gshare {
    counters: Counters<COUNTERS>,
    /// The last outcomes, the latest in bit 0.
    pub history: u32,
}

impl Gshare {
    pub fn new() -> Self {
        Self {
            counters: Counters::new(),
            history: 0,
        }
    }

    /// Predicts a branch and learns its outcome; returns whether the prediction was wrong. `history` is [`Gshare::history`],
    /// which the caller can keep in a register: each branch waits for the history of the one before.
    #[inline(always)]
    pub fn is_wrong(&mut self, history: &mut u32, key: u32, taken: bool) -> bool {
        // The counters' number is a power of two, so older outcomes do not matter.
        let is_wrong = is_wrong(&mut self.counters.0, key ^ *history, taken);
        *history = *history << 1 | u32::from(taken);
        is_wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of wrong predictions of the last `from` of a pattern's outcomes.
    fn wrong(mut is_wrong: impl FnMut(bool) -> bool, pattern: &[bool], times: usize) -> usize {
        let mut last = 0;
        for _ in 0..times {
            last = pattern.iter().filter(|taken| is_wrong(**taken)).count();
        }
        last
    }

    fn by_address(model: &mut TwoBit, taken: bool) -> bool {
        model.is_wrong(5, taken)
    }

    fn by_history(model: &mut Gshare, taken: bool) -> bool {
        let mut history = model.history;
        let is_wrong = model.is_wrong(&mut history, 5, taken);
        model.history = history;
        is_wrong
    }

    #[test]
    fn counters_saturate() {
        for counter in 0..=3 {
            let up = (counter + 1).min(3);
            assert_eq!(moved(counter * UNIT, true), up * UNIT);
            assert_eq!(
                moved(counter * UNIT, false),
                counter.saturating_sub(1) * UNIT
            );
        }
    }

    #[test]
    fn patterns_are_predicted_as_theory_says() {
        let alternating = [true, false];
        let mut loop_of_8 = [true; 8];
        loop_of_8[7] = false;
        let mut two_bit = TwoBit::new();
        // A loop is wrong once in each round: at its end.
        assert_eq!(wrong(|t| by_address(&mut two_bit, t), &loop_of_8, 10), 1);
        let mut gshare = Gshare::new();
        assert_eq!(wrong(|t| by_history(&mut gshare, t), &loop_of_8, 40), 0);
        let mut two_bit = TwoBit::new();
        // From weakly not taken, taken makes it weakly taken and not taken takes that back: always wrong.
        assert_eq!(wrong(|t| by_address(&mut two_bit, t), &alternating, 10), 2);
        let mut gshare = Gshare::new();
        assert_eq!(wrong(|t| by_history(&mut gshare, t), &alternating, 40), 0);
        // A loop that is longer than the history.
        let mut long = [true; 20];
        long[19] = false;
        let mut gshare = Gshare::new();
        assert_eq!(wrong(|t| by_history(&mut gshare, t), &long, 40), 1);
    }

    #[test]
    fn objects_have_keys_of_their_own() {
        assert_eq!(key(0x401000), 0x401000);
        assert_ne!(key(0x401000), key(1 << 32 | 0x401000));
    }
}

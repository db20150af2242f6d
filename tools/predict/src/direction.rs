//! The models that predict the direction of conditional branches, but for the one like TAGE ([`crate::tage`]).
//!
//! A model is asked and told in one step: it predicts, learns the outcome, and says whether it was wrong. A branch is
//! known to it by its *key*, which is made of the branch's address ([`key`]).

/// Binary logarithm of the number of two-bit counters of each model.
const INDEX_BITS: u32 = 14;
/// Number of two-bit counters.
pub const COUNTERS: usize = 1 << INDEX_BITS;
/// A two-bit counter predicts a taken branch from this value on.
const TAKEN_FROM: u8 = 2;
/// Largest value of a two-bit counter.
const LARGEST: u8 = 3;

/// The key of a branch: its address in the file, with the number of its object mixed in, which stands in bits 32 and up.
pub const fn key(pc: u64) -> u32 {
    pc as u32 ^ ((pc >> 32) as u32).wrapping_mul(0x9e37_79b1)
}

/// Two-bit counters, which saturate.
pub struct Counters<const N: usize>(Box<[u8; N]>);

impl<const N: usize> Counters<N> {
    /// All counters predict weakly that branches are not taken.
    pub fn new() -> Self {
        Self(Box::new([TAKEN_FROM - 1; N]))
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
        let up = (*counter + 1).min(LARGEST);
        let down = counter.saturating_sub(1);
        *counter = if taken { up } else { down };
    }
}

/// Two-bit counters by address.
pub struct TwoBit(Counters<COUNTERS>);

impl TwoBit {
    pub fn new() -> Self {
        Self(Counters::new())
    }

    /// Predicts and learns; returns whether the prediction was wrong.
    #[inline(always)]
    pub fn is_wrong(&mut self, key: u32, taken: bool) -> bool {
        let predicted = self.0.predicts(key);
        self.0.learn(key, taken);
        predicted != taken
    }
}

/// Two-bit counters by address and history: gshare.
pub struct Gshare {
    counters: Counters<COUNTERS>,
    /// The last outcomes, the latest in bit 0.
    history: u32,
}

impl Gshare {
    pub fn new() -> Self {
        Self {
            counters: Counters::new(),
            history: 0,
        }
    }

    /// Predicts and learns; returns whether the prediction was wrong.
    #[inline(always)]
    pub fn is_wrong(&mut self, key: u32, taken: bool) -> bool {
        // The counters' number is a power of two, so older outcomes do not matter.
        let index = key ^ self.history;
        let predicted = self.counters.predicts(index);
        self.counters.learn(index, taken);
        self.history = self.history << 1 | u32::from(taken);
        predicted != taken
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

    #[test]
    fn patterns_are_predicted_as_theory_says() {
        let alternating = [true, false];
        let mut loop_of_8 = [true; 8];
        loop_of_8[7] = false;
        let mut two_bit = TwoBit::new();
        // A loop is wrong once in each round: at its end.
        assert_eq!(wrong(|t| two_bit.is_wrong(5, t), &loop_of_8, 10), 1);
        let mut gshare = Gshare::new();
        assert_eq!(wrong(|t| gshare.is_wrong(5, t), &loop_of_8, 40), 0);
        let mut two_bit = TwoBit::new();
        // From weakly not taken, taken makes it weakly taken and not taken takes that back: always wrong.
        assert_eq!(wrong(|t| two_bit.is_wrong(5, t), &alternating, 10), 2);
        let mut gshare = Gshare::new();
        assert_eq!(wrong(|t| gshare.is_wrong(5, t), &alternating, 40), 0);
        // A loop that is longer than the history.
        let mut long = [true; 20];
        long[19] = false;
        let mut gshare = Gshare::new();
        assert_eq!(wrong(|t| gshare.is_wrong(5, t), &long, 40), 1);
    }

    #[test]
    fn objects_have_keys_of_their_own() {
        assert_eq!(key(0x401000), 0x401000);
        assert_ne!(key(0x401000), key(1 << 32 | 0x401000));
    }
}

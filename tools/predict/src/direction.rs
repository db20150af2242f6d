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

/// Bits that a two-bit counter occupies in [`MOVED`].
const COUNTER_BITS: u32 = 2;

/// The value of a counter after an outcome, for each value and, inside of it, for both outcomes, not taken first.
const MOVED: u32 = {
    let mut all = 0;
    let mut counter = LARGEST + 1;
    while counter > 0 {
        counter -= 1;
        let down = counter.saturating_sub(1);
        let up = if counter < LARGEST {
            counter + 1
        } else {
            counter
        };
        all = (all << COUNTER_BITS | up as u32) << COUNTER_BITS | down as u32;
    }
    all
};

/// A counter after an outcome.
#[inline(always)]
fn moved(counter: u8, taken: bool) -> u8 {
    let place = u32::from(counter) << 1 | u32::from(taken);
    (MOVED >> (COUNTER_BITS * place)) as u8 & LARGEST
}

/// Two-bit counters by address.
pub struct TwoBit(Counters<COUNTERS>);

impl TwoBit {
    pub fn new() -> Self {
        Self(Counters::new())
    }

    /// Predicts and learns branches in order, and sets `bit` for those that it predicted wrong.
    #[inline(always)]
    pub fn run(
        &mut self,
        branches: impl Iterator<Item = (u32, bool)>,
        wrong: &mut [u8],
        bit: usize,
    ) {
        let counters = &mut *self.0.0;
        for ((key, taken), wrong) in branches.zip(wrong) {
            *wrong |= u8::from(is_wrong(counters, key, taken)) << bit;
        }
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

    /// Predicts and learns branches in order, and sets `bit` for those that it predicted wrong.
    #[inline(always)]
    pub fn run(
        &mut self,
        branches: impl Iterator<Item = (u32, bool)>,
        wrong: &mut [u8],
        bit: usize,
    ) {
        // The history stays in a register: each branch waits for the history of the one before.
        let mut history = self.history;
        let counters = &mut *self.counters.0;
        for ((key, taken), wrong) in branches.zip(wrong) {
            // The counters' number is a power of two, so older outcomes do not matter.
            *wrong |= u8::from(is_wrong(counters, key ^ history, taken)) << bit;
            history = history << 1 | u32::from(taken);
        }
        self.history = history;
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
        let mut wrong = [0];
        model.run([(5, taken)].into_iter(), &mut wrong, 0);
        wrong == [1]
    }

    fn by_history(model: &mut Gshare, taken: bool) -> bool {
        let mut wrong = [0];
        model.run([(5, taken)].into_iter(), &mut wrong, 3);
        wrong == [8]
    }

    #[test]
    fn counters_saturate() {
        for counter in 0..=LARGEST {
            assert_eq!(moved(counter, true), (counter + 1).min(LARGEST));
            assert_eq!(moved(counter, false), counter.saturating_sub(1));
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

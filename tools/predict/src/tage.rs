//! A predictor of conditional branches like TAGE: counters by address, and tables whose entries are found by the address
//! and by histories of geometric lengths. The entry with the longest history that fits predicts.
//!
//! Sizes: [`BASE`] two-bit counters and [`TABLES`] tables of [`ENTRIES`] entries. An entry has a tag of 11 bits, a
//! counter of 3 bits for the direction and one of 2 bits for its usefulness: 9 KiB in all. `docs/tools/predict.md`
//! describes all rules.

use crate::direction::Counters;

/// Number of two-bit counters by address.
pub const BASE: usize = 1 << 12;
/// Number of tables with tags.
pub const TABLES: usize = 4;
/// Numbers of outcomes that the tables' indices depend on.
pub const LENGTHS: [u32; TABLES] = [5, 15, 44, 130];
/// Binary logarithm of the number of a table's entries.
const INDEX_BITS: u32 = 10;
/// Number of a table's entries.
pub const ENTRIES: usize = 1 << INDEX_BITS;
const TAG_BITS: u32 = 11;
/// The usefulness of all entries is reduced each time that many branches were executed.
const AGING: u32 = 1 << 18;
/// An entry's counter predicts a taken branch from this value on.
const TAKEN_FROM: u16 = 4;
/// Largest value of an entry's counter.
const LARGEST: u16 = 7;
/// Largest usefulness.
const MOST_USEFUL: u16 = 3;

/// An entry: its tag from bit 5 up, its usefulness in bits 3 and 4, its counter in bits 0 to 2.
#[derive(Clone, Copy)]
struct Entry(u16);

impl Entry {
    const fn new(tag: u16, useful: u16, counter: u16) -> Self {
        Self(tag << 5 | useful << 3 | counter)
    }

    const fn tag(self) -> u16 {
        self.0 >> 5
    }

    const fn useful(self) -> u16 {
        self.0 >> 3 & 3
    }

    const fn counter(self) -> u16 {
        self.0 & 7
    }

    const fn predicts(self) -> bool {
        self.counter() >= TAKEN_FROM
    }

    /// Whether it has learned little since it was made: its counter is weak and it was not useful.
    const fn is_new(self) -> bool {
        let counter = self.counter();
        self.useful() == 0 && (counter == TAKEN_FROM || counter == TAKEN_FROM - 1)
    }
}

/// Bits of a *lane*: a number for each table is in one word, so that one operation computes all four.
const LANE: u32 = 16;
/// 1 in each lane.
const ONES: u64 = 0x0001_0001_0001_0001;

/// For each set of tables: the bits by which folded histories of a width change if outcomes that are now too old for
/// these tables were taken.
const fn leaving(width: u32) -> [u64; 1 << TABLES] {
    let mut all = [0; 1 << TABLES];
    let mut set = 0;
    while set < all.len() {
        let mut table = 0;
        while table < TABLES {
            let bit = (set >> table & 1) as u64;
            all[set] |= bit << (LENGTHS[table] % width) << (LANE * table as u32);
            table += 1;
        }
        set += 1;
    }
    all
}

static LEAVING_INDEX: [u64; 1 << TABLES] = leaving(INDEX_BITS);
static LEAVING_TAG: [u64; 1 << TABLES] = leaving(TAG_BITS);

/// The lowest `width` bits of each lane.
const fn mask(width: u32) -> u64 {
    ((1 << width) - 1) * ONES
}

/// A table's lane.
const fn lane(lanes: u64, table: usize) -> u64 {
    lanes >> (LANE * table as u32) & ((1 << LANE) - 1)
}

/// The outcomes of the last branches, and for each table the XOR of its outcomes in pieces of two widths: of an index,
/// and of a tag. The tables' numbers are lanes.
#[derive(Clone, Copy)]
pub struct History {
    /// The last 192 outcomes, the latest in bit 0 of the first word.
    outcomes: [u64; 3],
    indices: u64,
    tags: u64,
}

/// Adds an outcome to folded histories of a width, and removes the ones that are now too old.
#[inline(always)]
const fn fold(folded: u64, width: u32, taken: u64, leaving: u64) -> u64 {
    let next = (folded << 1) ^ (taken * ONES) ^ leaving;
    (next ^ (next >> width & ONES)) & mask(width)
}

impl History {
    const fn new() -> Self {
        Self {
            outcomes: [0; 3],
            indices: 0,
            tags: 0,
        }
    }

    #[inline(always)]
    fn push(&mut self, taken: bool) {
        let [a, b, c] = self.outcomes;
        let mut old = 0;
        for (table, length) in LENGTHS.into_iter().enumerate() {
            let word = self.outcomes[(length - 1) as usize / 64];
            old |= (word >> ((length - 1) % 64) & 1) << table;
        }
        let latest = u64::from(taken);
        self.outcomes = [a << 1 | latest, b << 1 | a >> 63, c << 1 | b >> 63];
        let old = old as usize % (1 << TABLES);
        self.indices = fold(self.indices, INDEX_BITS, latest, LEAVING_INDEX[old]);
        self.tags = fold(self.tags, TAG_BITS, latest, LEAVING_TAG[old]);
    }

    /// The entries of a branch in all tables: their places and their tags.
    #[inline(always)]
    fn entries(&self, key: u32) -> (u64, u64) {
        let in_each = |key: u32, width: u32| u64::from(key & ((1 << width) - 1)) * ONES;
        let indices = in_each(key ^ key >> INDEX_BITS, INDEX_BITS) ^ self.indices;
        let tags = in_each(key, TAG_BITS) ^ self.tags ^ (self.indices << 1);
        (indices, tags & mask(TAG_BITS))
    }
}

/// The predictor.
pub struct Tage {
    base: Counters<BASE>,
    tables: Box<[[Entry; ENTRIES]; TABLES]>,
    history: History,
    /// Not negative if new entries have been wrong more often than the prediction without them; -8 to 7.
    trusts_others: i8,
    /// Number of branches until the usefulness of entries is reduced.
    until_aging: u32,
    /// Whether the higher bit of the usefulness is cleared then, or the lower one.
    clears_high: bool,
}

impl Tage {
    pub fn new() -> Self {
        Self {
            base: Counters::new(),
            // An entry that predicts weakly. Its tag may be some branch's by chance, as in hardware.
            tables: Box::new([[Entry::new(0, 0, TAKEN_FROM); ENTRIES]; TABLES]),
            history: History::new(),
            trusts_others: 0,
            until_aging: AGING,
            clears_high: true,
        }
    }

    /// Goes over branches: a number, and in the lowest bit whether it was taken. `each` gets the number, the history, the
    /// predictor and the outcome, and asks [`Tage::is_wrong`].
    pub fn run(
        &mut self,
        branches: &[u32],
        mut each: impl FnMut(usize, &mut History, &mut Self, bool),
    ) {
        // A copy, which can be kept in registers.
        let mut history = self.history;
        for word in branches {
            each((word >> 1) as usize, &mut history, self, word & 1 != 0);
        }
        self.history = history;
    }

    /// Predicts and learns; returns whether the prediction was wrong.
    #[inline(always)]
    pub fn is_wrong(&mut self, history: &mut History, key: u32, taken: bool) -> bool {
        let (indices, tags) = history.entries(key);
        let mut found = 0;
        for (table, entries) in self.tables.iter().enumerate() {
            let entry = entries[lane(indices, table) as usize % ENTRIES];
            found |= u64::from(entry.tag()) << (LANE * table as u32);
        }
        // A lane that is not 0 carries into its highest bit.
        let differs = (found ^ tags) + ((ONES << (LANE - 1)) - ONES);
        let fitting = !differs >> (LANE - 1) & ONES;
        let base = self.base.predicts(key);
        let predicted = match fitting {
            0 => {
                self.base.learn(key, taken);
                base
            }
            fitting => self.learn_tagged(fitting, indices, base, taken),
        };
        let is_wrong = predicted != taken;
        if is_wrong {
            self.allocate(fitting, (indices, tags), taken);
        }
        self.until_aging -= 1;
        if self.until_aging == 0 {
            self.age();
        }
        history.push(taken);
        is_wrong
    }

    /// The prediction of entries; the one with the longest history, and what depends on it, learns the outcome.
    #[inline(always)]
    fn learn_tagged(&mut self, fitting: u64, indices: u64, base: bool, taken: bool) -> bool {
        let longest = (fitting.ilog2() / LANE) as usize % TABLES;
        let others = fitting & !(1 << fitting.ilog2());
        let other = match others {
            0 => base,
            others => {
                let next = (others.ilog2() / LANE) as usize % TABLES;
                self.tables[next][lane(indices, next) as usize % ENTRIES].predicts()
            }
        };
        let entry = &mut self.tables[longest][lane(indices, longest) as usize % ENTRIES];
        let old = *entry;
        let own = old.predicts();
        let mut predicted = own;
        let mut useful = old.useful();
        if old.is_new() && self.trusts_others >= 0 {
            predicted = other;
        }
        if own != other {
            if old.is_new() {
                let change = if other == taken { 1 } else { -1 };
                self.trusts_others = (self.trusts_others + change).clamp(-8, 7);
            }
            useful = if own == taken {
                (useful + 1).min(MOST_USEFUL)
            } else {
                useful.saturating_sub(1)
            };
        }
        let counter = if taken {
            (old.counter() + 1).min(LARGEST)
        } else {
            old.counter().saturating_sub(1)
        };
        *entry = Entry::new(old.tag(), useful, counter);
        predicted
    }

    /// Makes an entry after a wrong prediction, in the first table with a longer history whose entry is not useful. If
    /// there is none, they all become less useful.
    #[cold]
    #[inline(never)]
    fn allocate(&mut self, fitting: u64, (indices, tags): (u64, u64), taken: bool) {
        // The table with the longest history has no longer one.
        let first = fitting.checked_ilog2().map_or(0, |bit| bit / LANE + 1);
        let longer = || first as usize..TABLES;
        let place = |table: usize| lane(indices, table) as usize % ENTRIES;
        let free = longer().find(|table| self.tables[*table][place(*table)].useful() == 0);
        if let Some(table) = free {
            let counter = if taken { TAKEN_FROM } else { TAKEN_FROM - 1 };
            let tag = lane(tags, table) as u16;
            self.tables[table][place(table)] = Entry::new(tag, 0, counter);
            return;
        }
        longer().for_each(|table| {
            let entry = &mut self.tables[table][place(table)];
            *entry = Entry::new(entry.tag(), entry.useful() - 1, entry.counter());
        });
    }

    /// Clears one of the two bits of all entries' usefulness, the higher and the lower one by turns.
    #[cold]
    #[inline(never)]
    fn age(&mut self) {
        let kept = if self.clears_high { 1 } else { 2 };
        for entry in self.tables.iter_mut().flatten() {
            *entry = Entry::new(entry.tag(), entry.useful() & kept, entry.counter());
        }
        self.clears_high = !self.clears_high;
        self.until_aging = AGING;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of wrong predictions of one branch's outcomes.
    fn wrong(tage: &mut Tage, outcomes: impl Iterator<Item = bool>) -> usize {
        let mut wrong = 0;
        let branches: Vec<u32> = outcomes.map(u32::from).collect();
        tage.run(&branches, |_, history, tage, taken| {
            wrong += usize::from(tage.is_wrong(history, 0x40_1234, taken));
        });
        wrong
    }

    #[test]
    fn histories_are_folded() {
        let mut history = Tage::new().history;
        let mut outcomes: Vec<u64> = Vec::new();
        let mut state = 1u64;
        for _ in 0..1000 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let taken = state >> 63 != 0;
            history.push(taken);
            outcomes.insert(0, taken.into());
            for (table, length) in LENGTHS.into_iter().enumerate() {
                for (folded, width) in [(history.indices, INDEX_BITS), (history.tags, TAG_BITS)] {
                    let last = outcomes.iter().take(length as usize).enumerate();
                    let direct = last.fold(0, |sum, (i, bit)| sum ^ bit << (i as u32 % width));
                    assert_eq!(lane(folded, table), direct);
                }
            }
        }
    }

    #[test]
    fn long_loops_are_learned() {
        for length in [2, 8, 30] {
            let mut pattern = vec![true; length];
            pattern[length - 1] = false;
            let mut tage = Tage::new();
            let rounds = |n: usize| std::iter::repeat_n(&pattern, n).flatten().copied();
            wrong(&mut tage, rounds(2000));
            assert_eq!(wrong(&mut tage, rounds(1)), 0, "{length}");
        }
    }

    #[test]
    fn chance_is_not_predicted() {
        let mut tage = Tage::new();
        let mut state = 7u64;
        let outcomes = (0..100_000).map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state & 1 != 0
        });
        let wrong = wrong(&mut tage, outcomes);
        assert!((48_000..52_000).contains(&wrong), "{wrong}");
    }

    #[test]
    fn usefulness_ages() {
        let mut tage = Tage::new();
        tage.tables[1][3] = Entry::new(5, 3, 6);
        tage.age();
        assert_eq!(tage.tables[1][3].0, Entry::new(5, 1, 6).0);
        tage.age();
        assert_eq!(tage.tables[1][3].0, Entry::new(5, 0, 6).0);
    }
}

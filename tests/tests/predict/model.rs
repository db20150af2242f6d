//! The models of branch predictors as `docs/tools/predict.md` describes them, written to be read: tables are maps,
//! histories are lists.

use std::collections::{HashMap, VecDeque};

/// A two-bit counter: 0 to 3, taken from 2 on, at first 1.
#[derive(Default)]
struct TwoBits(HashMap<u64, u8>);

impl TwoBits {
    fn predicts(&self, place: u64) -> bool {
        self.0.get(&place).copied().unwrap_or(1) >= 2
    }

    fn learn(&mut self, place: u64, taken: bool) {
        let counter = self.0.entry(place).or_insert(1);
        match taken {
            true if *counter < 3 => *counter += 1,
            false if *counter > 0 => *counter -= 1,
            _ => {}
        }
    }
}

#[derive(Clone, Copy)]
struct Entry {
    tag: u64,
    useful: u8,
    counter: u8,
}

const LENGTHS: [usize; 4] = [5, 15, 44, 130];

#[derive(Default)]
struct Tage {
    base: TwoBits,
    tables: [HashMap<u64, Entry>; 4],
    trusts_others: i32,
    branches: u64,
}

/// All models of a thread.
#[derive(Default)]
pub struct Model {
    two_bit: TwoBits,
    gshare: TwoBits,
    tage: Tage,
    /// Outcomes of conditional branches, the latest first.
    outcomes: VecDeque<bool>,
    /// Last target by place: the jump and the target.
    buffer: HashMap<u64, (u64, u64)>,
    /// By place: tag, confidence, target.
    by_path: HashMap<u64, (u64, u8, u64)>,
    /// Targets of jumps, the latest last.
    path: Vec<u64>,
    returns: [u64; 16],
    top: usize,
}

impl Tage {
    fn folded(outcomes: &VecDeque<bool>, length: usize, width: usize) -> u64 {
        let last = outcomes.iter().take(length).enumerate();
        last.fold(0, |sum, (i, taken)| sum ^ u64::from(*taken) << (i % width))
    }

    fn entry(&self, table: usize, place: u64) -> Entry {
        let fresh = Entry {
            tag: 0,
            useful: 0,
            counter: 4,
        };
        self.tables[table].get(&place).copied().unwrap_or(fresh)
    }

    fn is_wrong(&mut self, pc: u64, taken: bool, outcomes: &VecDeque<bool>) -> bool {
        let at: Vec<(u64, u64)> = LENGTHS
            .iter()
            .map(|length| {
                let [ten, eleven] = [10, 11].map(|width| Self::folded(outcomes, *length, width));
                let place = (pc ^ pc >> 10 ^ ten) % 1024;
                (place, (pc ^ eleven ^ ten << 1) % 2048)
            })
            .collect();
        let fitting: Vec<usize> = (0..4)
            .filter(|table| self.entry(*table, at[*table].0).tag == at[*table].1)
            .collect();
        let base = self.base.predicts(pc % 4096);
        let mut predicted = base;
        if let Some(longest) = fitting.last().copied() {
            let mut entry = self.entry(longest, at[longest].0);
            let own = entry.counter >= 4;
            let other = match fitting.len() {
                1 => base,
                n => self.entry(fitting[n - 2], at[fitting[n - 2]].0).counter >= 4,
            };
            let is_new = entry.useful == 0 && [3, 4].contains(&entry.counter);
            predicted = if is_new && self.trusts_others >= 0 {
                other
            } else {
                own
            };
            if own != other {
                if is_new {
                    let change = if other == taken { 1 } else { -1 };
                    self.trusts_others = (self.trusts_others + change).clamp(-8, 7);
                }
                if own == taken {
                    entry.useful = (entry.useful + 1).min(3)
                } else {
                    entry.useful = entry.useful.saturating_sub(1)
                }
            }
            entry.counter = if taken {
                (entry.counter + 1).min(7)
            } else {
                entry.counter.saturating_sub(1)
            };
            self.tables[longest].insert(at[longest].0, entry);
        } else {
            self.base.learn(pc % 4096, taken);
        }
        if predicted != taken {
            let longer = fitting.last().map_or(0, |longest| longest + 1)..4;
            let free = longer
                .clone()
                .find(|table| self.entry(*table, at[*table].0).useful == 0);
            if let Some(table) = free {
                let fresh = Entry {
                    tag: at[table].1,
                    useful: 0,
                    counter: if taken { 4 } else { 3 },
                };
                self.tables[table].insert(at[table].0, fresh);
            } else {
                for table in longer {
                    let mut entry = self.entry(table, at[table].0);
                    entry.useful -= 1;
                    self.tables[table].insert(at[table].0, entry);
                }
            }
        }
        self.branches += 1;
        if self.branches.is_multiple_of(1 << 18) {
            let is_first = (self.branches >> 18) % 2 == 1;
            let kept = if is_first { 0b01 } else { 0b10 };
            for entry in self.tables.iter_mut().flat_map(HashMap::values_mut) {
                entry.useful &= kept;
            }
        }
        predicted != taken
    }
}

impl Model {
    /// A conditional branch: whether the two-bit counters, gshare and TAGE were wrong.
    pub fn branch(&mut self, pc: u64, taken: bool) -> [bool; 3] {
        let place = pc % (1 << 14);
        let two_bit = self.two_bit.predicts(place) != taken;
        self.two_bit.learn(place, taken);

        let history = Tage::folded(&self.outcomes, 14, 14);
        let place = place ^ history;
        let gshare = self.gshare.predicts(place) != taken;
        self.gshare.learn(place, taken);

        let tage = self.tage.is_wrong(pc, taken, &self.outcomes);
        self.outcomes.push_front(taken);
        self.outcomes.truncate(200);
        [two_bit, gshare, tage]
    }

    /// A jump or call through a pointer: whether the buffer and the table by path were wrong.
    pub fn jump(&mut self, pc: u64, target: u64) -> [bool; 2] {
        let known = self.buffer.insert(pc % 2048, (pc, target));
        let buffer = known != Some((pc, target));

        let path = self.path.iter().fold(0u32, |path, target| {
            let low = *target as u32 & 0xfff;
            path << 5 ^ low ^ low >> 5
        });
        let path = u64::from(path);
        let place = (pc ^ pc >> 12 ^ path ^ path >> 12 ^ path >> 24) % 4096;
        let mixed = (path.wrapping_mul(0x9e37_79b1) % (1 << 32)) >> 16;
        let tag = (pc ^ mixed) % (1 << 16) + 1;
        let entry = self.by_path.entry(place).or_insert((0, 0, 0));
        let fits = entry.0 == tag;
        let is_wrong = if fits { entry.2 != target } else { buffer };
        match (is_wrong, entry.1) {
            (true, 0) => *entry = (tag, 0, target),
            (true, _) => entry.1 -= 1,
            (false, _) if fits => entry.1 = (entry.1 + 1).min(3),
            _ => {}
        }
        self.path.push(target);
        if self.path.len() > 16 {
            self.path.remove(0);
        }
        [buffer, is_wrong]
    }

    /// A call of instrumented code.
    pub fn call(&mut self, back: u64) {
        self.returns[self.top % 16] = back;
        self.top = self.top.wrapping_add(1);
    }

    /// A return to instrumented code: whether the stack was wrong.
    pub fn ret(&mut self, target: u64) -> bool {
        self.top = self.top.wrapping_sub(1);
        self.returns[self.top % 16] != target
    }
}

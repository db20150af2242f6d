//! `--addresses`: only references to some ranges of memory.
//!
//! The references of a batch that fit stay together: a *variant* of the batch has these items alone, and the same
//! values. It is made and described when it is first seen. Of a repeated instruction, repetitions in a row with the same
//! fitting references are an entry.

use std::collections::{HashMap, VecDeque};

use atom_tool::{Options, Result};
use mem_trace::{Batch, EXECUTED, Item, MOST_VALUES, Source};

use crate::sink::{self, Run};
use crate::thread::Noted;

/// Which references of a batch fit, by their numbers among its references.
type Kept = u128;

atom_tool::plain_data! {
    /// Addresses from `start` to `end`, which does not belong to them.
    pub struct Addresses {
        pub start: u64,
        pub end: u64,
    }
}

/// An entry: number of its batch, number of values, values.
type Entry = (u32, usize, [u64; MOST_VALUES]);

/// What a thread knows of batches.
#[derive(Default)]
pub struct Filter {
    batches: HashMap<u32, Batch>,
    /// Numbers of variants.
    variants: HashMap<(u32, Kept), u32>,
    /// Numbers of references of variants by the variants' numbers.
    references: HashMap<u32, u32>,
    waiting: VecDeque<Entry>,
}

/// The entries of notes that fit.
pub struct Filtered<'f, 's> {
    pub noted: Noted<'s>,
    pub filter: &'f mut Filter,
}

/// The option's ranges.
pub fn from_options(options: &Options<'_>) -> Result<Vec<Addresses>> {
    let ranges = options.values("--addresses")?.into_iter().map(|text| {
        let range = text.split_once('-').and_then(|(start, end)| {
            let [start, end] = [number(start)?, number(end)?];
            (start < end).then_some(Addresses { start, end })
        });
        range.ok_or_else(|| {
            format!("--addresses wants a range such as 0x7f0000-0x7f1000, not {text}").into()
        })
    });
    ranges.collect()
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn fits(ranges: &[Addresses], address: u64, size: u64) -> bool {
    let end = address.saturating_add(size);
    let mut ranges = ranges.iter();
    ranges.any(|range| address < range.end && range.start < end)
}

/// The references of a batch among its items, in order.
fn references(batch: &Batch) -> impl Iterator<Item = &Item> {
    batch.items.iter().filter(|item| item.access != EXECUTED)
}

/// The items of a batch of which only some references are kept.
fn items(batch: &Batch, kept: Kept) -> Vec<Item> {
    let mut number = 0;
    let is_kept = |item: &&Item| {
        let is_reference = item.access != EXECUTED;
        let is_kept = !is_reference || kept >> number & 1 != 0;
        number += u32::from(is_reference);
        is_kept
    };
    batch.items.iter().filter(is_kept).copied().collect()
}

impl Filter {
    /// The batch that has the kept references alone.
    fn variant(&mut self, run: &'static Run, number: u32, kept: Kept) -> Option<u32> {
        let batch = self.batches.get(&number)?;
        if kept.count_ones() as usize == references(batch).count() {
            return Some(number);
        }
        if let Some(variant) = self.variants.get(&(number, kept)) {
            return Some(*variant);
        }
        let items = items(batch, kept);
        let bytes = mem_trace::describe(batch.is_repeated, batch.values as u8, &items);
        let variant = sink::lock(run)?.variant((number, kept), batch.values as u32, bytes);
        self.variants.insert((number, kept), variant);
        let references = if batch.is_repeated {
            0
        } else {
            kept.count_ones()
        };
        self.references.insert(variant, references);
        Some(variant)
    }

    /// Which references fit, with the values of an entry, and moved by a number of repetitions.
    fn kept(&self, run: &Run, number: u32, values: &[u64], times: u64, down: bool) -> Kept {
        let Some(batch) = self.batches.get(&number) else {
            return 0;
        };
        let bits = references(batch).enumerate().map(|(i, item)| {
            let far = item.size.wrapping_mul(times);
            let far = if down { far.wrapping_neg() } else { far };
            let start = values[usize::from(item.value)].wrapping_add(item.offset as u64);
            Kept::from(fits(run.addresses, start.wrapping_add(far), item.size)) << i
        });
        bits.fold(0, |kept, bit| kept | bit)
    }

    /// Adds what fits of a repeated instruction; returns the number of references.
    fn repeated(&mut self, run: &'static Run, number: u32, values: [u64; MOST_VALUES]) -> u64 {
        let (times, down) = (values[2] >> 1, values[2] & 1 != 0);
        let sizes: Vec<u64> = match self.batches.get(&number) {
            Some(batch) => references(batch).map(|item| item.size).collect(),
            None => return 0,
        };
        let (mut found, mut first) = (0, 0);
        while first < times {
            let kept = self.kept(run, number, &values, first, down);
            let same = |i: &u64| self.kept(run, number, &values, *i, down) == kept;
            let last = (first + 1..times).find(|i| !same(i)).unwrap_or(times);
            if kept != 0
                && let Some(variant) = self.variant(run, number, kept)
            {
                let mut values = values;
                for (value, size) in values.iter_mut().zip(&sizes) {
                    let far = size.wrapping_mul(first);
                    let far = if down { far.wrapping_neg() } else { far };
                    *value = value.wrapping_add(far);
                }
                values[2] = (last - first) << 1 | u64::from(down);
                self.waiting.push_back((variant, 3, values));
                found += (last - first) * u64::from(kept.count_ones());
            }
            first = last;
        }
        found
    }
}

impl Source for Filtered<'_, '_> {
    type Entry = [u64; MOST_VALUES];

    fn next(&mut self) -> Option<Entry> {
        let (run, filter) = (self.noted.run, &mut *self.filter);
        loop {
            if let Some(entry) = filter.waiting.pop_front() {
                return Some(entry);
            }
            let note = self.noted.next_note()?;
            let number = note.number;
            if !filter.batches.contains_key(&number) {
                let batch = run.description(number).and_then(|b| Batch::parse(b).ok())?;
                filter.batches.insert(number, batch);
            }
            let mut values = [0; MOST_VALUES];
            note.copy_values(&mut values);
            if note.is_repeated {
                self.noted.repeated += filter.repeated(run, number, values);
                continue;
            }
            let kept = filter.kept(run, number, &values, 0, false);
            let batch = &filter.batches[&number];
            let is_executed = batch.items.iter().any(|item| item.access == EXECUTED);
            if (kept != 0 || is_executed)
                && let Some(variant) = filter.variant(run, number, kept)
            {
                return Some((variant, note.len, values));
            }
        }
    }

    fn values<const N: usize>(entry: Self::Entry) -> [u64; N] {
        std::array::from_fn(|i| entry[i])
    }

    fn first_time(&mut self, number: u32) -> u32 {
        match self.filter.references.get(&number) {
            Some(references) => {
                self.noted.is_new(number);
                *references
            }
            None => self.noted.first_time(number),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_that_touch_a_range_fit() {
        let ranges = [Addresses {
            start: 0x100,
            end: 0x110,
        }];
        let fitting = [(0xf8, 8), (0xf8, 9), (0x10f, 1), (0x110, 8)];
        let fitting = fitting.map(|(address, size)| fits(&ranges, address, size));
        assert_eq!(fitting, [false, true, true, false]);
    }

    #[test]
    fn a_variant_has_the_kept_references_and_all_instructions() {
        let item = |pc, access| Item {
            pc,
            access,
            size: 4,
            ..Item::default()
        };
        let all = [
            item(1, EXECUTED),
            item(1, 1),
            item(2, EXECUTED),
            item(2, 2),
            item(3, 1),
        ];
        let batch = Batch {
            is_repeated: false,
            values: 1,
            items: all.to_vec(),
        };
        assert_eq!(items(&batch, 0b101), [all[0], all[1], all[2], all[4]]);
    }

    #[test]
    fn numbers_are_hexadecimal_or_decimal() {
        assert_eq!(
            [number("0x10"), number("10"), number("x")],
            [Some(16), Some(10), None]
        );
    }
}

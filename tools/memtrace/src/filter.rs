//! `--addresses`: only references to some ranges of memory.
//!
//! The references of a batch that fit stay together: a *variant* of the batch has these items alone, and the same
//! values. It is made and described when it is first seen. Where references with one value fit or do not fit together, the
//! values tell the variant ([`Spans`]). Of a repeated instruction, repetitions in a row with the same
//! fitting references are an entry.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;

use atom_tool::notes::Taken;
use atom_tool::simulate::batched;
use atom_tool::{Options, Result};
use mem_trace::{Batch, EXECUTED, Item, MOST_VALUES, Shape};

use crate::sink::{self, Run};
use crate::spans::{Addresses, SETS, Spans};

/// Which references of a batch fit, by their numbers among its references.
type Kept = u128;

/// A batch, as it is looked at for each entry. What each entry needs comes first.
#[repr(C, align(64))]
struct Known {
    /// None for a repeated instruction, too.
    spans: Option<Spans>,
    has_instructions: bool,
    /// By the values whose references fit, the variant; 0 if it is not known yet.
    by_values: [u32; SETS],
    batch: Batch,
    /// Number of the value, distance and size of each reference.
    references: Vec<(usize, u64, u64)>,
    /// All references.
    all: Kept,
    /// The last references that fitted, and their variant.
    last: Option<(Kept, u32)>,
}

/// What a thread knows of batches.
#[derive(Default)]
pub struct Filter {
    /// By the batch's number.
    batches: Vec<Option<Box<Known>>>,
    /// Numbers of variants.
    variants: HashMap<(u32, Kept), u32>,
    /// Variants by their numbers.
    shapes: HashMap<u32, Shape>,
    /// The words of entries that fit.
    words: Vec<AtomicU64>,
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

impl Known {
    fn new(batch: Batch) -> Self {
        let references = batch.items.iter().filter(|item| item.access != EXECUTED);
        let reference = |item: &Item| (item.value.into(), item.offset as u64, item.size);
        let references: Vec<_> = references.map(reference).collect();
        Self {
            all: references.iter().fold(0, |all, _| all << 1 | 1),
            has_instructions: references.len() < batch.items.len(),
            spans: (!batch.is_repeated)
                .then(|| Spans::new(&references))
                .flatten(),
            references,
            batch,
            last: None,
            by_values: [0; SETS],
        }
    }

    /// Which references fit, with the values of an entry, and moved by a number of repetitions.
    fn kept(&self, ranges: &[Addresses], values: &[u64; MOST_VALUES], moved: (u64, bool)) -> Kept {
        let (times, down) = moved;
        let mut kept = 0;
        for (i, &(value, offset, size)) in self.references.iter().enumerate() {
            let far = size.wrapping_mul(times);
            let far = if down { far.wrapping_neg() } else { far };
            let address = values[value].wrapping_add(offset).wrapping_add(far);
            kept |= Kept::from(fits(ranges, address, size)) << i;
        }
        kept
    }
}

impl Filter {
    fn known(&mut self, run: &'static Run, number: u32) -> Option<&mut Known> {
        let at = number as usize;
        if self.batches.len() <= at {
            self.batches.resize_with(at + 1, || None);
        }
        if self.batches[at].is_none() {
            let batch = Batch::parse(run.description(number)?).ok()?;
            self.batches[at] = Some(Box::new(Known::new(batch)));
        }
        self.batches[at].as_deref_mut()
    }

    /// The batch that has the kept references alone.
    fn variant(&mut self, run: &'static Run, number: u32, kept: Kept) -> Option<u32> {
        let known = self.known(run, number)?;
        match known.last {
            Some((last, variant)) if last == kept => return Some(variant),
            _ => {}
        }
        let variant = self.find_variant(run, number, kept)?;
        self.known(run, number)?.last = Some((kept, variant));
        Some(variant)
    }

    fn find_variant(&mut self, run: &'static Run, number: u32, kept: Kept) -> Option<u32> {
        if let Some(variant) = self.variants.get(&(number, kept)) {
            return Some(*variant);
        }
        let batch = &self.known(run, number)?.batch;
        let (is_repeated, values) = (batch.is_repeated, batch.values);
        let bytes = mem_trace::describe(is_repeated, values as u8, &items(batch, kept));
        let variant = sink::lock(run)?.variant((number, kept), values as u32, bytes);
        self.variants.insert((number, kept), variant);
        let shape = Shape {
            values,
            references: kept.count_ones(),
            is_repeated,
        };
        self.shapes.insert(variant, shape);
        Some(variant)
    }

    /// Adds what fits of a repeated instruction.
    fn repeated(&mut self, run: &'static Run, number: u32, values: [u64; MOST_VALUES]) {
        let (times, down) = (values[2] >> 1, values[2] & 1 != 0);
        let mut first = 0;
        while first < times {
            let Some(known) = self.known(run, number) else {
                return;
            };
            let kept = known.kept(run.addresses, &values, (first, down));
            let same = |i: &u64| known.kept(run.addresses, &values, (*i, down)) == kept;
            let last = (first + 1..times).find(|i| !same(i)).unwrap_or(times);
            let mut moved = values;
            for (value, (_, _, size)) in moved.iter_mut().zip(&known.references) {
                let far = size.wrapping_mul(first);
                let far = if down { far.wrapping_neg() } else { far };
                *value = value.wrapping_add(far);
            }
            moved[2] = (last - first) << 1 | u64::from(down);
            if kept != 0
                && let Some(variant) = self.variant(run, number, kept)
            {
                self.push(variant, &moved[..3]);
            }
            first = last;
        }
    }

    fn push(&mut self, number: u32, values: &[u64]) {
        let begin = mem_trace::begin(number, values.len());
        self.words.push(AtomicU64::new(begin));
        self.words
            .extend(values.iter().copied().map(AtomicU64::new));
    }

    /// Looks at notes and keeps the entries that fit, in place of those before; returns how many notes were never written.
    pub fn keep(&mut self, run: &'static Run, notes: &mut Taken<1>) -> u64 {
        self.words.clear();
        self.words.reserve(notes.words().len());
        let mut lost = 0;
        while let Some(note) = batched::next(notes, &mut lost) {
            if let Some(Some(known)) = self.batches.get(note.number as usize)
                && let Some(spans) = &known.spans
                && note.len == known.batch.values
                && let Some(fitting) = spans.fitting(run.addresses, |i| note.value(i))
            {
                if fitting == 0 && !known.has_instructions {
                    continue;
                }
                let variant = known.by_values[fitting];
                if variant != 0 {
                    let begin = mem_trace::begin(variant, note.len);
                    self.words.push(AtomicU64::new(begin));
                    for i in 0..note.len {
                        self.words.push(AtomicU64::new(note.value(i)));
                    }
                    continue;
                }
            }
            let mut values = [0; MOST_VALUES];
            note.copy_values(&mut values);
            let Some(known) = self.known(run, note.number) else {
                lost += 1;
                continue;
            };
            if known.batch.is_repeated {
                self.repeated(run, note.number, values);
                continue;
            }
            let kept = known.kept(run.addresses, &values, (0, false));
            let fitting = known.spans.as_ref();
            let fitting = fitting.and_then(|spans| spans.fitting(run.addresses, |i| values[i]));
            if (kept != 0 || known.has_instructions)
                && let Some(variant) = self.variant(run, note.number, kept)
            {
                if let (Some(fitting), Some(known)) = (fitting, self.known(run, note.number)) {
                    known.by_values[fitting] = variant;
                }
                self.push(variant, &values[..note.len.min(MOST_VALUES)]);
            }
        }
        lost
    }

    /// The words of entries that fit, and the variants that they may have.
    pub fn kept(&self) -> (&[AtomicU64], &HashMap<u32, Shape>) {
        (&self.words, &self.shapes)
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

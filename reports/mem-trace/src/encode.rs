//! Encoding of words: the part of writing that costs time.
//!
//! A program makes some hundred million entries a second, so a word may cost few nanoseconds. Nothing here depends on a
//! branch that a processor could not predict: a word that begins an entry is encoded like a value, and how far a word
//! is from its prediction decides no branch. The state is in registers while words are encoded ([`Run`]).
#![allow(unsafe_code)]

use std::hint::select_unpredictable;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::write::Stream;
use crate::{BEGIN, GROUP, LENGTHS, MOST_VALUES};

/// Most bytes of a word in the stream.
const WORD: usize = 8;
/// Bit of [`Slot::info`]: the word at this place is usual.
const KNOWN: u64 = 1 << 63;
/// What a value adds to the sum of [`Slot::info`]. The bits below are the number of references.
const VALUE: u64 = 1 << 36;

/// What the encoder has to know of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Number of values.
    pub values: usize,
    /// Number of references, or of those that a repeated instruction makes each time.
    pub references: u32,
    /// True for a repeated instruction.
    pub is_repeated: bool,
}

/// Numbers of what was encoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// References.
    pub references: u64,
    /// Entries.
    pub entries: u64,
    /// Words that belong to no entry, without words of 0.
    pub lost: u64,
}

/// A place for a word: what it is predicted from.
#[derive(Clone, Copy, Default)]
#[repr(C, align(16))]
struct Slot {
    /// The last word here.
    word: u64,
    /// [`KNOWN`] and what the word adds to the sum. Without [`KNOWN`] it is a number of repetitions, and `info` the number of
    /// references each time; 0 if the batch is new.
    info: u64,
}

/// What a thread's next words are predicted from.
pub struct Encoder {
    /// Number of the next word's slot, times 8, plus the number of values that the entry still lacks. If the last word
    /// began an entry, these are the batch's number and its number of values. It is out of range if that word was none
    /// that begins an entry.
    state: u64,
    slots: Vec<Slot>,
    /// The sum of [`Slot::info`], in which [`KNOWN`] has no meaning.
    sum: u64,
    words: u64,
    /// Number of references of repeated instructions.
    repeated: u64,
    lost: u64,
    /// Number of words of 0 where an entry should begin.
    gaps: u64,
}

impl Default for Encoder {
    fn default() -> Self {
        let info = KNOWN;
        Self {
            state: 0,
            slots: vec![Slot { word: 0, info }],
            sum: 0,
            words: 0,
            repeated: 0,
            lost: 0,
            gaps: 0,
        }
    }
}

/// For each word of a group, by the number of leading zeros of `distance ^ distance << 1`: the bits that announce its length at their place in
/// the group's byte, and the length from bit 8 on. That number has one bit more than the distance has without its sign bits.
const CODES: [[u16; 65]; GROUP] = {
    let mut codes = [[0; 65]; GROUP];
    let mut at = 0;
    while at < 64 * GROUP {
        let (i, zeros) = (at / 64, at % 64);
        let mut code = 1;
        while 8 * LENGTHS[code] < 64 - zeros {
            code += 1;
        }
        codes[i][zeros] = (LENGTHS[code] << 8 | code << (2 * i)) as u16;
        at += 1;
    }
    codes
};

/// The state while words are encoded. It is small and is never in memory.
#[derive(Clone, Copy)]
struct Run {
    state: u64,
    slots: *mut Slot,
    /// The first state that is out of range.
    limit: u64,
    sum: u64,
    /// The end of the stream, with room for the next group.
    to: *mut u8,
}

/// Gets the number of a batch whose description the reader needs from now on; returns the batch's shape, or `None` if there is
/// no such batch.
pub type FirstTime<'f> = &'f mut dyn FnMut(u32) -> Option<Shape>;

impl Encoder {
    /// Adds words: whole entries.
    pub fn encode(&mut self, to: &mut Stream, words: &[AtomicU64], first_time: FirstTime<'_>) {
        #[cfg(target_arch = "x86_64")]
        if std::is_x86_feature_detected!("lzcnt") {
            // SAFETY: the processor has the instruction.
            return unsafe { self.encode_fast(to, words, first_time) };
        }
        self.encode_all(to, words, first_time);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "lzcnt")]
    fn encode_fast(&mut self, to: &mut Stream, words: &[AtomicU64], first_time: FirstTime<'_>) {
        self.encode_all(to, words, first_time);
    }

    #[inline(always)]
    fn encode_all(&mut self, to: &mut Stream, words: &[AtomicU64], first_time: FirstTime<'_>) {
        let groups = words.len().div_ceil(GROUP);
        to.bytes.reserve(groups * (1 + GROUP * WORD) + WORD);
        let start: *mut u8 = to.bytes.spare_capacity_mut().as_mut_ptr().cast();
        let (slots, limit) = self.range();
        let mut run = Run {
            state: self.state,
            slots,
            limit,
            sum: self.sum,
            to: start,
        };
        let mut groups = words.chunks_exact(GROUP);
        for group in &mut groups {
            // SAFETY: there is room for all words, and `run` is the state of this encoder.
            run = unsafe { self.group(run, group, first_time) };
        }
        if !groups.remainder().is_empty() {
            // SAFETY: as above.
            run = unsafe { self.group(run, groups.remainder(), first_time) };
        }
        // SAFETY: the end is in the same room as the start, and all bytes up to it are written.
        unsafe {
            let len = to.bytes.len() + run.to.offset_from(start) as usize;
            to.bytes.set_len(len);
        }
        to.count += words.len() as u64;
        self.words += words.len() as u64;
        if run.state & 7 != 0 {
            // The entry is not complete.
            run.state = 0;
        }
        if !is_usual(run) {
            // The batch is new, and may have no values.
            (run.state, _) = self.unusual(run.state, 0, first_time);
        }
        (self.state, self.sum) = (run.state, run.sum);
    }

    /// Adds at most [`GROUP`] words.
    ///
    /// # Safety
    /// `run` is the state of this encoder, and the stream has room.
    #[inline(always)]
    unsafe fn group(
        &mut self,
        mut run: Run,
        words: &[AtomicU64],
        first_time: FirstTime<'_>,
    ) -> Run {
        // The group's byte, and from bit 8 on the length of what follows it.
        let mut codes = 0;
        // SAFETY: the stream has room; `unusual` returns a state with a slot.
        unsafe {
            for (i, word) in words.iter().enumerate() {
                let word = word.load(Ordering::Relaxed);
                let info;
                if is_usual(run) {
                    info = (*slot(run)).info;
                } else {
                    (run.state, info) = self.unusual(run.state, word, first_time);
                    (run.slots, run.limit) = self.range();
                }
                run.sum = run.sum.wrapping_add(info);
                let last = &raw mut (*slot(run)).word;
                let distance = word.wrapping_sub(*last);
                *last = word;
                let next = run.state.wrapping_add((1 << 3) - 1);
                let begins = run.state & 7 == 0;
                run.state = select_unpredictable(begins, word ^ BEGIN, next);
                let at = run.to.add(1 + (codes >> 8) as usize);
                at.cast::<[u8; WORD]>().write(distance.to_le_bytes());
                let zeros = (distance ^ distance << 1).leading_zeros();
                codes += u32::from(CODES[i % GROUP][zeros as usize]);
            }
            run.to.write(codes as u8);
            run.to = run.to.add(1 + (codes >> 8) as usize);
        }
        run
    }

    /// What comes before the use of a slot that is not usual: the batch is new, the last word did not begin an entry, or
    /// `word` is a number of repetitions. Returns a state with a slot, and what the slot adds to the sum.
    #[cold]
    #[inline(never)]
    fn unusual(&mut self, state: u64, word: u64, first_time: FirstTime<'_>) -> (u64, u64) {
        let first = (state >> 3) as usize;
        let info = self.slots.get(first).map_or(0, |slot| slot.info);
        if info != 0 {
            self.repeated += (word >> 1) * info;
            return (state, VALUE);
        }
        let is_number = state <= BEGIN ^ u64::MAX;
        let shape = is_number.then(|| first_time(first as u32)).flatten();
        let Some(shape) = shape.filter(|shape| shape.values as u64 == state & 7) else {
            if state == BEGIN {
                self.gaps += 1
            } else {
                self.lost += 1
            }
            return (0, KNOWN);
        };
        self.add_slots(first, shape);
        (state, self.slots[first].info)
    }

    /// The slots, and the first state that is out of range.
    fn range(&mut self) -> (*mut Slot, u64) {
        (self.slots.as_mut_ptr(), (self.slots.len() as u64) << 3)
    }

    /// Makes the slots of a batch.
    fn add_slots(&mut self, first: usize, shape: Shape) {
        assert!(shape.values <= MOST_VALUES, "too many values");
        let len = first + shape.values + 1;
        if self.slots.len() < len {
            self.slots.resize(len, Slot::default());
        }
        let slots = &mut self.slots[first..len];
        slots.fill(Slot {
            word: 0,
            info: KNOWN,
        });
        let values = &mut slots[..shape.values];
        values.iter_mut().for_each(|slot| slot.info += VALUE);
        match values {
            [.., times] if shape.is_repeated => times.info = shape.references.into(),
            [first, ..] => first.info += u64::from(shape.references),
            [] => {}
        }
    }

    /// The numbers since the last call.
    pub fn take_counts(&mut self) -> Counts {
        let sum = std::mem::take(&mut self.sum) & !KNOWN;
        let values = sum / VALUE;
        let numbers = [&mut self.words, &mut self.lost, &mut self.gaps];
        let [words, lost, gaps] = numbers.map(std::mem::take);
        Counts {
            references: sum % VALUE + std::mem::take(&mut self.repeated),
            entries: words - values - lost - gaps,
            lost,
        }
    }
}

/// Whether the next slot is there, and its word is usual.
#[inline(always)]
fn is_usual(run: Run) -> bool {
    // SAFETY: the slot is in range.
    run.state < run.limit && unsafe { (*slot(run)).info } & KNOWN != 0
}

/// The next slot.
#[inline(always)]
fn slot(run: Run) -> *mut Slot {
    const { assert!(size_of::<Slot>() == 2 << 3) };
    run.slots.wrapping_byte_add((run.state & !7) as usize * 2)
}

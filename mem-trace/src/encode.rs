//! Encoding of entries: the part of writing that costs time.
//!
//! A program makes some hundred million entries a second, so an entry may cost few nanoseconds. The state lies in
//! registers while entries are encoded ([`Run`]), and nothing is checked twice. Whether a value has changed, and by how much, is
//! no branch, since it could not be predicted.
#![allow(unsafe_code)]

use crate::write::Streams;
use crate::{LENGTHS, MOST_VALUES};

/// Most bytes that an entry has in the control stream.
const CONTROL: usize = 2;
/// Most bytes of a value or a number in the second stream.
const VALUE: usize = 8;
/// Number of entries for which room is made at a time.
const STEP: usize = 1 << 12;

/// What is known of a batch.
#[derive(Clone, Copy, Default)]
struct Known {
    /// Number of the batch that followed, and 1; 0 for none.
    first: u32,
    /// As `first`, of the one before.
    second: u32,
    /// What the batch adds to the sum of weights.
    weight: u32,
    /// True if it had an entry.
    is_old: bool,
}

/// Entries to encode.
pub trait Source {
    /// An entry.
    type Entry: Copy;

    /// The next entry, with its batch's number and its number of values.
    fn next(&mut self) -> Option<(u32, usize, Self::Entry)>;

    /// The values of an entry, `N` of them.
    fn values<const N: usize>(entry: Self::Entry) -> [u64; N];

    /// Is called with the number of a batch whose description the reader needs from now on; returns the batch's weight.
    fn first_time(&mut self, number: u32) -> u32;
}

/// What a thread's next entries are predicted from. The values of a batch have the places from the batch's number on:
/// the numbers of batches are at least as far apart as their values are many.
#[derive(Default)]
pub struct Encoder {
    last: u32,
    known: Vec<Known>,
    /// As many as `known`, and [`MOST_VALUES`] more.
    values: Vec<u64>,
    weight: u64,
}

/// By the number of leading zeros of a zigzag number: the bits that announce its length, and that length times 4.
const CODES: [u8; 65] = {
    let mut codes = [0; 65];
    let mut zeros = 0;
    while zeros < 64 {
        let code = match 64 - zeros {
            1..=8 => 1,
            9..=24 => 2,
            _ => 3,
        };
        codes[zeros] = (LENGTHS[code] << 2 | code) as u8;
        zeros += 1;
    }
    codes
};

/// The state while entries are encoded.
#[derive(Clone, Copy)]
struct Run {
    /// Number of the last batch.
    last: u32,
    known: *mut Known,
    /// Number of known batches; the numbers of all batches that were seen are below it.
    len: u32,
    values_of: *mut u64,
    weight: u64,
    /// The ends of both streams, with room for the next entry.
    control: *mut u8,
    values: *mut u8,
}

impl Encoder {
    /// Adds entries.
    pub fn encode<S: Source>(&mut self, to: &mut Streams, source: &mut S) {
        // The first entry's room for the last batch, which is batch 0 at the beginning.
        self.make_places(self.last);
        while self.encode_some(to, source) {}
    }

    /// Adds at most [`STEP`] entries; false if the source has no more.
    fn encode_some<S: Source>(&mut self, to: &mut Streams, source: &mut S) -> bool {
        to.control.reserve((STEP + 1) * CONTROL);
        to.values.reserve((STEP + 1) * VALUE * (1 + MOST_VALUES));
        let mut run = Run {
            last: self.last,
            known: self.known.as_mut_ptr(),
            len: self.known.len() as u32,
            values_of: self.values.as_mut_ptr(),
            weight: self.weight,
            control: to.control.spare_capacity_mut().as_mut_ptr().cast(),
            values: to.values.spare_capacity_mut().as_mut_ptr().cast(),
        };
        let (control, values) = (run.control, run.values);
        let mut left = STEP;
        while left > 0 {
            let Some((number, len, entry)) = source.next() else {
                break;
            };
            left -= 1;
            // SAFETY: `run` was made above, `explicit` keeps it right, and there is room for `STEP` entries.
            run = unsafe {
                match len {
                    0 => self.entry::<0, S>(run, (number, entry), source),
                    1 => self.entry::<1, S>(run, (number, entry), source),
                    2 => self.entry::<2, S>(run, (number, entry), source),
                    3 => self.entry::<3, S>(run, (number, entry), source),
                    _ => self.entry::<4, S>(run, (number, entry), source),
                }
            };
        }
        (self.last, self.weight) = (run.last, run.weight);
        // SAFETY: both ends lie in the same room as the beginnings, and all bytes up to them are written.
        unsafe {
            to.control
                .set_len(to.control.len() + run.control.offset_from(control) as usize);
            to.values
                .set_len(to.values.len() + run.values.offset_from(values) as usize);
        }
        to.count += (STEP - left) as u64;
        left == 0
    }

    /// Adds an entry.
    ///
    /// # Safety
    /// `run` is the state of this encoder, and both streams have room.
    #[inline(always)]
    unsafe fn entry<const N: usize, S: Source>(
        &mut self,
        mut run: Run,
        (number, entry): (u32, S::Entry),
        source: &mut S,
    ) -> Run {
        const { assert!(N <= MOST_VALUES) };
        let next = number + 1;
        // SAFETY: the last batch is known.
        let last = unsafe { &mut *run.known.add(run.last as usize) };
        let mut control = 0;
        if last.first != next {
            if last.second == next {
                last.second = last.first;
                last.first = next;
                control = 1;
            } else {
                (run, control) = self.explicit(run, number, source);
            }
        }
        run.last = number;
        // A batch that followed another one is known, and so is one that was explicit. Its values have places.
        // SAFETY: as said; the streams have room by the caller's promise.
        unsafe {
            run.weight += u64::from((*run.known.add(number as usize)).weight);
            let places = run.values_of.add(number as usize);
            for (i, value) in S::values::<N>(entry).into_iter().enumerate() {
                let distance = value.wrapping_sub(*places.add(i));
                *places.add(i) = value;
                let zigzag = distance << 1 ^ (distance as i64 >> 63) as u64;
                let code = CODES[zigzag.leading_zeros() as usize];
                control |= u32::from(code & 3) << (2 + 2 * i);
                run.values.cast::<[u8; 8]>().write(distance.to_le_bytes());
                run.values = run.values.add(usize::from(code >> 2));
            }
            run.control
                .cast::<[u8; 2]>()
                .write((control as u16).to_le_bytes());
            run.control = run.control.add(if N > 3 { 2 } else { 1 });
        }
        run
    }

    /// Writes the number of a batch that did not follow before; returns its bits.
    #[cold]
    #[inline(never)]
    fn explicit<S: Source>(&mut self, mut run: Run, number: u32, source: &mut S) -> (Run, u32) {
        self.make_places(number);
        run.known = self.known.as_mut_ptr();
        run.len = self.known.len() as u32;
        run.values_of = self.values.as_mut_ptr();
        let last = &mut self.known[run.last as usize];
        (last.first, last.second) = (number + 1, last.first);
        let known = &mut self.known[number as usize];
        if !known.is_old {
            known.is_old = true;
            known.weight = source.first_time(number);
        }
        let (len, bits) = if number < 1 << 16 { (2, 2) } else { (4, 3) };
        // SAFETY: the entry's room includes a number.
        unsafe {
            run.values.cast::<[u8; 4]>().write(number.to_le_bytes());
            run.values = run.values.add(len);
        }
        (run, bits)
    }

    /// Makes a batch known.
    fn make_places(&mut self, number: u32) {
        let len = number as usize + 1;
        if self.known.len() < len {
            self.known.resize(len, Known::default());
            self.values.resize(len + MOST_VALUES, 0);
        }
    }

    /// The sum of the weights of entries since the last call.
    pub fn take_weight(&mut self) -> u64 {
        std::mem::take(&mut self.weight)
    }
}

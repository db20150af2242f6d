//! Traces of references to memory: the format that the tool memtrace writes.
//!
//! What a program does between two jumps is mostly known beforehand. So the file describes *batches*: items, which are
//! references or executed instructions, in order. The address of a reference is a constant more than one of the
//! batch's few *values*. The trace has then, for each time that the batch is executed, one *entry*: the batch's
//! number and its values. A repeated string instruction is a batch of its own: its values are the addresses at which its
//! references begin, and the number of repetitions.
//!
//! A file begins with [`MAGIC`]. Then follow chunks: a byte with the kind, the length of the payload, the payload.
//! Numbers are unsigned LEB128, signed ones in the zigzag form.
//!
//! | kind | payload |
//! | --- | --- |
//! | 1 | the objects: for each its name, path and build-id, each as its length and its bytes |
//! | 2 | descriptions of batches, compressed: for each its number, its length and its bytes |
//! | 3 | entries of a thread: the thread's number, the number of words, then the words |
//! | 4 | as 3, but after the first two numbers the bytes are compressed |
//!
//! Compression is deflate (RFC 1951).
//!
//! A description is a byte, 1 if the batch is a repeated instruction, else 0; a byte with the number of values, at most
//! 4; the number of items; for each item its kind (1 read, 2 written, 3 both, 4 an executed instruction), its size, the
//! signed distance of the instruction's address from the item before (from 0 for the first), and for a reference the
//! number of its value in a byte, and the signed distance from it.
//!
//! An entry is some words of 64 bits: one that begins it ([`begin`]), and one for each value. Words are predicted from words before them
//! of the same thread. A value is predicted to be the batch's last one. The word that begins an entry is predicted to be the
//! one that followed the entry's predecessor the last time that this one's batch was executed. Predictions are 0 at first. The last value of a
//! repeated instruction is twice the number of repetitions, plus 1 if addresses go down.
//!
//! Four words are a group: a byte, in which the lowest two bits belong to the first word, the next two to the second one, and
//! then for each word the bytes that its bits announce: its signed distance from the prediction, lowest byte first. For 0
//! there are no bytes, for 1 there is one, for 2 there are three, for 3 eight. The last group of a chunk may have fewer words.
//!
//! Batches have numbers from 1 on. A thread begins after batch 0, which has no values; its chunks continue each other.
//! Where an entry should begin there may be a word that begins no entry of a described batch: it stands for nothing, the
//! next word should begin an entry, and that one is predicted as after batch 0. So it is where a chunk ends within an entry.
#![deny(missing_docs)]
#![deny(unsafe_code)]

mod encode;
mod read;
mod write;

pub use encode::{Counts, Encoder, FirstTime, Shape};
pub use read::{Batch, Error, Object, Reader, Reference};
pub use write::{Stream, chunk, describe, descriptions, objects};

/// The first bytes of a file. The last one but one is the format's version.
pub const MAGIC: &[u8; 8] = b"ATOMMT\x03\n";

/// Kind of a chunk: objects, which follow those of earlier chunks of this kind.
const OBJECTS: u8 = 1;
/// Kind of a chunk: descriptions of batches.
const BATCHES: u8 = 2;
/// Kind of a chunk: entries of a thread.
const ENTRIES: u8 = 3;
/// Kind of a chunk: entries of a thread, compressed.
const COMPRESSED: u8 = 4;

/// Largest number of values of a batch.
pub const MOST_VALUES: usize = 4;
/// Number of bytes of a word's distance, by its two bits.
const LENGTHS: [usize; 4] = [0, 1, 3, 8];
/// Number of words of a group.
const GROUP: usize = 4;
/// The bits that are set in each word that begins an entry, and that no address of a program has.
const BEGIN: u64 = !0 << 31;

/// The word that begins an entry: bits 0 to 2 are the number of values, bits 3 to 30 the batch's number, all others are set. The
/// numbers of two batches are further apart than the first one of them has values.
pub const fn begin(number: u32, values: usize) -> u64 {
    BEGIN | (number as u64) << 3 | values as u64
}

/// A reference is read.
pub const READ: u8 = 1;
/// A reference is written.
pub const WRITE: u8 = 2;
/// Not a reference: an instruction is executed.
pub const EXECUTED: u8 = 4;

/// An item of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Item {
    /// Address of the instruction, with the number of its object in the bits from 32 on.
    pub pc: u64,
    /// [`READ`], [`WRITE`] or both, or [`EXECUTED`].
    pub access: u8,
    /// Size in bytes.
    pub size: u64,
    /// Number of the value from which a reference's address counts.
    pub value: u8,
    /// Distance in bytes from the value.
    pub offset: i64,
}

/// The address of an item, given the values of its batch.
impl Item {
    fn address(&self, values: &[u64]) -> u64 {
        match self.access {
            EXECUTED => self.pc,
            _ => values[usize::from(self.value)].wrapping_add(self.offset as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    fn item(pc: u64, access: u8, value: u8, offset: i64) -> Item {
        Item {
            pc,
            access,
            size: 8,
            value,
            offset,
        }
    }

    fn file(is_compressed: bool) -> Vec<u8> {
        let mut file = MAGIC.to_vec();
        objects(
            &mut file,
            &[
                ("prog", "/bin/prog", &[1, 2]),
                ("libc.so.6", "/lib/libc.so.6", &[]),
            ],
        );
        let items = [
            item(0x1000, EXECUTED, 0, 0),
            item(0x1000, READ, 1, -8),
            item(0x1008, WRITE, 0, 0),
        ];
        let string = 1 << 32 | 0x20;
        let repeated = [item(string, READ, 0, 0), item(string, WRITE, 1, 0)];
        let batches = [describe(false, 2, &items), describe(true, 3, &repeated)];
        descriptions(&mut file, &[(7, &batches[0]), (90_000, &batches[1])]);
        let short = |i: u64| [begin(7, 2), 0x7fff_0000 - 16 * i, 0x1000 + i * i * i];
        let mut words: Vec<u64> = (0..1000).flat_map(short).collect();
        words.extend([begin(90_000, 3), 64, 128, 2 << 1 | 1]);
        // Words that are no entries.
        words.extend([0, 0x1234, begin(11, 2)]);
        words.extend([begin(7, 2), 0, u64::MAX]);
        let words: Vec<AtomicU64> = words.into_iter().map(AtomicU64::new).collect();
        let mut new = Vec::new();
        let mut first_time = |number| {
            new.push(number);
            let shape = |values, is_repeated| Shape {
                values,
                references: 2,
                is_repeated,
            };
            match number {
                7 => Some(shape(2, false)),
                90_000 => Some(shape(3, true)),
                _ => None,
            }
        };
        let mut encoder = Encoder::default();
        let mut stream = Stream::default();
        encoder.encode(&mut stream, &words, &mut first_time);
        let counts = Counts {
            references: 2006,
            entries: 1002,
            // The first of the three words that are no entries is 0.
            lost: 2,
        };
        assert_eq!(encoder.take_counts(), counts);
        assert_eq!(encoder.take_counts(), Counts::default());
        assert_eq!(new, [7, 90_000, 11]);
        chunk(&mut file, 3, &mut stream, is_compressed);
        file
    }

    fn read(file: &[u8]) -> Result<Vec<Reference>, Error> {
        let mut reader = Reader::new(file)?;
        let mut all = Vec::new();
        while let Some(references) = reader.next_chunk()? {
            all.extend(references);
        }
        Ok(all)
    }

    #[test]
    fn what_is_written_is_read() {
        let long = file(false);
        let all = read(&long).unwrap();
        assert!(long.len() < 6000, "{}", long.len());
        assert!(file(true).len() < long.len());
        assert_eq!(read(&file(true)).unwrap(), all);
        let reference = |pc, address, access| Reference {
            thread: 3,
            pc,
            address,
            size: 8,
            access,
        };
        let expected = (0..1000u64).flat_map(|i| {
            [
                reference(0x1000, 0x1000, EXECUTED),
                reference(0x1000, 0xff8 + i * i * i, READ),
                reference(0x1008, 0x7fff_0000 - 16 * i, WRITE),
            ]
        });
        let string = 1 << 32 | 0x20;
        let repeated = [(64, READ), (128, WRITE), (56, READ), (120, WRITE)];
        let repeated = repeated.map(|(address, access)| reference(string, address, access));
        let last = [
            reference(0x1000, 0x1000, EXECUTED),
            reference(0x1000, u64::MAX - 8, READ),
            reference(0x1008, 0, WRITE),
        ];
        let expected: Vec<_> = expected.chain(repeated).chain(last).collect();
        assert!(all == expected);
    }

    #[test]
    fn many_references_come_in_parts() {
        let mut file = MAGIC.to_vec();
        let string = [item(0x20, READ, 0, 0), item(0x20, WRITE, 1, 0)];
        descriptions(&mut file, &[(1, &describe(true, 3, &string))]);
        const TIMES: u64 = 3_000_000;
        let words = [
            begin(1, 3),
            1 << 32,
            2 << 32,
            TIMES << 1,
            begin(1, 3),
            8,
            16,
            1 << 1,
        ];
        let words = words.map(AtomicU64::new);
        let shape = Shape {
            values: 3,
            references: 2,
            is_repeated: true,
        };
        let mut stream = Stream::default();
        Encoder::default().encode(&mut stream, &words, &mut |_| Some(shape));
        chunk(&mut file, 1, &mut stream, true);
        let mut reader = Reader::new(&file[..]).unwrap();
        let (mut parts, mut all) = (0, 0);
        let mut addresses = Vec::new();
        while let Some(part) = reader.next_chunk().unwrap() {
            assert!(part.len() < 4 << 20, "{}", part.len());
            parts += 1;
            all += part.len() as u64;
            addresses.extend(part.iter().rev().take(3).rev().map(|r| r.address));
        }
        assert!(parts > 2, "{parts}");
        assert_eq!(all, 2 * TIMES + 2);
        assert!(addresses.ends_with(&[(2 << 32) + 8 * (TIMES - 1), 8, 16]));
    }

    #[test]
    fn repetitions_may_fill_the_memory() {
        let mut file = MAGIC.to_vec();
        let string = [item(0x20, WRITE, 0, 0)];
        descriptions(&mut file, &[(1, &describe(true, 3, &string))]);
        let words = [begin(1, 3), 0, 0, (3 << 30) << 1].map(AtomicU64::new);
        let shape = Shape {
            values: 3,
            references: 1,
            is_repeated: true,
        };
        let mut stream = Stream::default();
        Encoder::default().encode(&mut stream, &words, &mut |_| Some(shape));
        chunk(&mut file, 1, &mut stream, false);
        let mut reader = Reader::new(&file[..]).unwrap();
        assert!(!reader.next_chunk().unwrap().unwrap().is_empty());
    }

    #[test]
    fn places_and_objects_are_known() {
        let file = file(false);
        let mut reader = Reader::new(&file[..]).unwrap();
        while reader.next_chunk().unwrap().is_some() {}
        assert_eq!(reader.place(1 << 32 | 0x20), "libc.so.6+0x20");
        assert_eq!(reader.place(0x20), "0x20");
        assert_eq!(reader.objects()[0].path, "/bin/prog");
        assert_eq!(reader.objects()[0].build_id, [1, 2]);
    }

    #[test]
    fn damage_is_an_error() {
        assert!(Reader::new(&b"ATOMMT\x02\n"[..]).is_err());
        assert!(matches!(Reader::new(&b""[..]), Err(Error::Magic)));
        let file = file(false);
        assert!(read(&file[..file.len() - 5]).is_err());
        // No change of a byte makes the reader panic.
        for at in MAGIC.len()..file.len().min(400) {
            let mut changed = file.clone();
            changed[at] ^= 0x55;
            let _ = read(&changed);
        }
    }
}

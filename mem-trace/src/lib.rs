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
//! | 3 | entries of a thread: the thread's number, the number of entries, the length of the control stream, then both streams |
//! | 4 | as 3, but behind the first three numbers both streams are compressed |
//!
//! Compression is deflate (RFC 1951).
//!
//! A description is a byte, 1 if the batch is a repeated instruction, else 0; a byte with the number of values, at most
//! 4; the number of items; for each item its kind (1 read, 2 written, 3 both, 4 an executed instruction), its size, the
//! signed distance of the instruction's address from the item before (from 0 for the first), and for a reference the
//! number of its value in a byte, and the signed distance from it.
//!
//! An entry begins in the control stream: the lowest two bits say which batch it is, the next two bits belong to the
//! first value, and so on. It has one byte there, or two for a batch with 4 values. What the bits announce stands in the
//! second stream, lowest byte first, in this order:
//!
//! | bits | batch | value |
//! | --- | --- | --- |
//! | 0 | the one that followed the thread's last batch the last time | the batch's last value |
//! | 1 | the one that followed it before that one | 1 byte: the signed distance from the last value |
//! | 2 | 2 bytes: its number | 3 bytes |
//! | 3 | 4 bytes: its number | 8 bytes |
//!
//! Batches have numbers from 1 on. A thread begins with 0 as its last batch and zeros as values; its chunks continue each other. Where
//! another batch followed than the last time, the two that are remembered change places or the new one takes
//! the first place. The last value of a repeated instruction is twice the number of repetitions, plus 1 if addresses go
//! down.
#![deny(missing_docs)]
#![deny(unsafe_code)]

mod encode;
mod read;
mod write;

pub use encode::{Encoder, Source};
pub use read::{Batch, Error, Object, Reader, Reference};
pub use write::{Streams, chunk, describe, descriptions, objects};

/// The first bytes of a file. The last one but one is the format's version.
pub const MAGIC: &[u8; 8] = b"ATOMMT\x02\n";

/// Kind of a chunk: objects.
const OBJECTS: u8 = 1;
/// Kind of a chunk: descriptions of batches.
const BATCHES: u8 = 2;
/// Kind of a chunk: entries of a thread.
const ENTRIES: u8 = 3;
/// Kind of a chunk: entries of a thread, compressed.
const COMPRESSED: u8 = 4;

/// Largest number of values of a batch.
pub const MOST_VALUES: usize = 4;
/// Number of bytes of a value's distance, by its two bits.
const LENGTHS: [usize; 4] = [0, 1, 3, 8];

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

    /// Entries, of which the next one has the number `at`.
    struct List {
        entries: Vec<(u32, Vec<u64>)>,
        at: usize,
        new: Vec<u32>,
    }

    impl Source for List {
        type Entry = [u64; MOST_VALUES];

        fn next(&mut self) -> Option<(u32, usize, Self::Entry)> {
            let (number, values) = self.entries.get(self.at)?;
            self.at += 1;
            let mut all = [0; MOST_VALUES];
            all[..values.len()].copy_from_slice(values);
            Some((*number, values.len(), all))
        }

        fn values<const N: usize>(entry: Self::Entry) -> [u64; N] {
            entry[..N].try_into().unwrap()
        }

        fn first_time(&mut self, number: u32) -> u32 {
            self.new.push(number);
            if number == 7 { 2 } else { 0 }
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
        let mut encoder = Encoder::default();
        let mut streams = Streams::default();
        let short = |i: u64| [0x7fff_0000 - 16 * i, 0x1000 + i * i * i];
        let mut entries: Vec<(u32, Vec<u64>)> = Vec::new();
        entries.extend((0..1000).map(|i| (7, short(i).to_vec())));
        entries.push((90_000, vec![64, 128, 2 << 1 | 1]));
        entries.push((7, vec![0, u64::MAX]));
        let mut list = List {
            entries,
            at: 0,
            new: Vec::new(),
        };
        encoder.encode(&mut streams, &mut list);
        assert_eq!((list.new, encoder.take_weight()), (vec![7, 90_000], 2002));
        chunk(&mut file, 3, &mut streams, is_compressed);
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
        assert!(Reader::new(&b"ATOMMT\x01\n"[..]).is_err());
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

//! Traces of references to memory: the format that the tool memtrace writes.
//!
//! References that lie at constant distances from each other are one *group*. The file describes a group once; the
//! trace has then, for each time that the group is executed, one *entry*: the group's number and the address of its
//! lowest reference. A repeated string instruction is a group of its own, whose entry has its number of repetitions.
//!
//! A file begins with [`MAGIC`]. Then follow chunks: a byte with the kind, the length of the payload, the payload.
//! Numbers are unsigned LEB128, signed ones in the zigzag form.
//!
//! | kind | payload |
//! | --- | --- |
//! | 1 | names of the objects: for each its length and bytes |
//! | 2 | descriptions of groups, compressed: for each its number, its length and its bytes |
//! | 3 | entries of a thread: the thread's number, the number of entries, the length of the control stream, then both streams, compressed |
//!
//! A description is a byte, 1 if the group repeats its references, else 0; the number of references; for each
//! reference the address of its instruction, the distance from the lowest reference, its size, and its access (1 read,
//! 2 written, 3 both). Compression is deflate (RFC 1951).
//!
//! The entries of a chunk need no other chunk. The control stream has runs: the number of entries whose group is the
//! one that followed the group before the last time, then the number of a group for which that is not so. The address
//! stream has for each entry the distance from the group's last address, less the distance before. An entry of a
//! repeated group has the second address behind that, if there is one, and twice the number of repetitions, plus 1
//! if addresses go down.
#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod read;
mod write;

pub use read::{Error, Group, Reader, Reference};
pub use write::{Encoder, chunk, describe, descriptions, objects};

/// The first bytes of a file. The last one but one is the format's version.
pub const MAGIC: &[u8; 8] = b"ATOMMT\x01\n";

/// Kind of a chunk: names of objects.
const OBJECTS: u8 = 1;
/// Kind of a chunk: descriptions of groups.
const GROUPS: u8 = 2;
/// Kind of a chunk: entries of a thread.
const ENTRIES: u8 = 3;

/// A reference is read.
pub const READ: u8 = 1;
/// A reference is written.
pub const WRITE: u8 = 2;

/// A reference of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Member {
    /// Address of the instruction, with the number of its object in the bits from 32 on.
    pub pc: u64,
    /// Distance in bytes from the lowest reference of the group.
    pub offset: u64,
    /// Size in bytes.
    pub size: u64,
    /// [`READ`], [`WRITE`] or both.
    pub access: u8,
}

/// An entry: a group that was executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Entry {
    /// Number of the group.
    pub group: u32,
    /// Address of its lowest reference.
    pub address: u64,
    /// Address of the second operand of a repeated instruction; 0 if there is none.
    pub second: u64,
    /// Number of repetitions; `None` if the group is not repeated.
    pub times: Option<u64>,
    /// True if the addresses of repetitions go down.
    pub down: bool,
}

/// What predicts the next entries: for each group the last address, the last distance and the group that followed.
#[derive(Clone, Copy, Default)]
struct Known {
    address: u64,
    distance: u64,
    next: u32,
    /// Number of the chunk in which this was written.
    chunk: u32,
}

/// What is known of all groups in the current chunk.
#[derive(Default)]
struct Prediction {
    known: Vec<Known>,
    chunk: u32,
    last: u32,
}

impl Prediction {
    /// Forgets everything.
    fn begin(&mut self) {
        self.chunk = self.chunk.wrapping_add(1);
        if self.chunk == 0 {
            self.known.clear();
            self.chunk = 1;
        }
        self.last = 0;
    }

    fn of(&mut self, group: u32) -> &mut Known {
        let (at, chunk) = (group as usize, self.chunk);
        if self.known.len() <= at {
            self.known.resize(at + 1, Known::default());
        }
        let known = &mut self.known[at];
        if known.chunk != chunk {
            *known = Known {
                chunk,
                ..Known::default()
            };
        }
        known
    }

    /// The group that is expected next.
    fn expected(&mut self) -> u32 {
        let last = self.last;
        self.of(last).next
    }

    /// Remembers that a group came next.
    fn follow(&mut self, group: u32) {
        let last = self.last;
        self.of(last).next = group;
        self.last = group;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let member = |pc, offset, access| Member {
            pc,
            offset,
            size: 8,
            access,
        };
        let mut file = MAGIC.to_vec();
        objects(&mut file, &["prog", "libc.so.6"]);
        let groups = [
            describe(false, &[member(0x1000, 8, READ), member(0x1004, 0, WRITE)]),
            describe(
                true,
                &[
                    member(1 << 32 | 0x20, 0, READ),
                    member(1 << 32 | 0x20, 0, WRITE),
                ],
            ),
        ];
        descriptions(&mut file, &[(7, &groups[0]), (900, &groups[1])]);
        let mut encoder = Encoder::default();
        for i in 0..1000 {
            encoder.push(Entry {
                group: 7,
                address: 0x7fff_0000 - 16 * i,
                ..Entry::default()
            });
        }
        encoder.push(Entry {
            group: 900,
            address: 64,
            second: 128,
            times: Some(2),
            down: true,
        });
        chunk(&mut file, 3, &mut encoder);
        assert!(file.len() < 300, "{}", file.len());
        let mut reader = Reader::new(&file[..]).unwrap();
        let mut all = Vec::new();
        while let Some(references) = reader.next_chunk().unwrap() {
            all.extend(references);
        }
        assert_eq!(all.len(), 2004);
        let reference = |pc, address, access| Reference {
            thread: 3,
            pc,
            address,
            size: 8,
            access,
        };
        assert_eq!(all[0], reference(0x1000, 0x7fff_0008, READ));
        assert_eq!(all[1], reference(0x1004, 0x7fff_0000, WRITE));
        assert_eq!(all[2], reference(0x1000, 0x7ffe_fff8, READ));
        let pc = 1 << 32 | 0x20;
        let repeated = [(64, READ), (128, WRITE), (56, READ), (120, WRITE)];
        assert_eq!(
            all[2000..],
            repeated.map(|(address, access)| reference(pc, address, access))
        );
        assert_eq!(reader.place(pc), "libc.so.6+0x20");
        assert!(Reader::new(&b"ATOMMT\x02\n"[..]).is_err());
        let cut = &file[..file.len() - 5];
        let mut reader = Reader::new(cut).unwrap();
        assert!((0..9).any(|_| reader.next_chunk().is_err()));
    }
}

//! Original addresses of new text, and new ones of the original: the table of [`atom_abi::boundaries`] of a rewritten file.
//! All addresses are those in the file.

use std::ops::Range;

use atom_abi::boundaries::{ENTRY, HEAD, MARK, Records};
use atom_core::pipeline::Entered;

/// What is at an address of the new segments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// A moved instruction starts there, or code before it: the state is that at this original address.
    Boundary(u64),
    /// Inserted code.
    Inserted,
}

/// What is known of an original address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moved {
    /// The code there did not move.
    No,
    /// The instruction moved: where control enters that comes to it, and its copy.
    To {
        /// Inserted code in front of it is made, too.
        label: u64,
        /// The instruction alone.
        copy: u64,
    },
    /// The procedure moved, but nothing is known of this address.
    Unknown,
}

/// The table of an object.
pub struct Table {
    bytes: Vec<u8>,
    /// The new text.
    text: Range<u64>,
    /// Start of the image.
    base: u64,
    /// Procedures of all versions in ascending order of their new addresses.
    procs: Vec<[u32; 3]>,
    /// The first of the version to which pads lead.
    front: usize,
}

impl Table {
    /// The table in the rewritten file; `None` if there is none, so that nothing moved.
    pub fn read(file: &[u8], entered: &Entered) -> Option<Self> {
        let from = entered
            .boundaries
            .checked_sub(entered.text[0])
            .filter(|_| entered.boundaries != 0)?;
        let bytes = file.get((entered.offset + from) as usize..)?;
        let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        if word(0)? != MARK {
            return None;
        }
        let count = word(4)? as usize;
        let procs = (0..=count).map(|i| {
            let at = HEAD + i * ENTRY;
            Some([word(at)?, word(at + 4)?, word(at + 8)?])
        });
        let procs = procs.collect::<Option<Vec<_>>>()?;
        let records = HEAD + ENTRY * (count + 1);
        let end = records + procs[count][2] as usize;
        Some(Self {
            bytes: bytes.get(records..end)?.to_vec(),
            text: entered.boundaries - u64::from(word(8)?)..entered.boundaries,
            base: entered.base,
            procs,
            front: word(16)? as usize,
        })
    }

    /// What is at an address at which an instruction of the new segment starts.
    pub fn place_of(&self, address: u64) -> Place {
        if !self.text.contains(&address) {
            return Place::Inserted;
        }
        let offset = (address - self.text.start) as u32;
        let own = self.procs.partition_point(|p| p[0] <= offset);
        let Some(own) = own.checked_sub(1).filter(|own| *own + 1 < self.procs.len()) else {
            return Place::Inserted;
        };
        for piece in self.pieces(own) {
            if offset < piece.behind {
                break;
            }
            if let Some(old) = piece.original_of(offset) {
                return Place::Boundary(self.base + u64::from(old));
            }
        }
        Place::Inserted
    }

    /// Where the instruction at an original address is now.
    pub fn moved(&self, original: u64) -> Moved {
        let Ok(offset) = u32::try_from(original.wrapping_sub(self.base)) else {
            return Moved::No;
        };
        let front = &self.procs[self.front..self.procs.len() - 1];
        let own = front.partition_point(|p| p[1] <= offset);
        let Some(own) = own.checked_sub(1) else {
            return Moved::No;
        };
        let mut end = 0;
        for piece in self.pieces(self.front + own) {
            let inside = offset.wrapping_sub(piece.old);
            if inside < piece.len {
                let at = |offset: u32| self.text.start + u64::from(offset);
                let label = if inside == 0 {
                    piece.label
                } else {
                    piece.run + inside
                };
                return Moved::To {
                    label: at(label),
                    copy: at(piece.run + inside),
                };
            }
            end = piece.old + piece.len;
        }
        if offset < end {
            Moved::Unknown
        } else {
            Moved::No
        }
    }

    fn pieces(&self, proc: usize) -> Records<'_> {
        let [new, old, start] = self.procs[proc];
        let end = self.procs[proc + 1][2];
        Records::new(&self.bytes[start as usize..end as usize], new, old)
    }
}

//! The finished file as memory: its bytes by address.

use object::LittleEndian;
use object::elf::{FileHeader64, PT_LOAD};
use object::read::elf::{FileHeader, ProgramHeader};

use crate::error::{Error, Result};

/// The loaded parts of a file.
pub struct Memory<'a> {
    /// Addresses and contents of segments, in ascending order.
    parts: Vec<(u64, &'a [u8])>,
}

impl<'a> Memory<'a> {
    /// Reads the program headers, whose addresses are `shift` too high.
    pub fn new(file: &'a [u8], shift: u64) -> Result<Self> {
        let fail = |e: object::Error| Error::new("checking the output", e.to_string());
        let header = FileHeader64::<LittleEndian>::parse(file).map_err(fail)?;
        let endian = LittleEndian;
        let mut parts = Vec::new();
        for segment in header.program_headers(endian, file).map_err(fail)? {
            if segment.p_type(endian) != PT_LOAD {
                continue;
            }
            let contents = segment.data(endian, file).map_err(|()| {
                Error::new("checking the output", "a segment lies outside the file")
            })?;
            parts.push((segment.p_vaddr(endian).wrapping_sub(shift), contents));
        }
        Ok(Self { parts })
    }

    /// The bytes from an address to the end of its segment.
    pub fn rest_at(&self, address: u64) -> Option<&'a [u8]> {
        // Most questions are about the new text, which is above the original.
        self.parts.iter().rev().find_map(|(start, contents)| {
            let offset = usize::try_from(address.wrapping_sub(*start)).ok()?;
            contents.get(offset..).filter(|rest| !rest.is_empty())
        })
    }
}

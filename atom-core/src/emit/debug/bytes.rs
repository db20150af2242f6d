//! Reading and writing little-endian numbers in byte strings that may be damaged.

/// A place in a byte string; every read past its end gives `None`.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'d> {
    pub data: &'d [u8],
    pub at: usize,
}

impl<'d> Cursor<'d> {
    pub fn new(data: &'d [u8], at: usize) -> Self {
        Self { data, at }
    }

    pub fn take(&mut self, len: usize) -> Option<&'d [u8]> {
        let end = self.at.checked_add(len)?;
        let bytes = self.data.get(self.at..end)?;
        self.at = end;
        Some(bytes)
    }

    /// A number of 1 to 8 bytes.
    pub fn uint(&mut self, len: usize) -> Option<u64> {
        let mut bytes = [0; 8];
        bytes.get_mut(..len)?.copy_from_slice(self.take(len)?);
        Some(u64::from_le_bytes(bytes))
    }

    pub fn u8(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    pub fn u16(&mut self) -> Option<u16> {
        Some(self.uint(2)? as u16)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.uint(8)
    }

    /// An unsigned LEB128 number.
    pub fn uleb(&mut self) -> Option<u64> {
        leb128::read(|| self.u8()).ok()
    }

    /// Skips a number of either sign.
    pub fn skip_leb(&mut self) -> Option<()> {
        while self.u8()? & 0x80 != 0 {}
        Some(())
    }

    /// Skips a string and its end.
    pub fn skip_string(&mut self) -> Option<()> {
        let rest = self.data.get(self.at..)?;
        self.at += rest.iter().position(|b| *b == 0)? + 1;
        Some(())
    }

    /// The length of a unit and the size of offsets in it.
    pub fn unit_length(&mut self) -> Option<(usize, usize)> {
        match self.uint(4)? {
            0xffff_ffff => Some((usize::try_from(self.u64()?).ok()?, 8)),
            length => Some((length as usize, 4)),
        }
    }
}

/// Writes a number over `len` bytes. A number that does not fit becomes the largest one that does.
pub(super) fn patch(out: &mut [u8], at: usize, len: usize, value: u64) {
    let largest = u64::MAX >> (64 - 8 * len.clamp(1, 8));
    let bytes = value.min(largest).to_le_bytes();
    out[at..at + len].copy_from_slice(&bytes[..len]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patching_saturates_and_reading_stops_at_the_end() {
        let mut small = [0; 3];
        patch(&mut small, 0, 2, 0x12345);
        assert_eq!(small, [0xff, 0xff, 0]);
        assert_eq!(Cursor::new(&small, 1).uint(4), None);
        assert_eq!(Cursor::new(&[0x80], 0).uleb(), None);
    }
}

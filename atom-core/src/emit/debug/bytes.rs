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

    pub fn uleb(&mut self) -> Option<u64> {
        let mut value = 0u64;
        let mut shift = 0;
        loop {
            let byte = self.u8()?;
            if shift < 64 {
                value |= u64::from(byte & 0x7f) << shift;
            }
            shift += 7;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
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

pub(super) fn put_uleb(out: &mut Vec<u8>, mut value: u64) {
    loop {
        let byte = (value & 0x7f) as u8;
        value >>= 7;
        if value == 0 {
            out.push(byte);
            return;
        }
        out.push(byte | 0x80);
    }
}

pub(super) fn put_sleb(out: &mut Vec<u8>, mut value: i64) {
    loop {
        let byte = (value & 0x7f) as u8;
        value >>= 7;
        if (value == 0 && byte & 0x40 == 0) || (value == -1 && byte & 0x40 != 0) {
            out.push(byte);
            return;
        }
        out.push(byte | 0x80);
    }
}

/// Writes a number over `len` bytes; one that does not fit becomes the largest that does.
pub(super) fn patch(out: &mut [u8], at: usize, len: usize, value: u64) {
    let largest = u64::MAX >> (64 - 8 * len.clamp(1, 8));
    let bytes = value.min(largest).to_le_bytes();
    out[at..at + len].copy_from_slice(&bytes[..len]);
}

/// The same in the form of ULEB128, at the length that is there.
pub(super) fn patch_uleb(out: &mut [u8], at: usize, len: usize, value: u64) {
    let bits = 7 * len as u32;
    let largest = if bits >= 64 {
        u64::MAX
    } else {
        (1 << bits) - 1
    };
    let mut value = value.min(largest);
    for (i, byte) in out[at..at + len].iter_mut().enumerate() {
        *byte = (value & 0x7f) as u8 | if i + 1 < len { 0x80 } else { 0 };
        value >>= 7;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        for value in [0u64, 1, 127, 128, 300, u64::MAX] {
            let mut out = Vec::new();
            put_uleb(&mut out, value);
            assert_eq!(Cursor::new(&out, 0).uleb(), Some(value));
            let mut padded = [0xffu8; 10];
            patch_uleb(&mut padded, 0, 10, value);
            let mut cursor = Cursor::new(&padded, 0);
            assert_eq!((cursor.uleb(), cursor.at), (Some(value), 10));
        }
        let mut out = Vec::new();
        for value in [-1i64, 63, 64, -64, -65] {
            put_sleb(&mut out, value);
        }
        assert_eq!(out, [0x7f, 0x3f, 0xc0, 0, 0x40, 0xbf, 0x7f]);
        let mut small = [0; 3];
        patch(&mut small, 0, 2, 0x12345);
        assert_eq!(small, [0xff, 0xff, 0]);
        assert_eq!(Cursor::new(&small, 1).uint(4), None);
        assert_eq!(Cursor::new(&[0x80], 0).uleb(), None);
    }
}

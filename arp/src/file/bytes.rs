//! Integers of variable length (LEB128): seven bits in each byte, low bits first; the top bit is set in all
//! bytes but the last.

/// Appends `n`.
#[inline]
pub(crate) fn put(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// Appends `n` with its sign in the lowest bit (zigzag), so that small numbers of either sign are short.
#[inline]
pub(crate) fn put_signed(out: &mut Vec<u8>, n: i64) {
    put(out, fold(n));
}

/// Maps a signed number to an unsigned one with the sign in the lowest bit.
#[inline]
pub(crate) fn fold(n: i64) -> u64 {
    ((n << 1) ^ (n >> 63)) as u64
}

/// The inverse of [`fold`].
#[inline]
pub(crate) fn unfold(n: u64) -> i64 {
    (n >> 1) as i64 ^ -((n & 1) as i64)
}

/// Appends a 128-bit integer, with its sign in the lowest bit.
pub(crate) fn put_wide(out: &mut Vec<u8>, n: i128) {
    let mut n = ((n << 1) ^ (n >> 127)) as u128;
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// Appends a text: its length in bytes and its bytes.
pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    put(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// Reads from a slice. All results are `None` if the slice ends too early or a number is too long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// A cursor at the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Number of unread bytes.
    pub fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// Number of bytes read.
    pub fn position(&self) -> usize {
        self.at
    }

    /// The next byte.
    #[inline]
    pub fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    /// Reads a number that [`put`] wrote.
    #[inline]
    pub fn number(&mut self) -> Option<u64> {
        let first = self.byte()?;
        if first < 0x80 {
            return Some(u64::from(first));
        }
        let mut n = u64::from(first & 0x7f);
        let mut shift = 7;
        loop {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return None;
            }
            n |= bits << shift;
            if byte < 0x80 {
                return Some(n);
            }
            shift += 7;
            if shift > 63 {
                return None;
            }
        }
    }

    /// Reads a [`number`](Self::number) of at most 32 bits.
    pub fn number32(&mut self) -> Option<u32> {
        u32::try_from(self.number()?).ok()
    }

    /// Reads a number that [`put_signed`] wrote.
    #[inline]
    pub fn signed(&mut self) -> Option<i64> {
        Some(unfold(self.number()?))
    }

    /// Reads a number that [`put_wide`] wrote.
    pub fn wide(&mut self) -> Option<i128> {
        let mut n = 0u128;
        let mut shift = 0;
        loop {
            let byte = self.byte()?;
            let bits = u128::from(byte & 0x7f);
            if shift == 126 && bits > 3 {
                return None;
            }
            n |= bits << shift;
            if byte < 0x80 {
                return Some((n >> 1) as i128 ^ -((n & 1) as i128));
            }
            shift += 7;
            if shift > 126 {
                return None;
            }
        }
    }

    /// The next `n` bytes.
    pub fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(n)?)?;
        self.at += n;
        Some(taken)
    }

    /// The next `N` bytes.
    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    /// Reads a text that [`put_text`] wrote. Bytes that are not UTF-8 are replaced.
    pub fn text(&mut self) -> Option<String> {
        let len = usize::try_from(self.number()?).ok()?;
        Some(String::from_utf8_lossy(self.take(len)?).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        let numbers = [
            0,
            1,
            127,
            128,
            300,
            u64::from(u32::MAX),
            u64::MAX >> 1,
            u64::MAX,
        ];
        let mut bytes = Vec::new();
        for n in numbers {
            put(&mut bytes, n);
            put_signed(&mut bytes, n as i64);
            put_wide(&mut bytes, i128::from(n) << 60);
            put_wide(&mut bytes, -(i128::from(n) << 63));
        }
        put_wide(&mut bytes, i128::MIN);
        let mut cursor = Cursor::new(&bytes);
        for n in numbers {
            assert_eq!(cursor.number(), Some(n));
            assert_eq!(cursor.signed(), Some(n as i64));
            assert_eq!(cursor.wide(), Some(i128::from(n) << 60));
            assert_eq!(cursor.wide(), Some(-(i128::from(n) << 63)));
        }
        assert_eq!(cursor.wide(), Some(i128::MIN));
        assert_eq!(cursor.left(), 0);
    }

    #[test]
    fn overlong_ones_are_refused() {
        assert_eq!(Cursor::new(&[0xff; 9]).number(), None);
        assert_eq!(Cursor::new(&[0xff; 30]).number(), None);
        assert_eq!(Cursor::new(&[0xff; 30]).wide(), None);
        let two_to_64 = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 2];
        assert_eq!(Cursor::new(&two_to_64).number(), None);
    }
}

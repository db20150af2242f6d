//! Reading and writing the parts of a block: LEB128 numbers, texts, bytes.

/// Appends a text: its length in bytes and its bytes.
pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    leb128::push(out, text.len() as u64);
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

    /// An unsigned number.
    #[inline]
    pub fn number(&mut self) -> Option<u64> {
        leb128::read(|| self.byte()).ok()
    }

    /// Reads a [`number`](Self::number) of at most 32 bits.
    pub fn number32(&mut self) -> Option<u32> {
        u32::try_from(self.number()?).ok()
    }

    /// A signed number in zigzag form.
    #[inline]
    pub fn signed(&mut self) -> Option<i64> {
        Some(leb128::unzigzag(self.number()?))
    }

    /// A signed number of up to 128 bits in zigzag form.
    pub fn wide(&mut self) -> Option<i128> {
        let number: u128 = leb128::read(|| self.byte()).ok()?;
        Some(leb128::unzigzag(number))
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

//! Reading and writing the parts of a block: LEB128 numbers, texts, bytes.

/// Appends bytes, preceded by their number.
pub fn put_bytes(to: &mut Vec<u8>, bytes: &[u8]) {
    leb128::push(to, bytes.len() as u64);
    to.extend_from_slice(bytes);
}

/// Reads from bytes. All results are `None` if the bytes end too early or a number is too large.
#[derive(Clone, Copy, Debug)]
pub struct Bytes<'a> {
    rest: &'a [u8],
}

impl<'a> Bytes<'a> {
    /// Starts at the first byte.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// True if all bytes have been read.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// One byte.
    pub fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    /// A number of at most 64 bits.
    pub fn number(&mut self) -> Option<u64> {
        leb128::take(&mut self.rest).ok()
    }

    /// A number of at most 32 bits.
    pub fn small(&mut self) -> Option<u32> {
        self.number()?.try_into().ok()
    }

    /// Bytes that [`put_bytes`] wrote.
    pub fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.number()?).ok()?;
        if len > self.rest.len() {
            return None;
        }
        let (bytes, rest) = self.rest.split_at(len);
        self.rest = rest;
        Some(bytes)
    }

    /// A text that [`put_bytes`] wrote. Bytes that are not UTF-8 are replaced.
    pub fn text(&mut self) -> Option<String> {
        Some(String::from_utf8_lossy(self.bytes()?).into_owned())
    }

    /// A floating-point number of eight bytes, lowest first.
    pub fn float(&mut self) -> Option<f64> {
        let (bytes, rest) = self.rest.split_first_chunk::<8>()?;
        self.rest = rest;
        Some(f64::from_le_bytes(*bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_cut_are_refused() {
        assert_eq!(Bytes::new(&[5, 1, 2]).bytes(), None);
        assert_eq!(Bytes::new(&[2, 1, 2]).bytes(), Some(&[1, 2][..]));
    }
}

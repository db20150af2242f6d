//! JSON, written into memory.

use std::io::Write;

use analysis_rt::Decimal;

/// The largest integer below which a double holds each integer. Larger ones are written as strings.
const EXACT: u64 = 1 << 53;

/// Values of a profile with commas between them, compressed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fragment {
    /// Length in bytes before it was compressed.
    pub len: u32,
    /// Check sum of these bytes.
    pub crc: u32,
    /// The blocks.
    pub packed: &'static [u8],
}

impl Fragment {
    /// The check sum, to be combined with others.
    pub fn sum(&self) -> crc32fast::Hasher {
        crc32fast::Hasher::new_with_initial_len(self.crc, self.len.into())
    }
}

/// JSON that is being made. Commas are put where they are needed.
#[derive(Default)]
pub struct Json {
    bytes: Vec<u8>,
    /// The next value or key needs a comma in front.
    needs_comma: bool,
    /// What was compressed before, and the numbers of bytes in front of which it is.
    fragments: Vec<(usize, Fragment)>,
}

impl Json {
    /// The finished line. [`Json::fragments`] is not in it.
    pub fn end(mut self) -> Vec<u8> {
        self.bytes.push(b'\n');
        self.bytes
    }

    /// What was written, without a new line.
    pub fn bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Appends a value, or several with commas between them.
    pub fn fragment(&mut self, fragment: Fragment) {
        self.begin();
        self.fragments.push((self.bytes.len(), fragment));
    }

    /// What was appended by [`Json::fragment`], with the number of bytes in front of it, in order.
    pub fn take_fragments(&mut self) -> Vec<(usize, Fragment)> {
        std::mem::take(&mut self.fragments)
    }

    fn begin(&mut self) {
        if self.needs_comma {
            self.bytes.push(b',');
        }
        self.needs_comma = true;
    }

    /// Opens an object or an array.
    pub fn open(&mut self, bracket: char) -> &mut Self {
        self.begin();
        self.bytes.push(bracket as u8);
        self.needs_comma = false;
        self
    }

    /// Closes an object or an array.
    pub fn close(&mut self, bracket: char) {
        self.bytes.push(bracket as u8);
        self.needs_comma = true;
    }

    /// The key of the next value.
    pub fn key(&mut self, name: &str) -> &mut Self {
        self.text(name);
        self.bytes.push(b':');
        self.needs_comma = false;
        self
    }

    /// A string.
    pub fn text(&mut self, text: &str) {
        self.begin();
        self.bytes.push(b'"');
        let mut plain = 0;
        for (i, byte) in text.bytes().enumerate() {
            if byte < b' ' || matches!(byte, b'"' | b'\\') {
                self.bytes.extend_from_slice(&text.as_bytes()[plain..i]);
                // Writing to memory does not fail.
                let _ = match byte {
                    b'"' | b'\\' => self.bytes.write_all(&[b'\\', byte]),
                    _ => write!(self.bytes, "\\u{byte:04x}"),
                };
                plain = i + 1;
            }
        }
        self.bytes.extend_from_slice(&text.as_bytes()[plain..]);
        self.bytes.push(b'"');
    }

    /// A string, or null if it is empty.
    pub fn text_or_null(&mut self, text: &str) {
        match text {
            "" => self.null(),
            text => self.text(text),
        }
    }

    /// An array of strings.
    pub fn texts<T: AsRef<str>>(&mut self, texts: &[T]) {
        self.open('[');
        for text in texts {
            self.text(text.as_ref());
        }
        self.close(']');
    }

    /// An integer; a large one is a string.
    pub fn number(&mut self, n: u64) {
        self.begin();
        if n < 10 {
            return self.bytes.push(b'0' + n as u8);
        }
        let number = Decimal::new(n);
        if n <= EXACT {
            self.bytes.extend_from_slice(number.digits());
        } else {
            self.bytes.push(b'"');
            self.bytes.extend_from_slice(number.digits());
            self.bytes.push(b'"');
        }
    }

    /// An address; a large one is a string in hexadecimal.
    pub fn address(&mut self, address: u64) {
        if address <= EXACT {
            return self.number(address);
        }
        self.begin();
        // Writing to memory does not fail.
        let _ = write!(self.bytes, "\"{address:#x}\"");
    }

    /// A number with a fraction; null if it is infinite or none.
    pub fn float(&mut self, x: f64) {
        if !x.is_finite() {
            return self.null();
        }
        self.begin();
        // Writing to memory does not fail.
        let _ = write!(self.bytes, "{x}");
    }

    /// The index of something, or -1.
    pub fn index(&mut self, index: Option<u32>) {
        match index {
            Some(index) => self.number(index.into()),
            None => self.literal("-1"),
        }
    }

    /// A value that is not known.
    pub fn null(&mut self) {
        self.literal("null");
    }

    /// True or false.
    pub fn truth(&mut self, is: bool) {
        self.literal(if is { "true" } else { "false" });
    }

    fn literal(&mut self, text: &str) {
        self.begin();
        self.bytes.extend_from_slice(text.as_bytes());
    }
}

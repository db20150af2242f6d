//! C's formatted output.
//!
//! Numbers are formatted by Rust's own formatting, which is exact for every precision; this module reads the
//! specifications, and changes the form to C's: signs, padding, exponents, bases.

use std::ffi::{c_char, c_int};

use super::float;
use super::positions::Arguments;
use crate::varargs::{VaList, bytes};

/// What a specification says in front of its letter.
#[derive(Clone, Copy, Default)]
pub struct Spec {
    /// `-`
    pub is_left: bool,
    /// `+`
    pub has_plus: bool,
    /// A space.
    pub has_space: bool,
    /// `#`
    pub is_alternate: bool,
    /// `0`
    pub has_zeros: bool,
    /// Least number of characters.
    pub width: usize,
    /// Precision, if there is one.
    pub precision: Option<usize>,
    /// Size in bytes of an integer.
    size: u8,
    /// `L`
    is_long_double: bool,
    /// `l`, in front of `c` and `s`.
    is_wide: bool,
}

/// Takes what is printed.
pub type Sink<'a> = &'a mut dyn FnMut(&[u8]);

/// Formats. Returns the number of bytes.
///
/// # Safety
/// The list has the arguments that the format names.
pub unsafe fn format(out: Sink<'_>, format: &[u8], list: &mut VaList) -> usize {
    let mut count = 0;
    let mut put = |text: &[u8]| {
        count += text.len();
        out(text);
        count
    };
    // SAFETY: the caller's promise.
    let mut arguments = unsafe { Arguments::new(format, list) };
    let mut rest = format;
    while let Some(at) = rest.iter().position(|byte| *byte == b'%') {
        let written = put(&rest[..at]);
        let (number, text) = arguments.number(&rest[at + 1..]);
        // SAFETY: the caller's promise.
        let (spec, behind) = unsafe { Spec::parse(text, &mut arguments) };
        let Some((letter, behind)) = behind.split_first() else {
            return written;
        };
        rest = behind;
        if *letter == b'n' {
            // SAFETY: the caller's promise: a pointer to an integer of this size.
            arguments.with(number, |list| unsafe {
                spec.store(list.pointer(), written)
            });
            continue;
        }
        // SAFETY: the caller's promise. An unknown letter stands for itself.
        let text = arguments.with(number, |list| unsafe { spec.print(*letter, list) });
        put(&text.unwrap_or_else(|| vec![b'%', *letter]));
    }
    put(rest)
}

impl Spec {
    /// Reads what is between `%` and the letter. Returns it and the rest.
    ///
    /// # Safety
    /// The list has an `int` for each `*`.
    unsafe fn parse<'a>(mut text: &'a [u8], list: &mut Arguments<'_>) -> (Self, &'a [u8]) {
        let mut spec = Self {
            size: 4,
            ..Self::default()
        };
        while let Some((flag, rest)) = text.split_first() {
            match flag {
                b'-' => spec.is_left = true,
                b'+' => spec.has_plus = true,
                b' ' => spec.has_space = true,
                b'#' => spec.is_alternate = true,
                b'0' => spec.has_zeros = true,
                // Digits in groups: there are none in C's own locale.
                b'\'' => {}
                _ => break,
            }
            text = rest;
        }
        // SAFETY: the caller's promise.
        let (width, rest) = unsafe { number(text, list) };
        let width = width.unwrap_or(0);
        spec.is_left |= width < 0;
        spec.width = width.unsigned_abs() as usize;
        text = rest;
        if let Some(rest) = text.strip_prefix(b".") {
            // SAFETY: the caller's promise.
            let (precision, rest) = unsafe { number(rest, list) };
            // A negative precision is none.
            spec.precision = usize::try_from(precision.unwrap_or(0)).ok();
            text = rest;
        }
        while let Some((letter, rest)) = text.split_first() {
            match letter {
                b'h' => spec.size /= 2,
                b'l' => (spec.size, spec.is_wide) = (8, true),
                b'j' | b'z' | b't' | b'q' => spec.size = 8,
                // Arguments with numbers have been rounded already.
                b'L' => (spec.size, spec.is_long_double) = (8, !list.are_numbered()),
                _ => break,
            }
            text = rest;
        }
        (spec, text)
    }

    /// Formats an argument; `None` for a letter that prints nothing or is unknown.
    ///
    /// # Safety
    /// The next argument is of the type that the specification names.
    unsafe fn print(self, letter: u8, list: &mut VaList) -> Option<Vec<u8>> {
        // SAFETY: the caller's promise.
        unsafe {
            Some(match letter {
                b'd' | b'i' => {
                    let n = self.signed(list.word());
                    self.integer(n.unsigned_abs().to_string(), self.sign(n < 0), "", n == 0)
                }
                b'u' => {
                    let n = self.unsigned(list.word());
                    self.integer(n.to_string(), "", "", n == 0)
                }
                b'o' => {
                    let n = self.unsigned(list.word());
                    let digits = format!("{n:o}");
                    let has_zero = self.precision.is_some_and(|p| p > digits.len());
                    let zero = if self.is_alternate
                        && !has_zero
                        && (n != 0 || self.precision == Some(0))
                    {
                        "0"
                    } else {
                        ""
                    };
                    self.integer(digits, "", zero, n == 0)
                }
                b'x' | b'X' => {
                    let n = self.unsigned(list.word());
                    let (digits, base) = match letter {
                        b'x' => (format!("{n:x}"), "0x"),
                        _ => (format!("{n:X}"), "0X"),
                    };
                    let base = if self.is_alternate && n != 0 {
                        base
                    } else {
                        ""
                    };
                    self.integer(digits, "", base, n == 0)
                }
                b'p' => match list.word() {
                    0 => self.text(b"(nil)".to_vec()),
                    n => self.integer(format!("{n:x}"), self.sign(false), "0x", false),
                },
                b'c' => {
                    let c = list.int() as u32;
                    let mut wide = [0; 4];
                    let text = match (self.is_wide, char::from_u32(c)) {
                        (true, Some(c)) => c.encode_utf8(&mut wide).as_bytes().to_vec(),
                        _ => vec![c as u8],
                    };
                    self.text(text)
                }
                b's' if self.is_wide => {
                    let text = list.pointer();
                    let wide = wide(text).unwrap_or_else(|| self.null().to_vec());
                    self.text(self.cut(&wide))
                }
                b's' => {
                    let text = self.string(list.pointer());
                    self.text(text)
                }
                b'm' => self.text(self.cut(super::string::error_text(super::errno()).as_bytes())),
                b'e' | b'E' | b'f' | b'F' | b'g' | b'G' | b'a' | b'A' => {
                    let x = if self.is_long_double {
                        list.long_double()
                    } else {
                        list.double()
                    };
                    self.float(x, letter)
                }
                b'%' => b"%".to_vec(),
                _ => return None,
            })
        }
    }

    fn sign(self, is_negative: bool) -> &'static str {
        match (is_negative, self.has_plus, self.has_space) {
            (true, ..) => "-",
            (_, true, _) => "+",
            (_, _, true) => " ",
            _ => "",
        }
    }

    fn signed(self, word: u64) -> i64 {
        match self.size {
            1 => i64::from(word as i8),
            2 => i64::from(word as i16),
            4 => i64::from(word as i32),
            _ => word as i64,
        }
    }

    fn unsigned(self, word: u64) -> u64 {
        match self.size {
            1 => u64::from(word as u8),
            2 => u64::from(word as u16),
            4 => u64::from(word as u32),
            _ => word,
        }
    }

    /// Stores the number of bytes so far, for `%n`.
    ///
    /// # Safety
    /// `to` is a pointer to an integer of the size.
    unsafe fn store(self, to: *mut u8, n: usize) {
        let size = usize::from(self.size);
        // SAFETY: the caller's promise; the machine is little-endian.
        unsafe { to.copy_from_nonoverlapping((n as u64).to_le_bytes().as_ptr(), size) };
    }

    /// An integer of these digits, with a sign and the mark of its base.
    fn integer(self, mut digits: String, sign: &str, base: &str, is_zero: bool) -> Vec<u8> {
        if let Some(precision) = self.precision {
            if precision == 0 && is_zero {
                digits.clear();
            }
            let zeros = precision.saturating_sub(digits.len());
            digits.insert_str(0, &"0".repeat(zeros));
        }
        let front = sign.len() + base.len();
        let text = format!("{sign}{base}{digits}").into_bytes();
        let spec = Self {
            has_zeros: self.has_zeros && self.precision.is_none(),
            ..self
        };
        spec.pad(text, front)
    }

    fn float(self, x: f64, letter: u8) -> Vec<u8> {
        let sign = self.sign(x.is_sign_negative());
        let is_upper = letter.is_ascii_uppercase();
        let (mut text, front) = match float::special(x) {
            Some(special) => (format!("{sign}{special}"), 0),
            None => {
                let letter = letter.to_ascii_lowercase();
                let digits = float::digits(x.abs(), letter, self.precision, self.is_alternate);
                // Zeros are after the sign and after `0x`.
                let base = 2 * usize::from(letter.eq_ignore_ascii_case(&b'a'));
                (format!("{sign}{digits}"), sign.len() + base)
            }
        };
        if is_upper {
            text.make_ascii_uppercase();
        }
        let spec = Self {
            has_zeros: self.has_zeros && x.is_finite(),
            ..self
        };
        spec.pad(text.into_bytes(), front)
    }

    /// A string, up to the precision; it need not end there.
    ///
    /// # Safety
    /// `text` is NULL, or can be read up to a null or to the precision.
    unsafe fn string(self, text: *const c_char) -> Vec<u8> {
        if text.is_null() {
            return self.cut(self.null());
        }
        let Some(most) = self.precision else {
            // SAFETY: the caller's promise.
            return unsafe { bytes(text) }.to_vec();
        };
        // SAFETY: the caller's promise.
        let byte = |i| unsafe { text.cast::<u8>().add(i).read() };
        (0..most).map(byte).take_while(|byte| *byte != 0).collect()
    }

    /// What is printed for NULL: nothing where it has no room.
    fn null(self) -> &'static [u8] {
        const NULL: &[u8] = b"(null)";
        let has_room = self.precision.is_none_or(|p| p >= NULL.len());
        if has_room { NULL } else { b"" }
    }

    fn cut(self, text: &[u8]) -> Vec<u8> {
        let length = self.precision.map_or(text.len(), |p| p.min(text.len()));
        text[..length].to_vec()
    }

    /// A text, filled with spaces.
    fn text(self, text: Vec<u8>) -> Vec<u8> {
        let spec = Self {
            has_zeros: false,
            ..self
        };
        spec.pad(text, 0)
    }

    /// Fills up to the width. Zeros are put after the first `front` bytes.
    fn pad(self, mut text: Vec<u8>, front: usize) -> Vec<u8> {
        let missing = self.width.saturating_sub(text.len());
        let (at, with) = match (self.is_left, self.has_zeros) {
            (true, _) => (text.len(), b' '),
            (_, true) => (front, b'0'),
            _ => (0, b' '),
        };
        text.splice(at..at, std::iter::repeat_n(with, missing));
        text
    }
}

/// A number or `*` in front of a text, and what follows.
///
/// # Safety
/// For `*` the list has an `int`.
unsafe fn number<'a>(text: &'a [u8], list: &mut Arguments<'_>) -> (Option<c_int>, &'a [u8]) {
    if let Some(rest) = text.strip_prefix(b"*") {
        // SAFETY: the caller's promise.
        let (value, rest) = unsafe { list.star(rest) };
        return (Some(value), rest);
    }
    let digits = text.iter().take_while(|b| b.is_ascii_digit()).count();
    let value = |n: c_int, b: &u8| n.saturating_mul(10).saturating_add((b - b'0').into());
    let number = (digits > 0).then(|| text[..digits].iter().fold(0, value));
    (number, &text[digits..])
}

/// A string of wide characters as UTF-8; `None` for NULL.
///
/// # Safety
/// It is NULL or ends with a zero.
unsafe fn wide(text: *const u32) -> Option<Vec<u8>> {
    if text.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    let characters = (0..).map(|i| unsafe { text.add(i).read() });
    let characters = characters.take_while(|c| *c != 0);
    let text: String = characters.filter_map(char::from_u32).collect();
    Some(text.into_bytes())
}

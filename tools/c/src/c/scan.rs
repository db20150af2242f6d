//! C's formatted input.

use std::ffi::{c_char, c_int};

use super::ctype::is_space;
use super::file::EOF;
use super::positions::numbered;
use super::{float, stdlib};
use crate::varargs::{VaList, to_extended};

unsafe extern "C" {
    fn malloc(size: usize) -> *mut c_char;
}

/// Where input comes from: gives the next byte for `None`, and takes a byte back.
type Source<'a> = &'a mut dyn FnMut(Option<u8>) -> Option<u8>;

/// Input, byte by byte.
pub struct Input<'a> {
    source: Source<'a>,
    /// Number of bytes that were taken.
    taken: usize,
}

/// A specification.
struct Spec<'a> {
    /// The number of its argument, from 0 on, if the format has numbers.
    number: Option<usize>,
    /// `m`: a text gets memory of its own.
    is_allocated: bool,
    /// `*`: read, and not stored.
    is_skipped: bool,
    width: usize,
    /// Size in bytes of an integer.
    size: usize,
    letter: u8,
    /// Of `%[`: the set, and whether it names what does not belong.
    set: (&'a [u8], bool),
}

impl<'a> Input<'a> {
    pub fn new(source: Source<'a>) -> Self {
        Self { source, taken: 0 }
    }

    fn next(&mut self) -> Option<u8> {
        let byte = (self.source)(None)?;
        self.taken += 1;
        Some(byte)
    }

    fn back(&mut self, byte: u8) {
        (self.source)(Some(byte));
        self.taken -= 1;
    }

    /// Takes bytes as long as a predicate of the bytes so far and the next one is true.
    fn take(&mut self, most: usize, fits: impl Fn(&[u8], u8) -> bool) -> Vec<u8> {
        let mut taken = Vec::new();
        while taken.len() < most
            && let Some(byte) = self.next()
        {
            if !fits(&taken, byte) {
                self.back(byte);
                break;
            }
            taken.push(byte);
        }
        taken
    }

    fn skip_space(&mut self) {
        self.take(usize::MAX, |_, byte| is_space(byte));
    }

    fn is_at_end(&mut self) -> bool {
        match self.next() {
            Some(byte) => {
                self.back(byte);
                false
            }
            None => true,
        }
    }
}

/// Reads from a text.
///
/// # Safety
/// As for [`scan`].
pub unsafe fn text(from: &[u8], format: &[u8], list: &mut VaList) -> c_int {
    let mut at = 0;
    let next = &mut |back: Option<u8>| match back {
        Some(_) => {
            at -= 1;
            None
        }
        None => {
            let byte = from.get(at).copied();
            at += usize::from(byte.is_some());
            byte
        }
    };
    // SAFETY: the caller's promise.
    unsafe { scan(&mut Input::new(next), format, list) }
}

/// Reads values. Returns their number, or [`EOF`] if the input ended in front of the first.
///
/// # Safety
/// The list has pointers to values of the types that the format names.
pub unsafe fn scan(input: &mut Input<'_>, mut format: &[u8], list: &mut VaList) -> c_int {
    let whole = format;
    let mut stored = 0;
    // All arguments, once a specification names one by its number.
    let mut numbered: Vec<u64> = Vec::new();
    while let Some((first, rest)) = format.split_first() {
        if is_space(*first) {
            input.skip_space();
            format = rest;
            continue;
        }
        if *first != b'%' {
            match input.next() {
                Some(byte) if byte == *first => format = rest,
                Some(byte) => {
                    input.back(byte);
                    return stored;
                }
                None => return if stored == 0 { EOF } else { stored },
            }
            continue;
        }
        let Some((spec, rest)) = Spec::parse(rest) else {
            return stored;
        };
        format = rest;
        if !matches!(spec.letter, b'c' | b'[' | b'n') {
            input.skip_space();
        }
        if spec.letter != b'n' && input.is_at_end() {
            return if stored == 0 { EOF } else { stored };
        }
        // SAFETY: the caller's promise.
        let read = unsafe {
            match spec.number {
                Some(number) => {
                    if numbered.is_empty() {
                        numbered.extend((0..arguments(whole)).map(|_| list.word()));
                    }
                    let word = numbered.get(number).copied().unwrap_or_default();
                    spec.read(input, &mut VaList::of_word(&word))
                }
                None => spec.read(input, list),
            }
        };
        match read {
            Some(count) => stored += count,
            None => return stored,
        }
    }
    stored
}

/// Number of the arguments of a format that names them by their numbers. All are pointers.
fn arguments(format: &[u8]) -> usize {
    let (mut rest, mut count) = (format, 0);
    while let Some(at) = rest.iter().position(|byte| *byte == b'%') {
        let Some((spec, behind)) = Spec::parse(&rest[at + 1..]) else {
            break;
        };
        count = count.max(spec.number.map_or(0, |number| number + 1));
        rest = behind;
    }
    count
}

impl<'a> Spec<'a> {
    /// Reads a specification after `%`. `None` if it is not complete.
    fn parse(mut text: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let mut spec = Self {
            number: None,
            is_allocated: false,
            is_skipped: false,
            width: usize::MAX,
            size: 4,
            letter: 0,
            set: (&[], false),
        };
        if let Some((number, rest)) = numbered(text) {
            (spec.number, text) = (Some(number), rest);
        }
        if let Some(rest) = text.strip_prefix(b"*") {
            (spec.is_skipped, text) = (true, rest);
        }
        let digits = text.iter().take_while(|b| b.is_ascii_digit()).count();
        if digits > 0 {
            spec.width = stdlib::number(&text[..digits], 10).magnitude as usize;
            text = &text[digits..];
        }
        loop {
            let (letter, rest) = text.split_first()?;
            text = rest;
            match letter {
                b'h' => spec.size /= 2,
                b'l' | b'j' | b'z' | b't' | b'q' => spec.size = 8,
                b'L' => spec.size = 16,
                b'm' => spec.is_allocated = true,
                b'[' => {
                    spec.letter = b'[';
                    let is_inverted = text.first() == Some(&b'^');
                    text = &text[usize::from(is_inverted)..];
                    // A bracket in the first place belongs to the set.
                    let end = 1 + text.iter().skip(1).position(|b| *b == b']')?;
                    spec.set = (&text[..end], is_inverted);
                    return Some((spec, &text[end + 1..]));
                }
                _ => {
                    spec.letter = *letter;
                    return Some((spec, text));
                }
            }
        }
    }

    /// True if a byte belongs to the set, which may have ranges.
    fn has(&self, byte: u8) -> bool {
        let (mut set, is_inverted) = self.set;
        let mut is_in = false;
        while let Some((first, rest)) = set.split_first() {
            set = rest;
            match rest {
                [b'-', last, behind @ ..] => {
                    is_in |= (*first..=*last).contains(&byte);
                    set = behind;
                }
                _ => is_in |= *first == byte,
            }
        }
        is_in != is_inverted
    }

    /// Reads and stores a value. Returns the number of values that count; `None` if the input does not fit.
    ///
    /// # Safety
    /// The next argument is a pointer to such a value.
    unsafe fn read(&self, input: &mut Input<'_>, list: &mut VaList) -> Option<c_int> {
        // SAFETY: the caller's promise.
        unsafe {
            match self.letter {
                b'd' | b'u' => self.integer(input, list, 10),
                b'i' => self.integer(input, list, 0),
                b'o' => self.integer(input, list, 8),
                b'x' | b'X' | b'p' => self.integer(input, list, 16),
                b'e' | b'E' | b'f' | b'F' | b'g' | b'G' | b'a' | b'A' => self.float(input, list),
                b's' => self.text(input.take(self.width, |_, b| !is_space(b)), list, true),
                b'[' => self.text(input.take(self.width, |_, b| self.has(b)), list, true),
                b'c' => {
                    let wanted = if self.width == usize::MAX {
                        1
                    } else {
                        self.width
                    };
                    let taken = input.take(wanted, |_, _| true);
                    self.text(taken, list, false)
                }
                b'n' => {
                    self.store(list, input.taken as u64);
                    Some(0)
                }
                b'%' => match input.next() {
                    Some(b'%') => Some(0),
                    _ => None,
                },
                _ => None,
            }
        }
    }

    /// # Safety
    /// As for [`Spec::read`].
    unsafe fn integer(&self, input: &mut Input<'_>, list: &mut VaList, base: u32) -> Option<c_int> {
        let taken = input.take(self.width, |before, byte| {
            let start = usize::from(matches!(before.first(), Some(b'+' | b'-')));
            let digits = &before[start..];
            let is_mark = matches!(byte, b'x' | b'X') && digits == b"0" && matches!(base, 0 | 16);
            let is_hexadecimal =
                base == 16 || digits.starts_with(b"0x") || digits.starts_with(b"0X");
            let digit_base = match base {
                _ if is_hexadecimal => 16,
                0 if digits.starts_with(b"0") => 8,
                0 => 10,
                _ => base,
            };
            let is_sign = before.is_empty() && matches!(byte, b'+' | b'-');
            is_sign || is_mark || (byte as char).is_digit(digit_base)
        });
        let number = stdlib::number(&taken, base);
        if number.length == 0 {
            return None;
        }
        let value = match self.letter {
            b'd' | b'i' => number.signed().0 as u64,
            _ => number.unsigned(),
        };
        let pointer = Self { size: 8, ..*self };
        let spec = if self.letter == b'p' { &pointer } else { self };
        // SAFETY: the caller's promise.
        unsafe { spec.store(list, value) };
        Some((!self.is_skipped).into())
    }

    /// Stores an integer of the size.
    ///
    /// # Safety
    /// The next argument is a pointer to an integer of the size.
    unsafe fn store(&self, list: &mut VaList, value: u64) {
        if !self.is_skipped {
            // SAFETY: the caller's promise; the machine is little-endian.
            unsafe {
                let to = list.pointer::<u8>();
                to.copy_from_nonoverlapping(value.to_le_bytes().as_ptr(), self.size.min(8));
            }
        }
    }

    /// # Safety
    /// As for [`Spec::read`].
    unsafe fn float(&self, input: &mut Input<'_>, list: &mut VaList) -> Option<c_int> {
        let taken = input.take(self.width, |before, byte| {
            let is_sign = matches!(byte, b'+' | b'-');
            match before.last() {
                _ if !is_sign => byte.is_ascii_alphanumeric() || byte == b'.',
                None => true,
                Some(last) => matches!(last.to_ascii_lowercase(), b'e' | b'p'),
            }
        });
        let found = float::parse(&taken);
        for byte in taken[found.length..].iter().rev() {
            input.back(*byte);
        }
        if found.length == 0 {
            return None;
        }
        if !self.is_skipped {
            // SAFETY: the caller's promise.
            unsafe {
                match self.size {
                    4 => list.pointer::<f32>().write(found.single().0),
                    8 => list.pointer::<f64>().write(found.double().0),
                    // A `long double` of 80 bits.
                    _ => list
                        .pointer::<[u8; 10]>()
                        .write(to_extended(found.double().0)),
                }
            }
        }
        Some((!self.is_skipped).into())
    }

    /// # Safety
    /// As for [`Spec::read`].
    unsafe fn text(&self, mut taken: Vec<u8>, list: &mut VaList, has_null: bool) -> Option<c_int> {
        if taken.is_empty() {
            return None;
        }
        if self.is_skipped {
            return Some(0);
        }
        if has_null {
            taken.push(0);
        }
        // SAFETY: the caller's promise.
        unsafe {
            let mut to = list.pointer::<u8>();
            if self.is_allocated {
                let place = to.cast::<*mut u8>();
                to = malloc(taken.len()).cast();
                place.write(to);
                if to.is_null() {
                    return None;
                }
            }
            to.copy_from_nonoverlapping(taken.as_ptr(), taken.len());
        }
        Some(1)
    }
}

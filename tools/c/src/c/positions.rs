//! Formats whose specifications name the number of their argument: `%2$s`, `%1$*3$d`.
//!
//! A list of arguments is read in its order only, and the type of each argument is known by the specifications that use it. So
//! the format is looked through first, and all arguments are read.

use std::ffi::c_int;

use crate::varargs::VaList;

/// The largest number of an argument.
const MOST: usize = 4096;

/// How an argument is passed.
#[derive(Clone, Copy)]
enum Kind {
    /// An integer or a pointer.
    Word,
    Double,
    LongDouble,
}

/// The arguments of a format, which specifications take.
pub struct Arguments<'a> {
    list: &'a mut VaList,
    /// All arguments, if the format names them by their numbers. A `long double` is a `double` here.
    all: Vec<u64>,
}

impl<'a> Arguments<'a> {
    /// The arguments for a format.
    ///
    /// # Safety
    /// The list has the arguments that the format names.
    pub unsafe fn new(format: &[u8], list: &'a mut VaList) -> Self {
        let mut all = Vec::new();
        for kind in kinds(format).unwrap_or_default() {
            // SAFETY: the caller's promise.
            all.push(unsafe {
                match kind {
                    Kind::Word => list.word(),
                    Kind::Double => list.double().to_bits(),
                    Kind::LongDouble => list.long_double().to_bits(),
                }
            });
        }
        Self { list, all }
    }

    /// True if specifications name their arguments by numbers.
    pub fn are_numbered(&self) -> bool {
        !self.all.is_empty()
    }

    /// The number in front of a text, from 0 on, if arguments have numbers; and what follows.
    pub fn number<'b>(&self, text: &'b [u8]) -> (Option<usize>, &'b [u8]) {
        match numbered(text) {
            Some((number, rest)) if self.are_numbered() => (Some(number), rest),
            _ => (None, text),
        }
    }

    /// Gives a list whose next argument is the one with this number, or the next one without it.
    pub fn with<R>(&mut self, number: Option<usize>, take: impl FnOnce(&mut VaList) -> R) -> R {
        match number.and_then(|number| self.all.get(number)) {
            Some(word) => take(&mut VaList::of_word(word)),
            None => take(self.list),
        }
    }

    /// The `int` for a `*`, and what follows the `*`.
    ///
    /// # Safety
    /// There is one.
    pub unsafe fn star<'b>(&mut self, text: &'b [u8]) -> (c_int, &'b [u8]) {
        let (number, rest) = self.number(text);
        // SAFETY: the caller's promise.
        let value = self.with(number, |list| unsafe { list.int() });
        (value, rest)
    }
}

/// The number of an argument in front of a text, `12$`, counted from 0; and what follows.
pub fn numbered(text: &[u8]) -> Option<(usize, &[u8])> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let rest = text[digits..].strip_prefix(b"$")?;
    let number: usize = std::str::from_utf8(&text[..digits]).ok()?.parse().ok()?;
    (1..=MOST)
        .contains(&number)
        .then_some((number.wrapping_sub(1), rest))
}

/// The kinds of all arguments; `None` if the format does not name them by their numbers.
fn kinds(format: &[u8]) -> Option<Vec<Kind>> {
    let mut kinds = Vec::new();
    let mut note = |number: usize, kind| {
        if kinds.len() <= number {
            kinds.resize(number + 1, Kind::Word);
        }
        kinds[number] = kind;
    };
    let mut rest = format;
    while let Some(at) = rest.iter().position(|byte| *byte == b'%') {
        rest = &rest[at + 1..];
        if let Some(behind) = rest.strip_prefix(b"%") {
            rest = behind;
            continue;
        }
        let (number, mut text) = numbered(rest)?;
        let mut is_long = false;
        while let Some((letter, behind)) = text.split_first() {
            text = behind;
            match letter {
                b'*' => {
                    let (star, behind) = numbered(text)?;
                    note(star, Kind::Word);
                    text = behind;
                }
                b'L' => is_long = true,
                b'h' | b'l' | b'j' | b'z' | b't' | b'q' => {}
                b'e' | b'E' | b'f' | b'F' | b'g' | b'G' | b'a' | b'A' => {
                    note(
                        number,
                        if is_long {
                            Kind::LongDouble
                        } else {
                            Kind::Double
                        },
                    );
                    break;
                }
                letter if letter.is_ascii_alphabetic() => {
                    note(number, Kind::Word);
                    break;
                }
                _ => {}
            }
        }
        rest = text;
    }
    (!kinds.is_empty()).then_some(kinds)
}

//! Parts of a text that is too long, with an ellipsis for what is between them.

use crate::call_path::{self, CALLED_BY, Call};
use crate::{ELLIPSIS, columns, parse, places, shorten};

/// The shown part of a text: which of its words.
struct Shown<'a> {
    words: Vec<&'a str>,
    is_shown: Vec<bool>,
    /// Columns of the result.
    columns: usize,
    width: usize,
}

/// The text in at most `width` columns (one if `width` is 0): the words at the places `wanted` (numbers of
/// characters), its end and its beginning, as far as they fit, in this order.
pub fn excerpt(text: &str, wanted: &[usize], width: usize) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    if call_path::is_path(text) && width >= NARROW {
        return of_path(text, wanted, width);
    }
    let call = Call::of(text);
    if !call.place.is_empty() && width >= NARROW {
        return of_call(call, wanted, width);
    }
    let words = with_emptied_brackets(text);
    let mut shown = Shown {
        is_shown: vec![false; words.len()],
        words,
        columns: 1,
        width,
    };
    let last = shown.words.len().saturating_sub(1);
    let places: Vec<usize> = wanted.iter().map(|at| shown.word_at(*at)).collect();
    for &word in &places {
        shown.add(word);
    }
    shown.add(last);
    // The end tells more than the beginning: it has the function's name.
    let (mut front, mut back) = (Some(0), last.checked_sub(1));
    let is_path = places::is_file(text);
    while front.is_some() || back.is_some() {
        for _ in 0..2 {
            back = back
                .filter(|i| shown.add(*i))
                .and_then(|i| i.checked_sub(1));
        }
        front = front
            .filter(|i| !is_path && *i < last && shown.add(*i))
            .map(|i| i + 1);
    }
    if shown.columns * 2 <= width || !shown.is_shown.contains(&true) {
        return cut(text, &places.first().map_or(0, |_| wanted[0]), width);
    }
    shown.text()
}

/// A call path or a call has no excerpt of its own in less than this.
const NARROW: usize = 8;
/// Columns of a name that leave space for the line of a call after it.
const NAME: usize = 10;

/// Calls of a path: the innermost one, those at the places `wanted`, and the callers of the innermost as far as they fit.
fn of_path(path: &str, wanted: &[usize], width: usize) -> String {
    let calls: Vec<&str> = call_path::calls(path).collect();
    let mut is_shown = vec![false; calls.len()];
    let text = |is_shown: &[bool]| {
        let mut parts: Vec<&str> = Vec::new();
        for (call, is_shown) in calls.iter().zip(is_shown) {
            match is_shown {
                true => parts.push(call),
                false if parts.last() != Some(&GAP) => parts.push(GAP),
                false => {}
            }
        }
        parts.join(CALLED_BY)
    };
    let mut add = |call: usize| {
        let was = std::mem::replace(&mut is_shown[call], true);
        let fits = columns(&text(&is_shown)) <= width;
        is_shown[call] = was || fits;
        fits
    };
    if !add(0) {
        let rest = format!("{CALLED_BY}{GAP}");
        let inner: Vec<usize> = wanted
            .iter()
            .copied()
            .filter(|at| *at < columns(calls[0]))
            .collect();
        return excerpt(calls[0], &inner, width - columns(&rest)) + &rest;
    }
    for at in wanted {
        add(call_at(&calls, *at));
    }
    let _ = (1..calls.len()).all(add);
    text(&is_shown)
}

/// The words of a name. Brackets whose contents were left out belong to the word before them: `make<…>(…)`.
fn with_emptied_brackets(text: &str) -> Vec<&str> {
    const EMPTIED: [&str; 4] = ["<…>", "(…)", "()", "<…>(…)"];
    let mut words: Vec<&str> = Vec::new();
    let mut at = 0;
    for word in parse::words(text) {
        let end = at + word.len();
        // The last word ends here and may have brackets that began after it.
        if end <= words.iter().map(|word| word.len()).sum() {
            at = end;
            continue;
        }
        let rest = &text[end..];
        let is_name = word.starts_with(parse::is_name_char);
        let brackets = EMPTIED
            .iter()
            .rev()
            .find(|b| is_name && rest.starts_with(**b));
        words.push(&text[at..end + brackets.map_or(0, |b| b.len())]);
        at = end;
    }
    words
}

/// What is shown for what is left out.
const GAP: &str = "…";

/// The call that has a character of the path.
fn call_at(calls: &[&str], character: usize) -> usize {
    let mut end = 0;
    let found = calls.iter().position(|call| {
        end += columns(call) + columns(CALLED_BY);
        character < end
    });
    found.unwrap_or(calls.len() - 1)
}

/// A name and the line of a call, or the name alone if there is little space.
fn of_call(call: Call<'_>, wanted: &[usize], width: usize) -> String {
    let length = columns(call.object) + columns(call.name);
    let name = &format!("{}{}", call.object, call.name);
    let room = width.saturating_sub(columns(call.place));
    if room >= NAME.min(length) {
        let inner: Vec<usize> = wanted.iter().copied().filter(|at| *at < length).collect();
        let short = match inner.as_slice() {
            [] => shorten(name, room).into_owned(),
            inner => excerpt(name, inner, room),
        };
        return short + call.place;
    }
    let short = shorten(name, width - 2);
    format!("{short} {ELLIPSIS}")
}

impl Shown<'_> {
    /// The word that has a character.
    fn word_at(&self, character: usize) -> usize {
        let mut end = 0;
        let found = self.words.iter().position(|word| {
            end += crate::columns(word);
            character < end
        });
        found.unwrap_or(self.words.len().saturating_sub(1))
    }

    /// Shows a word if it fits.
    fn add(&mut self, word: usize) -> bool {
        if self.is_shown[word] {
            return true;
        }
        self.is_shown[word] = true;
        let columns = self.measure();
        if columns > self.width {
            self.is_shown[word] = false;
            return false;
        }
        self.columns = columns;
        true
    }

    fn measure(&self) -> usize {
        let mut columns = 0;
        let mut is_gap = false;
        for (word, is_shown) in self.words.iter().zip(&self.is_shown) {
            columns += if *is_shown {
                crate::columns(word)
            } else {
                usize::from(!is_gap)
            };
            is_gap = !is_shown;
        }
        columns
    }

    fn text(&self) -> String {
        let mut text = String::new();
        let mut is_gap = false;
        for (word, is_shown) in self.words.iter().zip(&self.is_shown) {
            match is_shown {
                true => text.push_str(word),
                false if !is_gap => text.push(ELLIPSIS),
                false => {}
            }
            is_gap = !is_shown;
        }
        text
    }
}

/// The text with characters left out around its middle, or before and after the character `wanted`. Numbers are in it as a
/// whole or not at all.
fn cut(text: &str, wanted: &usize, width: usize) -> String {
    let suffix = call_path::copy_suffix(text);
    let (name, suffix) = text.split_at(text.len() - suffix);
    let wide = columns(suffix);
    if wide > 0 && *wanted < columns(name) {
        // The procedure tells more than the number of its copy.
        let (room, end) = match width.checked_sub(wide) {
            Some(room) if room >= NAME => (room, suffix),
            _ => (width.saturating_sub(1), GAP),
        };
        if room >= NARROW {
            let name = if columns(name) <= room {
                name.to_owned()
            } else {
                cut(name, wanted, room)
            };
            return name + end;
        }
    }
    let all: Vec<char> = text.chars().collect();
    let room = width.saturating_sub(1);
    let (head, tail) = (room.div_ceil(2), room - room.div_ceil(2));
    if *wanted < head || *wanted >= all.len() - tail || width < 5 {
        let end = whole_number(&all, head, false);
        let start = whole_number(&all, all.len() - tail, true);
        let (front, back) = (&all[..end], &all[start..]);
        return front.iter().chain([&ELLIPSIS]).chain(back).collect();
    }
    let room = width - 2;
    let start = (*wanted)
        .saturating_sub(room / 3)
        .clamp(1, all.len() - room - 1);
    let middle = &all[start..start + room];
    [&ELLIPSIS]
        .into_iter()
        .chain(middle)
        .chain([&ELLIPSIS])
        .collect()
}

/// The place of a cut, moved out of a number: forward or backward.
fn whole_number(all: &[char], at: usize, is_forward: bool) -> usize {
    let is_digit = |at: usize| all.get(at).is_some_and(char::is_ascii_digit);
    let is_inside = |at: usize| at > 0 && is_digit(at - 1) && is_digit(at);
    let mut place = at;
    while is_inside(place) {
        place = if is_forward { place + 1 } else { place - 1 };
    }
    // A word that begins or ends with a long number would be empty.
    if place == 0 || place == all.len() {
        at
    } else {
        place
    }
}

//! Parts of a text that is too long, with an ellipsis for what is between them.

use crate::ELLIPSIS;
use crate::parse;

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
    let words = parse::words(text);
    if crate::columns(text) <= width {
        return text.to_owned();
    }
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
    let is_path = text.starts_with('/');
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

/// The text with characters left out around its middle, or before and after the character `wanted`.
fn cut(text: &str, wanted: &usize, width: usize) -> String {
    let all: Vec<char> = text.chars().collect();
    let room = width.saturating_sub(1);
    let head = room.div_ceil(2);
    let tail = room - head;
    if *wanted < head || *wanted >= all.len() - tail || width < 5 {
        let (front, back) = (&all[..head], &all[all.len() - tail..]);
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

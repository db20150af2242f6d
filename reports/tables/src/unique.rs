//! Names of one table, shortened so that names that differ stay different.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeFrom;

use crate::reduce::Forms;
use crate::{ELLIPSIS, columns, excerpt, lead, shorten};

/// A name is compared with this many others that look alike, on either side in alphabetical order.
const NEIGHBOURS: usize = 64;

/// The names, each in at most `width` characters, in their order. Equal names stay equal.
///
/// Names are shortened as by [`shorten`]. Where two different names would become the same, the parts that
/// tell them apart stay. If these do not fit, a number after the name tells them apart (`name…#2`). Only if
/// not even the numbers fit, a name is longer than `width`.
pub fn shorten_all<'a>(names: &[&'a str], width: usize) -> Vec<Cow<'a, str>> {
    let mut used: BTreeSet<String> = BTreeSet::new();
    // Names that fit keep their text, whatever others become.
    let mut long: BTreeSet<&'a str> = BTreeSet::new();
    for name in names {
        if columns(name) <= width {
            used.insert((*name).to_owned())
        } else {
            long.insert(name)
        };
    }
    let mut groups: BTreeMap<Cow<'a, str>, Vec<&'a str>> = BTreeMap::new();
    for name in long {
        groups.entry(shorten(name, width)).or_default().push(name);
    }
    let mut result: BTreeMap<&'a str, Cow<'a, str>> = BTreeMap::new();
    let mut alike: Vec<(Cow<'a, str>, Vec<&'a str>)> = Vec::new();
    for (short, members) in groups {
        match members.as_slice() {
            [name] if !used.contains(&*short) => {
                used.insert(short.clone().into_owned());
                result.insert(name, short);
            }
            _ => alike.push((short, members)),
        }
    }
    for (short, members) in alike {
        let texts = apart(&members, width);
        let mut numbers = 2u64..;
        for (name, text) in members.into_iter().zip(texts) {
            let text = if used.contains(&text) {
                numbered(&short, &mut numbers, width, &used)
            } else {
                text
            };
            used.insert(text.clone());
            result.insert(name, Cow::Owned(text));
        }
    }
    let found = |name: &&'a str| result.get(name).cloned().unwrap_or(Cow::Borrowed(*name));
    names.iter().map(found).collect()
}

/// The names as files have them: nothing is cut, but arguments of templates and closures are left out of long names unless they
/// tell names apart. Equal names stay equal, and others different.
pub fn readable_all<'a>(names: &[&'a str]) -> Vec<Cow<'a, str>> {
    let all: BTreeSet<&'a str> = names.iter().copied().collect();
    let mut groups: BTreeMap<Cow<'a, str>, Vec<&'a str>> = BTreeMap::new();
    for name in &all {
        groups.entry(Forms::readable(name)).or_default().push(name);
    }
    let mut result: BTreeMap<&'a str, Cow<'a, str>> = BTreeMap::new();
    for (short, members) in groups {
        if let [name] = *members {
            result.insert(name, short);
            continue;
        }
        let forms: Vec<Forms> = members.iter().map(|name| Forms::new(name)).collect();
        let level = level_apart(&forms).unwrap_or(0);
        let texts = forms.iter().map(|forms| forms.at(level).to_owned());
        result.extend(members.into_iter().zip(texts.map(Cow::Owned)));
    }
    // A form that tells names apart may be that of yet another name.
    let texts: BTreeSet<&str> = result.values().map(|text| &**text).collect();
    if texts.len() < all.len() {
        return names.iter().map(|name| Cow::Borrowed(*name)).collect();
    }
    names.iter().map(|name| result[name].clone()).collect()
}

/// The shortest forms that differ, if any do.
fn level_apart(forms: &[Forms]) -> Option<usize> {
    let most = forms.iter().map(Forms::len).max().unwrap_or(1);
    (0..most).rev().find(|level| {
        let texts: BTreeSet<&str> = forms.iter().map(|f| f.at(*level)).collect();
        texts.len() == forms.len()
    })
}

/// Excerpts of names that would become the same, with the parts that tell them apart. Some may be
/// the same still.
fn apart(names: &[&str], width: usize) -> Vec<String> {
    let leads: Vec<&str> = names.iter().map(|name| lead(name, width)).collect();
    let rests = names
        .iter()
        .zip(&leads)
        .map(|(name, lead)| &name[lead.len()..]);
    let forms: Vec<Forms> = rests.map(Forms::new).collect();
    // The names themselves differ.
    let level = level_apart(&forms);
    let texts: Vec<Vec<char>> = forms
        .iter()
        .map(|f| f.at(level.unwrap_or(0)).chars().collect())
        .collect();
    let mut order: Vec<usize> = (0..texts.len()).collect();
    order.sort_by(|a, b| texts[*a].cmp(&texts[*b]));
    // Length of the common beginning of each text and the next one.
    let common: Vec<usize> = order
        .windows(2)
        .map(|pair| {
            let (a, b) = (&texts[pair[0]], &texts[pair[1]]);
            a.iter().zip(b).take_while(|(a, b)| a == b).count()
        })
        .collect();
    let mut result = vec![String::new(); texts.len()];
    for (at, &name) in order.iter().enumerate() {
        let mut places = BTreeSet::new();
        let sides: [&mut dyn Iterator<Item = &usize>; 2] =
            [&mut common[..at].iter().rev(), &mut common[at..].iter()];
        for side in sides {
            let mut least = usize::MAX;
            for length in side.take(NEIGHBOURS) {
                least = least.min(*length);
                places.insert(least);
            }
        }
        let places: Vec<usize> = places.into_iter().collect();
        let text: String = texts[name].iter().collect();
        let room = width - columns(leads[name]);
        result[name] = format!("{}{}", leads[name], excerpt::excerpt(&text, &places, room));
    }
    result
}

/// A text with the first of the numbers that makes it differ from all that are used.
fn numbered(
    text: &str,
    numbers: &mut RangeFrom<u64>,
    width: usize,
    used: &BTreeSet<String>,
) -> String {
    for number in numbers {
        let end = format!("{ELLIPSIS}#{number}");
        let room = width.saturating_sub(columns(&end));
        let mut candidate: String = text.chars().take(room).collect();
        candidate.truncate(candidate.trim_end_matches(ELLIPSIS).len());
        candidate.push_str(&end);
        if !used.contains(&candidate) {
            return candidate;
        }
    }
    text.to_owned()
}

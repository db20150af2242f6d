//! The output of `--list`.

use std::fmt::Write;

use crate::find::region::Point;
use crate::find::view::base;
use crate::find::{Found, Section, Unplaced};

/// Most addresses that are printed; further ones are only counted.
const MOST: usize = 8;

/// The list of sections that were found and of sections that were not. `recursive` says for each
/// section found whether it is recursive.
pub fn text(found: &Found<'_>, recursive: &[bool]) -> String {
    let mut out = String::new();
    for (section, recursive) in found.sections.iter().zip(recursive) {
        describe(section, &mut out);
        if *recursive {
            out.push_str(
                "  recursive: what it calls can enter it again; that is counted, not recorded\n",
            );
        }
    }
    if !found.scope_ends.is_empty() {
        let _ = writeln!(out, "ends of scopes: {}", addresses(&found.scope_ends));
    }
    if found.sections.is_empty() {
        out.push_str("nothing is marked in this program\n");
    }
    for missing in &found.unplaced {
        let _ = writeln!(out, "not found: {}", why(missing));
    }
    out
}

/// Warnings for the user when the list is not printed.
pub fn warnings(found: &Found<'_>) -> Vec<String> {
    let missing = found.unplaced.iter().map(why);
    let doubts = found.sections.iter();
    let doubts = doubts.filter_map(|s| Some(format!("{}: incomplete: {}", s.name, s.doubt()?)));
    missing.chain(doubts).collect()
}

/// A sentence that says what was not found, and why.
pub fn why(missing: &Unplaced) -> String {
    let mut out = format!("{} {}", missing.kind.name(), missing.name);
    if let (Some(file), Some(line)) = (&missing.file, missing.line) {
        let _ = write!(out, " at {}:{line}", base(file));
    }
    if let Some(function) = &missing.function {
        let _ = write!(out, " in {function}");
    }
    let _ = write!(out, ": {}", missing.reason);
    out
}

/// A source position as `file.c:3-8`, or an empty text.
pub fn place(file: Option<&str>, lines: Option<(u32, u32)>) -> String {
    match (file, lines) {
        (Some(file), Some((first, last))) if first == last => format!("{}:{first}", base(file)),
        (Some(file), Some((first, last))) => format!("{}:{first}-{last}", base(file)),
        (Some(file), None) => base(file).to_owned(),
        (None, _) => String::new(),
    }
}

fn describe(section: &Section<'_>, out: &mut String) {
    let _ = write!(out, "{} {}", section.kind.name(), section.name);
    let place = place(section.file.as_deref(), section.lines);
    if !place.is_empty() {
        let _ = write!(out, " at {place}");
    }
    if section.function != section.name && !section.function.is_empty() {
        let _ = write!(out, " in {}", section.function);
    }
    let _ = write!(out, " (by {}", section.how.name());
    match section.regions.len() {
        0 | 1 => {}
        n => {
            let _ = write!(out, ", {n} copies");
        }
    }
    let _ = writeln!(out, ")");
    let _ = writeln!(out, "  enters at {}", addresses(&section.border.enters));
    let _ = writeln!(out, "  leaves at {}", addresses(&section.border.leaves));
    if let Some(doubt) = section.doubt() {
        let _ = writeln!(out, "  incomplete: {doubt}");
    }
}

fn addresses(points: &[Point<'_>]) -> String {
    if points.is_empty() {
        return "no known place".to_owned();
    }
    let mut out = String::new();
    for (i, point) in points.iter().take(MOST).enumerate() {
        let _ = write!(
            out,
            "{}{:#x}",
            if i == 0 { "" } else { ", " },
            point.address()
        );
    }
    if points.len() > MOST {
        let _ = write!(out, " and {} more", points.len() - MOST);
    }
    out
}

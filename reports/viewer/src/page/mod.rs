//! The page of a profile: one HTML file that needs no network.
//!
//! The page's scripts read the profile itself, in the form of docs/profile-format.md. Tables of instructions and blocks that
//! are for programs only stay outside: their counts stand beside the code of the hottest procedures, which is read from
//! the objects' files when the page is made.

mod code;

use std::path::{Path, PathBuf};

use atom_core::Result;
use atom_core::emit::Sink;
use clap::Args;
use page::{D3_HIERARCHY, FLAME, GRID, Page};
use profile::{By, Profile, Readers};
use serde::Serialize;

use crate::annotate;
use output::file::{AsWrite, PendingFile};

const BODY: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPTS: [&str; 9] = [
    include_str!("model.js"),
    include_str!("overview.js"),
    include_str!("tree.js"),
    include_str!("calls.js"),
    include_str!("roofline.js"),
    include_str!("curve.js"),
    include_str!("time.js"),
    include_str!("code.js"),
    include_str!("main.js"),
];

/// Names with more characters than this are shortened where they stand in a line.
const NAME: usize = 80;

/// The shortened forms of a profile's long strings, by their numbers.
fn short_names(profile: &Profile) -> serde_json::Value {
    let full: Vec<&str> = profile.strings.iter().map(String::as_str).collect();
    let short = tables::shorten_all(&full, NAME);
    let changed = short.into_iter().zip(&full).enumerate();
    changed
        .filter(|(_, (short, full))| short != *full)
        .map(|(number, (short, _))| (number.to_string(), short.into_owned().into()))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// What a roofline picture needs besides the profile.
#[derive(Args, Serialize)]
pub struct Roofs {
    /// With --html: run time of the original program in seconds, for the roofline picture of `mix` [default: the time of the run]
    #[arg(long, value_name = "S", requires = "html", value_parser = quantity)]
    pub seconds: Option<f64>,
    /// With --html: floating-point operations that the machine does in a second at most, such as 100G
    #[arg(long, value_name = "N", requires = "html", value_parser = quantity)]
    pub peak_flops: Option<f64>,
    /// With --html: bytes that the machine moves in a second at most, such as 20G
    #[arg(long, value_name = "N", requires = "html", value_parser = quantity)]
    pub bandwidth: Option<f64>,
}

/// Reads a positive number, which may end in k, M, G, T or P: powers of 1,000.
fn quantity(text: &str) -> std::result::Result<f64, String> {
    let scale = match text.chars().last() {
        Some('k' | 'K') => 1e3,
        Some('M') => 1e6,
        Some('G') => 1e9,
        Some('T') => 1e12,
        Some('P') => 1e15,
        _ => 1.0,
    };
    let digits = match scale {
        1.0 => text,
        _ => &text[..text.len() - 1],
    };
    match digits.trim_end().parse::<f64>() {
        Ok(number) if number > 0.0 && number.is_finite() => Ok(number * scale),
        _ => Err("a number above 0 is needed, such as 1.5 or 100G".into()),
    }
}

/// Writes the page of a profile. Source files are also looked for in the folders `sources`. Returns a message for each
/// object whose code could not be shown.
///
/// # Errors
/// The file cannot be written.
pub fn write(
    out: &Path,
    profile: &Profile,
    sources: &[PathBuf],
    roofs: &Roofs,
) -> Result<Vec<String>> {
    let counts = annotate::counts_of(profile);
    let code = code::Embedded::new(profile, &counts, sources);
    let mut shown = profile.clone();
    shown.tables.retain(|table| {
        table.readers == Readers::All || ![By::Block, By::Instruction].contains(&table.by)
    });
    let program = profile.program.path.rsplit('/').next().unwrap_or_default();
    let title = format!("{} of {program}", profile.tool);
    let highlight = page::highlight();
    let mut scripts = vec![D3_HIERARCHY, &highlight, GRID, FLAME];
    scripts.extend(SCRIPTS);
    let page = Page {
        title: &title,
        styles: &[STYLE],
        body: BODY,
        data: &[
            ("profile", shown.to_json()),
            ("code", code.json().to_string()),
            ("short", short_names(profile).to_string()),
            ("roofs", serde_json::json!(roofs).to_string()),
        ],
        scripts: &scripts,
    };
    PendingFile::write(out, |to: &mut dyn Sink| page.write(&mut AsWrite(to)), 0o644)?.commit()?;
    Ok(code.problems)
}

#[cfg(test)]
mod tests {
    use super::quantity;

    #[test]
    fn quantities_have_prefixes() {
        assert_eq!(quantity("1.5"), Ok(1.5));
        assert_eq!(quantity("100G"), Ok(1e11));
        assert_eq!(quantity("2.5 k"), Ok(2500.0));
        assert_eq!(quantity("1e3M"), Ok(1e9));
        for wrong in ["", "G", "-1", "0", "1GG", "inf", "nan", "1X"] {
            assert!(quantity(wrong).is_err(), "{wrong}");
        }
    }
}

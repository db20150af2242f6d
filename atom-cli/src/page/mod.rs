//! The page of a profile: one HTML file that needs no network.
//!
//! The page's scripts read the profile itself, in the form of docs/profile-format.md. Tables of instructions and blocks that
//! are for programs only stay outside: their counts stand beside the code of the hottest procedures, which is read from
//! the objects' files when the page is made.

mod code;

use std::path::{Path, PathBuf};

use atom_core::Result;
use atom_core::emit::Sink;
use page::{D3_HIERARCHY, FLAME, GRID, Page};
use profile::{By, Profile, Readers};

use crate::annotate;
use crate::output::{AsWrite, PendingFile};

const BODY: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPTS: [&str; 6] = [
    include_str!("model.js"),
    include_str!("overview.js"),
    include_str!("tree.js"),
    include_str!("calls.js"),
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

/// Writes the page of a profile. Source files are also looked for in the folders `sources`. Returns a message for each
/// object whose code could not be shown.
///
/// # Errors
/// The file cannot be written.
pub fn write(out: &Path, profile: &Profile, sources: &[PathBuf]) -> Result<Vec<String>> {
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
        ],
        scripts: &scripts,
    };
    PendingFile::write(out, |to: &mut dyn Sink| page.write(&mut AsWrite(to)), 0o644)?.commit()?;
    Ok(code.problems)
}

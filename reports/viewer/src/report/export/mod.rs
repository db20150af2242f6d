//! Files of other programs.

mod callgrind;
mod covered;
mod fdata;
mod pprof;
mod stacks;
mod tree;

use std::collections::BTreeMap;
use std::io::{self, Write};

use atom_core::{Error, Result};
use clap::ValueEnum;
use profile::Profile;

use super::spots::{self, Spot, Spots, Unit};
pub use stacks::CALL_PATHS;

/// Bytes of a file, and what could not be found out.
type Made = Result<(Vec<u8>, Vec<String>)>;

/// The forms that other programs read.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
pub enum Format {
    /// callgrind_annotate, KCachegrind: lines and calls.
    Callgrind,
    /// cg_annotate: lines.
    Cachegrind,
    /// Folded stacks, for flame graph programs.
    Folded,
    /// speedscope.app.
    Speedscope,
    /// genhtml: executed lines.
    Lcov,
    /// `go tool pprof`: instructions, lines and calls.
    Pprof,
    /// Perfetto, chrome://tracing: the call graph as a time line.
    Chrome,
    /// llvm-bolt: edges of the control flow, from `branch --edges`.
    Fdata,
    /// Cobertura's XML: executed lines.
    Cobertura,
    /// Disassemblers: executed blocks (drcov, version 2).
    Drcov,
}

/// The contents of the file, and what could not be found out. `object` is the name of the object that the file is
/// about, in formats for one object.
pub fn bytes(profile: &Profile, format: Format, object: Option<&str>) -> Made {
    match format {
        Format::Callgrind => callgrind::callgrind(profile),
        Format::Cachegrind => callgrind::cachegrind(profile),
        Format::Pprof => pprof::pprof(profile),
        Format::Fdata => fdata::fdata(profile, object),
        Format::Chrome => stacks::chrome(profile),
        Format::Lcov | Format::Cobertura if !covered::has_lines(profile) => {
            callgrind::lines_reached(profile, format)
        }
        Format::Lcov | Format::Cobertura => covered::files(profile, format),
        Format::Drcov => covered::drcov(profile),
        Format::Folded => stacks::folded(profile),
        Format::Speedscope => stacks::speedscope(profile),
    }
}

/// The bytes that a writer of a format makes.
fn written(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Vec<u8> {
    let mut bytes = Vec::new();
    // Writing to memory does not fail.
    let _ = write(&mut bytes);
    bytes
}

/// The measures by source line, for formats whose costs stand at lines.
fn lines(profile: &Profile) -> Result<Spots> {
    let spots = spots::spots(profile, Unit::Line, None)?;
    let integers = |spot: &Spot| spot.values.iter().all(|v| v.integer().is_some());
    if spots.all.iter().all(integers) {
        Ok(spots)
    } else {
        Err(Error::new(
            "exporting",
            "the format has room for counts only, and the profile has others",
        ))
    }
}

/// Values by line of a procedure in a file.
type Costs = BTreeMap<u64, Vec<u64>>;

/// The costs of lines by object, file and procedure.
fn costs(spots: &Spots) -> BTreeMap<(usize, &str, &str), Costs> {
    let mut all: BTreeMap<(usize, &str, &str), Costs> = BTreeMap::new();
    for spot in &spots.all {
        let key = (spot.object, &*spot.file, &*spot.procedure);
        let line = all.entry(key).or_default().entry(spot.line);
        let sums = line.or_insert_with(|| vec![0; spot.values.len()]);
        for (sum, value) in sums.iter_mut().zip(&spot.values) {
            *sum = sum.saturating_add(value.integer().unwrap_or(0));
        }
    }
    all
}

/// A name of one word, for formats with spaces between their fields.
fn word(text: &str) -> String {
    text.replace(|c: char| !c.is_ascii_alphanumeric(), "_")
}

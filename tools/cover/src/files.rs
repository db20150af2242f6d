//! The files that other programs read, and the objects of the process that they name.
//!
//! The argument is one array of bytes, as strings: the names of the three files (empty for none), then for each object
//! its path, the start and the end of its addresses.

use std::io::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use atom_tool::prelude::*;
use atom_tool::{Options, output};
use coverage::{Coverage, Module};

/// The options, in the order of the strings.
const OPTIONS: [&str; 3] = ["--lcov", "--drcov", "--cobertura"];

/// Instrument side: the files and objects.
pub type ExportFiles = StringList;

/// Analysis side: the files and objects.
pub type Exports = Strings;

/// Reads the options.
pub fn from_options(program: &Program, options: &Options<'_>) -> Result<ExportFiles> {
    let mut list = StringList::new();
    for option in OPTIONS {
        list.push(options.value(option)?.unwrap_or_default());
    }
    for object in program.objects() {
        let range = object.range();
        let path = std::path::absolute(object.path());
        let path = path.as_deref().map(|path| path.to_string_lossy());
        list.push(path.as_deref().unwrap_or(object.path()));
        list.push(&range.start.to_string());
        list.push(&range.end.to_string());
    }
    Ok(list)
}

/// True if some file is wanted.
pub fn is_wanted(exports: Exports) -> bool {
    exports
        .iter()
        .take(OPTIONS.len())
        .any(|name| !name.is_empty())
}

/// The objects, at the addresses at which they were loaded.
pub fn modules(exports: Exports) -> Vec<Module> {
    let mut strings = exports.iter().skip(OPTIONS.len());
    let mut modules = Vec::new();
    while let (Some(path), Some(start), Some(end)) =
        (strings.next(), strings.next(), strings.next())
    {
        let [start, end] = [start, end].map(|text| text.parse().unwrap_or(0));
        let at = Address(start);
        let base = at.at_run_time().unwrap_or(at.in_file());
        modules.push(Module {
            path: path.to_owned(),
            base,
            end: base + (end - start),
        });
    }
    modules
}

/// Address of the first byte of an object, by its number.
pub fn starts(exports: Exports) -> Vec<u64> {
    let strings = exports.iter().skip(OPTIONS.len() + 1).step_by(3);
    strings.map(|text| text.parse().unwrap_or(0)).collect()
}

/// Writes the files; errors go to standard error.
pub fn write(exports: Exports, coverage: &Coverage) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |time| time.as_millis() as u64).to_string();
    type Write1<'a> = &'a dyn Fn(&mut dyn Write) -> io::Result<()>;
    let writers: [Write1<'_>; 3] = [
        &|to| coverage.write_lcov(to),
        &|to| coverage.write_drcov(to),
        &|to| coverage.write_cobertura(to, &now),
    ];
    for (name, write) in exports.iter().zip(writers) {
        output::write_file("cover", name, write);
    }
}

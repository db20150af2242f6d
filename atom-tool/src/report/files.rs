//! The files that a report is written to, by options that all shipped tools share.
//!
//! The argument is one array of bytes: the number of rows (u64), the width (u64) and whether options of the run count (u64),
//! then strings as in a [`StringList`]: the name of the file for people, the name of the JSON file, the name of the profile,
//! `beside` if the profile is beside another file and has its name from there, and the strings of `origin`.
//!
//! `atom run` does not instrument again because a report gets another name. It leaves these options out of the tool's, and a
//! process reads them when it starts ([`atom_abi::report`]).

use std::io::{self, Write};
use std::path::Path;
use std::sync::OnceLock;

use atom_abi::host::{self, ArgKind};
use tables::Width;

use super::nameless;
use super::profile::origin::{self, Origin};
use super::{Report, json, profile, text};
use crate::Result;
use crate::calls::params::{Array, Param, code};
use crate::calls::proto::{NamedArg, PlacedType};
use crate::calls::typed::{Arg, array};
use crate::data::strings::{self, StringList};
use crate::options::{Args, Options};
use crate::report::output;

/// Number of rows of each table in the report for people of a tool that does not declare its options.
const ROWS: u64 = 100;

/// Numbers that stand for widths: full names, and the width of the file or terminal that the report is written to.
const FULL: u64 = 0;
const OF_FILE: u64 = u64::MAX;

/// Size in bytes of the numbers in front of the strings.
const NUMBERS: usize = 3 * size_of::<u64>();

/// What options say of a report; `None` for what they do not say.
#[derive(Default)]
struct Wanted<'a> {
    output: Option<&'a str>,
    json: Option<&'a str>,
    profile: Option<&'a str>,
    has_no_profile: bool,
    rows: Option<u64>,
    width: Option<u64>,
}

impl<'a> Wanted<'a> {
    fn read(options: &Options<'a>) -> Result<Self> {
        // Messages name the options in this order.
        let json = options.value("--json")?;
        let output = options.given("--output")?;
        let rows = options.given_number("--top")?;
        let width = options.given_size("--width")?;
        let is_full = options.flag("--full-names");
        Ok(Self {
            output,
            json,
            profile: options.given("--profile")?,
            has_no_profile: options.flag("--no-profile"),
            rows,
            width: if is_full { Some(FULL) } else { width },
        })
    }

    /// The names of the report for people, which is `default` if there is no JSON file, of the JSON file, of the profile, and
    /// of the file beside which the profile is.
    fn files(&self, default: &'a str) -> ([&'a str; 2], String, &'a str) {
        let json = self.json.unwrap_or("");
        let output = self
            .output
            .unwrap_or(if json.is_empty() { default } else { "" });
        let reports = [output, json];
        let (profile, beside) = profile_of(reports, self.profile, self.has_no_profile);
        (reports, profile, beside)
    }
}

/// The words of the run, which stay for the life of the process.
static OF_RUN: OnceLock<Vec<&'static str>> = OnceLock::new();

/// At the start of the process: reads the words of the run.
pub(crate) fn begin() {
    if let Some(text) = output::read_beside(atom_abi::report::SUFFIX) {
        let words = text.leak().split_terminator('\0').collect();
        // A second start does not happen.
        let _ = OF_RUN.set(words);
    }
}

/// Instrument side: the files of a report. Pass it to a parameter [`Files`].
#[derive(Clone, Debug)]
pub struct ReportFiles {
    bytes: Vec<u8>,
}

impl ReportFiles {
    /// Reads the options `--output FILE`, `--json FILE`, `--profile FILE`, `--no-profile`, `--top N`, `--width N`
    /// and `--full-names`, which `report = FILE` of [`tool!`](crate::tool) declares.
    ///
    /// `-` is standard output, which is kept open for the report ([`output::keep_stdout`]). With
    /// `--json` alone no file for people is written. The profile is beside the file for people, or else
    /// beside the JSON file: `icount.profile` beside `icount.out`.
    pub fn from_options(options: &Options<'_>) -> Result<Self> {
        let default = options.default("--output").unwrap_or("report.out");
        Self::wanted(options, default, true)
    }

    /// As [`ReportFiles::from_options`], with a name that the tool's help does not declare.
    #[doc(hidden)]
    pub fn with_default(options: &Options<'_>, default: &str) -> Result<Self> {
        Self::wanted(options, default, false)
    }

    /// `may_change` if options of the run count, too.
    fn wanted(options: &Options<'_>, default: &str, may_change: bool) -> Result<Self> {
        let wanted = Wanted::read(options)?;
        let ([output, json], profile, beside) = wanted.files(default);
        let numbers = [
            wanted.rows.unwrap_or(ROWS),
            wanted.width.unwrap_or(OF_FILE),
            may_change.into(),
        ];
        Self::new(options, [output, json, &profile, beside], numbers)
    }

    /// Reads the options for the profile, for a tool whose report is a file in a format of its own: `report`.
    /// [`Report::write`](super::Report::write) then writes the profile alone, which is beside that file.
    /// The option `name` (`--profile` in most tools) gives it another name, `--no-profile` leaves it out.
    pub fn beside(options: &Options<'_>, report: &str, name: &str) -> Result<Self> {
        let given = options.given(name)?;
        let has_none = options.flag("--no-profile");
        let (profile, beside) = profile_of([report, ""], given, has_none);
        Self::new(options, ["", "", &profile, beside], [0; 3])
    }

    /// `files` are the report for people, the JSON file, the profile, and the file beside which the profile is, if it
    /// has its name from that.
    fn new(options: &Options<'_>, files: [&str; 4], numbers: [u64; 3]) -> Result<Self> {
        let [output, json, profile, beside] = files;
        if [output, json, profile].contains(&"-")
            && let Some(program) = options.program()
        {
            output::keep_stdout(&program);
        }
        let mut names = StringList::new();
        names.push(output);
        names.push(json);
        names.push(profile);
        names.push(beside);
        names.push(&nameless::line(options.program()));
        origin::push(&mut names, options.all(), options.program());
        let bytes = [numbers.map(u64::to_le_bytes).as_flattened(), names.bytes()].concat();
        Ok(Self { bytes })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Arg<Files> for &ReportFiles {
    fn to_host(&self) -> host::Arg {
        array(ArgKind::Array, &self.bytes)
    }
}

impl<'a> From<&'a ReportFiles> for NamedArg<'a> {
    fn from(files: &'a ReportFiles) -> Self {
        Self::Encoded(PlacedType::Files, files.bytes())
    }
}

/// The name of the profile, which may be given or not be wanted, and the report beside which it is, if it has its name from
/// that.
fn profile_of<'a>(reports: [&'a str; 2], given: Option<&str>, has_none: bool) -> (String, &'a str) {
    let report = reports.into_iter().find(|name| !name.is_empty());
    match given {
        _ if has_none => (String::new(), ""),
        Some(name) => (name.to_owned(), ""),
        None => (beside(reports), report.unwrap_or("")),
    }
}

/// The name of the profile beside the first of the reports that is a file: the extension of a report is
/// replaced. Empty if there is none.
fn beside(reports: [&str; 2]) -> String {
    const EXTENSIONS: [&str; 8] = [
        ".out", ".txt", ".json", ".csv", ".tsv", ".html", ".arp", ".dat",
    ];
    let Some(name) = reports.into_iter().find(|name| !name.is_empty()) else {
        return String::new();
    };
    if name == "-" {
        return String::new();
    }
    let stem = EXTENSIONS.iter().find_map(|e| name.strip_suffix(e));
    let stem = stem.filter(|stem| !stem.is_empty() && !stem.ends_with('/'));
    format!("{}.profile", stem.unwrap_or(name))
}

/// Analysis side: the files of a report.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Files(Array<u8>);

/// The contents of a [`Files`]. An empty name stands for no file.
#[derive(Clone, Copy)]
struct Names {
    /// The file for people.
    people: &'static str,
    /// The JSON file.
    programs: &'static str,
    /// The profile.
    profile: &'static str,
    /// The file from which the profile has its name.
    beside: &'static str,
    /// The line about procedures without a name; empty if all have names.
    nameless: &'static str,
    /// Where the strings of `origin` begin.
    origin: usize,
    /// How much is shown to people: rows of each table, and a number for the width.
    rows: usize,
    width: u64,
}

impl Names {
    /// As words of the run have it.
    fn changed(self, words: &'static [&'static str]) -> Self {
        // `atom run` has left out words that cannot be read.
        let wanted = Wanted::read(&Args::new(words, "", None).options()).unwrap_or_default();
        let ([people, programs], profile, beside) = wanted.files(self.people);
        Self {
            people,
            programs,
            profile: profile.leak(),
            beside,
            rows: wanted.rows.map_or(self.rows, |rows| rows as usize),
            width: wanted.width.unwrap_or(self.width),
            ..self
        }
    }
}

// SAFETY: transparent over an array, which is one pointer.
unsafe impl Param for Files {
    const CODE: u8 = code::OTHER;
}

impl Files {
    fn names(self) -> Names {
        /// What is written in this run, where the run has words of its own.
        static OF_THIS_RUN: OnceLock<Names> = OnceLock::new();
        let bytes = self.0.as_slice();
        let (numbers, names) = bytes.split_at_checked(NUMBERS).unwrap_or((&[], &[]));
        let mut numbers = numbers
            .as_chunks()
            .0
            .iter()
            .map(|number| u64::from_le_bytes(*number));
        let [rows, width, may_change] = std::array::from_fn(|_| numbers.next().unwrap_or(0));
        let (people, next) = strings::read(names, 0).unwrap_or_default();
        let (programs, next) = strings::read(names, next).unwrap_or_default();
        let (profile, next) = strings::read(names, next).unwrap_or_default();
        let (beside, next) = strings::read(names, next).unwrap_or_default();
        let (nameless, origin) = strings::read(names, next).unwrap_or_default();
        let names = Names {
            people,
            programs,
            profile,
            beside,
            nameless,
            origin,
            rows: rows as usize,
            width,
        };
        match OF_RUN.get().filter(|_| may_change != 0) {
            Some(words) => *OF_THIS_RUN.get_or_init(|| names.changed(words)),
            None => names,
        }
    }

    /// True if a profile is written. A tool need not make what only the profile has if there is none.
    pub fn has_profile(self) -> bool {
        !self.names().profile.is_empty()
    }

    /// True if there is a JSON file, which has all rows of all tables.
    pub fn has_json(self) -> bool {
        !self.names().programs.is_empty()
    }

    /// Number of rows of each table in the report for people; 0 for all.
    pub fn rows(self) -> usize {
        self.names().rows
    }

    /// Calls `write` to write the file for people, in a format of the tool's own.
    pub fn write_with(
        self,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<()> {
        to_file(self.names().people, write)
    }

    /// Tells that the profile, if there is one, has all that the file for people says.
    pub(super) fn tell_summed(self) {
        let people = self.names().people;
        if !["", "-"].contains(&people) {
            output::summed(people);
        }
    }

    /// The line about procedures without a name; empty if all have names.
    pub(super) fn nameless(self) -> &'static str {
        self.names().nameless
    }

    /// Number of rows and width of the tables for people.
    pub(super) fn extent(self) -> text::Extent {
        let names = self.names();
        let width = match names.width {
            FULL => Width::Full,
            OF_FILE => output::terminal(names.people).map_or(Width::File, Width::Columns),
            columns => Width::Columns(columns as usize),
        };
        text::Extent {
            rows: names.rows,
            width,
        }
    }

    /// Writes the files; `write` writes the one for people.
    pub(super) fn write(
        self,
        report: &Report,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<()> {
        let names = self.names();
        to_file(names.programs, |to| json::write(to, report))?;
        to_file(names.people, write)?;
        let is_shared = !names.beside.is_empty() && output::is_shared(Path::new(names.beside));
        if names.profile.is_empty() || is_shared {
            return Ok(());
        }
        let bytes = self.0.as_slice().get(NUMBERS..).unwrap_or_default();
        let mut origin = Origin::read(bytes, names.origin);
        origin.options.extend(OF_RUN.get().into_iter().flatten());
        profile::write(names.profile, report, &origin)
    }
}

fn to_file(name: &str, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    match name {
        "" => Ok(()),
        "-" => {
            let mut to = io::BufWriter::new(output::stdout());
            write(&mut to).and_then(|()| to.flush())
        }
        name => output::fill(name, write),
    }
}

#[cfg(test)]
mod tests {
    use super::beside;

    #[test]
    fn a_profile_stands_beside_its_report() {
        let name = |people, programs| beside([people, programs]);
        assert_eq!(name("icount.out", ""), "icount.profile");
        assert_eq!(name("", "/tmp/x.json"), "/tmp/x.profile");
        assert_eq!(name("a/result.5", "x.json"), "a/result.5.profile");
        assert_eq!(name("b.%p.out", ""), "b.%p.profile");
        assert_eq!(name("a/.out", ""), "a/.out.profile");
        assert_eq!(name("data.arp", ""), "data.profile");
        assert_eq!(name("-", "x.json"), "");
        assert_eq!(name("", ""), "");
    }
}

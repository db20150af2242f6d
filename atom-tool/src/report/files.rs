//! The files that a report is written to, by options that all shipped tools share.
//!
//! The argument is one array of bytes: the number of rows (u64) and the width (u64), then two strings as in
//! a [`StringList`], the name of the file for people and the name of the file for programs.

use std::io::{self, Write};

use atom_abi::host::{self, ArgKind};

use super::{Report, json, text};
use crate::Result;
use crate::call::{Arg, array};
use crate::options::Options;
use crate::output;
use crate::params::{Array, Param, code};
use crate::strings::{self, StringList};

/// Number of rows of each table in the report for people, unless the user says otherwise.
const ROWS: u64 = 100;

/// Columns of the terminal that a row takes in the report for people, unless the user says otherwise. The
/// program's terminal, if there is one, need not be where the report is read.
const WIDTH: u64 = 120;

/// Instrument side: the files of a report. Pass it to a parameter [`Files`].
#[derive(Clone, Debug)]
pub struct ReportFiles {
    bytes: Vec<u8>,
}

impl ReportFiles {
    /// Reads the options `--output FILE`, `--json FILE`, `--top N`, `--width N` and `--full-names`.
    ///
    /// `-` is standard output, which is kept open for the report ([`output::keep_stdout`]). With
    /// `--json` alone no file for people is written.
    pub fn from_options(options: &Options<'_>, default: &str) -> Result<Self> {
        let json = options.value("--json")?.unwrap_or("");
        let output = options.value("--output")?;
        let output = output.unwrap_or(if json.is_empty() { default } else { "" });
        let rows = options.value("--top")?.map_or(Ok(ROWS), |top| {
            top.parse()
                .map_err(|_| format!("the option --top takes a number, not `{top}`"))
        })?;
        let width = options.size("--width", WIDTH)?;
        let width = if options.flag("--full-names") {
            0
        } else {
            width
        };
        if [output, json].contains(&"-")
            && let Some(program) = options.program()
        {
            output::keep_stdout(&program);
        }
        let mut names = StringList::new();
        names.push(output);
        names.push(json);
        let bytes = [rows.to_le_bytes(), width.to_le_bytes()].concat();
        let bytes = [&bytes, names.bytes()].concat();
        Ok(Self { bytes })
    }
}

impl Arg<Files> for &ReportFiles {
    fn to_host(&self) -> host::Arg {
        array(ArgKind::Array, &self.bytes)
    }
}

/// Analysis side: the files of a report.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Files(Array<u8>);

/// The contents of a [`Files`]. An empty name stands for no file.
struct Names {
    /// The file for people.
    people: &'static str,
    /// The file for programs.
    programs: &'static str,
    /// How much is shown to people.
    extent: text::Extent,
}

// SAFETY: transparent over an array, which is one pointer.
unsafe impl Param for Files {
    const CODE: u8 = code::OTHER;
}

impl Files {
    fn names(self) -> Names {
        let bytes = self.0.as_slice();
        let (rows, bytes) = bytes.split_first_chunk().unwrap_or((&[0; 8], &[]));
        let (width, names) = bytes.split_first_chunk().unwrap_or((&[0; 8], &[]));
        let (people, next) = strings::read(names, 0).unwrap_or_default();
        let (programs, _) = strings::read(names, next).unwrap_or_default();
        Names {
            people,
            programs,
            extent: text::Extent {
                rows: u64::from_le_bytes(*rows) as usize,
                width: u64::from_le_bytes(*width) as usize,
            },
        }
    }

    /// Calls `write` to write the file for people, in a format of the tool's own.
    pub fn write_with(
        self,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<()> {
        to_file(self.names().people, write)
    }

    pub(super) fn write(self, report: &Report) -> io::Result<()> {
        let names = self.names();
        to_file(names.programs, |to| json::write(to, report))?;
        to_file(names.people, |to| text::write(to, report, names.extent))
    }
}

fn to_file(name: &str, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    match name {
        "" => Ok(()),
        "-" => {
            let mut to = io::BufWriter::new(output::stdout());
            write(&mut to).and_then(|()| to.flush())
        }
        name => {
            let mut file = output::create(name)?;
            let result = write(&mut file).and_then(|()| file.flush());
            result.map_err(|e| {
                let path = output::path(name);
                io::Error::new(e.kind(), format!("{}: {e}", path.display()))
            })
        }
    }
}

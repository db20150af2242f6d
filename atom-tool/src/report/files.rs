//! The files that a report is written to, by options that all shipped tools share.
//!
//! As an argument it is a list of strings: the file for people, the file for programs and the
//! number of rows.

use std::io::{self, Write};

use atom_abi::host;

use super::{Report, json, text};
use crate::Result;
use crate::call::Arg;
use crate::options::Options;
use crate::output;
use crate::params::{Param, code};
use crate::strings::{StringList, Strings};

/// Number of rows of each table in the report for people, unless the user says otherwise.
const TOP: &str = "100";

/// Instrument side: the files of a report. Pass it to a parameter [`Files`].
#[derive(Clone, Debug)]
pub struct ReportFiles {
    /// The file for people, the file for programs, the number of rows.
    parts: StringList,
}

impl ReportFiles {
    /// Reads the options `--output FILE`, `--json FILE` and `--top N`.
    ///
    /// `-` is standard output, which is kept open for the report ([`output::keep_stdout`]). With
    /// `--json` alone no file for people is written.
    pub fn from_options(options: &Options<'_>, default: &str) -> Result<Self> {
        let json = options.value("--json")?.unwrap_or("");
        let output = options.value("--output")?;
        let output = output.unwrap_or(if json.is_empty() { default } else { "" });
        let top = options.value("--top")?.unwrap_or(TOP);
        if top.parse::<usize>().is_err() {
            return Err(format!("the option --top takes a number, not `{top}`").into());
        }
        if [output, json].contains(&"-")
            && let Some(program) = options.program()
        {
            output::keep_stdout(&program);
        }
        let mut parts = StringList::new();
        for part in [output, json, top] {
            parts.push(part);
        }
        Ok(Self { parts })
    }
}

impl Arg<Files> for &ReportFiles {
    fn to_host(&self) -> host::Arg {
        Arg::<Strings>::to_host(&&self.parts)
    }
}

/// Analysis side: the files of a report.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Files(Strings);

// SAFETY: transparent over a list of strings, which is one pointer.
unsafe impl Param for Files {
    const CODE: u8 = code::OTHER;
}

impl Files {
    /// The file for people, the file for programs, rows to show; empty names stand for none.
    fn parts(self) -> (&'static str, &'static str, usize) {
        let mut parts = self.0.iter();
        let mut next = || parts.next().unwrap_or("");
        let (output, json, top) = (next(), next(), next());
        (output, json, top.parse().unwrap_or(0))
    }

    /// Has `write` write the file for people, in a format of the tool's own.
    pub fn write_with(
        self,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<()> {
        let (output, _, _) = self.parts();
        to_file(output, write)
    }

    pub(super) fn write(self, report: &Report) -> io::Result<()> {
        let (output, json, top) = self.parts();
        to_file(json, |to| json::write(to, report))?;
        to_file(output, |to| text::write(to, report, top))
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

//! `analyze.indat`: a description of the wanted reports.
//!
//! Records are separated by blank lines. The first line of a record names the file
//! of timing data, the second is the report's heading, and each further one has a procedure's
//! number, its name, and 1 if the report is to include it, else 0. A name may
//! contain blanks, as names of C++ do.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::{Error, Location, Result};

/// A procedure that a report lists.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    /// Its number in the timing data.
    pub number: u32,
    /// Its name.
    pub name: String,
    /// True if the report has figures of it.
    pub is_included: bool,
}

/// A wanted report.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// File of timing data.
    pub data: PathBuf,
    /// The heading.
    pub heading: String,
    /// The procedures in the order of the description.
    pub procs: Vec<Listed>,
    /// Line of the description where this report starts, counted from 1.
    pub line: u64,
}

/// Reads a description. Relative names in it count from the folder in which it is.
///
/// # Errors
/// Names the line that is wrong.
pub fn read(file: &Path) -> Result<Vec<Wanted>> {
    let bytes = std::fs::read(file).map_err(|e| Error::new(file, e.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|e| {
        let line = 1 + e.as_bytes()[..e.utf8_error().valid_up_to()]
            .iter()
            .filter(|b| **b == b'\n')
            .count();
        Error::new(file, "this is not text").at(Location::Line(line as u64))
    })?;
    parse(&text, file)
}

/// Reads the text of a description; `file` is its name in errors.
///
/// # Errors
/// Names the line that is wrong.
pub fn parse(text: &str, file: &Path) -> Result<Vec<Wanted>> {
    let fail = |line: u64, reason: String| Error::new(file, reason).at(Location::Line(line));
    let folder = file.parent().unwrap_or(Path::new(""));
    let mut reports: Vec<Wanted> = Vec::new();
    let mut lines = (1..).zip(text.lines()).peekable();
    while let Some((line, first)) = lines.next() {
        let data = first.trim();
        if data.is_empty() {
            continue;
        }
        let heading = match lines.next() {
            Some((_, heading)) if !heading.trim().is_empty() => heading.trim().to_owned(),
            _ => {
                let reason = "a heading is missing after the name of the timing data";
                return Err(fail(line + 1, reason.into()));
            }
        };
        let mut procs = Vec::new();
        let mut seen = BTreeMap::new();
        while let Some((line, text)) = lines.next_if(|(_, text)| !text.trim().is_empty()) {
            let listed = procedure(text).map_err(|reason| fail(line, reason))?;
            if let Some(before) = seen.insert(listed.number, line) {
                let reason = format!(
                    "procedure {} stands in line {before} already",
                    listed.number
                );
                return Err(fail(line, reason));
            }
            procs.push(listed);
        }
        if procs.is_empty() {
            let reason = "a procedure is missing: its number, its name, and 1 or 0";
            return Err(fail(line + 2, reason.into()));
        }
        reports.push(Wanted {
            data: folder.join(data),
            heading,
            procs,
            line,
        });
    }
    if reports.is_empty() {
        let reason = "no report is described: the name of a file of timing data is missing";
        return Err(fail(1, reason.into()));
    }
    Ok(reports)
}

/// Reads the line of a procedure.
fn procedure(text: &str) -> Result<Listed, String> {
    let text = text.trim();
    let wants = "a number, a name, and 1 or 0 are wanted";
    let (number, rest) = text.split_once(char::is_whitespace).ok_or(wants)?;
    let number = number
        .parse()
        .map_err(|_| format!("`{number}` is not a procedure's number; {wants}"))?;
    let (name, flag) = rest.trim().rsplit_once(char::is_whitespace).ok_or(wants)?;
    let is_included = match flag {
        "1" => true,
        "0" => false,
        other => return Err(format!("`{other}` is neither 1 nor 0; {wants}")),
    };
    Ok(Listed {
        number,
        name: name.trim().to_owned(),
        is_included,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str =
        "\ntiming.dat\nAll of them.\n0 Main 1\n1 A(int, char*) 1\n\n\n/x/t.dat\r\nOne\r\n7 B 0\r\n";

    #[test]
    fn records_are_separated_by_blank_lines() {
        let reports = parse(TWO, Path::new("folder/analyze.indat")).unwrap();
        assert_eq!(reports.len(), 2);
        assert_eq!(reports[0].data, Path::new("folder/timing.dat"));
        assert_eq!(reports[0].heading, "All of them.");
        let name = "A(int, char*)".to_owned();
        let want = Listed {
            number: 1,
            name,
            is_included: true,
        };
        assert_eq!(reports[0].procs[1], want);
        assert_eq!(reports[1].data, Path::new("/x/t.dat"));
        assert_eq!((reports[1].heading.as_str(), reports[1].line), ("One", 8));
        assert!(!reports[1].procs[0].is_included);
    }

    #[test]
    fn mistakes_are_told_with_their_line() {
        for (text, want) in [
            ("", "line 1: no report"),
            ("t.dat\n", "line 2: a heading is missing"),
            ("t.dat\n\n0 Main 1\n", "line 2: a heading is missing"),
            ("t.dat\nH\n", "line 3: a procedure is missing"),
            (
                "t.dat\nH\nMain 0 1\n",
                "line 3: `Main` is not a procedure's number",
            ),
            ("t.dat\nH\n0 Main 1\n1 A\n", "line 4: a number, a name"),
            ("t.dat\nH\n0 Main 1\n1 A yes\n", "line 4: `yes` is neither"),
            (
                "t.dat\nH\n0 Main 1\n0 A 1\n",
                "line 4: procedure 0 stands in line 3",
            ),
            ("t.dat\nH\n-1 Main 1\n", "line 3: `-1`"),
        ] {
            let error = parse(text, Path::new("a.indat")).unwrap_err().to_string();
            assert!(error.contains(want), "{error} instead of {want}");
        }
    }
}

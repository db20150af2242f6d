//! Reading the table of programs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::programs::in_path;

/// One program and its work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Name in the table.
    pub name: String,
    /// The Debian package that has it.
    pub package: String,
    /// File, or name to look up in PATH; the name of the entry if the table has neither.
    pub program: String,
    /// Whether it belongs to the quick part.
    pub quick: bool,
    /// Names of the rewrites that the quick part makes of it; all of the usual ones if there is none.
    pub quick_jobs: Vec<String>,
    /// Environment of the run.
    pub env: Vec<(String, String)>,
    /// Shell commands.
    pub script: String,
    /// Time that the original has.
    pub limit: Duration,
    /// Whether the original runs at its place, where it may look for files beside it; else a copy of it runs. The
    /// commands have the program's path in the variable `PROGRAM`.
    pub is_in_place: bool,
}

/// Time that the original has, usually.
const LIMIT: Duration = Duration::from_secs(120);

/// Reads the table of the crate.
pub fn read() -> Result<Vec<Entry>> {
    parse(include_str!("../../programs.txt"))
}

/// Reads a table of the same form from a file.
pub fn read_from(file: &Path) -> Result<Vec<Entry>> {
    let text = std::fs::read_to_string(file)
        .map_err(|e| Error::new("reading the corpus table", e).file(file))?;
    parse(&text)
}

fn parse(text: &str) -> Result<Vec<Entry>> {
    let mut entries: Vec<Entry> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let fail = |what: &str| {
            Error::new(
                "reading the corpus table",
                format!("line {}: {what}", number + 1),
            )
        };
        if let Some(head) = line.strip_prefix('[') {
            let (name, words) = head.split_once(']').ok_or_else(|| fail("no ]"))?;
            let mut entry = Entry {
                name: name.to_string(),
                package: String::new(),
                program: name.to_string(),
                quick: false,
                quick_jobs: Vec::new(),
                env: Vec::new(),
                script: String::new(),
                limit: LIMIT,
                is_in_place: false,
            };
            for word in words.split_whitespace() {
                match word.split_once('=') {
                    None if word == "quick" => entry.quick = true,
                    Some(("quick", jobs)) => {
                        entry.quick = true;
                        entry.quick_jobs = jobs.split(',').map(str::to_string).collect();
                    }
                    Some(("package", value)) => entry.package = value.to_string(),
                    Some(("program", value)) => entry.program = value.to_string(),
                    Some(("env", value)) => {
                        let (name, value) = value
                            .split_once('=')
                            .ok_or_else(|| fail("env needs NAME=VALUE"))?;
                        entry.env.push((name.to_string(), value.to_string()));
                    }
                    _ => return Err(fail(&format!("unknown word \"{word}\""))),
                }
            }
            if entries.iter().any(|e| e.name == entry.name) {
                return Err(fail("the name is taken"));
            }
            entries.push(entry);
        } else if !line.starts_with('#') && !line.trim().is_empty() {
            let entry = entries
                .last_mut()
                .ok_or_else(|| fail("commands before the first program"))?;
            entry.script += line;
            entry.script.push('\n');
        }
    }
    match entries.iter().find(|e| e.script.is_empty()) {
        Some(e) => Err(Error::new(
            "reading the corpus table",
            format!("{} has no commands", e.name),
        )),
        None => Ok(entries),
    }
}

impl Entry {
    /// The file of the program; none if it is not installed (or a script).
    pub fn file(&self) -> Option<PathBuf> {
        let found = in_path(&self.program).or_else(|| {
            // Compilers proper are in a folder that only the driver knows.
            let output = Command::new("gcc")
                .arg(format!("-print-prog-name={}", self.program))
                .output()
                .ok()?;
            in_path(String::from_utf8_lossy(&output.stdout).trim())
        })?;
        let file = std::fs::canonicalize(found).ok()?;
        is_elf(&file).then_some(file)
    }

    /// The name under which the program must be found in PATH.
    pub fn command_name(&self) -> String {
        Path::new(&self.program)
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    }
}

pub(super) fn is_elf(file: &Path) -> bool {
    use std::io::Read;
    let mut magic = [0; 4];
    let read = std::fs::File::open(file).and_then(|mut f| f.read_exact(&mut magic));
    read.is_ok() && magic == *b"\x7fELF"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_well_formed_and_large_enough() {
        let table = read().unwrap();
        assert!(table.len() >= 130, "{}", table.len());
        assert!(table.iter().all(|e| !e.package.is_empty()));
        assert!(table.iter().filter(|e| e.quick).count() >= 15);
    }

    #[test]
    fn a_bad_table_is_refused() {
        for bad in [
            "[a] package=p\n",
            "echo\n",
            "[a] what=p\necho\n",
            "[a]\nx\n[a]\ny\n",
            "[a\necho\n",
            "[a] env=X\necho\n",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}

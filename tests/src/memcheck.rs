//! What the tool *memcheck* and Valgrind's tool of this name tell of a program, side by side.
//!
//! Both write XML of the same protocol. Compared are the kinds of the errors, and of leaks the bytes as well, with their
//! numbers. Errors of undefined values are left out: *memcheck* does not look for them.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::outcome::{Setting, run};
use crate::{atom, cache};

/// Kinds of undefined values, and of values that no size has, on which the two differ on purpose.
const LEFT_OUT: [&str; 5] = [
    "UninitCondition",
    "UninitValue",
    "SyscallParam",
    "ClientCheck",
    "FishyValue",
];

/// How often each error was told, by its kind and the bytes of a leak.
type Told = BTreeMap<String, usize>;

/// Errors that one of the two has told alone, with their numbers; none if both have told the same.
#[derive(Default, Debug)]
pub struct Sides {
    /// Errors that both have told.
    pub same: usize,
    /// Errors of the tool alone, a line for each.
    pub tool: Vec<String>,
    /// Errors of Valgrind alone, a line for each.
    pub valgrind: Vec<String>,
}

impl Sides {
    /// True if both have told the same.
    pub fn are_equal(&self) -> bool {
        self.tool.is_empty() && self.valgrind.is_empty()
    }

    fn of(tool: &Told, valgrind: &Told) -> Self {
        let only = |these: &Told, others: &Told| {
            let more = |(error, count): (&String, &usize)| {
                let more = count.saturating_sub(others.get(error).copied().unwrap_or(0));
                (more != 0).then(|| format!("{more} {error}"))
            };
            these.iter().filter_map(more).collect()
        };
        let same = tool.iter().map(|(error, count)| {
            let other = valgrind.get(error).copied().unwrap_or(0);
            (*count).min(other)
        });
        Self {
            same: same.sum(),
            tool: only(tool, valgrind),
            valgrind: only(valgrind, tool),
        }
    }
}

/// Text between two marks, from the first of the first one on.
fn between<'a>(text: &'a str, start: &str, end: &str) -> Option<&'a str> {
    Some(text.split_once(start)?.1.split_once(end)?.0)
}

/// The errors in XML of the protocol.
fn errors(xml: &str) -> Told {
    let mut told = Told::new();
    for error in xml.split("<error>").skip(1) {
        let kind = between(error, "<kind>", "</kind>").unwrap_or_default();
        if !LEFT_OUT.contains(&kind) {
            let bytes = between(error, "<leakedbytes>", "</leakedbytes>");
            let bytes = bytes
                .map(|bytes| format!(" {bytes} bytes"))
                .unwrap_or_default();
            *told.entry(format!("{kind}{bytes}")).or_default() += 1;
        }
    }
    told
}

/// Runs a line of the shell that starts the program as `$PROGRAM`, under both. `folder` is for files of the two.
///
/// # Errors
/// If one of the two does not end in `limit`, or writes no XML.
pub fn beside(program: &Path, line: &str, folder: &Path, limit: Duration) -> Result<Sides> {
    let fail = |e: std::io::Error| Error::new("comparing with Valgrind", e).file(program);
    std::fs::create_dir_all(folder).map_err(fail)?;
    let told = |name: &str, words: &str| {
        let (wrapper, xml) = (folder.join(name), folder.join(format!("{name}.xml")));
        std::fs::remove_file(&xml).unwrap_or_default();
        let (file, program_file) = (xml.display(), program.display());
        let text = format!("#!/bin/sh\nexec {words}'{file}' -- '{program_file}' \"$@\"\n");
        std::fs::write(&wrapper, text).map_err(fail)?;
        let mut command = Command::new("sh");
        command.args(["-c", line]).env("PROGRAM", &wrapper);
        std::fs::set_permissions(&wrapper, Permissions::from_mode(0o755)).map_err(fail)?;
        let setting = Setting {
            timeout: limit,
            ..Setting::default()
        };
        if run(&mut command, &setting)?.timed_out {
            return Err(
                Error::new("comparing with Valgrind", format!("{name} did not end")).file(program),
            );
        }
        let xml = std::fs::read(&xml).map_err(fail)?;
        Ok(errors(&String::from_utf8_lossy(&xml)))
    };
    let atom = atom::command()?;
    let cache = cache::target_folder()?.join("suites/cache");
    let tool = format!(
        "env XDG_CACHE_HOME='{}' '{}' run -q memcheck --leak-check full --xml-file ",
        cache.display(),
        atom.display()
    );
    let valgrind = told(
        "valgrind",
        "valgrind -q --leak-check=full --xml=yes --xml-file=",
    )?;
    Ok(Sides::of(&told("memcheck", &tool)?, &valgrind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_tells_alone_is_found() {
        let xml = |errors: &[(&str, &str)]| {
            let error = |(kind, more): &(&str, &str)| {
                format!("<error>\n<kind>{kind}</kind><xwhat>{more}</xwhat></error>")
            };
            errors.iter().map(error).collect::<String>()
        };
        let leak = "<leakedbytes>12</leakedbytes>";
        let both = [("InvalidRead", ""), ("Leak_DefinitelyLost", leak)];
        let tool = errors(&xml(&[both[0], both[0], both[1]]));
        let valgrind = errors(&xml(&[both[0], both[1], both[1], ("UninitValue", "")]));
        let sides = Sides::of(&tool, &valgrind);
        assert_eq!(sides.same, 2);
        assert_eq!(sides.tool, ["1 InvalidRead"]);
        assert_eq!(sides.valgrind, ["1 Leak_DefinitelyLost 12 bytes"]);
        assert!(!sides.are_equal() && Sides::of(&tool, &tool).are_equal());
    }
}

//! Where the reports of a run will be: what prevents them is told before the program runs, as far as it can be known.

use std::path::{Path, PathBuf};

use atom_abi::help::declared;
use atom_core::{Error, Result};

use crate::disk;
use crate::message::note;
use crate::tool_file;

const DOING: &str = "preparing the report";

/// Refuses to run a program whose report cannot be made: its folder is missing, or takes no new file. `options` are the
/// tool's, with those of the report. Tells if the disk is full.
pub fn check(tool: &Path, options: &[String]) -> Result<()> {
    let Some(help) = tool_file::help_with_report(tool) else {
        return Ok(());
    };
    for file in files(&help, options) {
        // Devices and pipes are there already, and so may be a file that can be written.
        if !file.is_dir() && disk::is_writable(&file) {
            continue;
        }
        let folder = match file.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        let refused = |reason: String| {
            let error = Error::new(DOING, reason).file(&file);
            error.advice("name another file by the tool's option `--output FILE`")
        };
        if !folder.is_dir() {
            return Err(refused(format!("no directory {}", folder.display())));
        }
        if !disk::is_writable(folder) {
            let reason = format!("files cannot be made in {}", folder.display());
            return Err(refused(reason));
        }
        if disk::free_space(folder) == 0 {
            let folder = folder.display();
            note(&format!(
                "no space is left on the disk of {folder}: reports may be cut"
            ));
        }
    }
    Ok(())
}

/// The files that a tool with this help writes for these options.
fn files(help: &str, options: &[String]) -> Vec<PathBuf> {
    let value = |name: &str| {
        let in_a_word =
            |word: &String| Some(word.strip_prefix(name)?.strip_prefix('=')?.to_owned());
        let after_it = || options.get(1 + options.iter().position(|word| word == name)?);
        options
            .iter()
            .find_map(in_a_word)
            .or_else(|| after_it().cloned())
    };
    let [output, json, profile] = ["--output", "--json", "--profile"].map(value);
    let usual = || {
        let mut all = declared(help);
        let output = all.find(|option| option.forms().any(|form| form.name == "--output"))?;
        output.default()
    };
    let output = output.or_else(|| Some(usual().filter(|_| json.is_none())?.to_owned()));
    let named = [output, json, profile].into_iter().flatten();
    let is_file = |name: &String| !["", "-"].contains(&name.as_str());
    named.filter(is_file).map(PathBuf::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_follow_from_the_options() {
        let help = "Test\n\n  --output FILE  tables (default: test.out)\n  --json FILE  numbers\n";
        let of = |line: &str| {
            let words: Vec<String> = line.split_whitespace().map(String::from).collect();
            let files = files(help, &words);
            files
                .iter()
                .map(|f| f.display().to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(of(""), ["test.out"]);
        assert_eq!(of("--top 3 --output a/b"), ["a/b"]);
        assert_eq!(of("--json=x --top 3"), ["x"]);
        assert_eq!(of("--json x --output y --profile z"), ["y", "x", "z"]);
        assert_eq!(of("--output -"), Vec::<String>::new());
    }
}

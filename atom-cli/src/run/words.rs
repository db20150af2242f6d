//! A tool and its options on a command line. All words after the tool are its own: tools have options whose names are
//! those of a run, too.

use std::path::{Path, PathBuf};

use atom_abi::help::declared;
use atom_abi::report;
use clap::Args;

use crate::source;
use crate::tool_file;

/// The tool, and its options after it.
#[derive(Args, Clone)]
pub struct ToolWords {
    /// The tool: its name (`atom tools` lists them), the path of a shared object built with atom-tool, or
    /// its source: mytool.rs, or in C mytool.inst.c mytool.anal.c. All words after it are options of the tool
    #[arg(value_names = ["TOOL", "TOOL-OPTIONS"], required = true, num_args = 1.., trailing_var_arg = true)]
    words: Vec<String>,
}

impl ToolWords {
    /// The tool: its name or path.
    pub fn tool(&self) -> &str {
        &self.words[0]
    }

    /// The options of the tool.
    pub fn options(&self) -> &[String] {
        &self.words[1..]
    }

    /// Takes the further parts of a tool in C off the options.
    pub fn take_parts(&mut self) -> Vec<PathBuf> {
        let is_part = |word: &&String| source::is_part_in_c(Path::new(word));
        if !is_part(&&self.words[0]) {
            return Vec::new();
        }
        let count = self.options().iter().take_while(is_part).count();
        self.words.drain(1..=count).map(PathBuf::from).collect()
    }

    /// Takes the options off that only say how the tool's report is written, and where: they need no other program. Nothing is
    /// taken if one of them says more, or is wrong, which the tool tells.
    pub fn take_report_options(&mut self, tool: &Path) -> Vec<String> {
        let is_one = |word: &String| report::OPTIONS.contains(&name_of(word));
        if !self.options().iter().any(is_one) {
            return Vec::new();
        }
        let Some(help) = tool_file::help_with_report(tool) else {
            return Vec::new();
        };
        let Some((others, taken)) = separate(self.options(), &help) else {
            return Vec::new();
        };
        self.words.truncate(1);
        self.words.extend(others);
        taken
    }
}

/// The name of an option whose value may be in the same word.
fn name_of(word: &str) -> &str {
    word.split_once('=').map_or(word, |(name, _)| name)
}

/// The options of a tool, and those of its report; `None` if one of these is wrong, or is for standard output, which the
/// program has to keep open.
fn separate(options: &[String], help: &str) -> Option<(Vec<String>, Vec<String>)> {
    let forms = || declared(help).flat_map(|option| option.forms());
    let (mut others, mut taken) = (Vec::new(), Vec::new());
    let mut names = Vec::new();
    let mut words = options.iter();
    while let Some(word) = words.next() {
        let name = name_of(word);
        let takes_value = forms().any(|form| form.name == name && form.value.is_some());
        let mut own = vec![word.clone()];
        if takes_value && name == word {
            own.extend(words.next().cloned());
        }
        if !report::OPTIONS.contains(&name) {
            others.extend(own);
            continue;
        }
        let value = match (takes_value, word.split_once('='), own.get(1)) {
            (true, Some((_, value)), _) => value,
            (true, None, Some(value)) => value,
            (false, None, _) => "",
            _ => return None,
        };
        let is_number = |text: &str| text.parse::<u64>().is_ok_and(|n| n > 0 || name == "--top");
        let is_wrong = match name {
            "--top" | "--width" => !is_number(value),
            _ => value == "-",
        };
        if is_wrong || names.contains(&name) {
            return None;
        }
        names.push(name);
        taken.extend(own);
    }
    Some((others, taken))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELP: &str = "Test\n\n  --data KIND  of what\n  --output FILE  tables\n  --top N  rows\n  --no-profile  none\n";

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(String::from).collect()
    }

    #[test]
    fn options_of_the_report_are_taken() {
        let found = separate(
            &words("--data --output --top=5 --output a.out --no-profile -x"),
            HELP,
        );
        let expected = ["--data --output -x", "--top=5 --output a.out --no-profile"];
        assert_eq!(found, Some((words(expected[0]), words(expected[1]))));
    }

    #[test]
    fn all_are_left_where_one_says_more() {
        for line in [
            "--output -",
            "--output a --output b",
            "--top x",
            "--output",
            "--no-profile=1",
        ] {
            assert_eq!(separate(&words(line), HELP), None, "{line}");
        }
    }
}

//! `atom tools` and `atom run TOOL --help`.

use std::path::{Path, PathBuf};

use atom_abi::help::{Declared, declared};
use atom_core::{Error, Result};
use clap::Args;

use crate::find;
pub use crate::tool_file::tool_name;
use crate::tool_file::{has_option, help_of};

/// Arguments of `atom tools`.
#[derive(Args)]
pub struct Tools {
    /// Show the folders in which tools are looked for, and each tool's file
    #[arg(short, long)]
    pub verbose: bool,
}

/// Runs `atom tools`.
pub fn list(args: &Tools) -> Result<()> {
    let tools = find::tools();
    let mut text = String::new();
    let widest = tools.iter().map(|t| t.name.len()).max().unwrap_or(0);
    for tool in &tools {
        let summary = tool.help.as_deref().and_then(|help| help.lines().next());
        let summary = summary.unwrap_or("(does not describe itself)");
        text.push_str(&format!("{:widest$}  {summary}\n", tool.name));
        if args.verbose {
            text.push_str(&format!("{:widest$}  {}\n", "", tool.file.display()));
        }
    }
    if tools.is_empty() || args.verbose {
        text.push_str("Tools are looked for in:\n");
        for folder in find::tool_folders() {
            text.push_str(&format!("  {}\n", folder.display()));
        }
    } else {
        text.push_str("`atom run TOOL --help` shows a tool's options.\n");
    }
    output::print(&text)
}

/// True if these options of a tool ask for its help.
pub fn is_wanted(options: &[String]) -> bool {
    options.iter().any(|o| o == "--help" || o == "-h")
}

/// Prints the help of the tool in a file. `usage` is how it is used, up to its options.
pub fn show(file: &Path, usage: &str) -> Result<()> {
    let name = tool_name(file).unwrap_or_else(|| file.display().to_string());
    let fail = |reason: &str| Error::new("reading the tool", reason).file(file);
    match help_of(file) {
        None => Err(fail("it is no tool")),
        Some(None) => Err(fail("it does not describe its options").advice(
            "a wrong option makes most tools name those that they know; the tool's author adds \
             a description with atom_tool::tool!(instrument, help = \"...\")",
        )),
        Some(Some(help)) => {
            let (summary, rest) = help.split_once('\n').unwrap_or((&help, ""));
            let about = rest.split("\n  -").next().unwrap_or_default();
            let text = format!(
                "{name}: {summary}\n\nUsage: {usage}\n{about}\n{}",
                options(&help)
            );
            output::print(&format!("{}\n", text.trim_end()))
        }
    }
}

/// The sentence about an option, on one line.
pub fn sentence(option: &Declared<'_>) -> String {
    let words: Vec<&str> = option.sentence.split_whitespace().collect();
    words.join(" ")
}

/// The options of a help, with their sentences in one column.
fn options(help: &str) -> String {
    /// Columns of the forms, and of a line.
    const FORMS: usize = 26;
    const LINE: usize = 120;
    let forms = |option: &Declared<'_>| {
        let forms: Vec<&str> = option.forms().map(|form| form.text).collect();
        forms.join(", ")
    };
    let widths = declared(help).map(|option| forms(&option).len());
    let width = widths.filter(|width| *width <= FORMS).max().unwrap_or(0);
    let mut text = String::new();
    for option in declared(help) {
        let mut line = format!("  {:width$} ", forms(&option));
        let mut is_full = line.len() > width + 3;
        for word in option.sentence.split_whitespace() {
            if is_full || line.len() + word.len() >= LINE {
                text.push_str(line.trim_end());
                line = format!("\n   {:width$}", "");
                is_full = false;
            }
            line.push(' ');
            line.push_str(word);
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// The tool among the words of a command line to which an option belongs that `atom` does not know: its name and
/// its file.
pub fn owner(words: &[String], option: &str) -> Option<(String, PathBuf)> {
    let files = words
        .iter()
        .filter(|w| !w.starts_with('-'))
        .filter_map(|w| {
            let file = if w.contains('/') || w.ends_with(".so") {
                PathBuf::from(w)
            } else {
                find::named_tool(w).ok()?
            };
            let name = tool_name(&file)?;
            has_option(&file, option).then_some((name, file))
        });
    files.into_iter().next()
}

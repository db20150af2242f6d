//! Files about the command's options for other programs: completions of shells, and manual pages.

use std::path::PathBuf;

use atom_abi::help::declared;
use atom_core::{Error, Result};
use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, Args, Command};
use clap_complete::Shell;

use crate::find;
use crate::help::sentence;

/// Arguments of `atom completions`.
#[derive(Args)]
pub struct Completions {
    /// The shell: bash, zsh, fish or another one
    pub shell: Shell,
}

/// Arguments of `atom man`.
#[derive(Args)]
pub struct Man {
    /// The folder for the pages
    pub folder: PathBuf,
}

/// Prints completions of a command.
pub fn completions(args: &Completions, command: Command) -> Result<()> {
    let mut command = with_tools(command);
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command, "atom", &mut text);
    output::print(&String::from_utf8_lossy(&text))
}

/// Writes manual pages of a command: atom.1, and one for each subcommand and each tool (atom-run-icount.1).
pub fn man(args: &Man, command: Command) -> Result<()> {
    let folder = &args.folder;
    let fail = |e: std::io::Error| Error::new("writing the manual pages", e).file(folder);
    std::fs::create_dir_all(folder).map_err(fail)?;
    clap_mangen::generate_to(with_tools(command), folder).map_err(fail)
}

/// The command with the tools as subcommands of `run`, each with the options that its help declares.
fn with_tools(command: Command) -> Command {
    let tools = find::tools().into_iter().filter_map(|tool| {
        // The parser keeps names as long as it lives, and the process ends soon.
        let help: &'static str = tool.help?.leak();
        let about = help.lines().next().unwrap_or_default();
        let command = Command::new(&*tool.name.leak()).about(about);
        let options = declared(help).flat_map(|option| {
            option.forms().map(move |form| {
                let arg = Arg::new(form.name).help(sentence(&option));
                let arg = match form.name.strip_prefix("--") {
                    Some(long) => arg.long(long),
                    None => arg.short(form.name.chars().nth(1)),
                };
                match form.value {
                    None => arg.action(ArgAction::SetTrue),
                    Some(words) if words.contains('|') => {
                        arg.value_parser(PossibleValuesParser::new(words.split('|')))
                    }
                    Some(kind) => arg.value_name(kind),
                }
            })
        });
        Some(command.args(options))
    });
    let tools: Vec<Command> = tools.collect();
    command.mut_subcommand("run", |run| run.subcommands(tools))
}

//! Files about the command's options for other programs: completions of shells, and manual pages.

use std::path::PathBuf;

use atom_core::{Error, Result};
use clap::{Args, Command};
use clap_complete::Shell;

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
pub fn completions(args: &Completions, mut command: Command) -> Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command, "atom", &mut text);
    output::print(&String::from_utf8_lossy(&text))
}

/// Writes manual pages of a command: atom.1, and one for each subcommand.
pub fn man(args: &Man, command: Command) -> Result<()> {
    let folder = &args.folder;
    let fail = |e: std::io::Error| Error::new("writing the manual pages", e).file(folder);
    std::fs::create_dir_all(folder).map_err(fail)?;
    clap_mangen::generate_to(command, folder).map_err(fail)
}

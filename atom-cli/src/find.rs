//! Finding the files that the user named: the program, and tools by name.

use std::path::{Path, PathBuf};

use atom_core::{Error, Result};

use crate::tool_file::{help_of, tool_name};

/// The variable with folders of tools, separated by colons.
const TOOLS: &str = "ATOM_TOOLS";

/// Adds advice to an error of opening `app`: the path of a command of this name in `PATH`, since
/// people expect a command's name to be enough.
pub fn advise_program(app: &Path, error: Error) -> Error {
    let is_bare = app.components().count() == 1 && !app.exists();
    let on_path = std::env::var_os("PATH")
        .filter(|_| is_bare)
        .and_then(|path| {
            std::env::split_paths(&path)
                .map(|folder| folder.join(app))
                .find(|file| file.is_file())
        });
    match on_path {
        Some(found) => error.advice(format!(
            "a path is wanted; did you mean {}?",
            found.display()
        )),
        None => error,
    }
}

/// The file of the tool with a name.
pub fn named_tool(name: &str) -> Result<PathBuf> {
    let folders = tool_folders();
    let file = format!("lib{name}.so");
    let fail = |reason: String| Error::new("finding the tool", reason).symbol(name);
    if name.is_empty() || name.contains('/') {
        return Err(fail("this is not a tool's name".into()).advice(
            "give the file of a tool of your own without --tool: atom APP ./libmytool.so",
        ));
    }
    if let Some(found) = folders.iter().map(|f| f.join(&file)).find(|f| f.exists()) {
        return Ok(found);
    }
    let places: Vec<_> = folders.iter().map(|f| f.display().to_string()).collect();
    let reason = format!("there is no {file} in {}", places.join(" or "));
    let available: Vec<String> = tools().into_iter().map(|tool| tool.name).collect();
    Err(
        fail(reason).advice(match (available.as_slice(), alike(name, &available)) {
            ([], _) => "there are no tools at all: `cargo install` installs the command alone. \
                    ./install in the sources of atom installs both; or build the tools with \
                    `cargo build --release --workspace` and name their folder in ATOM_TOOLS"
                .into(),
            (_, Some(alike)) => format!("did you mean {alike}? `atom tools` lists all"),
            (tools, None) => format!("tools available: {}; see `atom tools`", tools.join(", ")),
        }),
    )
}

/// The name among `all` that a mistyped one was meant to be.
pub fn alike<'a>(name: &str, all: &'a [String]) -> Option<&'a String> {
    let distance = |other: &str| strsim::damerau_levenshtein(name, other);
    let nearest = all.iter().min_by_key(|other| distance(other))?;
    (distance(nearest) <= 1 + name.len() / 4).then_some(nearest)
}

/// Adds advice to an error of loading `path`, if that does not exist but has the name of a tool.
pub fn advise_tool(path: &Path, error: Error) -> Error {
    match path.to_str() {
        Some(name) if !path.exists() && !name.contains('/') && named_tool(name).is_ok() => {
            error.advice(format!("for the tool of this name write --tool {name}"))
        }
        _ => error,
    }
}

/// A tool that was found by looking into the folders.
pub struct Tool {
    /// Its name.
    pub name: String,
    /// Its file.
    pub file: PathBuf,
    /// What it says about itself.
    pub help: Option<String>,
}

/// The tools in all folders, in alphabetical order, without those that are not to be listed. Of several tools of one
/// name the one that the name stands for.
pub fn tools() -> Vec<Tool> {
    let mut all: Vec<Tool> = Vec::new();
    for folder in tool_folders() {
        for tool in tools_in(&folder) {
            if !all.iter().any(|known| known.name == tool.name) {
                all.push(tool);
            }
        }
    }
    all.retain(|tool| tool.help.as_deref() != Some(""));
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

/// The folders in which tools may be, in the order in which they are searched: those of `ATOM_TOOLS`; beside
/// the command, where cargo builds tools; `lib/atom/tools`, where an installation puts them; and
/// `~/.local/lib/atom/tools`. The command's own tools come before those of the home folder, which may be of another
/// version.
pub fn tool_folders() -> Vec<PathBuf> {
    let mut folders = Vec::new();
    if let Some(named) = std::env::var_os(TOOLS) {
        let named = std::env::split_paths(&named).filter(|f| !f.as_os_str().is_empty());
        folders.extend(named.map(|f| std::path::absolute(&f).unwrap_or(f)));
    }
    let command = std::env::current_exe().unwrap_or_default();
    if let Some(folder) = command.parent() {
        folders.push(folder.to_path_buf());
        folders.extend(folder.parent().map(|f| f.join("lib/atom/tools")));
    }
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let own = home.filter(|home| home.is_absolute());
    folders.extend(own.map(|home| home.join(".local/lib/atom/tools")));
    let mut unique: Vec<PathBuf> = Vec::new();
    for folder in folders {
        if !unique.contains(&folder) {
            unique.push(folder);
        }
    }
    unique
}

/// True for a tool of atom's own: it is where the build or an installation puts them.
pub fn is_shipped(tool: &Path) -> bool {
    let command = std::env::current_exe().unwrap_or_default();
    let beside = command.parent().map(Path::to_path_buf);
    let installed = beside.as_ref().and_then(|folder| folder.parent());
    let installed = installed.map(|folder| folder.join("lib/atom/tools"));
    let own = [beside, installed].into_iter().flatten();
    let file = std::fs::canonicalize(tool).unwrap_or_default();
    let folder = file.parent().map(Path::to_path_buf);
    own.filter_map(|own| std::fs::canonicalize(own).ok())
        .any(|own| Some(own) == folder)
}

/// The tools in a folder. Shared objects that are no tools are left out.
fn tools_in(folder: &Path) -> Vec<Tool> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| {
            let file = entry.ok()?.path();
            let name = tool_name(&file)?;
            let help = help_of(&file)?;
            Some(Tool { name, file, help })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistyped_names() {
        let all = ["cache", "icount", "prof"].map(String::from);
        for (name, meant) in [
            ("icont", Some("icount")),
            ("iconut", Some("icount")),
            ("porf", Some("prof")),
            ("gprof", Some("prof")),
            ("valgrind", None),
        ] {
            assert_eq!(alike(name, &all).map(|s| &**s), meant, "{name}");
        }
    }
}

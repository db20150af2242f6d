//! Finding the files that the user named: the program, and shipped tools by name.

use std::path::{Path, PathBuf};

use atom_core::{Error, Result};
use object::{Object, ObjectSymbol};

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

/// The file of the shipped tool with a name.
pub fn shipped_tool(name: &str) -> Result<PathBuf> {
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
    let mut available: Vec<String> = folders.iter().flat_map(|f| tools_in(f)).collect();
    available.sort();
    available.dedup();
    Err(fail(reason).advice(match available.as_slice() {
        [] => {
            "no tools are there at all; build them with `cargo build --release --workspace`".into()
        }
        tools => format!("tools available: {}", tools.join(", ")),
    }))
}

/// Adds advice to an error of loading `path`, if that does not exist but has the name of a shipped tool.
pub fn advise_tool(path: &Path, error: Error) -> Error {
    match path.to_str() {
        Some(name) if !path.exists() && !name.contains('/') && shipped_tool(name).is_ok() => {
            error.advice(format!("for the shipped tool write --tool {name}"))
        }
        _ => error,
    }
}

/// The folders in which shipped tools may lie: beside the command, where cargo builds them, and
/// `lib/atom/tools`, where an installation puts them.
fn tool_folders() -> Vec<PathBuf> {
    let Ok(command) = std::env::current_exe() else {
        return Vec::new();
    };
    let Some(folder) = command.parent() else {
        return Vec::new();
    };
    let mut folders = vec![folder.to_path_buf()];
    if let Some(parent) = folder.parent() {
        folders.push(parent.join("lib/atom/tools"));
    }
    folders
}

/// Names of the tools in a folder. Shared objects that are no tools are left out.
fn tools_in(folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let name = path
                .file_name()?
                .to_str()?
                .strip_prefix("lib")?
                .strip_suffix(".so")?;
            is_tool(&path).then(|| name.to_string())
        })
        .collect()
}

fn is_tool(path: &Path) -> bool {
    let Ok(data) = std::fs::read(path) else {
        return false;
    };
    let Ok(file) = object::File::parse(&data[..]) else {
        return false;
    };
    file.dynamic_symbols()
        .any(|s| s.is_definition() && s.name() == Ok(atom_abi::TOOL_HEADER_SYMBOL))
}

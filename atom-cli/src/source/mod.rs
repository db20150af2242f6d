//! Tools that are given as sources. Those in C have a module of their own (`c`).
//!
//! Tools in Rust of one source file: compiled when they are used, and kept.
//!
//! The file is a crate of its own; packages that it needs are in its head (`manifest`). cargo compiles it
//! against the copy of atom-tool that belongs to this command. The result is an entry of the cache, under a
//! digest of the source and of the command.

mod c;
mod manifest;
pub mod new;
mod wide;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use atom_core::{Error, Result};

use crate::kept::identity::Identity;
use crate::kept::store::Store;
use crate::progress::Progress;
use manifest::Script;

const DOING: &str = "compiling the tool";

/// The folder in the cache in which tools are compiled.
const COMPILING: &str = "compiling";

/// True for a file that is a tool's source by its name.
pub fn is_source(file: &Path) -> bool {
    file.extension().is_some_and(|e| e == "rs") || c::is_part(file)
}

/// True for a part of a tool in C. The first part may be followed by others.
pub fn is_part_in_c(file: &Path) -> bool {
    c::is_part(file)
}

/// The tool that was compiled, and its source.
static COMPILED: OnceLock<(PathBuf, PathBuf)> = OnceLock::new();

/// The text of an error, with the tool's source in place of the shared object in the cache, which the user does not know.
pub fn text_of(error: &Error) -> String {
    let text = error.to_string();
    match COMPILED.get() {
        Some((library, source)) if error.file.as_ref() == Some(library) => {
            let [library, source] = [library, source].map(|path| path.display().to_string());
            text.replacen(&library, &source, 1)
        }
        _ => text,
    }
}

/// The source of a tool that was compiled.
pub fn source_of(tool: &Path) -> Option<&'static Path> {
    let (library, source) = COMPILED.get()?;
    (library == tool).then_some(source)
}

/// Notes the source of a tool that another process has compiled.
pub fn was_compiled(library: &Path, source: &Path) {
    let _ = COMPILED.set((library.to_path_buf(), source.to_path_buf()));
}

/// The shared object of the tool with these sources, of which those after the first belong to a tool in C.
pub fn compiled(source: &Path, more: &[PathBuf]) -> Result<PathBuf> {
    let library = compiled_of(source, more)?;
    // A command has one tool.
    let _ = COMPILED.set((library.clone(), source.to_path_buf()));
    Ok(library)
}

fn compiled_of(source: &Path, more: &[PathBuf]) -> Result<PathBuf> {
    if c::is_part(source) {
        let mut files = vec![source.to_path_buf()];
        files.extend_from_slice(more);
        return c::compiled(&files);
    }
    match more.first() {
        None => compiled_in_rust(source),
        Some(other) => Err(Error::new(DOING, "a tool in Rust has one source file").file(other)),
    }
}

/// The shared object of the tool with this source: found in the cache, or compiled.
fn compiled_in_rust(source: &Path) -> Result<PathBuf> {
    let fail = |reason: String| Error::new(DOING, reason).file(source);
    let file = fs::canonicalize(source).map_err(|e| fail(reason_of(&e)))?;
    let text = fs::read_to_string(&file).map_err(|e| fail(reason_of(&e)))?;
    let script = Script::parse(&file, &text).map_err(fail)?;
    let sources = Sources::find()?;
    let store = Store::open()?;
    let mut identity = Identity::new(store.digests());
    identity.add_command()?;
    identity.add_file(&file)?;
    identity.add_words("sources", &[sources.folder.display().to_string()]);
    let name = identity.name();
    let label = format!("the tool {}", file.display());
    let library = format!("lib{}.so", script.name);
    let entry = store.get_or_make(&name, &label, |folder| {
        compile(&script, &sources, &store, &folder.join(&library)).map_err(|e| match e.file {
            Some(_) => e,
            None => e.file(source),
        })
    })?;
    let tool = entry.folder.join(&library);
    // The lock is held to the end of the process, so that the tool stays.
    std::mem::forget(entry);
    Ok(tool)
}

fn reason_of(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such file".into(),
        _ => error.to_string(),
    }
}

/// The sources of atom-tool that belong to this command.
pub struct Sources {
    /// The folder of the workspace.
    pub folder: PathBuf,
}

impl Sources {
    /// In an installation `lib/atom/src` beside the command's folder; else the checkout that the command was built
    /// in.
    pub fn find() -> Result<Self> {
        let command = Identity::command()?;
        let installed = command.ancestors().nth(2).map(|p| p.join("lib/atom/src"));
        let checkouts = command.ancestors().skip(1).map(Path::to_path_buf);
        let built_in = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
        let places = installed.into_iter().chain(checkouts);
        let mut places = places.chain(built_in.map(Path::to_path_buf));
        let has_tool = |folder: &PathBuf| folder.join("atom-tool/Cargo.toml").exists();
        let Some(folder) = places.find(has_tool) else {
            let error = Error::new(DOING, "the sources of atom-tool are not there");
            return Err(error.advice(
                "install atom with ./install, which puts them into lib/atom/src beside the command's folder",
            ));
        };
        Ok(Self { folder })
    }

    /// The folder with the packages that atom-tool needs; an installation has it.
    pub fn vendored(&self) -> Option<PathBuf> {
        Some(self.folder.join("vendor")).filter(|folder| folder.is_dir())
    }

    /// The path of atom-tool as TOML.
    pub fn tool_crate(&self) -> String {
        manifest::quoted(&self.folder.join("atom-tool"))
    }
}

/// Removes what compilations have left for later ones. Compiled tools are entries of the cache.
pub fn forget(store: &Store) -> Result<()> {
    let compiling = store.folder().join(COMPILING);
    let fail = |e: std::io::Error| Error::new("clearing the cache", e).file(&compiling);
    let Ok(lock) = File::open(compiling.join("lock")) else {
        return Ok(());
    };
    // A compilation that continues needs the folder.
    match lock.try_lock() {
        Ok(()) => fs::remove_dir_all(&compiling).map_err(fail),
        Err(_) => Ok(()),
    }
}

/// Compiles a script to the file `library`.
fn compile(script: &Script, sources: &Sources, store: &Store, library: &Path) -> Result<()> {
    let doing = |e: std::io::Error| Error::new(DOING, e);
    let compiling = store.folder().join(COMPILING);
    let package = compiling.join(&script.name);
    fs::create_dir_all(&package).map_err(doing)?;
    // One compilation at a time: all of them put their results into one folder.
    let lock = File::create(compiling.join("lock")).map_err(doing)?;
    lock.lock().map_err(doing)?;
    let source = script.write(&package, sources).map_err(doing)?;
    // Versions that were tried with atom-tool, and that have been downloaded if the command was built here.
    if let Err(e) = fs::copy(
        sources.folder.join("Cargo.lock"),
        package.join("Cargo.lock"),
    ) && e.kind() != std::io::ErrorKind::NotFound
    {
        return Err(doing(e));
    }
    let target = compiling.join("target");
    let cargo = || {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
        cargo.current_dir(&package).env_remove("CARGO_BUILD_TARGET");
        cargo.args(["rustc", "--quiet", "--release", "--lib", "--target-dir"]);
        cargo.arg(&target);
        if let Some(vendored) = sources.vendored().filter(|_| !script.has_packages()) {
            let folder = manifest::quoted(&vendored);
            let replaced = "source.crates-io.replace-with=\"atom-vendored\"";
            cargo.args(["--config", replaced, "--config"]);
            cargo.arg(format!("source.atom-vendored.directory={folder}"));
        }
        cargo
    };
    let color = if std::io::IsTerminal::is_terminal(&std::io::stderr()) {
        "always"
    } else {
        "never"
    };
    let run = |offline: Option<&str>| {
        let mut cargo = cargo();
        cargo.args(offline).args(["--color", color, "--"]);
        // Messages name the user's file, not the copy of it.
        let copy = source.strip_prefix(&package).unwrap_or(&source).display();
        cargo.arg(format!(
            "--remap-path-prefix={copy}={}",
            script.file.display()
        ));
        let waiting = Progress::start("compiling the tool");
        let output = cargo.output();
        drop(waiting);
        output.map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => Error::new(DOING, "there is no cargo")
                .advice("a tool's source is compiled by cargo and rustc: https://rustup.rs"),
            _ => doing(e),
        })
    };
    let mut output = run(Some("--offline"))?;
    if !output.status.success() && needs_network(&output) {
        output = run(None)?;
    }
    // rustc's own words: errors, and warnings of a tool that was compiled.
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    if !output.status.success() {
        return Err(Error::new(DOING, "it does not compile").file(&script.file));
    }
    let made = target.join(format!("release/lib{}.so", script.crate_name()));
    fs::copy(&made, library).map_err(|e| Error::new(DOING, e).file(&made))?;
    // What is left there is of no use any more; the next tool of this name writes it again.
    fs::remove_dir_all(&package).unwrap_or_default();
    Ok(())
}

/// True if packages are missing that could be downloaded.
fn needs_network(output: &Output) -> bool {
    String::from_utf8_lossy(&output.stderr).contains("offline")
}

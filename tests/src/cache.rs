//! Builds and rewrites that several tests need, made once.
//!
//! The key of a test program is the text of its source, the compiler's version and its options.
//! Rewritten programs stay where they are. A file beside each holds its key: the contents of the
//! program, of `atom` and of the tool, and the options.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};

use crate::error::{Error, Result};

/// The folder that cargo builds into, found from the running executable.
pub fn target_folder() -> Result<PathBuf> {
    let exe = std::env::current_exe().map_err(|e| Error::new("finding the build folder", e))?;
    let profile = exe
        .ancestors()
        .find(|p| p.ends_with("release") || p.ends_with("debug"));
    let parent = profile.and_then(Path::parent);
    parent
        .map(Path::to_path_buf)
        .ok_or_else(|| Error::new("finding the build folder", "not run by cargo").file(&exe))
}

/// A folder for test programs, which is made if it is not there.
///
/// # Panics
/// It cannot be made.
pub fn folder(name: &str) -> PathBuf {
    let target = target_folder().unwrap_or_else(|e| panic!("{e}"));
    let folder = target.join("test-programs").join(name);
    std::fs::create_dir_all(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    folder
}

/// A folder for test programs without anything in it.
///
/// # Panics
/// It cannot be made.
pub fn empty_folder(name: &str) -> PathBuf {
    let old = folder(name);
    std::fs::remove_dir_all(&old).unwrap_or_else(|e| panic!("{}: {e}", old.display()));
    folder(name)
}

/// Hash of a file's contents.
///
/// # Errors
/// The file cannot be read.
pub fn contents(path: &Path) -> Result<u64> {
    let bytes = std::fs::read(path).map_err(|e| Error::new("reading a file", e).file(path))?;
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    Ok(hasher.finish())
}

/// Hash of the contents of a large file that does not change while the tests run. It is read once.
pub fn contents_once(path: &Path) -> Result<u64> {
    static KNOWN: Mutex<Option<HashMap<PathBuf, u64>>> = Mutex::new(None);
    let mut known = KNOWN.lock().unwrap_or_else(|e| e.into_inner());
    let known = known.get_or_insert_default();
    if let Some(hash) = known.get(path) {
        return Ok(*hash);
    }
    let hash = contents(path)?;
    known.insert(path.to_path_buf(), hash);
    Ok(hash)
}

/// Output of the compiler's `--version`; each compiler is asked once.
fn version(compiler: &OsStr) -> String {
    static KNOWN: OnceLock<Mutex<HashMap<PathBuf, String>>> = OnceLock::new();
    let mut known = KNOWN.get_or_init(Mutex::default).lock();
    let known = known.as_mut().expect("no test panics with the lock");
    let ask = || {
        let question = if compiler == "go" {
            "version"
        } else {
            "--version"
        };
        let output = Command::new(compiler).arg(question).output();
        output.map_or(String::new(), |o| {
            String::from_utf8_lossy(&o.stdout).into_owned()
        })
    };
    known.entry(compiler.into()).or_insert_with(ask).clone()
}

/// Runs a compiler to make `out`, or copies the earlier result of the same command for the same source.
/// The command is complete except for `-o` and `rest`, which follows it; `source` is the only file of the project that it reads.
///
/// # Errors
/// The compiler's messages.
pub fn compiled(mut command: Command, rest: &[OsString], source: &Path, out: &Path) -> Result<()> {
    let fail = |reason: String| Error::new("compiling", reason).file(source);
    let mut hasher = DefaultHasher::new();
    (contents(source)?, source, version(command.get_program())).hash(&mut hasher);
    (
        command.get_program(),
        command.get_args().collect::<Vec<_>>(),
        rest,
    )
        .hash(&mut hasher);
    let folder = target_folder()?.join("test-programs/built");
    std::fs::create_dir_all(&folder).map_err(|e| fail(e.to_string()))?;
    let kept = folder.join(format!("{:016x}", hasher.finish()));
    // Tests run in parallel; two of them may need the same build.
    let _lock = crate::lock::exclusive(&kept.with_extension("lock"))?;
    if !kept.exists() {
        // Built under another name first: an interrupted build must not look finished.
        let partial = kept.with_extension("partial");
        let output = command.arg("-o").arg(&partial).args(rest).output();
        let output = output.map_err(|e| fail(e.to_string()))?;
        if !output.status.success() {
            return Err(fail(String::from_utf8_lossy(&output.stderr).into_owned()));
        }
        std::fs::rename(&partial, &kept).map_err(|e| fail(e.to_string()))?;
    }
    place(&kept, out).map_err(|e| fail(e.to_string()))
}

/// Copies a program. A copy with the same contents is left unchanged, because stored results about it
/// are valid if they are newer than it.
fn place(kept: &Path, out: &Path) -> std::io::Result<()> {
    if std::fs::read(out).is_ok_and(|old| std::fs::read(kept).is_ok_and(|new| old == new)) {
        return Ok(());
    }
    // The copy is renamed into place, because the old file may be running.
    let partial = out.with_extension("partial");
    std::fs::copy(kept, &partial)?;
    std::fs::rename(&partial, out)
}

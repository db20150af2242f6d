//! Libraries that earlier runs of a program loaded while they ran.
//!
//! `ld.so --list` names the libraries that a program has from its start. Those that it loads later
//! (`dlopen`) show when it runs: the runtime notes what its loader opens and does not find instrumented. The
//! list of each program is kept in the cache's folder `remembered`, in a file named by a digest of the
//! program's path. It is a hint only: what is not there any more is left out.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::identity::Identity;
use super::store::Store;

/// Number of libraries that are remembered for one program at most.
const MOST: usize = 512;

/// The file of a program's list.
pub fn file(store: &Store, program: &Path) -> PathBuf {
    let mut identity = Identity::new(store.digests());
    identity.add_words("remembered", &[program.display().to_string()]);
    store.folder().join("remembered").join(identity.name())
}

/// The libraries that are remembered and still there.
pub fn get(store: &Store, program: &Path) -> Vec<PathBuf> {
    let text = fs::read(file(store, program)).unwrap_or_default();
    let lines = text.split(|b| *b == b'\n').filter(|line| !line.is_empty());
    let paths = lines.map(|line| PathBuf::from(OsStr::from_bytes(line)));
    paths.filter(|path| is_library(path)).collect()
}

/// Adds libraries. What cannot be written is not remembered.
pub fn add(store: &Store, program: &Path, libraries: &[PathBuf]) {
    if libraries.is_empty() {
        return;
    }
    let mut all = get(store, program);
    for library in libraries.iter().filter(|path| is_library(path)) {
        if !all.contains(library) && all.len() < MOST {
            all.push(library.clone());
        }
    }
    let file = file(store, program);
    let text: Vec<u8> = (all.iter())
        .flat_map(|path| [path.as_os_str().as_bytes(), b"\n"].concat())
        .collect();
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder).unwrap_or_default();
    }
    let temporary = file.with_extension(std::process::id().to_string());
    if fs::write(&temporary, text).is_ok() {
        fs::rename(&temporary, &file).unwrap_or_default();
    }
}

/// True for an ELF file.
fn is_library(path: &Path) -> bool {
    use std::io::Read;
    let mut magic = [0; 4];
    let mut read = fs::File::open(path).ok();
    let read = read
        .as_mut()
        .map(|file| file.read_exact(&mut magic).is_ok());
    read == Some(true) && magic == *b"\x7fELF"
}

//! Libraries that earlier runs of a program loaded while they ran.
//!
//! `ld.so --list` names the libraries that a program has from its start. Those that it loads later
//! (`dlopen`) show when it runs: the runtime notes what its loader opens and does not find instrumented. The
//! lists of each program are kept in the cache's folder `remembered`, in files named by a digest of the
//! program's path. They are hints only: what is not there any more is left out.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::kept::identity::Identity;
use crate::kept::store::Store;

/// Number of libraries that are remembered for one program at most.
const MOST: usize = 512;

/// What became of the libraries of a list.
#[derive(Clone, Copy)]
pub enum List {
    /// They ran as they are: only an entry that is made with them has them.
    Missed,
    /// They were instrumented when they were opened. The entry of that run finds them again in some milliseconds each;
    /// an entry that is made later has them from its start.
    Added,
}

/// The file of a program's list.
pub fn file(store: &Store, program: &Path, list: List) -> PathBuf {
    let word = match list {
        List::Missed => "remembered",
        List::Added => "added",
    };
    let mut identity = Identity::new(store.digests());
    identity.add_words(word, &[program.display().to_string()]);
    store.folder().join("remembered").join(identity.name())
}

/// The libraries that are remembered and still there.
pub fn get(store: &Store, program: &Path, list: List) -> Vec<PathBuf> {
    let text = fs::read(file(store, program, list)).unwrap_or_default();
    let lines = text.split(|b| *b == b'\n').filter(|line| !line.is_empty());
    let paths = lines.map(|line| PathBuf::from(OsStr::from_bytes(line)));
    paths.filter(|path| is_library(path)).collect()
}

/// Adds libraries. What cannot be written is not remembered.
pub fn add(store: &Store, program: &Path, list: List, libraries: &[PathBuf]) {
    if libraries.is_empty() {
        return;
    }
    let mut all = get(store, program, list);
    for library in libraries.iter().filter(|path| is_library(path)) {
        if !all.contains(library) && all.len() < MOST {
            all.push(library.clone());
        }
    }
    let file = file(store, program, list);
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

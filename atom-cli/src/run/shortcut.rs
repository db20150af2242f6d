//! The short way to an entry of the store.
//!
//! The name of an entry is a digest of all files that it was made of, and to know these files the program's
//! interpreter is asked. A *shortcut* is a small file in the store's folder `shortcuts` that leads to the
//! entry without that: it lists the files with what the file system says of them (device, inode, size,
//! times). If all of that is as it was, the entry is the right one. The shortcut's own name is a digest of
//! the options, the program's path and inode, and of the variables that the interpreter reads.
//!
//! A shortcut may also say that the program cannot be instrumented, and why. It is believed for some
//! minutes only, since the reason may have been one of the moment.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::program::Program;
use crate::kept::identity::{self, Identity};
use crate::kept::store::{Entry, Store};

/// Folder of the shortcuts in the store.
const FOLDER: &str = "shortcuts";
/// More shortcuts than these are not kept.
const MOST: usize = 4096;
/// Names of variables that change what the interpreter loads begin so.
const VARIABLES: [&str; 2] = ["LD_", "GLIBC_TUNABLES"];
/// Files that change what the interpreter loads.
const OF_LOADER: [&str; 2] = ["/etc/ld.so.cache", "/etc/ld.so.preload"];
/// How long a reason is believed.
const BELIEVED: Duration = Duration::from_secs(600);

/// Where a shortcut is.
pub struct Shortcut {
    file: PathBuf,
}

/// Where a shortcut leads.
pub enum Found {
    /// To an entry.
    Entry(Entry),
    /// The program cannot be instrumented, for this reason.
    Reason(String),
}

/// Files with what the file system said of them.
pub struct Stamps(Vec<u8>);

impl Stamps {
    /// Looks at files now. They are read after that, so a change meanwhile is noticed later.
    pub fn take<'a>(files: impl IntoIterator<Item = &'a Path>) -> Self {
        let of_loader = OF_LOADER.iter().map(Path::new);
        let lines = files.into_iter().chain(of_loader).flat_map(|file| {
            let stamp = stamp(file);
            [stamp.as_bytes(), b" ", file.as_os_str().as_bytes(), b"\n"].concat()
        });
        Self(lines.collect())
    }

    /// True if the files are as they were.
    fn hold(lines: &[u8]) -> bool {
        let mut lines = lines.split(|b| *b == b'\n').filter(|line| !line.is_empty());
        lines.all(|line| {
            let Some(space) = line.iter().position(|b| *b == b' ') else {
                return false;
            };
            let (known, path) = (&line[..space], &line[space + 1..]);
            stamp(Path::new(OsStr::from_bytes(path))).as_bytes() == known
        })
    }
}

/// The [`stamp`](identity::stamp) of a file; `-` if there is none.
fn stamp(file: &Path) -> String {
    fs::metadata(file).map_or_else(|_| "-".into(), |m| identity::stamp(&m))
}

impl Shortcut {
    /// The shortcut for a program and the options by which it is instrumented.
    pub fn new(store: &Store, options: &[String], program: &Program) -> Self {
        let mut identity = Identity::new(store.digests());
        identity.add_words("options", options);
        let inode = fs::metadata(&program.file).map_or((0, 0), |m| (m.dev(), m.ino()));
        let path = program.file.display().to_string();
        identity.add_words("program", &[path, format!("{inode:?}")]);
        let mut is_relative = program.file.is_relative();
        for (name, value) in std::env::vars_os() {
            let name = name.to_string_lossy().into_owned();
            if VARIABLES.iter().any(|start| name.starts_with(start)) {
                is_relative = true;
                identity.add_words("variable", &[name, value.to_string_lossy().into_owned()]);
            }
        }
        if is_relative {
            let folder = std::env::current_dir().unwrap_or_default();
            identity.add_words("folder", &[folder.display().to_string()]);
        }
        Self {
            file: store.folder().join(FOLDER).join(identity.name()),
        }
    }

    /// Follows the shortcut; `None` if there is none, or if it does not hold any more.
    pub fn follow(&self, store: &Store) -> Option<Found> {
        let text = fs::read(&self.file).ok()?;
        let end = text.iter().position(|b| *b == b'\n')?;
        let (first, lines) = text.split_at(end);
        if !Stamps::hold(lines) {
            return None;
        }
        let first = String::from_utf8_lossy(first);
        match first.split_once(' ')? {
            ("entry", name) => store.get(name).map(Found::Entry),
            ("reason", reason) => {
                let written = fs::metadata(&self.file).and_then(|m| m.modified()).ok()?;
                let is_young = written.elapsed().is_ok_and(|age| age < BELIEVED);
                is_young.then(|| Found::Reason(reason.to_owned()))
            }
            _ => None,
        }
    }

    /// Notes that the entry of this name is the right one as long as the stamps hold.
    pub fn to_entry(&self, name: &str, stamps: &Stamps) {
        self.write("entry", name, stamps);
    }

    /// Notes why the program cannot be instrumented.
    pub fn to_reason(&self, reason: &str, stamps: &Stamps) {
        self.write("reason", &reason.replace('\n', " "), stamps);
    }

    /// Forgets the shortcut.
    pub fn forget(&self) {
        fs::remove_file(&self.file).unwrap_or_default();
    }

    /// What cannot be written is looked for in the long way next time.
    fn write(&self, kind: &str, text: &str, stamps: &Stamps) {
        let Some(folder) = self.file.parent() else {
            return;
        };
        fs::create_dir_all(folder).unwrap_or_default();
        if fs::read_dir(folder).is_ok_and(|all| all.count() > MOST) {
            fs::remove_dir_all(folder).unwrap_or_default();
            fs::create_dir_all(folder).unwrap_or_default();
        }
        let text = [format!("{kind} {text}\n").as_bytes(), &stamps.0].concat();
        let temporary = self.file.with_extension(std::process::id().to_string());
        if fs::write(&temporary, text).is_ok() {
            fs::rename(&temporary, &self.file).unwrap_or_default();
        }
    }
}

//! The folder in which instrumented programs are kept between runs.
//!
//! `$XDG_CACHE_HOME/atom` (else `~/.cache/atom`) holds one folder for each *entry*: a program
//! instrumented with one tool, its options and its libraries. The entry's name is a digest of all
//! that the result depends on, so an entry is either right or not there.
//!
//! Several runs use the folder at once, and each may be killed at any moment:
//!
//! - An entry is made in a folder of its own under `making/` and renamed into place as a whole. The
//!   second of two runs that want to make the same entry waits for the first, by a lock on a file under
//!   `turns/`, and finds the entry there. Should both make it, the second drops its own.
//! - Whoever uses or makes an entry holds a shared lock (`flock`) on the file `lock` in it. The
//!   kernel gives the lock up when the process ends, however it ends.
//! - What is to be removed is locked exclusively first, so nothing in use is removed, and renamed
//!   to `making/` before its files go, so nobody finds half of it. A program that another one has executed
//!   (`atom run --children`) has nobody that holds the lock for it, so an entry also stays while a process
//!   runs from it.
//!
//! The folder is refused if others may write to it: they could have their code run.

use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::SystemTime;

use atom_core::{Error, Result};

use super::records;

const DOING: &str = "using the cache of instrumented programs";

/// The entries.
const ENTRIES: &str = "entries";
/// Digests of files that entries were made of, by what the file system says of the files.
const DIGESTS: &str = "digests";
/// More digests than these are not kept: they are made again when they are needed.
const MAX_DIGESTS: usize = 4096;
/// Entries that are being made or removed.
const MAKING: &str = "making";
/// Files that are locked by those that make the entry of the same name.
const TURNS: &str = "turns";
/// The file in an entry that its users lock.
const LOCK: &str = "lock";
/// The file in an entry whose time of change tells when the entry was last used.
const USED: &str = "used";
/// The file in an entry that describes it for people, one line.
const LABEL: &str = "label";

/// The cache.
#[derive(Debug)]
pub struct Store {
    folder: PathBuf,
}

/// An entry in use: it stays as long as this value.
#[derive(Debug)]
pub struct Entry {
    /// The folder with the entry's files.
    pub folder: PathBuf,
    _lock: File,
}

/// An entry as `atom kept` lists it.
#[derive(Debug)]
pub struct Listed {
    /// Its folder.
    pub folder: PathBuf,
    /// What it is, for people.
    pub label: String,
    /// Bytes that its files take on the disk.
    pub size: u64,
    /// When it was used last.
    pub used: SystemTime,
}

impl Store {
    /// Opens the user's cache, and makes its folder if there is none.
    pub fn open() -> Result<Self> {
        let absolute = |name: &str| {
            std::env::var_os(name)
                .map(PathBuf::from)
                .filter(|p| p.is_absolute())
        };
        let base = absolute("XDG_CACHE_HOME")
            .or_else(|| absolute("HOME").map(|home| home.join(".cache")))
            .ok_or_else(|| {
                Error::new(DOING, "neither XDG_CACHE_HOME nor HOME names a folder")
                    .advice("set XDG_CACHE_HOME to a folder of yours")
            })?;
        fs::create_dir_all(&base).map_err(|e| fail(&e, &base))?;
        Self::at(&base.join("atom"))
    }

    /// Opens the cache in this folder.
    pub fn at(folder: &Path) -> Result<Self> {
        let inner = [ENTRIES, MAKING, DIGESTS, TURNS].map(|name| folder.join(name));
        for folder in std::iter::once(folder).chain(inner.iter().map(PathBuf::as_path)) {
            match fs::DirBuilder::new().mode(0o700).create(folder) {
                Ok(()) => {}
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(fail(&e, folder)),
            }
            check_owner(folder)?;
        }
        Ok(Self {
            folder: folder.to_path_buf(),
        })
    }

    /// The entry of this name, if it is there.
    pub fn get(&self, name: &str) -> Option<Entry> {
        let folder = self.folder.join(ENTRIES).join(name);
        let lock = File::open(folder.join(LOCK)).ok()?;
        lock.try_lock_shared().ok()?;
        // It may have been renamed away between the two calls.
        let opened = lock.metadata().ok()?;
        let named = fs::metadata(folder.join(LOCK)).ok()?;
        if (opened.dev(), opened.ino()) != (named.dev(), named.ino()) {
            return None;
        }
        if let Ok(used) = File::options().write(true).open(folder.join(USED)) {
            // An entry whose time cannot be set looks older than it is, which does no harm.
            used.set_modified(SystemTime::now()).unwrap_or_default();
        }
        Some(Entry {
            folder,
            _lock: lock,
        })
    }

    /// The entry of this name: found, or made by `make` in a folder that it is given.
    pub fn get_or_make(
        &self,
        name: &str,
        label: &str,
        make: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<Entry> {
        if let Some(entry) = self.get(name) {
            return Ok(entry);
        }
        let _turn = Turn::wait(self.folder.join(TURNS).join(name));
        if let Some(entry) = self.get(name) {
            return Ok(entry);
        }
        let making = self.new_folder()?;
        let lock = making.join(LOCK);
        let write = |name: &str, bytes: &[u8]| {
            let file = making.join(name);
            fs::write(&file, bytes).map_err(|e| fail(&e, &file))
        };
        write(LOCK, b"")?;
        let lock = File::open(&lock).map_err(|e| fail(&e, &lock))?;
        lock.lock_shared().map_err(|e| fail(&e, &making))?;
        let made = make(&making)
            .and_then(|()| write(LABEL, label.as_bytes()))
            .and_then(|()| write(USED, b""));
        if let Err(error) = made {
            remove(&making);
            return Err(error);
        }
        let folder = self.folder.join(ENTRIES).join(name);
        match fs::rename(&making, &folder) {
            Ok(()) => Ok(Entry {
                folder,
                _lock: lock,
            }),
            // Another run was quicker.
            Err(e) => {
                remove(&making);
                self.get(name).ok_or_else(|| fail(&e, &folder))
            }
        }
    }

    /// The folder that the entry of this name has or will have.
    pub fn folder_of(&self, name: &str) -> PathBuf {
        self.folder.join(ENTRIES).join(name)
    }

    /// The folder of the cache.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The folder for digests of files.
    pub fn digests(&self) -> PathBuf {
        self.folder.join(DIGESTS)
    }

    /// Removes the entry of this name, if there is one; it stays if it is in use.
    pub fn remove(&self, name: &str) -> Result<()> {
        let folder = self.folder.join(ENTRIES).join(name);
        if folder.exists() && !self.take_out(&folder) {
            return Err(Error::new(DOING, "the program that it holds is running")
                .file(&folder)
                .advice("wait for its end, or leave out --fresh"));
        }
        Ok(())
    }

    /// All entries, the one used last first.
    pub fn list(&self) -> Result<Vec<Listed>> {
        let folder = self.folder.join(ENTRIES);
        let mut all = Vec::new();
        for entry in fs::read_dir(&folder).map_err(|e| fail(&e, &folder))? {
            let folder = entry.map_err(|e| fail(&e, &folder))?.path();
            let used = fs::metadata(folder.join(USED)).and_then(|m| m.modified());
            all.push(Listed {
                label: fs::read_to_string(folder.join(LABEL)).unwrap_or_default(),
                size: size_of(&folder),
                used: used.unwrap_or(SystemTime::UNIX_EPOCH),
                folder,
            });
        }
        all.sort_by_key(|e| std::cmp::Reverse(e.used));
        Ok(all)
    }

    /// Removes entries, the one used longest ago first, until all take at most `limit` bytes, and
    /// what runs that were killed left behind. Entries in use stay. Returns the bytes removed.
    pub fn trim(&self, limit: u64) -> Result<u64> {
        self.clean_up();
        records::clean_up(&self.folder);
        let digests = self.digests();
        if fs::read_dir(&digests).is_ok_and(|all| all.count() > MAX_DIGESTS) {
            remove(&digests);
            fs::DirBuilder::new()
                .mode(0o700)
                .create(&digests)
                .map_err(|e| fail(&e, &digests))?;
        }
        let all = self.list()?;
        let mut total: u64 = all.iter().map(|e| e.size).sum();
        let mut removed = 0;
        for entry in all.iter().rev() {
            if total <= limit {
                break;
            }
            if self.take_out(&entry.folder) {
                total -= entry.size;
                removed += entry.size;
            }
        }
        Ok(removed)
    }

    /// Bytes that all entries may take together.
    ///
    /// `ATOM_CACHE_SIZE` sets it, a number with `K`, `M` or `G` after it.
    pub fn limit() -> Result<u64> {
        const DEFAULT: u64 = 4 << 30;
        let Some(text) = std::env::var_os("ATOM_CACHE_SIZE") else {
            return Ok(DEFAULT);
        };
        let text = text.to_string_lossy();
        parse_size(&text).ok_or_else(|| {
            Error::new(DOING, format!("ATOM_CACHE_SIZE is no size: {text}"))
                .advice("write a number and K, M or G, as in ATOM_CACHE_SIZE=2G")
        })
    }

    /// Removes what is under `making/` and in nobody's use.
    fn clean_up(&self) {
        let Ok(entries) = fs::read_dir(self.folder.join(MAKING)) else {
            return;
        };
        for folder in entries.flatten().map(|e| e.path()) {
            if is_unused(&folder) && is_old(&folder) {
                remove(&folder);
            }
        }
    }

    /// Removes an entry; false if it is in use.
    fn take_out(&self, folder: &Path) -> bool {
        let Ok(lock) = File::open(folder.join(LOCK)) else {
            // Not an entry of ours: its making was never finished.
            remove(folder);
            return true;
        };
        // In this order: a process that is about to run from the entry holds the lock until it does.
        if lock.try_lock().is_err() || runs_from(folder) {
            return false;
        }
        let Ok(away) = self.new_folder() else {
            return false;
        };
        let renamed = fs::rename(folder, away.join("entry")).is_ok();
        remove(&away);
        renamed
    }

    /// A new folder under `making/`, for this process alone.
    fn new_folder(&self) -> Result<PathBuf> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = OsString::from(format!("{}-{number}", std::process::id()));
            let folder = self.folder.join(MAKING).join(name);
            match fs::DirBuilder::new().mode(0o700).create(&folder) {
                Ok(()) => return Ok(folder),
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(fail(&e, &folder)),
            }
        }
    }
}

/// The right to make an entry, until this value is dropped.
struct Turn {
    file: PathBuf,
    _lock: File,
}

impl Turn {
    /// Waits for the turn. `None` if it cannot be had: then two may make the same entry.
    fn wait(file: PathBuf) -> Option<Self> {
        let lock = File::create(&file).ok()?;
        lock.lock().ok()?;
        Some(Self { file, _lock: lock })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // Those that wait already look for the entry before they make it.
        fs::remove_file(&self.file).unwrap_or_default();
    }
}

/// True if a process of this user executes a program of the entry in this folder.
fn runs_from(folder: &Path) -> bool {
    let Ok(processes) = fs::read_dir("/proc") else {
        return false;
    };
    // The kernel's names are without symbolic links.
    let Ok(folder) = fs::canonicalize(folder) else {
        return false;
    };
    let mut programs = processes
        .flatten()
        .map(|process| process.path().join("exe"));
    programs.any(|link| fs::read_link(link).is_ok_and(|program| program.starts_with(&folder)))
}

/// A number of bytes, as in `100M`.
fn parse_size(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(['K', 'M', 'G']);
    let shift = match &text[digits.len()..] {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// Refuses a folder that is another user's or that others may write to.
fn check_owner(folder: &Path) -> Result<()> {
    let metadata = fs::symlink_metadata(folder).map_err(|e| fail(&e, folder))?;
    let refuse =
        |reason: &str, advice: String| Err(Error::new(DOING, reason).file(folder).advice(advice));
    // SAFETY: reads a number that the kernel keeps.
    let user = unsafe { libc::geteuid() };
    if !metadata.is_dir() {
        return refuse(
            "it is not a folder",
            "remove it, or set XDG_CACHE_HOME".into(),
        );
    }
    if metadata.uid() != user {
        return refuse(
            "it belongs to another user, whose programs it may hold",
            "set XDG_CACHE_HOME to a folder of yours".into(),
        );
    }
    if metadata.permissions().mode() & 0o022 != 0 {
        return refuse(
            "others may write to it, so they could change the programs in it",
            format!(
                "chmod 700 {} after a look at what is in it",
                folder.display()
            ),
        );
    }
    Ok(())
}

/// True if nobody holds a lock on the entry in this folder.
fn is_unused(folder: &Path) -> bool {
    match File::open(folder.join(LOCK)) {
        Ok(lock) => !matches!(lock.try_lock(), Err(TryLockError::WouldBlock)),
        Err(_) => true,
    }
}

/// True for a folder of another minute: between making a folder and locking it a moment passes.
fn is_old(folder: &Path) -> bool {
    const MINUTE: u64 = 60;
    let changed = fs::metadata(folder).and_then(|m| m.modified());
    changed
        .ok()
        .and_then(|t| t.elapsed().ok())
        .is_some_and(|age| age.as_secs() >= MINUTE)
}

/// Bytes that the files of a folder take.
fn size_of(folder: &Path) -> u64 {
    const BLOCK: u64 = 512;
    let Ok(entries) = fs::read_dir(folder) else {
        return 0;
    };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(m) if m.is_dir() => size_of(&entry.path()),
            Ok(m) => m.blocks() * BLOCK,
            Err(_) => 0,
        })
        .sum()
}

/// Removes a folder as far as possible; what is left is removed by a later run.
fn remove(folder: &Path) {
    fs::remove_dir_all(folder).unwrap_or_default();
}

fn fail(error: &std::io::Error, file: &Path) -> Error {
    let advice = match error.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
            "the disk is full: `atom kept --clear` removes what is kept"
        }
        std::io::ErrorKind::ReadOnlyFilesystem | std::io::ErrorKind::PermissionDenied => {
            "set XDG_CACHE_HOME to a folder that can be written"
        }
        _ => "XDG_CACHE_HOME may name another folder",
    };
    Error::new(DOING, error).file(file).advice(advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fresh(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("atom-store-{}-{name}", std::process::id()));
        remove(&folder);
        folder
    }

    fn fill(bytes: usize) -> impl FnOnce(&Path) -> Result<()> {
        move |folder| {
            fs::write(folder.join("program"), vec![1; bytes]).map_err(|e| fail(&e, folder))
        }
    }

    #[test]
    fn an_entry_is_made_once() {
        let folder = fresh("once");
        let store = Store::at(&folder).unwrap();
        assert!(store.get("a").is_none());
        let made = store.get_or_make("a", "program a", fill(10)).unwrap();
        assert_eq!(fs::read(made.folder.join("program")).unwrap().len(), 10);
        let again = store.get_or_make("a", "program a", |_| unreachable!());
        assert_eq!(again.unwrap().folder, made.folder);
        assert_eq!(store.list().unwrap()[0].label, "program a");
        assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, 0o700);
        remove(&folder);
    }

    #[test]
    fn sizes_are_read() {
        assert_eq!(parse_size("0"), Some(0));
        assert_eq!(parse_size("100M"), Some(100 << 20));
        assert_eq!(parse_size("2G"), Some(2 << 30));
        for wrong in ["", "G", "1GG", "-1", "1 G", "99999999999G"] {
            assert_eq!(parse_size(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_failure_leaves_nothing() {
        let folder = fresh("failure");
        let store = Store::at(&folder).unwrap();
        let failed = store.get_or_make("a", "", |_| Err(Error::new("testing", "it fails")));
        assert!(failed.unwrap_err().to_string().contains("it fails"));
        assert!(store.get("a").is_none());
        assert_eq!(fs::read_dir(folder.join(MAKING)).unwrap().count(), 0);
        remove(&folder);
    }

    #[test]
    fn the_oldest_go_first_and_what_is_used_stays() {
        let folder = fresh("trim");
        let store = Store::at(&folder).unwrap();
        for (age, name) in ["new", "middle", "old"].iter().enumerate() {
            let entry = store.get_or_make(name, name, fill(100_000)).unwrap();
            let used = File::options().write(true).open(entry.folder.join(USED));
            let time = SystemTime::now() - std::time::Duration::from_secs(1000 * age as u64);
            used.unwrap().set_modified(time).unwrap();
        }
        let in_use = File::open(folder.join(ENTRIES).join("old").join(LOCK)).unwrap();
        in_use.lock_shared().unwrap();
        assert!(store.trim(250_000).unwrap() >= 100_000);
        let left: Vec<String> = store.list().unwrap().into_iter().map(|e| e.label).collect();
        assert_eq!(left, ["new", "old"]);
        drop(in_use);
        store.trim(0).unwrap();
        assert!(store.list().unwrap().is_empty());
        remove(&folder);
    }

    #[test]
    fn what_killed_runs_left_is_removed() {
        let folder = fresh("killed");
        let store = Store::at(&folder).unwrap();
        let left = folder.join(MAKING).join("1-0");
        fs::create_dir(&left).unwrap();
        fs::write(left.join(LOCK), b"").unwrap();
        store.trim(0).unwrap();
        assert!(left.exists(), "it may be another run's that begins");
        let hour_ago = SystemTime::now() - std::time::Duration::from_secs(3600);
        File::open(&left).unwrap().set_modified(hour_ago).unwrap();
        let lock = File::open(left.join(LOCK)).unwrap();
        lock.lock_shared().unwrap();
        store.trim(0).unwrap();
        assert!(left.exists(), "a run still makes it");
        drop(lock);
        store.trim(0).unwrap();
        assert!(!left.exists());
        remove(&folder);
    }

    #[test]
    fn a_folder_that_others_may_write_to_is_refused() {
        let folder = fresh("open");
        Store::at(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o770)).unwrap();
        let error = Store::at(&folder).unwrap_err().to_string();
        assert!(error.contains("others may write"), "{error}");
        remove(&folder);
        fs::write(&folder, b"").unwrap();
        assert!(Store::at(&folder).is_err());
        fs::remove_file(&folder).unwrap();
    }

    #[test]
    fn an_entry_from_which_a_process_runs_stays() {
        let folder = fresh("runs");
        let store = Store::at(&folder).unwrap();
        let made = store.get_or_make("a", "", |making| {
            let program = making.join("sleep");
            fs::copy("/bin/sleep", &program).map_err(|e| fail(&e, &program))?;
            Ok(())
        });
        let program = made.unwrap().folder.join("sleep");
        let mut process = std::process::Command::new(program)
            .arg("60")
            .spawn()
            .unwrap();
        store.trim(0).unwrap();
        assert_eq!(store.list().unwrap().len(), 1);
        process.kill().unwrap();
        process.wait().unwrap();
        store.trim(0).unwrap();
        assert_eq!(store.list().unwrap().len(), 0);
        remove(&folder);
    }

    #[test]
    fn two_runs_that_make_the_same_entry_get_one() {
        let folder = fresh("race");
        let made = AtomicU32::new(0);
        let make = |_| {
            let store = Store::at(&folder).unwrap();
            let slow = |making: &Path| {
                made.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(std::time::Duration::from_millis(50));
                fill(5)(making)
            };
            let entry = store.get_or_make("a", "", slow).unwrap();
            assert_eq!(fs::read(entry.folder.join("program")).unwrap().len(), 5);
        };
        std::thread::scope(|scope| {
            for i in 0..4 {
                scope.spawn(move || make(i));
            }
        });
        assert_eq!(made.load(Ordering::Relaxed), 1);
        for left in [MAKING, TURNS] {
            assert_eq!(
                fs::read_dir(folder.join(left)).unwrap().count(),
                0,
                "{left}"
            );
        }
        remove(&folder);
    }
}

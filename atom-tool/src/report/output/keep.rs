//! Older reports are kept.
//!
//! A file of an earlier run is not overwritten: it gets a number after its name, and numbered ones get
//! the next number, up to [`KEPT`]; the oldest goes. Several processes may do so at once. So
//!
//! - a file is created only where none is, so each process has a file of its own, whatever name the others
//!   give it meanwhile;
//! - a file gets another name only if none has it, else the numbers are looked at again.
//!
//! What is not a regular file (a device, a pipe, a symbolic link) is written to, and so is an empty file,
//! which somebody made to be filled. A file that this process has written is replaced: the end of a
//! process is reported again if an `exec` fails. So is a report of a process that continues, unless somebody has asked for the next one.

use std::ffi::{CString, c_char, c_int, c_long, c_uint};
use std::fs::{File, Metadata, TryLockError, symlink_metadata};
use std::io::{Error, ErrorKind, Result};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Number of older files that are kept.
const KEPT: u32 = 9;

/// The flag of `open` with which it waits for nobody.
const O_NONBLOCK: c_int = 0o4000;

/// How often a name is tried again that other processes take meanwhile.
const ROUNDS: usize = 100;

/// Creates a file for this process alone. An older file of this name is kept under another one.
pub(super) fn create(path: &Path) -> Result<File> {
    for _ in 0..ROUNDS {
        match File::options().write(true).create_new(true).open(path) {
            Ok(file) if take(&file) => return Ok(file),
            // Another process has taken the file while it was empty, and may have filled it.
            Ok(_) => continue,
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e),
        }
        let Ok(found) = symlink_metadata(path) else {
            // Gone meanwhile.
            continue;
        };
        let replaces = analysis_rt::is_snapshot() && !analysis_rt::keeps_snapshots();
        if !found.is_file() || is_own(&found) || replaces {
            break;
        }
        if found.len() == 0 {
            let file = File::options().write(true).open(path)?;
            if take(&file) {
                return Ok(file);
            }
        }
        if number(path).is_err() {
            break;
        }
    }
    let file = File::create(path)?;
    if let Ok(found) = file.metadata() {
        remember(&found);
    }
    Ok(file)
}

/// Gives an older file of this name another one.
pub(super) fn make_room(path: &Path) {
    let is_older = |found: &Metadata| found.is_file() && found.len() != 0 && !is_own(found);
    if symlink_metadata(path).is_ok_and(|found| is_older(&found)) {
        // If it cannot be, the file is replaced.
        number(path).unwrap_or_default();
    }
}

/// Opens a file that this process has created, to write after its end, whatever number another process
/// has given it meanwhile. It is an error if the file is not there any more and another one has its name.
pub(super) fn append(path: &Path) -> Result<File> {
    let open = |path: &Path| {
        let mut options = File::options();
        options.append(true);
        // A named pipe without a reader is an error then; otherwise the process would wait for a reader.
        let _is_read = options.clone().custom_flags(O_NONBLOCK).open(path)?;
        options.open(path)
    };
    let is_mine = |path: &PathBuf| symlink_metadata(path).is_ok_and(|found| is_own(&found));
    if symlink_metadata(path).is_ok_and(|found| !found.is_file() || is_own(&found)) {
        return open(path);
    }
    let other = (1..=KEPT).map(|n| numbered(path, n)).find(is_mine);
    match other {
        Some(other) => open(&other),
        None if NEXT.load(Ordering::Relaxed) <= FILES => Err(ErrorKind::NotFound.into()),
        // Not all files are remembered.
        None => open(path),
    }
}

/// The name of an older file: the first is the youngest.
fn numbered(path: &Path, number: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    name.into()
}

/// Gives a file, and those that have numbers already, the next number.
fn number(path: &Path) -> Result<()> {
    'again: for _ in 0..ROUNDS {
        let is_free = |n: &u32| symlink_metadata(numbered(path, *n)).is_err();
        let free = (1..=KEPT).find(is_free);
        let last = free.unwrap_or(KEPT);
        for n in (1..=last).rev() {
            let from = match n {
                1 => path.to_path_buf(),
                _ => numbered(path, n - 1),
            };
            let replaces = free.is_none() && n == last;
            match rename(&from, &numbered(path, n), replaces) {
                Ok(()) => {}
                // Another process was quicker.
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                Err(e) if e.kind() == ErrorKind::AlreadyExists => continue 'again,
                Err(e) => return Err(e),
            }
        }
        return Ok(());
    }
    Ok(())
}

/// Gives a file another name, in one step. An existing file is replaced only if `replaces` says so, where
/// the file system can tell.
fn rename(from: &Path, to: &Path, replaces: bool) -> Result<()> {
    unsafe extern "C" {
        fn syscall(number: c_long, ...) -> c_long;
    }
    const RENAMEAT2: c_long = 316;
    const WORKING_FOLDER: c_int = -100;
    const NO_REPLACE: c_uint = 1;
    if replaces {
        return std::fs::rename(from, to);
    }
    let name = |path: &Path| CString::new(path.as_os_str().as_bytes()).map_err(Error::from);
    let (old, new) = (name(from)?, name(to)?);
    let [old, new]: [*const c_char; 2] = [old.as_ptr(), new.as_ptr()];
    // SAFETY: the kernel reads two strings, which live across the call.
    let done = unsafe {
        syscall(
            RENAMEAT2,
            WORKING_FOLDER,
            old,
            WORKING_FOLDER,
            new,
            NO_REPLACE,
        )
    };
    if done == 0 {
        return Ok(());
    }
    let error = Error::last_os_error();
    match error.kind() {
        // Old kernels, and file systems that cannot tell.
        ErrorKind::InvalidInput | ErrorKind::Unsupported => std::fs::rename(from, to),
        _ => Err(error),
    }
}

/// Number of files that are remembered.
const FILES: usize = 1024;

/// Process number, device and inode of the files that this process has created. A forked child has
/// another number.
static OWN: [[AtomicU64; 3]; FILES] = [const { [const { AtomicU64::new(0) }; 3] }; FILES];
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// Takes an empty file for this process. Returns false if another process has the file or has filled it. The
/// lock ends with the file.
fn take(file: &File) -> bool {
    // Where the file system has no locks, two processes seldom meet.
    if let Err(TryLockError::WouldBlock) = file.try_lock() {
        return false;
    }
    if let Ok(found) = file.metadata() {
        // The length is read under the lock: the other process may have been quick.
        if found.len() != 0 {
            return false;
        }
        remember(&found);
    }
    true
}

/// Notes that this process has created a file.
fn remember(found: &Metadata) {
    if is_own(found) {
        return;
    }
    let at = NEXT.fetch_add(1, Ordering::Relaxed) % FILES;
    for (word, value) in OWN[at].iter().zip(identity(found)) {
        word.store(value, Ordering::Relaxed);
    }
}

fn identity(found: &Metadata) -> [u64; 3] {
    [u64::from(analysis_rt::pid()), found.dev(), found.ino()]
}

fn is_own(found: &Metadata) -> bool {
    let wanted = identity(found);
    let is = |own: &[AtomicU64; 3]| {
        let words = own.iter().zip(wanted);
        words
            .into_iter()
            .all(|(a, b)| a.load(Ordering::Relaxed) == b)
    };
    OWN.iter().any(is)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("atom-keep-{}-{name}", std::process::id()));
        fs::remove_dir_all(&folder).unwrap_or_default();
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn write(path: &Path, text: &str) {
        create(path).unwrap().write_all(text.as_bytes()).unwrap();
        // As if another process had written it.
        for own in &OWN {
            own[0].store(0, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_file_that_another_process_filled_is_not_taken() {
        let folder = folder("filled");
        let path = folder.join("a.out");
        // This process has created the file, and another one is quicker from here on.
        let created = File::create_new(&path).unwrap();
        let other = File::options().write(true).open(&path).unwrap();
        other.try_lock().unwrap();
        assert!(!take(&created));
        (&other).write_all(b"the other's").unwrap();
        drop(other);
        assert!(!take(&created));
        assert!(!is_own(&created.metadata().unwrap()));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn older_files_are_kept_up_to_a_number() {
        // The only test that forgets what this process has written.
        let folder = folder("older");
        let path = folder.join("a.out");
        for i in 0..13 {
            write(&path, &i.to_string());
        }
        let read = |path: PathBuf| fs::read_to_string(path).unwrap();
        assert_eq!(read(path.clone()), "12");
        for n in 1..=KEPT {
            assert_eq!(read(numbered(&path, n)), (12 - n).to_string());
        }
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 10);
        // A gap is filled, and what is after it stays.
        fs::remove_file(numbered(&path, 2)).unwrap();
        write(&path, "13");
        assert_eq!(read(numbered(&path, 2)), "11");
        assert_eq!(read(numbered(&path, 3)), "9");

        // An empty file and a link are written to.
        let empty = folder.join("empty");
        fs::write(&empty, "").unwrap();
        let link = folder.join("link");
        fs::write(folder.join("target"), "old").unwrap();
        std::os::unix::fs::symlink("target", &link).unwrap();
        write(&empty, "full");
        write(&link, "new");
        assert_eq!(read(empty), "full");
        assert_eq!(read(folder.join("target")), "new");
        assert!(create(Path::new("/dev/null")).is_ok());

        // What this process wrote is replaced.
        let own = folder.join("own");
        for text in ["first", "second"] {
            create(&own).unwrap().write_all(text.as_bytes()).unwrap();
        }
        assert_eq!(read(own.clone()), "second");
        assert!(!numbered(&own, 1).exists());
        // And found by its new number.
        fs::rename(&own, numbered(&own, 3)).unwrap();
        fs::write(&own, "another's").unwrap();
        append(&own).unwrap().write_all(b" more").unwrap();
        assert_eq!(read(numbered(&own, 3)), "second more");
        assert_eq!(read(own.clone()), "another's");
        // Where it is gone, the other's file stays as it is.
        fs::remove_file(numbered(&own, 3)).unwrap();
        assert!(append(&own).is_err());
        fs::remove_dir_all(&folder).unwrap();
    }
}

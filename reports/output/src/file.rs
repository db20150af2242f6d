//! Writing files whole or not at all.
//!
//! Contents go to a temporary file in the same folder, which is then renamed to the
//! final name in one step, so that other processes see either the old file or the new one.

use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use atom_core::emit::Sink;
use atom_core::{Error, Result};

use crate::temporary;

const DOING: &str = "writing";

/// A file whose contents are written and which does not have its final name yet.
pub struct PendingFile {
    target: PathBuf,
    temporary: Option<PathBuf>,
}

impl PendingFile {
    /// Writes a temporary file beside `target` by calling `contents`; the final file gets the
    /// permissions `mode`. A `target` that exists and is no regular file, such as `/dev/null`, is
    /// written to directly.
    pub fn write(
        target: &Path,
        contents: impl FnOnce(&mut dyn Sink) -> std::io::Result<()>,
        mode: u32,
    ) -> Result<Self> {
        // An error of `contents` itself travels inside of an `io::Error`.
        let fail = |e: std::io::Error| match e.downcast::<Error>() {
            Ok(error) => error,
            Err(e) => Error::new(DOING, reason(&e)).file(target),
        };
        if std::fs::metadata(target).is_ok_and(|m| !m.is_file()) {
            let file = OpenOptions::new().write(true).open(target).map_err(fail)?;
            let has_holes = false;
            contents(&mut Fresh { file, has_holes }).map_err(fail)?;
            return Ok(Self {
                target: target.to_path_buf(),
                temporary: None,
            });
        }
        // Of a symbolic link the target is replaced, not the link.
        let target = target
            .canonicalize()
            .unwrap_or_else(|_| target.to_path_buf());
        let (file, temporary) = create(folder_of(&target)).map_err(fail)?;
        let pending = Self {
            target: target.clone(),
            temporary: Some(temporary),
        };
        let has_holes = true;
        let mut fresh = Fresh { file, has_holes };
        contents(&mut fresh).map_err(fail)?;
        let Fresh { mut file, .. } = fresh;
        // Zeros skipped at the end do not count for the file's length until it is set.
        file.stream_position()
            .and_then(|end| file.set_len(end))
            .map_err(fail)?;
        file.set_permissions(Permissions::from_mode(mode))
            .map_err(fail)?;
        Ok(pending)
    }

    /// Gives the file its final name.
    pub fn commit(mut self) -> Result<()> {
        if let Some(temporary) = &self.temporary {
            std::fs::rename(temporary, &self.target)
                .map_err(|e| Error::new(DOING, reason(&e)).file(&self.target))?;
            temporary::forget(temporary);
            self.temporary = None;
        }
        Ok(())
    }
}

/// A sink as a writer of bytes.
pub struct AsWrite<'a>(pub &'a mut dyn Sink);

impl Write for AsWrite<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

/// A file that is written from its start to its end.
struct Fresh {
    file: File,
    /// True if the file is new and regular, so that skipped bytes read as zeros. Zeros are written
    /// to a pipe or a device instead.
    has_holes: bool,
}

impl Write for Fresh {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}

impl Sink for Fresh {
    fn skip(&mut self, zeros: u64) -> std::io::Result<()> {
        if self.has_holes {
            return self.file.seek_relative(zeros as i64);
        }
        std::io::copy(&mut std::io::repeat(0).take(zeros), &mut self.file).map(drop)
    }
}

impl Drop for PendingFile {
    fn drop(&mut self) {
        if let Some(temporary) = self.temporary.take() {
            let _ = std::fs::remove_file(&temporary);
            temporary::forget(&temporary);
        }
    }
}

/// Creates a file in `folder` which only this user may read until it is complete; returns its path too.
fn create(folder: &Path) -> std::io::Result<(File, PathBuf)> {
    for attempt in 0..100 {
        let path = folder.join(format!(".atom-{}-{attempt}.tmp", std::process::id()));
        if path.symlink_metadata().is_ok() {
            continue;
        }
        temporary::add(&path);
        match OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
        {
            Ok(file) => return Ok((file, path)),
            Err(e) => {
                temporary::forget(&path);
                if e.kind() != ErrorKind::AlreadyExists {
                    return Err(e);
                }
            }
        }
    }
    Err(std::io::Error::new(
        ErrorKind::AlreadyExists,
        "too many temporary files there already",
    ))
}

/// Checks before any work that `target` can be written. `inputs` are the files that must not be
/// overwritten, each with a name for messages.
pub fn check_target(target: &Path, inputs: &[(&Path, &str)]) -> Result<()> {
    let fail = |reason: &str| Err(Error::new(DOING, reason).file(target));
    if let Ok(metadata) = std::fs::metadata(target) {
        if metadata.is_dir() {
            return fail("it is a directory")
                .map_err(|e: Error| e.advice("name a file in it, as in `-o DIRECTORY/NAME`"));
        }
        for (path, what) in inputs {
            if std::fs::metadata(path).is_ok_and(|m| same_file(&m, &metadata)) {
                let reason = format!("it is the same file as {what}, {}", path.display());
                return fail(&reason).map_err(|e| e.advice("choose another name for the output"));
            }
        }
        return Ok(());
    }
    let folder = folder_of(target);
    match std::fs::metadata(folder) {
        Ok(m) if m.is_dir() => Ok(()),
        Ok(_) => fail(&format!("{} is not a directory", folder.display())),
        Err(e) if e.kind() == ErrorKind::NotFound => {
            fail(&format!("there is no directory {}", folder.display()))
        }
        Err(e) => fail(&reason(&e)),
    }
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

fn same_file(a: &Metadata, b: &Metadata) -> bool {
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

fn reason(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::PermissionDenied => "permission denied".into(),
        ErrorKind::NotFound => "there is no such directory".into(),
        ErrorKind::StorageFull => "no space is left on the device".into(),
        ErrorKind::ReadOnlyFilesystem => "the file system is read-only".into(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn appears_only_when_committed() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("out");
        let pending = PendingFile::write(&target, |f| f.write_all(b"new"), 0o755).unwrap();
        assert!(!target.exists());
        drop(pending);
        assert!(entries(folder.path()).is_empty());
        PendingFile::write(&target, |f| f.write_all(b"new"), 0o750)
            .unwrap()
            .commit()
            .unwrap();
        assert_eq!(std::fs::read(&target).unwrap(), b"new");
        assert_eq!(
            std::fs::metadata(&target).unwrap().permissions().mode() & 0o7777,
            0o750
        );
        assert_eq!(entries(folder.path()), ["out"]);
    }

    #[test]
    fn links_and_devices_stay() {
        let folder = tempfile::tempdir().unwrap();
        let [target, link] = ["target", "link"].map(|n| folder.path().join(n));
        std::fs::write(&target, "old").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        PendingFile::write(&link, |f| f.write_all(b"new"), 0o644)
            .unwrap()
            .commit()
            .unwrap();
        assert!(link.is_symlink());
        assert_eq!(std::fs::read(&target).unwrap(), b"new");
        PendingFile::write(Path::new("/dev/null"), |f| f.write_all(b"new"), 0o755)
            .unwrap()
            .commit()
            .unwrap();
        assert!(!std::fs::metadata("/dev/null").unwrap().is_file());
        let same = check_target(&link, &[(&target, "the program")]).unwrap_err();
        assert!(same.reason.contains("same file as the program"), "{same}");
    }
}

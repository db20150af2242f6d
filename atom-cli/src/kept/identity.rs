//! The name under which a result is kept: a digest of all that the result depends on.
//!
//! Files count by their contents. A file's digest is remembered by what the file system says of
//! the file (device, inode, size, times of change), so that a large program is read once, not at
//! each run. The time of the inode's change cannot be set by a program, so a file that differs
//! is noticed.

use std::fs::{self, Metadata};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use atom_core::{Error, Result};
use sha2::{Digest, Sha256};

const DOING: &str = "looking for an earlier result";

/// A digest under construction.
pub struct Identity {
    hasher: Sha256,
    /// Folder of the remembered digests, if there is one.
    digests: Option<PathBuf>,
}

impl Identity {
    /// Nothing yet; digests of files are remembered in a folder, if there is one.
    pub fn new(digests: impl Into<Option<PathBuf>>) -> Self {
        Self {
            hasher: Sha256::new(),
            digests: digests.into(),
        }
    }

    /// Adds this command itself, as another build may write another result.
    pub fn add_command(&mut self) -> Result<()> {
        self.add("atom", env!("CARGO_PKG_VERSION").as_bytes());
        self.add_file(&Self::command()?)
    }

    /// The digest of words alone, in hexadecimal digits.
    pub fn of_words(words: &[String]) -> String {
        let mut identity = Self::new(PathBuf::new());
        identity.add_words("words", words);
        identity.name()
    }

    /// The command's own file.
    pub fn command() -> Result<PathBuf> {
        std::env::current_exe()
            .map_err(|e| Error::new(DOING, format!("the command's own file: {e}")))
    }

    /// Adds a file: its path and its contents.
    pub fn add_file(&mut self, file: &Path) -> Result<()> {
        let digest = self
            .digest(file)
            .map_err(|e| Error::new(DOING, e).file(file))?;
        self.add("path", file.as_os_str().as_bytes());
        self.add("contents", &digest);
        Ok(())
    }

    /// Adds files that may have names and lines of objects, as far as they are there.
    pub fn add_separate(&mut self, files: &[PathBuf]) {
        for file in files {
            if let Ok(m) = file.metadata() {
                self.add_words("separate", &[file.display().to_string(), stamp(&m)]);
            }
        }
    }

    /// Adds words, under a title.
    pub fn add_words(&mut self, title: &str, words: &[String]) {
        self.add(title, &(words.len() as u64).to_le_bytes());
        for word in words {
            self.add("word", word.as_bytes());
        }
    }

    /// The digest in hexadecimal digits.
    pub fn name(self) -> String {
        hexadecimal(&self.hasher.finalize())
    }

    /// Lengths go in too, so that no two sequences of parts look alike.
    fn add(&mut self, title: &str, bytes: &[u8]) {
        for part in [title.as_bytes(), bytes] {
            self.hasher.update((part.len() as u64).to_le_bytes());
            self.hasher.update(part);
        }
    }

    /// The digest of a file's contents in hexadecimal digits, remembered or made.
    pub fn contents(&self, file: &Path) -> std::io::Result<String> {
        self.digest(file).map(|digest| hexadecimal(&digest))
    }

    /// The digest of a file's contents, remembered or made.
    fn digest(&self, path: &Path) -> std::io::Result<Vec<u8>> {
        let mut file = fs::File::open(path)?;
        let m = file.metadata()?;
        let known = self.digests.as_ref().map(|folder| folder.join(stamp(&m)));
        let digest = known.as_ref().and_then(|known| fs::read(known).ok());
        if let Some(digest) = digest.filter(|d| d.len() == Sha256::output_size()) {
            return Ok(digest);
        }
        let mut hasher = Sha256::new();
        let mut buffer = vec![0; 1 << 16];
        loop {
            match file.read(&mut buffer)? {
                0 => break,
                n => hasher.update(&buffer[..n]),
            }
        }
        let digest = hasher.finalize().to_vec();
        // Without it the file is read again next time.
        if let Some(known) = known {
            let temporary = known.with_file_name(format!("new-{}", std::process::id()));
            if fs::write(&temporary, &digest).is_ok() {
                fs::rename(&temporary, &known).unwrap_or_default();
            }
        }
        Ok(digest)
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// What the file system says of a file, as one word: another word if the file may have other contents.
pub fn stamp(m: &Metadata) -> String {
    format!(
        "{:x}-{:x}-{:x}-{:x}.{:x}-{:x}.{:x}",
        m.dev(),
        m.ino(),
        m.size(),
        m.mtime(),
        m.mtime_nsec(),
        m.ctime(),
        m.ctime_nsec()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name_of(folder: &Path, file: &Path, words: &[&str]) -> String {
        let mut identity = Identity::new(folder.to_path_buf());
        identity.add_file(file).unwrap();
        let words: Vec<String> = words.iter().map(|w| w.to_string()).collect();
        identity.add_words("options", &words);
        identity.name()
    }

    #[test]
    fn all_that_is_added_counts() {
        let folder = std::env::temp_dir().join(format!("atom-identity-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("file");
        fs::write(&file, b"one").unwrap();
        let name = name_of(&folder, &file, &["a", "b"]);
        assert_eq!(name.len(), 64);
        assert_eq!(name, name_of(&folder, &file, &["a", "b"]));
        assert_ne!(name, name_of(&folder, &file, &["ab"]));
        assert_ne!(name, name_of(&folder, &file, &["a", "b", ""]));
        // As long as before, in the same inode.
        fs::write(&file, b"two").unwrap();
        assert_ne!(name, name_of(&folder, &file, &["a", "b"]));
        assert!(
            Identity::new(folder.clone())
                .add_file(&folder.join("none"))
                .is_err()
        );
        fs::remove_dir_all(&folder).unwrap();
    }
}

//! The libraries of a folder, for `--with-folder`: plugins and extension modules that a program loads while it
//! runs.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};

use atom_core::error::Reason;
use atom_core::{Error, Result};

use crate::choices::Choices;

/// Adds the libraries of `--with-folder` to the libraries of `--with`.
pub fn add_folders(choices: &mut Choices) -> Result<()> {
    for folder in std::mem::take(&mut choices.with_folder) {
        let fail = |reason: Reason| Error::new("looking for libraries", reason).file(&folder);
        let mut found = BTreeSet::new();
        gather(&folder, &mut found).map_err(|e| fail(e.into()))?;
        if found.is_empty() {
            return Err(fail("there is no library in the folder".into())
                .advice("a library is an ELF file whose name ends with .so or contains .so."));
        }
        choices.with.extend(found);
    }
    Ok(())
}

/// Adds the libraries in a folder and in all folders below it. Links to folders are not followed.
fn gather(folder: &Path, found: &mut BTreeSet<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            gather(&path, found)?;
        } else if is_library(&path) {
            found.insert(std::fs::canonicalize(&path)?);
        }
    }
    Ok(())
}

fn is_library(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_elf = || {
        let mut magic = [0; 4];
        let file = std::fs::File::open(path);
        file.and_then(|mut f| f.read_exact(&mut magic)).is_ok() && magic == *b"\x7fELF"
    };
    (name.ends_with(".so") || name.contains(".so.")) && path.is_file() && is_elf()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_of_a_folder_and_the_folders_below() {
        let folder = std::env::temp_dir().join(format!("atom-with-{}", std::process::id()));
        let below = folder.join("a/b");
        std::fs::create_dir_all(&below).unwrap();
        let elf = b"\x7fELF and more";
        std::fs::write(folder.join("one.so"), elf).unwrap();
        std::fs::write(below.join("libtwo.so.2"), elf).unwrap();
        std::fs::write(below.join("three.so"), "GROUP ( libc.so )").unwrap();
        std::fs::write(below.join("four"), elf).unwrap();
        std::os::unix::fs::symlink("one.so", folder.join("link.so")).unwrap();
        let mut choices = Choices {
            with_folder: vec![folder.clone()],
            ..Choices::default()
        };
        add_folders(&mut choices).unwrap();
        let names: Vec<_> = (choices.with.iter())
            .map(|p| p.file_name().unwrap().to_str().unwrap())
            .collect();
        assert_eq!(names, ["libtwo.so.2", "one.so"]);
        std::fs::remove_file(below.join("libtwo.so.2")).unwrap();
        choices.with_folder = vec![below];
        assert!(add_folders(&mut choices).is_err());
        std::fs::remove_dir_all(folder).unwrap();
    }
}
